// F16 and BF16: 4 chunks of 16 weights per group; no scales.
// Uses unpack2x16float instead of f16 types: naga 30 miscompiles bitcast<vec2<f16>> of a word.
#ifdef BF16
fn unpack2(v: u32) -> vec2<f32> {
    return bitcast<vec2<f32>>(vec2(v << 16u, v & 0xffff0000u));
}
#else
fn unpack2(v: u32) -> vec2<f32> {
    return unpack2x16float(v);
}
#endif
fn unpack8(q: vec4<u32>) -> W8 {
    return W8(vec4(unpack2(q.x), unpack2(q.y)), vec4(unpack2(q.z), unpack2(q.w)));
}
#ifdef SUBGROUP8
struct Scales { none: u32 }
struct Row { first: u32 }
struct Block { c0: vec4<u64>, c1: vec4<u64> }
fn load_scales(step: u32, lane: u32) -> Scales {
    return Scales(0u);
}
fn load_row(step: u32, slot: u32, s: Scales, r: u32) -> Row {
    return Row(step * 128u + slot);
}
fn block(row: Row, half: u32) -> Block {
    let at = row.first + half * 64u;
    return Block(quants[at], quants[at + 32u]);
}
fn w8(b: Block, i: u32) -> W8 {
    switch i {
        case 0u: { return unpack8(words4(b.c0.xy)); }
        case 1u: { return unpack8(words4(b.c0.zw)); }
        case 2u: { return unpack8(words4(b.c1.xy)); }
        default: { return unpack8(words4(b.c1.zw)); }
    }
}
fn dot64(step: u32, lane: u32, x: W8) -> vec4<f32> {
#for l in 0..8
    let xa#{l} = subgroupBroadcast(x.a, #{l}u);
    let xb#{l} = subgroupBroadcast(x.b, #{l}u);
#endfor
    var y = vec4<f32>();
#for r in 0..4
#for c in 0..4
    let q#{r}_#{c} = quants[step * 128u + #{c*32}u + lane * 4u + #{r}u];
    let u#{r}_#{c} = unpack8(words4(q#{r}_#{c}.xy));
    let v#{r}_#{c} = unpack8(words4(q#{r}_#{c}.zw));
    y[#{r}] += (dot(u#{r}_#{c}.a, xa#{c*2}) + dot(u#{r}_#{c}.b, xb#{c*2}))
        + (dot(v#{r}_#{c}.a, xa#{c*2+1}) + dot(v#{r}_#{c}.b, xb#{c*2+1}));
#endfor
#endfor
    return y;
}
#else
struct Block { first: u32 }
fn load_block(row: u32, k32: u32) -> Block {
    let step = (row / 32u) * n_groups() + k32 / 2u;
    return Block((step * 128u + (k32 % 2u) * 64u + row % 32u) * 2u);
}
fn w8(b: Block, i: u32) -> W8 {
    return unpack8(quants[b.first + (i / 2u) * 64u + i % 2u]);
}
#endif
