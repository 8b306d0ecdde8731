// Flash decoding merge, as `decode_merge`, for real GPUs with subgroups: lanes share the splits.
// Source: Flash-Decoding (Dao et al. 2023).
// BYTES: the result is quantized for the next product (common/activation_bytes); D is a multiple of 32, H D of 64.
// Bindings: acc f32 [R, H, n_splits, D] · state f32 [R, H, n_splits, 2] · out f32 [R, H, D] (BYTES: codes · code_scales, as of
// linear/quantize_activations for R tokens of H D columns)
// Grid: (R H, ceil(D / 32)), 256 lanes: 8 lanes of 4 elements by 32 splits.
// Workgroup memory: 256 vec4<f32> and 320 f32 (5.25 KiB; BYTES: 2 KiB more). Accumulation in f32.
struct Params { n_splits: u32, head_dim: u32, n_head: u32 }
#params
@group(0) @binding(0) var<storage, read> acc: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> state: array<vec2<f32>>;
#ifdef BYTES
@group(0) @binding(2) var<storage, read_write> codes: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read_write> code_scales: array<vec4<f32>>;
#import common/activation_bytes
#else
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;
#endif

// One per subgroup of at least 4 lanes.
var<workgroup> maxima: array<f32, 64>;
var<workgroup> totals: array<vec4<f32>, 256>;
var<workgroup> sums: array<f32, 256>;

// A head without any key has zero output.
fn merged(lane: u32) -> vec4<f32> {
    return select(totals[lane] / sums[lane], vec4<f32>(0.0), sums[lane] == 0.0);
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) n_subgroups: u32,
    @builtin(subgroup_invocation_id) in_subgroup: u32,
) {
    let first = group.x * params.n_splits;
    var high = -3.0e38;
    for (var i = lane; i < params.n_splits; i += 256u) {
        high = max(high, state[first + i].x);
    }
    high = subgroupMax(high);
    if in_subgroup == 0u {
        maxima[subgroup] = high;
    }
    workgroupBarrier();
    var top = maxima[0];
    for (var i = 1u; i < n_subgroups; i += 1u) {
        top = max(top, maxima[i]);
    }
    let width = params.head_dim / 4u;
    let column = group.y * 8u + lane % 8u;
    let own = min(column, width - 1u);
    var total = vec4<f32>(0.0);
    var sum = 0.0;
    for (var i = lane / 8u; i < params.n_splits; i += 32u) {
        let split = state[first + i];
        let factor = exp(split.x - top);
        total += factor * acc[(first + i) * width + own];
        sum += factor * split.y;
    }
    totals[lane] = total;
    sums[lane] = sum;
    workgroupBarrier();
    for (var n = 128u; n >= 8u; n /= 2u) {
        if lane < n {
            totals[lane] += totals[lane + n];
            sums[lane] += sums[lane + n];
        }
        workgroupBarrier();
    }
#ifdef BYTES
    var k8 = 0xffffffffu;
    var a = vec4<f32>();
    var b = vec4<f32>();
    if lane < 4u {
        k8 = (group.x % params.n_head * params.head_dim + group.y * 32u) / 8u + lane;
        a = merged(2u * lane);
        b = merged(2u * lane + 1u);
    }
    store_bytes(lane, group.x / params.n_head, k8, params.n_head * params.head_dim / 8u, a, b);
#else
    if lane < 8u && column < width {
        out[group.x * width + column] = merged(lane);
    }
#endif
}
