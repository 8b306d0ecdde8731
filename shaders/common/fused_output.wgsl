// 32 results of a workgroup as two planes of bytes (common/activation_bytes) for the next product. RESIDUAL: added to y first.
// OUT_NORM: times the weights of the next norm; the next product divides by the root mean square (SQUARES).
// Needs common/linear_params, LANES, OUT_AT (first binding). Bindings: codes vec2<u32> [N / 32, 2 planes, 4] ·
// scales vec4<f32> [N / 32] · with OUT_NORM: weights f32 [N] · sums of squares f32 [N / 32]. Workgroup memory: 144 bytes more.
@group(0) @binding(#{OUT_AT}) var<storage, read_write> codes: array<vec2<u32>>;
@group(0) @binding(#{OUT_AT+1}) var<storage, read_write> code_scales: array<vec4<f32>>;
#ifdef OUT_NORM
@group(0) @binding(#{OUT_AT+2}) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(#{OUT_AT+3}) var<storage, read_write> squares_out: array<f32>;
var<workgroup> square_parts: array<f32, 4>;
#endif
#import common/activation_bytes

var<workgroup> outputs: array<vec4<f32>, 8>;

// Keeps the results of rows row .. row + 3, which are quad `quad` of the workgroup.
fn keep4(quad: u32, row: u32, sums: vec4<f32>) {
    let v = biased(row, sums);
#ifdef SWIGLU
    outputs[quad / 2u][2u * (quad % 2u)] = silu(v.x) * v.y;
    outputs[quad / 2u][2u * (quad % 2u) + 1u] = silu(v.z) * v.w;
#else
    var results = vec4(activate(v.x), activate(v.y), activate(v.z), activate(v.w));
#ifdef RESIDUAL
#for r in 0..4
    results[#{r}] += y[params.y_offset + row + #{r}u];
    y[params.y_offset + row + #{r}u] = results[#{r}];
#endfor
#endif
    outputs[quad] = results;
#endif
}

// Stores the 32 results of workgroup `group`. Every lane calls it.
fn convert_outputs(group: u32, lane: u32) {
    workgroupBarrier();
    var k8 = 0xffffffffu;
    var a = vec4<f32>();
    var b = vec4<f32>();
    if lane < 4u {
        k8 = group * 4u + lane;
        a = outputs[2u * lane];
        b = outputs[2u * lane + 1u];
#ifdef OUT_NORM
        square_parts[lane] = dot(a, a) + dot(b, b);
        a *= norm_weight[2u * k8];
        b *= norm_weight[2u * k8 + 1u];
#endif
    }
#ifdef SWIGLU
    let n8 = params.n_rows / 16u;
#else
    let n8 = params.n_rows / 8u;
#endif
    store_bytes(lane, 0u, k8, n8, a, b);
#ifdef OUT_NORM
    // Barriers of store_bytes separate this from the writes.
    if lane == 0u {
        squares_out[group] = (square_parts[0] + square_parts[1]) + (square_parts[2] + square_parts[3]);
    }
#endif
}
