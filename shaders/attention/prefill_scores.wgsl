// Scores of a tile of keys: s = q · k for every new token and head, causally masked.
// Source: FlashAttention-2 (Dao 2023), algorithm 1, with the three stages of one key tile as three kernels.
// Bindings: q f32 [T, H, D] (already scaled) · kv blocks · table u32 [G, n_blocks] · s f32 [G, T * group, n_tile_keys]
// Grid: (key tiles of 64, row tiles of 64, G); 8 x 8 lanes, a lane owns 8 rows x 8 keys in registers.
// A row r of KV head g is token r / group, query head g * group + r % group.
struct Params {
    n_rows: u32,        // T * group
    group: u32,
    n_head: u32,
    n_blocks: u32,
    first_key: u32,     // first key of the tile, counted from the segment's first token
    n_keys: u32,        // keys in the tile that exist
    n_tile_keys: u32,   // row stride of s, a multiple of 8
    mask_from: u32,     // token 0 sees this many keys of the segment (itself included); token t sees t more
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

// Where q of row r starts, in vec4. Rows past the end read the last row and are not stored.
fn q_row(r: u32, g: u32) -> u32 {
    let row = min(r, params.n_rows - 1u);
    let t = row / params.group;
    return ((t * params.n_head + g * params.group + row % params.group) * HEAD_DIM) / 4u;
}

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let k0 = id.x * 8u;
    let r0 = id.y * 8u;
    let g = id.z;
    if k0 >= params.n_tile_keys || r0 >= params.n_rows {
        return;
    }
    let first = params.first_key + k0;
    // The last row of the tile sees the most: a tile above the diagonal is all masked.
    let last_t = min(r0 + 7u, params.n_rows - 1u) / params.group;
    let any_visible = k0 < params.n_keys && first < params.mask_from + last_t;
#for i in 0..8
    var lo_#{i} = vec4<f32>(0.0);
    var hi_#{i} = vec4<f32>(0.0);
#endfor
    if any_visible {
        // Blocks are allocated whole, so the 8 keys (half a block) are readable even where they are not written yet.
        let base = key_row(g, first, params.n_blocks);
#for i in 0..8
        let q_#{i} = q_row(r0 + #{i}u, g);
#endfor
        for (var d = 0u; d < HEAD_DIM; d += 8u) {
#for i in 0..8
            let x_#{i} = q[q_#{i} + d / 4u];
            let y_#{i} = q[q_#{i} + d / 4u + 1u];
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
    let ahead = vec4<u32>(0u, 1u, 2u, 3u);
#for i in 0..8
    if r0 + #{i}u < params.n_rows {
        let t = (r0 + #{i}u) / params.group;
        let visible = min(params.mask_from + t, params.first_key + params.n_keys);
        let at = ((g * params.n_rows + r0 + #{i}u) * params.n_tile_keys + k0) / 4u;
        s[at] = select(vec4<f32>(MASKED), lo_#{i}, vec4<u32>(first) + ahead < vec4<u32>(visible));
        s[at + 1u] = select(vec4<f32>(MASKED), hi_#{i}, vec4<u32>(first + 4u) + ahead < vec4<u32>(visible));
    }
#endfor
}
