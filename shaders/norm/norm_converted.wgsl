// Norm of rows (norm/norm) in the form that the next product reads, for real GPUs with subgroups: BYTES
// (common/activation_bytes) or f16 (common/activation_halves).
// Bindings: x f32 [rows, C] · w f32 [C] · b f32 [C] (LAYER) · codes (or f16) · code_scales, as of linear/quantize_activations or
// linear/halve_activations. C is a multiple of 8; values beyond C are zero.
// Grid: one workgroup of LANES (256) lanes per row. Workgroup memory: 3.5 KiB. Accumulates in f32.
struct Params { n_cols4: u32, x_first_row: u32, eps: f32 }
#params
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> w: array<vec4<f32>>;
#ifdef LAYER
@group(0) @binding(2) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> codes: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> code_scales: array<#{SCALE}>;
#else
@group(0) @binding(2) var<storage, read_write> codes: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read_write> code_scales: array<#{SCALE}>;
#endif
#ifdef BYTES
#import common/activation_bytes
#else
#import common/activation_halves
#endif

// By subgroup; there are at least 2 lanes in each.
var<workgroup> partial: array<f32, #{LANES/2}>;

struct Lane { subgroup: u32, n_subgroups: u32, in_subgroup: u32 }

fn total(lane: Lane, value: f32) -> f32 {
    let sum = subgroupAdd(value);
    if lane.in_subgroup == 0u {
        partial[lane.subgroup] = sum;
    }
    workgroupBarrier();
    var all = 0.0;
    for (var i = 0u; i < lane.n_subgroups; i++) {
        all += partial[i];
    }
    workgroupBarrier();
    return all;
}

fn greatest(lane: Lane, value: f32) -> f32 {
    let peak = subgroupMax(value);
    if lane.in_subgroup == 0u {
        partial[lane.subgroup] = peak;
    }
    workgroupBarrier();
    var all = 0.0;
    for (var i = 0u; i < lane.n_subgroups; i++) {
        all = max(all, partial[i]);
    }
    workgroupBarrier();
    return all;
}

fn normed(source: u32, i: u32, shift: f32, scale: f32) -> vec4<f32> {
#ifdef LAYER
    return (x[source + i] - shift) * scale * w[i] + b[i];
#else
    return x[source + i] * scale * w[i];
#endif
}

@compute @workgroup_size(#{LANES})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) n_subgroups: u32,
    @builtin(subgroup_invocation_id) in_subgroup: u32,
) {
    let lane = Lane(subgroup, n_subgroups, in_subgroup);
    let source = (params.x_first_row + group.x) * params.n_cols4;
    let n_cols = f32(params.n_cols4 * 4u);
    var shift = 0.0;
#ifdef LAYER
    var sum = 0.0;
    for (var i = index; i < params.n_cols4; i += #{LANES}u) {
        let v = x[source + i];
        sum += v.x + v.y + v.z + v.w;
    }
    shift = total(lane, sum) / n_cols;
#endif
    var square = 0.0;
    for (var i = index; i < params.n_cols4; i += #{LANES}u) {
        let v = x[source + i] - shift;
        square += dot(v, v);
    }
    let scale = 1.0 / sqrt(total(lane, square) / n_cols + params.eps);
    let padded4 = (params.n_cols4 + 15u) / 16u * 16u;
#ifdef BYTES
    for (var first = 0u; first < padded4 / 2u; first += #{LANES}u) {
        let k8 = first + index;
        var a = vec4<f32>();
        var b = vec4<f32>();
        if 2u * k8 < params.n_cols4 {
            a = normed(source, 2u * k8, shift, scale);
            b = normed(source, 2u * k8 + 1u, shift, scale);
        }
        store_bytes(index, group.x, k8, padded4 / 2u, a, b);
    }
#else
    var peak = 0.0;
    for (var i = index; i < params.n_cols4; i += #{LANES}u) {
        let v = abs(normed(source, i, shift, scale));
        peak = max(peak, max(max(v.x, v.y), max(v.z, v.w)));
    }
    let s = half_scale(greatest(lane, peak));
    for (var i = index; i < padded4; i += #{LANES}u) {
        var v = vec4<f32>();
        if i < params.n_cols4 {
            v = normed(source, i, shift, scale) * s.inverse;
        }
        codes[group.x * padded4 + i] = four_halves(v);
    }
    if index == 0u {
        code_scales[group.x] = s.scale;
    }
#endif
}
