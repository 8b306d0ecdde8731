// Page attention: share of each page in the attention of the observed rows, the mean over rows and query heads.
// Source: SnapKV §3.
// Bindings: lse f32 [G, n_observed, stride] of `page_logsumexp` · state f32 [G, n_rows, 4] after the last tile (common maximum, sum) ·
//   shares f32, of which n_pages are written from `to` on
// Grid: (sets of 64 pages), 64 lanes; a lane owns a page.
struct Params {
    n_rows: u32,
    n_observed: u32,
    n_kv_head: u32,
    n_pages: u32,
    stride: u32,
    to: u32,
}
#params
@group(0) @binding(0) var<storage, read> lse: array<f32>;
@group(0) @binding(1) var<storage, read> state: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> shares: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let page = id.x;
    if page >= params.n_pages {
        return;
    }
    var sum = 0.0;
    for (var g = 0u; g < params.n_kv_head; g += 1u) {
        for (var r = 0u; r < params.n_observed; r += 1u) {
            let total = state[g * params.n_rows + params.n_rows - params.n_observed + r];
            sum += exp(lse[(g * params.n_observed + r) * params.stride + page] - total.x) / total.y;
        }
    }
    shares[params.to + page] = sum / f32(params.n_kv_head * params.n_observed);
}
