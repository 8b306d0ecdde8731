// Q4_K: 1 chunk of 64 nibbles per group.
#import common/nibbles
#import common/kquant_scales
struct Block { q: vec4<u32>, dm: vec2<f32> }
#ifdef SUBGROUP8
struct Row { q: vec4<u64>, dm: u32, sm: u32 }
fn load_row(step: u32, slot: u32, s: Scales, r: u32) -> Row {
    return Row(quants[step * 32u + slot], s.dm[r], s.sm[r]);
}
fn block(row: Row, half: u32) -> Block {
    var q = row.q.xy;
    if half == 1u {
        q = row.q.zw;
    }
    return Block(words4(q), scale_min(row.dm, row.sm, half));
}
fn dot64(step: u32, lane: u32, x: W8) -> vec4<f32> {
    let y8 = nibble_x(x);
    let sum = sum8(x);
#for l in 0..8
    let xa#{l} = subgroupBroadcast(y8.a, #{l}u);
    let xb#{l} = subgroupBroadcast(y8.b, #{l}u);
    let s#{l} = subgroupBroadcast(sum, #{l}u);
    let t#{l} = subgroupBroadcast(x.b.w, #{l}u);
#endfor
    let all0 = (s0 + s1) + (s2 + s3);
    let all1 = (s4 + s5) + (s6 + s7);
    let more0 = 8.0 * ((t0 + t1) + (t2 + t3));
    let more1 = 8.0 * ((t4 + t5) + (t6 + t7));
    let s = load_scales(step, lane);
    var y = vec4<f32>();
#for r in 0..4
    let q#{r} = quants[step * 32u + lane * 4u + #{r}u];
    let c#{r} = scale_min(s.dm[#{r}], s.sm[#{r}], 0u);
    let e#{r} = scale_min(s.dm[#{r}], s.sm[#{r}], 1u);
#for i in 0..4
    let p#{r}_#{i} = nibble_dot(u32(q#{r}[#{i}]), xa#{i*2}, xb#{i*2})
        + nibble_dot(u32(q#{r}[#{i}] >> 32u), xa#{i*2+1}, xb#{i*2+1});
#endfor
    y[#{r}] = (c#{r}.x * (more0 + (p#{r}_0 + p#{r}_1)) - c#{r}.y * all0)
        + (e#{r}.x * (more1 + (p#{r}_2 + p#{r}_3)) - e#{r}.y * all1);
#endfor
    return y;
}
#else
fn load_block(row: u32, k32: u32) -> Block {
    let step = (row / 32u) * n_groups() + k32 / 2u;
    let slot = row % 32u;
    return Block(quants[step * 64u + slot * 2u + k32 % 2u], load_scale_min(step, slot, k32 % 2u));
}
#endif
fn w8(b: Block, i: u32) -> W8 {
    let n = nibbles8(b.q[i]);
    return W8(n.a * b.dm.x - b.dm.y, n.b * b.dm.x - b.dm.y);
}
