// Adds the values of a tile of keys, as `prefill_values`, for software devices whose subgroups are exactly 8 lanes: each
// lane loads the weights of one of 8 rows, which are then broadcast. 5 loads for 256 multiplications instead of 12.
// Source: FlashAttention-2 (Dao 2023), algorithm 1, lines 10 and 12.
// Bindings: p f32 [G, rows, n_tile_keys] · state f32 [G, rows, 4] · kv blocks · table u32 [G, n_blocks] · out f32 [T, H, D]
// Grid: (tiles of 64 elements of D, row tiles of 8, G); 8 lanes, a lane owns 8 rows x 8 elements; no workgroup memory.
struct Params {
    n_rows: u32,
    group: u32,
    n_head: u32,
    n_blocks: u32,
    first_key: u32,
    n_keys: u32,
    n_tile_keys: u32,
    mask_from: u32,
    is_first: u32,
    is_last: u32,
}
#params
@group(0) @binding(0) var<storage, read> p: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> state: array<vec4<f32>>;
#ifdef KV_F16
@group(0) @binding(2) var<storage, read> kv: array<vec4<u32>>;
#else
@group(0) @binding(2) var<storage, read> kv: array<vec4<f32>>;
#endif
@group(0) @binding(3) var<storage, read> table: array<u32>;
@group(0) @binding(4) var<storage, read_write> out: array<vec4<f32>>;
#import common/kv_block

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    // Lanes past D work on its last elements again and are not stored.
    let own_d = (wg.x * 8u + lane) * 8u;
    let d0 = min(own_d, HEAD_DIM - 8u);
    let r0 = wg.y * 8u;
    let g = wg.z;
    let last_t = min(r0 + 7u, params.n_rows - 1u) / params.group;
    let seen = params.mask_from + last_t;
    var n_visible = 0u;
    if seen > params.first_key {
        n_visible = min(seen - params.first_key, params.n_keys);
    }
    let p_row = ((g * params.n_rows + min(r0 + lane, params.n_rows - 1u)) * params.n_tile_keys) / 4u;
#for i in 0..8
    var a_#{i} = vec4<f32>(0.0);
    var b_#{i} = vec4<f32>(0.0);
#endfor
    for (var k = 0u; k < n_visible; k += 4u) {
        let base = key_row(g, params.first_key + k, params.n_blocks) + BLOCK_TOKENS * HEAD_DIM + d0;
        let w = p[p_row + k / 4u];
#for i in 0..8
        let w_#{i} = subgroupBroadcast(w, #{i}u);
#endfor
        var v: Eight;
#for j in 0..4
        // Weights past the last visible key are zero, but what was never written may be anything: leave it out.
        if k + #{j}u < n_visible {
            v = load8(base + #{j}u * HEAD_DIM);
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
    if r0 + #{i}u < params.n_rows {
        let row = r0 + #{i}u;
        let t = row / params.group;
        let at = ((t * params.n_head + g * params.group + row % params.group) * HEAD_DIM + d0) / 4u;
        let carried = state[g * params.n_rows + row];
        if params.is_first == 0u {
            a_#{i} += out[at] * carried.z;
            b_#{i} += out[at + 1u] * carried.z;
        }
        if params.is_last == 1u {
            a_#{i} /= carried.y;
            b_#{i} /= carried.y;
        }
        out[at] = a_#{i};
        out[at + 1u] = b_#{i};
    }
#endfor
}
