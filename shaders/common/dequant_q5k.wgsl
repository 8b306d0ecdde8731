// Q5_K: 1 chunk of 64 nibbles per group, then 8 bytes of high bits per row: u32 per 32 columns, the bit of weight
// 8i + 2b + e at 8b + 2i + e.
#import common/high_bits
#import common/kquant_scales
fn five_bits(nibbles: u32, high: u32, i: u32) -> EvenOdd {
    return EvenOdd((nibbles & 0x0f0f0f0fu) | (((high >> (2u * i)) << 4u) & 0x10101010u),
        ((nibbles >> 4u) & 0x0f0f0f0fu) | (((high >> (2u * i + 1u)) << 4u) & 0x10101010u));
}
struct Block { q: vec4<u32>, high: u32, dm: vec2<f32> }
#ifdef SUBGROUP8
struct Row { q: vec4<u64>, high: u64, dm: u32, sm: u32 }
fn load_row(step: u32, slot: u32, s: Scales, r: u32) -> Row {
    return Row(quants[step * 40u + slot], quants[step * 40u + 32u + slot / 4u][r], s.dm[r], s.sm[r]);
}
fn block(row: Row, half: u32) -> Block {
    var q = row.q.xy;
    var high = u32(row.high);
    if half == 1u {
        q = row.q.zw;
        high = u32(row.high >> 32u);
    }
    return Block(words4(q), high, scale_min(row.dm, row.sm, half));
}
fn dot64(step: u32, lane: u32, x: W8) -> vec4<f32> {
    let y8 = byte_x(x);
    let sum = sum8(x);
#for l in 0..8
    let xe#{l} = subgroupBroadcast(y8.a, #{l}u);
    let xo#{l} = subgroupBroadcast(y8.b, #{l}u);
    let s#{l} = subgroupBroadcast(sum, #{l}u);
#endfor
    let all0 = (s0 + s1) + (s2 + s3);
    let all1 = (s4 + s5) + (s6 + s7);
    let s = load_scales(step, lane);
    let high = quants[step * 40u + 32u + lane];
    var y = vec4<f32>();
#for r in 0..4
    let q#{r} = quants[step * 40u + lane * 4u + #{r}u];
    let c#{r} = scale_min(s.dm[#{r}], s.sm[#{r}], 0u);
    let e#{r} = scale_min(s.dm[#{r}], s.sm[#{r}], 1u);
    let h#{r}_0 = u32(high[#{r}]);
    let h#{r}_1 = u32(high[#{r}] >> 32u);
#for h in 0..2
#for i in 0..2
    let p#{r}_#{h}_#{i} = byte_dot(five_bits(u32(q#{r}[#{h*2+i}]), h#{r}_#{h}, #{i*2}u), xe#{h*4+i*2}, xo#{h*4+i*2})
        + byte_dot(five_bits(u32(q#{r}[#{h*2+i}] >> 32u), h#{r}_#{h}, #{i*2+1}u), xe#{h*4+i*2+1}, xo#{h*4+i*2+1});
#endfor
#endfor
    y[#{r}] = (c#{r}.x * (p#{r}_0_0 + p#{r}_0_1) - c#{r}.y * all0) + (e#{r}.x * (p#{r}_1_0 + p#{r}_1_1) - e#{r}.y * all1);
#endfor
    return y;
}
#else
fn load_block(row: u32, k32: u32) -> Block {
    let step = (row / 32u) * n_groups() + k32 / 2u;
    let slot = row % 32u;
    let high = quants[step * 80u + 64u + slot / 2u];
    let h = select(high.xy, high.zw, slot % 2u == 1u);
    return Block(quants[step * 80u + slot * 2u + k32 % 2u], select(h.x, h.y, k32 % 2u == 1u), load_scale_min(step, slot, k32 % 2u));
}
#endif
fn w8(b: Block, i: u32) -> W8 {
    let n = in_order(five_bits(b.q[i], b.high, i));
    return W8(n.a * b.dm.x - b.dm.y, n.b * b.dm.x - b.dm.y);
}
