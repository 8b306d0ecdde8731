// Scores of a tile of keys, as `prefill_scores`, for software devices whose subgroups are exactly 8 lanes: each lane loads
// 8 keys of its own and one of 8 query rows, which is then broadcast. 10 loads for 512 multiplications instead of 24.
// Source: FlashAttention-2 (Dao 2023), algorithm 1.
// Bindings: q, kv, table, s (common/prefill_scores).
// Grid: (key tiles of 64, row tiles of 8, G); 8 lanes; no workgroup memory.
#import common/prefill_scores

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let tile_key = wg.x * 64u;
    let k0 = tile_key + lane * 8u;
    let r0 = wg.y * 8u;
    let g = wg.z;
    let own_row = q_row(r0 + lane, g);
    var low = 0.0;
#for i in 0..8
    var lo_#{i} = vec4<f32>(0.0);
    var hi_#{i} = vec4<f32>(0.0);
#endfor
    // The tile's first key is seen first, so this is the same for all lanes.
    if any_visible(tile_key, r0) {
        // Lanes past the tile's last key read its first ones again and are not stored.
        let token = params.first_key + select(tile_key, k0, k0 < params.n_tile_keys);
        let row = key_row(block_at(g, token, params.n_blocks), token % BLOCK_TOKENS);
        // Where keys are codes, the tile's 64 keys are of one page.
        let scales = scales_at(g, params.first_key + tile_key, params.n_blocks);
        for (var d = 0u; d < HEAD_DIM; d += 8u) {
            let own = Eight(q[own_row + d / 4u], q[own_row + d / 4u + 1u]);
            let scale = key_scale8(scales, d);
            let scaled = scaled_query(own, scale);
            low += query_low(own, scale);
#for i in 0..8
            let x_#{i} = subgroupBroadcast(scaled.a, #{i}u);
            let y_#{i} = subgroupBroadcast(scaled.b, #{i}u);
#endfor
            var k: Eight;
#for j in 0..4
            k = key8(row, #{j}u, d);
#for i in 0..8
            lo_#{i}[#{j}] += dot(x_#{i}, k.a) + dot(y_#{i}, k.b);
#endfor
#endfor
#for j in 0..4
            k = key8(row, #{j+4}u, d);
#for i in 0..8
            hi_#{i}[#{j}] += dot(x_#{i}, k.a) + dot(y_#{i}, k.b);
#endfor
#endfor
        }
    }
#for i in 0..8
    let low_#{i} = subgroupBroadcast(low, #{i}u);
#endfor
    if k0 >= params.n_tile_keys {
        return;
    }
#for i in 0..8
    store_scores(r0 + #{i}u, g, k0, lo_#{i} + low_#{i}, hi_#{i} + low_#{i});
#endfor
}
