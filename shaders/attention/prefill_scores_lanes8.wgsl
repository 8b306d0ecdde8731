// Scores of a tile of keys, as `prefill_scores`, for software devices whose subgroups are exactly 8 lanes: each lane loads
// 8 keys of its own and one of 8 query rows, which is then broadcast. 10 loads for 512 multiplications instead of 24.
// Source: FlashAttention-2 (Dao 2023), algorithm 1.
// Bindings: q f32 [T, H, D] (already scaled) · kv blocks · table u32 [G, n_blocks] · s f32 [G, T * group, n_tile_keys]
// Grid: (key tiles of 64, row tiles of 8, G); 8 lanes; no workgroup memory.
struct Params {
    n_rows: u32,
    group: u32,
    n_head: u32,
    n_blocks: u32,
    first_key: u32,
    n_keys: u32,
    n_tile_keys: u32,
    mask_from: u32,
}
#params
@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
#ifdef KV_F16
@group(0) @binding(1) var<storage, read> kv: array<vec4<u32>>;
#else
@group(0) @binding(1) var<storage, read> kv: array<vec4<f32>>;
#endif
@group(0) @binding(2) var<storage, read> table: array<u32>;
@group(0) @binding(3) var<storage, read_write> s: array<vec4<f32>>;
#import common/kv_block

const MASKED: f32 = -3.0e38;

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let tile_key = wg.x * 64u;
    let k0 = tile_key + lane * 8u;
    let r0 = wg.y * 8u;
    let g = wg.z;
    let row = min(r0 + lane, params.n_rows - 1u);
    let q_row = ((row / params.group * params.n_head + g * params.group + row % params.group) * HEAD_DIM) / 4u;
    // The last row of the tile sees the most; the first key of the tile is seen first. The same for all lanes.
    let last_t = min(r0 + 7u, params.n_rows - 1u) / params.group;
    let any_visible = tile_key < params.n_keys && params.first_key + tile_key < params.mask_from + last_t;
#for i in 0..8
    var lo_#{i} = vec4<f32>(0.0);
    var hi_#{i} = vec4<f32>(0.0);
#endfor
    if any_visible {
        // Lanes past the tile's last key read its first ones again and are not stored.
        let base = key_row(g, params.first_key + select(tile_key, k0, k0 < params.n_tile_keys), params.n_blocks);
        for (var d = 0u; d < HEAD_DIM; d += 8u) {
            let x = q[q_row + d / 4u];
            let y = q[q_row + d / 4u + 1u];
#for i in 0..8
            let x_#{i} = subgroupBroadcast(x, #{i}u);
            let y_#{i} = subgroupBroadcast(y, #{i}u);
#endfor
            var k: Eight;
#for j in 0..4
            k = load8(base + #{j}u * HEAD_DIM + d);
#for i in 0..8
            lo_#{i}[#{j}] += dot(x_#{i}, k.a) + dot(y_#{i}, k.b);
#endfor
#endfor
#for j in 0..4
            k = load8(base + #{j+4}u * HEAD_DIM + d);
#for i in 0..8
            hi_#{i}[#{j}] += dot(x_#{i}, k.a) + dot(y_#{i}, k.b);
#endfor
#endfor
        }
    }
    let first = params.first_key + k0;
    let ahead = vec4<u32>(0u, 1u, 2u, 3u);
#for i in 0..8
    if r0 + #{i}u < params.n_rows && k0 < params.n_tile_keys {
        let t = (r0 + #{i}u) / params.group;
        let visible = min(params.mask_from + t, params.first_key + params.n_keys);
        let at = ((g * params.n_rows + r0 + #{i}u) * params.n_tile_keys + k0) / 4u;
        s[at] = select(vec4<f32>(MASKED), lo_#{i}, vec4<u32>(first) + ahead < vec4<u32>(visible));
        s[at + 1u] = select(vec4<f32>(MASKED), hi_#{i}, vec4<u32>(first + 4u) + ahead < vec4<u32>(visible));
    }
#endfor
}
