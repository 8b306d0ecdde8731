// Q4_0: w = d * (n - 8). 1 chunk of 64 nibbles per group; scales: u32 per row and group, f16 d of both halves.
#import common/nibbles
#ifdef SUBGROUP8
struct Scales { d: vec4<u32> }
struct Row { q: vec4<u64>, d: vec2<f32> }
struct Block { q: vec4<u32>, d: f32 }
fn load_scales(step: u32, lane: u32) -> Scales {
    return Scales(scales4(step * 8u + lane));
}
fn load_row(step: u32, slot: u32, s: Scales, r: u32) -> Row {
    return Row(quants[step * 32u + slot], unpack2x16float(s.d[r]));
}
fn block(row: Row, half: u32) -> Block {
    var q = row.q.xy;
    if half == 1u {
        q = row.q.zw;
    }
    return Block(words4(q), select(row.d.x, row.d.y, half == 1u));
}
fn dot64(step: u32, lane: u32, x: W8) -> vec4<f32> {
    let y8 = nibble_x(x);
    let sum = -8.0 * (sum8(x) - x.b.w);
#for l in 0..8
    let xa#{l} = subgroupBroadcast(y8.a, #{l}u);
    let xb#{l} = subgroupBroadcast(y8.b, #{l}u);
    let s#{l} = subgroupBroadcast(sum, #{l}u);
#endfor
    let less0 = (s0 + s1) + (s2 + s3);
    let less1 = (s4 + s5) + (s6 + s7);
    let s = scales4(step * 8u + lane);
    var y = vec4<f32>();
#for r in 0..4
    let d#{r} = unpack2x16float(s[#{r}]);
    let q#{r} = quants[step * 32u + lane * 4u + #{r}u];
#for i in 0..4
    let p#{r}_#{i} = nibble_dot(u32(q#{r}[#{i}]), xa#{i*2}, xb#{i*2})
        + nibble_dot(u32(q#{r}[#{i}] >> 32u), xa#{i*2+1}, xb#{i*2+1});
#endfor
    y[#{r}] = d#{r}.x * (less0 + (p#{r}_0 + p#{r}_1)) + d#{r}.y * (less1 + (p#{r}_2 + p#{r}_3));
#endfor
    return y;
}
#else
struct Block { q: vec4<u32>, d: f32 }
fn load_block(row: u32, k32: u32) -> Block {
    let step = (row / 32u) * n_groups() + k32 / 2u;
    let d = unpack2x16float(scales[step * 32u + row % 32u]);
    return Block(quants[step * 64u + (row % 32u) * 2u + k32 % 2u], select(d.x, d.y, k32 % 2u == 1u));
}
#endif
fn w8(b: Block, i: u32) -> W8 {
    let n = nibbles8(b.q[i]);
    return W8((n.a - 8.0) * b.d, (n.b - 8.0) * b.d);
}
