// I8G16: w = scale * q + offset, signed bytes q, f32 scale and offset per 16 columns. Every type without its own kernel
// is converted to this at load.
// 2 chunks of 32 signed bytes per group; scales: 8 words per row and group, (scale, offset) of four sixteens.
#import common/signed_bytes
#ifdef SUBGROUP8
struct Scales { none: u32 }
struct Row { step: u32, slot: u32 }
struct Block { q: vec4<u64>, s: vec4<f32> }
fn load_scales(step: u32, lane: u32) -> Scales {
    return Scales(0u);
}
fn load_row(step: u32, slot: u32, s: Scales, r: u32) -> Row {
    return Row(step, slot);
}
fn block(row: Row, half: u32) -> Block {
    let s = bitcast<vec4<f32>>(scales4((row.step * 32u + row.slot) * 2u + half));
    return Block(quants[row.step * 64u + half * 32u + row.slot], s * vec4(TOP_BYTE, 1.0, TOP_BYTE, 1.0));
}
fn w8(b: Block, i: u32) -> W8 {
    let s = select(b.s.xy, b.s.zw, i >= 2u);
    return W8(bytes4(u32(b.q[i])) * s.x + s.y, bytes4(u32(b.q[i] >> 32u)) * s.x + s.y);
}
fn dot64(step: u32, lane: u32, x: W8) -> vec4<f32> {
    let sum = sum8(x);
#for l in 0..8
    let xa#{l} = subgroupBroadcast(x.a, #{l}u);
    let xb#{l} = subgroupBroadcast(x.b, #{l}u);
#endfor
#for g in 0..4
    let sum#{g} = subgroupBroadcast(sum, #{g*2}u) + subgroupBroadcast(sum, #{g*2+1}u);
#endfor
    var y = vec4<f32>();
#for r in 0..4
#for h in 0..2
    let b#{r}_#{h} = block(Row(step, lane * 4u + #{r}u), #{h}u);
    var p#{r}_#{h} = vec4<f32>();
#for i in 0..4
    p#{r}_#{h}[#{i}] = dot(bytes4(u32(b#{r}_#{h}.q[#{i}])), xa#{h*4+i})
        + dot(bytes4(u32(b#{r}_#{h}.q[#{i}] >> 32u)), xb#{h*4+i});
#endfor
    y[#{r}] += b#{r}_#{h}.s.x * (p#{r}_#{h}.x + p#{r}_#{h}.y) + b#{r}_#{h}.s.y * sum#{h*2}
        + b#{r}_#{h}.s.z * (p#{r}_#{h}.z + p#{r}_#{h}.w) + b#{r}_#{h}.s.w * sum#{h*2+1};
#endfor
#endfor
    return y;
}
#else
struct Block { first: u32, s: vec4<f32> }
fn load_block(row: u32, k32: u32) -> Block {
    let step = (row / 32u) * n_groups() + k32 / 2u;
    let at = (step * 32u + row % 32u) * 8u + (k32 % 2u) * 4u;
    let s = bitcast<vec4<f32>>(vec4(scales[at], scales[at + 1u], scales[at + 2u], scales[at + 3u]));
    return Block((step * 64u + (k32 % 2u) * 32u + row % 32u) * 2u, s * vec4(TOP_BYTE, 1.0, TOP_BYTE, 1.0));
}
fn w8(b: Block, i: u32) -> W8 {
    let q = quants[b.first + i / 2u];
    let v = select(q.xy, q.zw, i % 2u == 1u);
    let s = select(b.s.xy, b.s.zw, i >= 2u);
    return W8(bytes4(v.x) * s.x + s.y, bytes4(v.y) * s.x + s.y);
}
#endif
