// Prefill values, as `prefill_values`, for software devices with subgroups of exactly 8 lanes. Each lane loads the
// weights of one row of every 8 of ROWS rows, which are then broadcast. Loads are expensive there, one element of a
// lane at a time: 6 of four words for 512 multiplications of 16 rows, instead of 24.
// Source: FlashAttention-2 Algorithm 1, lines 10 and 12 (Dao 2023).
// Bindings: p, state, kv, table, out (common/prefill_values).
// Grid: (tiles of 64 elements of D, row tiles of ROWS, G); 8 lanes, a lane owns ROWS rows x 8 elements; no workgroup memory.
#import common/prefill_values

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    // Lanes beyond D repeat its last elements and are not stored.
    let own_d = (wg.x * 8u + lane) * 8u;
    let d0 = min(own_d, HEAD_DIM - 8u);
    let r0 = wg.y * #{ROWS}u;
    let g = wg.z;
#for e in 0..ROWS/8
    let own_row_#{e} = p_row(r0 + #{e*8}u + lane, g);
#endfor
#for i in 0..ROWS
    var a_#{i} = vec4<f32>(0.0);
    var b_#{i} = vec4<f32>(0.0);
#endfor
    let n_visible = visible_keys(r0, #{ROWS}u);
    for (var k = 0u; k < n_visible; k += 4u) {
        let block = block_at(g, params.first_key + k, params.n_blocks);
        let t = (params.first_key + k) % BLOCK_TOKENS;
#for e in 0..ROWS/8
        let w_#{e} = four(p[own_row_#{e} + k / 4u]);
#for i in 0..8
        let w_#{e}_#{i} = subgroupBroadcast(w_#{e}, #{i}u);
#endfor
#endfor
        // Weights beyond the last visible key are zero, but unwritten memory may have any bits (NaN): skip it.
#for j in 0..4
        var v_#{j} = Eight(vec4<f32>(0.0), vec4<f32>(0.0));
        if k + #{j}u < n_visible {
            v_#{j} = value8(block, t + #{j}u, d0);
        }
#endfor
#for e in 0..ROWS/8
#for i in 0..8
#for j in 0..4
        a_#{e*8+i} += w_#{e}_#{i}[#{j}] * v_#{j}.a;
        b_#{e*8+i} += w_#{e}_#{i}[#{j}] * v_#{j}.b;
#endfor
#endfor
#endfor
    }
    if own_d >= HEAD_DIM {
        return;
    }
#for i in 0..ROWS
    store_values(r0 + #{i}u, g, d0, a_#{i}, b_#{i});
#endfor
}
