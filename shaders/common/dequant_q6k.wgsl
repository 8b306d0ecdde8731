// Q6_K: w = d * scale * (q - 32). 1 chunk of 64 nibbles per group, then 16 bytes of high bits per row: u32 per 16
// columns, the bits of weight 8i + 2b + e at 8b + 4i + 2e. Scales: per 32 rows and 256 columns, 32 words d (f32), then
// per group 32 words of signed bytes, one scale per 16 columns.
#import common/high_bits
fn six_bits(nibbles: u32, high: u32, i: u32) -> EvenOdd {
    return EvenOdd((nibbles & 0x0f0f0f0fu) | (((high >> (4u * i)) << 4u) & 0x30303030u),
        ((nibbles >> 4u) & 0x0f0f0f0fu) | (((high >> (4u * i + 2u)) << 4u) & 0x30303030u));
}
// The scale of sixteen g (0 .. 3) of a group.
fn scale16(d: u32, sc: u32, g: u32) -> f32 {
    return bitcast<f32>(d) * f32(bitcast<i32>(sc << (24u - 8u * g)) >> 24u);
}
struct Block { q: vec4<u32>, high: vec2<u32>, d: vec2<f32> }
#ifdef SUBGROUP8
struct Scales { d: vec4<u32>, sc: vec4<u32> }
struct Row { q: vec4<u64>, high: vec2<u64>, d: u32, sc: u32 }
fn load_scales(step: u32, lane: u32) -> Scales {
    let at = (step / 4u) * 40u + lane;
    return Scales(scales4(at), scales4(at + 8u + 8u * (step % 4u)));
}
fn load_row(step: u32, slot: u32, s: Scales, r: u32) -> Row {
    let high = quants[step * 48u + 32u + slot / 2u];
    if r % 2u == 1u {
        return Row(quants[step * 48u + slot], high.zw, s.d[r], s.sc[r]);
    }
    return Row(quants[step * 48u + slot], high.xy, s.d[r], s.sc[r]);
}
fn block(row: Row, half: u32) -> Block {
    var q = row.q.xy;
    var high = row.high.x;
    if half == 1u {
        q = row.q.zw;
        high = row.high.y;
    }
    return Block(words4(q), vec2(u32(high), u32(high >> 32u)),
        vec2(scale16(row.d, row.sc, 2u * half), scale16(row.d, row.sc, 2u * half + 1u)));
}
fn dot64(step: u32, lane: u32, x: W8) -> vec4<f32> {
    let y8 = byte_x(x);
    let sum = -32.0 * sum8(x);
#for l in 0..8
    let xe#{l} = subgroupBroadcast(y8.a, #{l}u);
    let xo#{l} = subgroupBroadcast(y8.b, #{l}u);
    let s#{l} = subgroupBroadcast(sum, #{l}u);
#endfor
    let s = load_scales(step, lane);
    var y = vec4<f32>();
#for p in 0..2
    let high#{p} = quants[step * 48u + 32u + lane * 2u + #{p}u];
#for o in 0..2
    let q#{p}_#{o} = quants[step * 48u + lane * 4u + #{p*2+o}u];
#for g in 0..4
    let h#{p}_#{o}_#{g} = u32(high#{p}[#{o*2+g/2}] >> (32u * (#{g}u % 2u)));
    y[#{p*2+o}] += scale16(s.d[#{p*2+o}], s.sc[#{p*2+o}], #{g}u) * ((s#{g*2} + s#{g*2+1})
        + (byte_dot(six_bits(u32(q#{p}_#{o}[#{g}]), h#{p}_#{o}_#{g}, 0u), xe#{g*2}, xo#{g*2})
        + byte_dot(six_bits(u32(q#{p}_#{o}[#{g}] >> 32u), h#{p}_#{o}_#{g}, 1u), xe#{g*2+1}, xo#{g*2+1})));
#endfor
#endfor
#endfor
    return y;
}
#else
fn load_block(row: u32, k32: u32) -> Block {
    let step = (row / 32u) * n_groups() + k32 / 2u;
    let slot = row % 32u;
    let half = k32 % 2u;
    let high = quants[step * 96u + 64u + slot];
    let at = (step / 4u) * 160u + slot;
    let d = scales[at];
    let sc = scales[at + 32u + 32u * (step % 4u)];
    return Block(quants[step * 96u + slot * 2u + half], select(high.xy, high.zw, half == 1u),
        vec2(scale16(d, sc, 2u * half), scale16(d, sc, 2u * half + 1u)));
}
#endif
fn w8(b: Block, i: u32) -> W8 {
    let n = in_order(six_bits(b.q[i], select(b.high.x, b.high.y, i >= 2u), i % 2u));
    let d = select(b.d.x, b.d.y, i >= 2u);
    return W8((n.a - 32.0) * d, (n.b - 32.0) * d);
}
