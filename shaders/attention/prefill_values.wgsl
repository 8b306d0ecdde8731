// Prefill values: adds the weighted values of a tile of keys: out = out * factor + p V; the last tile divides by the
// running sum.
// Source: FlashAttention-2 Algorithm 1, lines 10 and 12 (Dao 2023).
// Bindings: p, state, kv, table, out (common/prefill_values).
// Grid: (tiles of 64 elements of D, row tiles of 64, G); 8 x 8 lanes, a lane owns 8 rows x 8 elements.
#import common/prefill_values

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let d0 = id.x * 8u;
    let r0 = id.y * 8u;
    let g = id.z;
    if d0 >= HEAD_DIM || r0 >= params.n_rows {
        return;
    }
#for i in 0..8
    var a_#{i} = vec4<f32>(0.0);
    var b_#{i} = vec4<f32>(0.0);
    let p_#{i} = p_row(r0 + #{i}u, g);
#endfor
    let n_visible = visible_keys(r0, 8u);
    for (var k = 0u; k < n_visible; k += 4u) {
        let block = block_at(g, params.first_key + k, params.n_blocks);
        let t = (params.first_key + k) % BLOCK_TOKENS;
#for i in 0..8
        let w_#{i} = four(p[p_#{i} + k / 4u]);
#endfor
        var v: Eight;
#for j in 0..4
        // Weights beyond the last visible key are zero, but unwritten memory may have any bits (NaN): skip it.
        if k + #{j}u < n_visible {
            v = value8(block, t + #{j}u, d0);
#for i in 0..8
            a_#{i} += w_#{i}[#{j}] * v.a;
            b_#{i} += w_#{i}[#{j}] * v.b;
#endfor
        }
#endfor
    }
#for i in 0..8
    store_values(r0 + #{i}u, g, d0, a_#{i}, b_#{i});
#endfor
}
