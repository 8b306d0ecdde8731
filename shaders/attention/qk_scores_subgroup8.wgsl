// Token scores, as `qk_scores`, for software devices with subgroups of exactly 8 lanes: one subgroup processes the tile
// in steps of 32 keys, and q is broadcast instead of reread for every key.
// Source: LeoAM §4.2 (chunks are split by their tokens on the device that has their keys).
// Bindings: q, kv, table, scores (common/qk_scores).
// Grid: (tiles of 256 keys, G of each of R rows, head sets of GR), 8 lanes. A lane owns 4 keys of a step for GR heads, and holds 8
// elements of each 64 of q (NC times, for D up to 64 NC).
#import common/qk_scores
#import common/vec8_subgroup

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let g = wg.y;
    let first_head = g * params.group + wg.z * GR;
    // A head set beyond the group repeats the last head and is not stored.
    let last_head = (g + 1u) * params.group - 1u;
#for h in 0..GR
    let q_#{h} = (params.q_head + min(first_head + #{h}u, last_head)) * HEAD_DIM;
#for n in 0..NC
    let q_#{h}_#{n} = Eight(q[(q_#{h} + own(#{n}u, lane)) / 4u], q[(q_#{h} + own(#{n}u, lane)) / 4u + 1u]);
#endfor
#endfor
    let end = min(params.n_keys, (wg.x + 1u) * 256u);
    for (var step = wg.x * 256u; step < end; step += 32u) {
        let k0 = step + lane * 4u;
        var slot = PAD;
        if k0 < end {
            slot = slot_at(g, k0, params.n_blocks);
        }
        let is_there = slot != PAD;
        let row = key_row(block_of_slot(select(0u, slot, is_there)), k0 % BLOCK_TOKENS);
        let scales = scales_of_slot(select(0u, slot, is_there), g);
#for h in 0..GR
        var s_#{h} = vec4<f32>(0.0);
#endfor
        var k: Eight;
#for n in 0..NC
#for l in 0..8
        if #{n*64}u + #{l*8}u < HEAD_DIM {
            let scale = key_scale8(scales, #{n*64}u + #{l*8}u);
#for h in 0..GR
            let x_#{h} = subgroupBroadcast(q_#{h}_#{n}.a, #{l}u);
            let y_#{h} = subgroupBroadcast(q_#{h}_#{n}.b, #{l}u);
#endfor
#for j in 0..4
            k = whole_key(key8(row, #{j}u, #{n*64}u + #{l*8}u), scale);
#for h in 0..GR
            s_#{h}[#{j}] += dot(x_#{h}, k.a) + dot(y_#{h}, k.b);
#endfor
#endfor
        }
#endfor
#endfor
        let n_here = min(end - min(end, k0), 4u);
#for h in 0..GR
        if first_head + #{h}u <= last_head {
            let of_keys = select(vec4<f32>(MASKED), s_#{h}, is_there);
            for (var j = 0u; j < n_here; j += 1u) {
                scores[(first_head + #{h}u) * params.n_keys + k0 + j] = of_keys[j];
            }
        }
#endfor
    }
}
