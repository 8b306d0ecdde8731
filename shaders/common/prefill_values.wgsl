// Shared parts of the prefill value kernels: parameters, bindings, accumulating and storing of 8 sums of a row.
// Bindings: p f32 [G, rows, n_tile_keys] · state f32 [G, rows, 4] · kv blocks · table u32 [G, n_blocks] · out f32 [T, H, D]
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
@group(0) @binding(0) var<storage, read> p: array<Four>;
@group(0) @binding(1) var<storage, read> state: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> kv: array<#{KV}>;
@group(0) @binding(3) var<storage, read> table: array<u32>;
@group(0) @binding(4) var<storage, read_write> out: array<vec4<f32>>;
#import common/kv_block

// Number of keys of the tile that are visible to the last of the `n` rows from r0.
fn visible_keys(r0: u32, n: u32) -> u32 {
    let seen = params.mask_from + min(r0 + n - 1u, params.n_rows - 1u) / params.group;
    return min(max(seen, params.first_key) - params.first_key, params.n_keys);
}

// Begin of the weights of row r, in vec4. Rows beyond the end read the last row and are not stored.
fn p_row(r: u32, g: u32) -> u32 {
    return ((g * params.n_rows + min(r, params.n_rows - 1u)) * params.n_tile_keys) / 4u;
}

// Adds the sums of the tile for elements d0 .. d0 + 8 of one row to those of earlier tiles.
fn store_values(row: u32, g: u32, d0: u32, a: vec4<f32>, b: vec4<f32>) {
    if row >= params.n_rows {
        return;
    }
    let at = ((row / params.group * params.n_head + g * params.group + row % params.group) * HEAD_DIM + d0) / 4u;
    let carried = state[g * params.n_rows + row];
    var sum_a = a;
    var sum_b = b;
    if params.is_first == 0u {
        sum_a += out[at] * carried.z;
        sum_b += out[at + 1u] * carried.z;
    }
    if params.is_last == 1u {
        sum_a /= carried.y;
        sum_b /= carried.y;
    }
    out[at] = sum_a;
    out[at + 1u] = sum_b;
}
