// Shared parameters and bindings of the token score kernels.
// Bindings: q f32 [.., H, D] (scaled) · kv blocks · table u32 [R, G, n_blocks] (common/kv_block) · scores f32 [R, H, n_keys]
// The query heads of the first row begin at head q_head of q.
struct Params {
    n_keys: u32,        // of each list
    n_blocks: u32,      // row stride of the table
    group: u32,
    q_head: u32,
}
#params
@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> kv: array<#{KV}>;
@group(0) @binding(2) var<storage, read> table: array<u32>;
@group(0) @binding(3) var<storage, read_write> scores: array<f32>;
#import common/kv_block

const GR: u32 = #{GR}u;
const MASKED: f32 = -3.0e38;
