// Online softmax: turns a tile of scores into weights, with the running maximum and sum of each row.
// Source: FlashAttention-2 Algorithm 1, lines 8 to 10 (Dao 2023).
// Bindings: s f32 [G, rows, n_tile_keys] (scores in, exp(s - max) out) · state f32 [G, rows, 4]
//   (running max, running sum, factor for what was accumulated before this tile, unused)
// Grid: (rows, G), 32 lanes a row. Workgroup memory: 128 B.
struct Params { n_rows: u32, n_tile_keys: u32, is_first: u32 }
#params
@group(0) @binding(0) var<storage, read_write> s: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> state: array<vec4<f32>>;

const MASKED: f32 = -3.0e38;
var<workgroup> partial: array<f32, 32>;

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.y * params.n_rows + group.x;
    let n4 = params.n_tile_keys / 4u;
    var old = vec4<f32>(MASKED, 0.0, 0.0, 0.0);
    if params.is_first == 0u {
        old = state[row];
    }
    var highest = vec4<f32>(MASKED);
    for (var i = lane; i < n4; i += 32u) {
        highest = max(highest, s[row * n4 + i]);
    }
    partial[lane] = max(max(highest.x, highest.y), max(highest.z, highest.w));
    workgroupBarrier();
    for (var step = 16u; step > 0u; step /= 2u) {
        if lane < step {
            partial[lane] = max(partial[lane], partial[lane + step]);
        }
        workgroupBarrier();
    }
    let top = max(partial[0], old.x);
    workgroupBarrier();
    var sum = vec4<f32>(0.0);
    for (var i = lane; i < n4; i += 32u) {
        let score = s[row * n4 + i];
        // A row without a visible key in this tile keeps `top` at MASKED: its weights are zero, not exp(0).
        let p = select(exp(score - top), vec4<f32>(0.0), score <= vec4<f32>(MASKED));
        s[row * n4 + i] = p;
        sum += p;
    }
    partial[lane] = sum.x + sum.y + sum.z + sum.w;
    workgroupBarrier();
    for (var step = 16u; step > 0u; step /= 2u) {
        if lane < step {
            partial[lane] += partial[lane + step];
        }
        workgroupBarrier();
    }
    if lane == 0u {
        let factor = select(exp(old.x - top), 0.0, old.x <= MASKED);
        state[row] = vec4<f32>(top, old.y * factor + partial[0], factor, 0.0);
    }
}
