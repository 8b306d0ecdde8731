// Prefill scores of a tile of keys: s = q · k for every new token and head, causally masked.
// Source: FlashAttention-2 Algorithm 1 (Dao 2023), with the three stages of one key tile as three kernels.
// Bindings: q, kv, table, s (common/prefill_scores).
// Grid: (key tiles of 64, row tiles of 64, G); 8 x 8 lanes, a lane owns 8 rows x 8 keys in registers.
#import common/prefill_scores

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let k0 = id.x * 8u;
    let r0 = id.y * 8u;
    let g = id.z;
    if k0 >= params.n_tile_keys || r0 >= params.n_rows {
        return;
    }
#for i in 0..8
    var lo_#{i} = vec4<f32>(0.0);
    var hi_#{i} = vec4<f32>(0.0);
#endfor
    if any_visible(k0, r0, 8u) {
        // Blocks are allocated as a whole, so the 8 keys (half a block) are readable even if they are not written yet.
        let token = params.first_key + k0;
        let row = key_row(block_at(g, token, params.n_blocks), token % BLOCK_TOKENS);
        let scales = scales_at(g, token, params.n_blocks);
#for i in 0..8
        let q_#{i} = q_row(r0 + #{i}u, g);
#endfor
        for (var d = 0u; d < HEAD_DIM; d += 8u) {
#for i in 0..8
            let x_#{i} = four(q[q_#{i} + d / 4u]);
            let y_#{i} = four(q[q_#{i} + d / 4u + 1u]);
#endfor
            let scale = key_scale8(scales, d);
            var k: Eight;
#for j in 0..4
            k = whole_key(key8(row, #{j}u, d), scale);
#for i in 0..8
            lo_#{i}[#{j}] += dot(x_#{i}, k.a) + dot(y_#{i}, k.b);
#endfor
#endfor
#for j in 0..4
            k = whole_key(key8(row, #{j+4}u, d), scale);
#for i in 0..8
            hi_#{i}[#{j}] += dot(x_#{i}, k.a) + dot(y_#{i}, k.b);
#endfor
#endfor
        }
    }
#for i in 0..8
    store_scores(r0 + #{i}u, g, k0, lo_#{i}, hi_#{i});
#endfor
}
