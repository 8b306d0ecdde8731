// Shared parts of the prefill score kernels: parameters, bindings, masking and storing of 8 scores of a row.
// Bindings: q f32 [T, H, D] (already scaled) · kv blocks · table u32 [G, n_blocks] · s f32 [G, T * group, n_tile_keys]
// A row r of KV head g is token r / group, query head g * group + r % group.
struct Params {
    n_rows: u32,        // T * group
    group: u32,
    n_head: u32,
    n_blocks: u32,
    first_key: u32,     // first key of the tile, counted from the first token of the segment
    n_keys: u32,        // keys in the tile that exist
    n_tile_keys: u32,   // row stride of s, a multiple of 8
    mask_from: u32,     // token 0 attends to this many keys of the segment (including itself); token t to t more
}
#params
@group(0) @binding(0) var<storage, read> q: array<Four>;
@group(0) @binding(1) var<storage, read> kv: array<#{KV}>;
@group(0) @binding(2) var<storage, read> table: array<u32>;
@group(0) @binding(3) var<storage, read_write> s: array<vec4<f32>>;
#import common/kv_block

const MASKED: f32 = -3.0e38;

// Begin of q of row r, in vec4. Rows beyond the end read the last row and are not stored.
fn q_row(r: u32, g: u32) -> u32 {
    let row = min(r, params.n_rows - 1u);
    let t = row / params.group;
    return ((t * params.n_head + g * params.group + row % params.group) * HEAD_DIM) / 4u;
}

// True if a tile whose first key is `tile_key` has a visible key for the `n` rows from r0; the last row has the most.
fn any_visible(tile_key: u32, r0: u32, n: u32) -> bool {
    let last_t = min(r0 + n - 1u, params.n_rows - 1u) / params.group;
    return tile_key < params.n_keys && params.first_key + tile_key < params.mask_from + last_t;
}

// Stores the scores of keys k0 .. k0 + 8 of the tile, for one row.
fn store_scores(row: u32, g: u32, k0: u32, lo: vec4<f32>, hi: vec4<f32>) {
    if row >= params.n_rows {
        return;
    }
    let ahead = vec4<u32>(params.first_key + k0) + vec4<u32>(0u, 1u, 2u, 3u);
    let visible = vec4<u32>(min(params.mask_from + row / params.group, params.first_key + params.n_keys));
    let at = ((g * params.n_rows + row) * params.n_tile_keys + k0) / 4u;
    s[at] = select(vec4<f32>(MASKED), lo, ahead < visible);
    s[at + 1u] = select(vec4<f32>(MASKED), hi, ahead + vec4<u32>(4u) < visible);
}
