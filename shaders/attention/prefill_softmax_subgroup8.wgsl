// Online softmax, as `prefill_softmax`, for software devices with subgroups of exactly 8 lanes: one subgroup per row,
// without workgroup memory and barriers, with 64-bit loads.
// Source: FlashAttention-2 Algorithm 1, lines 8 to 10 (Dao 2023).
// Bindings: s f32 [G, rows, n_tile_keys] (scores in, exp(s - max) out) · state f32 [G, rows, 4]
//   (running max, running sum, factor for what was accumulated before this tile, unused)
// Grid: (rows, G), 8 lanes a row.
struct Params { n_rows: u32, n_tile_keys: u32, is_first: u32 }
#params
@group(0) @binding(0) var<storage, read_write> s: array<Four>;
@group(0) @binding(1) var<storage, read_write> state: array<vec4<f32>>;
#import common/vec8

const MASKED: f32 = -3.0e38;

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.y * params.n_rows + group.x;
    let n4 = params.n_tile_keys / 4u;
    var old = vec4<f32>(MASKED, 0.0, 0.0, 0.0);
    if params.is_first == 0u {
        old = state[row];
    }
    var highest = vec4<f32>(MASKED);
    for (var i = lane; i < n4; i += 8u) {
        highest = max(highest, four(s[row * n4 + i]));
    }
    let top = max(subgroupMax(max(max(highest.x, highest.y), max(highest.z, highest.w))), old.x);
    var sum = vec4<f32>(0.0);
    for (var i = lane; i < n4; i += 8u) {
        let score = four(s[row * n4 + i]);
        // A row without a visible key in this tile keeps `top` at MASKED: its weights are zero, not exp(0).
        let p = select(exp(score - top), vec4<f32>(0.0), score <= vec4<f32>(MASKED));
        let words = vec4<u64>(bitcast<vec4<u32>>(p));
        s[row * n4 + i] = words.xz | (words.yw << vec2<u32>(32u));
        sum += p;
    }
    let total = subgroupAdd(sum.x + sum.y + sum.z + sum.w);
    if lane == 0u {
        let factor = select(exp(old.x - top), 0.0, old.x <= MASKED);
        state[row] = vec4<f32>(top, old.y * factor + total, factor, 0.0);
    }
}
