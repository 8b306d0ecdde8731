// Page log-sum-exp: logarithm of the sum of exp(score) over every page of a tile, for the last rows of a chunk.
// Source: SnapKV §3 (an observation window at the end of the prompt predicts what its answer attends to).
// Bindings: s f32 [G, n_rows, n_tile_keys], exp(score - max), and state f32 [G, n_rows, 4], as `prefill_softmax` leaves them ·
//   lse f32 [G, n_observed, stride]
// Grid: (sets of 64 pages, n_observed, G), 64 lanes; a lane owns a page.
struct Params {
    n_rows: u32,
    n_observed: u32,    // rows, the last ones
    n_tile_keys: u32,   // a multiple of 64
    first_page: u32,    // of the tile, among all that are observed
    stride: u32,
}
#params
@group(0) @binding(0) var<storage, read> s: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> state: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> lse: array<f32>;

const LOWEST: f32 = -3.0e38;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let page = id.x;
    if page >= params.n_tile_keys / 64u {
        return;
    }
    let row = id.z * params.n_rows + params.n_rows - params.n_observed + id.y;
    var sum = vec4<f32>(0.0);
    for (var i = 0u; i < 16u; i += 1u) {
        sum += s[row * (params.n_tile_keys / 4u) + page * 16u + i];
    }
    let total = sum.x + sum.y + sum.z + sum.w;
    let at = (id.z * params.n_observed + id.y) * params.stride + params.first_page + page;
    lse[at] = select(LOWEST, state[row].x + log(total), total > 0.0);
}
