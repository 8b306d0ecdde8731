// Q8_0: 2 chunks of 32 signed bytes per group; scales: u32 per row and group, the f16 scales of both chunks.
#import common/signed_bytes
#ifdef SUBGROUP8
struct Scales { d: vec4<u32> }
struct Row { first: u32, d: vec2<f32> }
struct Block { q: vec4<u64>, d: f32 }
fn load_scales(step: u32, lane: u32) -> Scales {
    return Scales(scales4(step * 8u + lane));
}
fn load_row(step: u32, slot: u32, s: Scales, r: u32) -> Row {
    return Row(step * 64u + slot, unpack2x16float(s.d[r]) * TOP_BYTE);
}
fn block(row: Row, half: u32) -> Block {
    return Block(quants[row.first + half * 32u], select(row.d.x, row.d.y, half == 1u));
}
fn w8(b: Block, i: u32) -> W8 {
    return W8(bytes4(u32(b.q[i])) * b.d, bytes4(u32(b.q[i] >> 32u)) * b.d);
}
fn dot64(step: u32, lane: u32, x: W8) -> vec4<f32> {
#for l in 0..8
    let xa#{l} = subgroupBroadcast(x.a, #{l}u);
    let xb#{l} = subgroupBroadcast(x.b, #{l}u);
#endfor
    let s = scales4(step * 8u + lane);
    var y = vec4<f32>();
#for r in 0..4
    let d#{r} = unpack2x16float(s[#{r}]) * TOP_BYTE;
#for h in 0..2
    let q#{r}_#{h} = quants[step * 64u + #{h*32}u + lane * 4u + #{r}u];
    var p#{r}_#{h} = vec4<f32>();
#for i in 0..4
    p#{r}_#{h}[#{i}] = dot(bytes4(u32(q#{r}_#{h}[#{i}])), xa#{h*4+i}) + dot(bytes4(u32(q#{r}_#{h}[#{i}] >> 32u)), xb#{h*4+i});
#endfor
    y[#{r}] += d#{r}[#{h}] * ((p#{r}_#{h}.x + p#{r}_#{h}.y) + (p#{r}_#{h}.z + p#{r}_#{h}.w));
#endfor
#endfor
    return y;
}
#else
struct Block { first: u32, d: f32 }
fn load_block(row: u32, k32: u32) -> Block {
    let step = (row / 32u) * n_groups() + k32 / 2u;
    let d = unpack2x16float(scales[step * 32u + row % 32u]);
    return Block((step * 64u + (k32 % 2u) * 32u + row % 32u) * 2u, select(d.x, d.y, k32 % 2u == 1u) * TOP_BYTE);
}
fn w8(b: Block, i: u32) -> W8 {
    let q = quants[b.first + i / 2u];
    let v = select(q.xy, q.zw, i % 2u == 1u);
    return W8(bytes4(v.x) * b.d, bytes4(v.y) * b.d);
}
#endif
