// Shared parts of the flash attention kernels for prefill: parameters, bindings, rows and visible keys.
// Bindings: q f32 [T, H, D] (already scaled) · kv blocks · table u32 [G, n_blocks] ·
//   state f32 [G, rows, 4] (running max, running sum, unused, unused) ·
//   out f32 [T, H, D], relative to the running max, not divided by the sum before the last run of keys
// A row r of KV head g is token r / group, query head g * group + r % group.
struct Params {
    n_rows: u32,        // T * group
    group: u32,
    n_head: u32,
    n_blocks: u32,
    first_key: u32,     // first key of the run, counted from the first token of the segment
    n_keys: u32,        // keys in the run
    mask_from: u32,     // token 0 attends to this many keys of the segment (including itself); token t to t more
    is_first: u32,
    is_last: u32,
}
#params
@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> kv: array<#{KV}>;
@group(0) @binding(2) var<storage, read> table: array<u32>;
@group(0) @binding(3) var<storage, read_write> state: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> out: array<vec4<f32>>;
#import common/kv_block

const ROWS: u32 = #{ROWS}u;
const KEYS: u32 = #{KEYS}u;
// Score of a masked key, and the running max before the first visible key. exp(MASKED - LOWEST) is zero, so a row without
// visible keys has weights of zero.
const MASKED: f32 = -1.0e38;
const LOWEST: f32 = -1.0e30;

// Begin of row r in q and out, in vec4. Rows beyond the end read the last row and are not stored.
fn row_at(r: u32, g: u32) -> u32 {
    let row = min(r, params.n_rows - 1u);
    return ((row / params.group * params.n_head + g * params.group + row % params.group) * HEAD_DIM) / 4u;
}

// Number of keys of the run that row r attends to. Later rows attend to more.
fn visible_keys(r: u32) -> u32 {
    let seen = params.mask_from + min(r, params.n_rows - 1u) / params.group;
    return min(max(seen, params.first_key) - params.first_key, params.n_keys);
}

// Running max and sum of row r before this run.
fn carried_state(r: u32, g: u32) -> vec2<f32> {
    if params.is_first == 1u {
        return vec2<f32>(LOWEST, 0.0);
    }
    return state[g * params.n_rows + min(r, params.n_rows - 1u)].xy;
}

// Token of key k of the run. Keys beyond the end read the last key: they are masked, and their values are zero.
fn token_of(k: u32) -> u32 {
    return params.first_key + min(k, params.n_keys - 1u);
}
