// Prefill scores of a tile of keys, as `prefill_scores`, for software devices with subgroups of exactly 8 lanes. Each
// lane loads 8 keys, and one row of every 8 of the ROWS query rows, which is then broadcast. Loads are expensive there,
// one element of a lane at a time: 12 of four words for 1024 multiplications of 16 rows, instead of 48.
// Source: FlashAttention-2 Algorithm 1 (Dao 2023).
// Bindings: q, kv, table, s (common/prefill_scores).
// Grid: (key tiles of 64, row tiles of ROWS, G); 8 lanes; no workgroup memory.
#import common/prefill_scores

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let tile_key = wg.x * 64u;
    let k0 = tile_key + lane * 8u;
    let r0 = wg.y * #{ROWS}u;
    let g = wg.z;
#for e in 0..ROWS/8
    let own_row_#{e} = q_row(r0 + #{e*8}u + lane, g);
    var low_#{e} = 0.0;
#endfor
#for i in 0..ROWS
    var lo_#{i} = vec4<f32>(0.0);
    var hi_#{i} = vec4<f32>(0.0);
#endfor
    // The first key of the tile is visible first, so this is the same for all lanes.
    if any_visible(tile_key, r0, #{ROWS}u) {
        // Lanes beyond the last key of the tile reread its first keys and are not stored.
        let token = params.first_key + select(tile_key, k0, k0 < params.n_tile_keys);
        let row = key_row(block_at(g, token, params.n_blocks), token % BLOCK_TOKENS);
        // If keys are codes, the 64 keys of the tile are in one page.
        let scales = scales_at(g, params.first_key + tile_key, params.n_blocks);
        for (var d = 0u; d < HEAD_DIM; d += 8u) {
            let scale = key_scale8(scales, d);
#for e in 0..ROWS/8
            let own_#{e} = Eight(four(q[own_row_#{e} + d / 4u]), four(q[own_row_#{e} + d / 4u + 1u]));
            let scaled_#{e} = scaled_query(own_#{e}, scale);
            low_#{e} += query_low(own_#{e}, scale);
#for i in 0..8
            let x_#{e}_#{i} = subgroupBroadcast(scaled_#{e}.a, #{i}u);
            let y_#{e}_#{i} = subgroupBroadcast(scaled_#{e}.b, #{i}u);
#endfor
#endfor
            var k: Eight;
#for j in 0..4
            k = key8(row, #{j}u, d);
#for e in 0..ROWS/8
#for i in 0..8
            lo_#{e*8+i}[#{j}] += dot(x_#{e}_#{i}, k.a) + dot(y_#{e}_#{i}, k.b);
#endfor
#endfor
#endfor
#for j in 0..4
            k = key8(row, #{j+4}u, d);
#for e in 0..ROWS/8
#for i in 0..8
            hi_#{e*8+i}[#{j}] += dot(x_#{e}_#{i}, k.a) + dot(y_#{e}_#{i}, k.b);
#endfor
#endfor
#endfor
        }
    }
#for e in 0..ROWS/8
#for i in 0..8
    let low_#{e}_#{i} = subgroupBroadcast(low_#{e}, #{i}u);
#endfor
#endfor
    if k0 >= params.n_tile_keys {
        return;
    }
#for e in 0..ROWS/8
#for i in 0..8
    store_scores(r0 + #{e*8+i}u, g, k0, lo_#{e*8+i} + low_#{e}_#{i}, hi_#{e*8+i} + low_#{e}_#{i});
#endfor
#endfor
}
