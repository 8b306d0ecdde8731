// Adds the values of a tile of keys, as `prefill_values`, for software devices whose subgroups are exactly 8 lanes: each
// lane loads the weights of one of 8 rows, which are then broadcast. 5 loads for 256 multiplications instead of 12.
// Source: FlashAttention-2 (Dao 2023), algorithm 1, lines 10 and 12.
// Bindings: p, state, kv, table, out (common/prefill_values).
// Grid: (tiles of 64 elements of D, row tiles of 8, G); 8 lanes, a lane owns 8 rows x 8 elements; no workgroup memory.
#import common/prefill_values

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    // Lanes past D work on its last elements again and are not stored.
    let own_d = (wg.x * 8u + lane) * 8u;
    let d0 = min(own_d, HEAD_DIM - 8u);
    let r0 = wg.y * 8u;
    let g = wg.z;
    let own_row = p_row(r0 + lane, g);
#for i in 0..8
    var a_#{i} = vec4<f32>(0.0);
    var b_#{i} = vec4<f32>(0.0);
#endfor
    let n_visible = visible_keys(r0);
    for (var k = 0u; k < n_visible; k += 4u) {
        let block = block_at(g, params.first_key + k, params.n_blocks);
        let t = (params.first_key + k) % BLOCK_TOKENS;
        let w = p[own_row + k / 4u];
#for i in 0..8
        let w_#{i} = subgroupBroadcast(w, #{i}u);
#endfor
        var v: Eight;
#for j in 0..4
        // Weights past the last visible key are zero, but what was never written may be anything: leave it out.
        if k + #{j}u < n_visible {
            v = value8(block, t + #{j}u, d0);
#for i in 0..8
            a_#{i} += w_#{i}[#{j}] * v.a;
            b_#{i} += w_#{i}[#{j}] * v.b;
#endfor
        }
#endfor
    }
    if own_d >= HEAD_DIM {
        return;
    }
#for i in 0..8
    store_values(r0 + #{i}u, g, d0, a_#{i}, b_#{i});
#endfor
}
