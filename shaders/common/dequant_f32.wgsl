// F32: 8 chunks of 8 weights per group; no scales.
#ifdef SUBGROUP8
struct Scales { none: u32 }
struct Row { first: u32 }
struct Block { first: u32 }
fn load_scales(step: u32, lane: u32) -> Scales {
    return Scales(0u);
}
fn load_row(step: u32, slot: u32, s: Scales, r: u32) -> Row {
    return Row(step * 256u + slot);
}
fn block(row: Row, half: u32) -> Block {
    return Block(row.first + half * 128u);
}
fn w8(b: Block, i: u32) -> W8 {
    let q = quants[b.first + i * 32u];
    return W8(bitcast<vec4<f32>>(words4(q.xy)), bitcast<vec4<f32>>(words4(q.zw)));
}
fn dot64(step: u32, lane: u32, x: W8) -> vec4<f32> {
    var y = vec4<f32>();
#for l in 0..8
    let xa#{l} = subgroupBroadcast(x.a, #{l}u);
    let xb#{l} = subgroupBroadcast(x.b, #{l}u);
#for r in 0..4
    let w#{l}_#{r} = w8(Block(step * 256u + lane * 4u + #{r}u), #{l}u);
    y[#{r}] += dot(w#{l}_#{r}.a, xa#{l}) + dot(w#{l}_#{r}.b, xb#{l});
#endfor
#endfor
    return y;
}
#else
struct Block { first: u32 }
fn load_block(row: u32, k32: u32) -> Block {
    let step = (row / 32u) * n_groups() + k32 / 2u;
    return Block((step * 256u + (k32 % 2u) * 128u + row % 32u) * 2u);
}
fn w8(b: Block, i: u32) -> W8 {
    let at = b.first + i * 64u;
    return W8(bitcast<vec4<f32>>(quants[at]), bitcast<vec4<f32>>(quants[at + 1u]));
}
#endif
