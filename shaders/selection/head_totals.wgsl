// Head totals: log-sum-exp of the scores of the listed pages and the tail of each query head, as bound slack: the highest bound
// minus the total.
// Source: LeoAM §4.2.
// Bindings: scores f32 (selection/token_scores) · tails f32 [R, H, n_splits, 2] (maximum and sum of the scores of the tail, in the
//   first n_tail) · pages u32 [R G, 1 + n_listed] · heads f32 [L, R, H, 2] (selection/page_candidates)
// Grid: one workgroup of 64 lanes per query head of each row. Workgroup memory: 1 KiB.
struct Params {
    n_listed: u32,
    n_heads: u32,       // of all rows
    group: u32,
    first_head: u32,    // of the layer, in heads
    n_splits: u32,
    n_tail: u32,
}
#params
@group(0) @binding(0) var<storage, read> scores: array<f32>;
@group(0) @binding(1) var<storage, read> tails: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> pages: array<u32>;
@group(0) @binding(3) var<storage, read_write> heads: array<vec2<f32>>;
#import common/exp_sum

var<workgroup> partial: array<vec2<f32>, 64>;
var<workgroup> of_eight: array<vec2<f32>, 8>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let head = wg.x;
    let n_here = min(pages[head / params.group * (1u + params.n_listed)], params.n_listed);
    let parts = params.n_heads * params.n_listed * 64u + head * params.n_listed * 2u;
    var sum = vec2<f32>(-3.0e38, 0.0);
    for (var i = lane; i < n_here; i += 64u) {
        sum = merged(sum, vec2<f32>(scores[parts + 2u * i], scores[parts + 2u * i + 1u]));
    }
    for (var i = lane; i < params.n_tail; i += 64u) {
        sum = merged(sum, tails[head * params.n_splits + i]);
    }
    partial[lane] = sum;
    workgroupBarrier();
    if lane < 8u {
        var eight = partial[lane * 8u];
        for (var i = 1u; i < 8u; i += 1u) {
            eight = merged(eight, partial[lane * 8u + i]);
        }
        of_eight[lane] = eight;
    }
    workgroupBarrier();
    if lane == 0u {
        var all = of_eight[0];
        for (var i = 1u; i < 8u; i += 1u) {
            all = merged(all, of_eight[i]);
        }
        let highest = heads[params.first_head + head].x;
        heads[params.first_head + head].y = highest - (all.x + log(max(all.y, 1.0e-30)));
    }
}
