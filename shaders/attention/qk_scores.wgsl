// Token scores: exact q · k of every key in a block table, for each query head.
// Source: LeoAM §4.2 (chunks are split by their tokens on the device that has their keys).
// Bindings: q, kv, table, scores (common/qk_scores).
// Grid: (tiles of 256 keys, G of each of R rows, head sets of GR), 64 lanes; a lane owns 4 keys of one block for GR heads.
#import common/qk_scores

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let k0 = wg.x * 256u + lane * 4u;
    let g = wg.y;
    if k0 >= params.n_keys {
        return;
    }
    let first_head = g * params.group + wg.z * GR;
    // A head set beyond the group repeats the last head and is not stored.
    let last_head = (g + 1u) * params.group - 1u;
#for h in 0..GR
    let q_#{h} = (params.q_head + min(first_head + #{h}u, last_head)) * (HEAD_DIM / 4u);
    var s_#{h} = vec4<f32>(MASKED);
#endfor
    if slot_at(g, k0, params.n_blocks) != PAD {
        let row = key_row(block_at(g, k0, params.n_blocks), k0 % BLOCK_TOKENS);
        let scales = scales_at(g, k0, params.n_blocks);
#for h in 0..GR
        s_#{h} = vec4<f32>(0.0);
#endfor
        for (var d = 0u; d < HEAD_DIM; d += 8u) {
#for h in 0..GR
            let x_#{h} = q[q_#{h} + d / 4u];
            let y_#{h} = q[q_#{h} + d / 4u + 1u];
#endfor
            let scale = key_scale8(scales, d);
            var k: Eight;
#for j in 0..4
            k = whole_key(key8(row, #{j}u, d), scale);
#for h in 0..GR
            s_#{h}[#{j}] += dot(x_#{h}, k.a) + dot(y_#{h}, k.b);
#endfor
#endfor
        }
    }
    let n_here = min(params.n_keys - k0, 4u);
#for h in 0..GR
    if first_head + #{h}u <= last_head {
        for (var j = 0u; j < n_here; j += 1u) {
            scores[(first_head + #{h}u) * params.n_keys + k0 + j] = s_#{h}[j];
        }
    }
#endfor
}
