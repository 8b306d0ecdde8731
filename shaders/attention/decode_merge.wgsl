// Flash decoding merge: combines the splits of decode attention by their maxima and sums (log-sum-exp).
// Source: Flash-Decoding (Dao et al. 2023).
// Bindings: acc f32 [R, H, n_splits, D] · state f32 [R, H, n_splits, 2] · out f32 [R, H, D]
// Grid: R H workgroups of 64 lanes; a lane owns every 64th element.
struct Params { n_splits: u32, head_dim: u32, n_head: u32 }
#params
@group(0) @binding(0) var<storage, read> acc: array<f32>;
@group(0) @binding(1) var<storage, read> state: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let head = group.x;
    let first = head * params.n_splits;
    var top = -3.0e38;
    for (var i = 0u; i < params.n_splits; i += 1u) {
        top = max(top, state[first + i].x);
    }
    for (var d = lane; d < params.head_dim; d += 64u) {
        var total = 0.0;
        var sum = 0.0;
        for (var i = 0u; i < params.n_splits; i += 1u) {
            let factor = exp(state[first + i].x - top);
            total += factor * acc[(first + i) * params.head_dim + d];
            sum += factor * state[first + i].y;
        }
        // A head without any key has zero output.
        out[head * params.head_dim + d] = select(total / sum, 0.0, sum == 0.0);
    }
}
