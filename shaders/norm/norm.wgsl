// Norm of rows: RMSNorm (y = x / rms(x) * w) or, with LAYER, LayerNorm (y = (x - mean) / sd * w + b).
// Source: Zhang & Sennrich 2019, equation 4; Ba et al. 2016, equation 3.
// Bindings: x f32 [rows, C] · w f32 [C] · b f32 [C] (LAYER) · y f32 [rows, C]
// Grid: one workgroup of 64 lanes per row. Workgroup memory: 256 B. Accumulates in f32.
struct Params { n_cols4: u32, x_first_row: u32, eps: f32 }
#params
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> w: array<vec4<f32>>;
#ifdef LAYER
@group(0) @binding(2) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;
#else
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;
#endif

var<workgroup> partial: array<f32, 64>;

fn reduce(lane: u32, value: f32) -> f32 {
    partial[lane] = value;
    workgroupBarrier();
    for (var step = 32u; step > 0u; step /= 2u) {
        if lane < step {
            partial[lane] += partial[lane + step];
        }
        workgroupBarrier();
    }
    let total = partial[0];
    workgroupBarrier();
    return total;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let source = (params.x_first_row + group.x) * params.n_cols4;
    let to = group.x * params.n_cols4;
    let n_cols = f32(params.n_cols4 * 4u);
    var shift = 0.0;
#ifdef LAYER
    var sum = 0.0;
    for (var i = lane; i < params.n_cols4; i += 64u) {
        let v = x[source + i];
        sum += v.x + v.y + v.z + v.w;
    }
    shift = reduce(lane, sum) / n_cols;
#endif
    var square = 0.0;
    for (var i = lane; i < params.n_cols4; i += 64u) {
        let v = x[source + i] - shift;
        square += dot(v, v);
    }
    let scale = 1.0 / sqrt(reduce(lane, square) / n_cols + params.eps);
    for (var i = lane; i < params.n_cols4; i += 64u) {
#ifdef LAYER
        y[to + i] = (x[source + i] - shift) * scale * w[i] + b[i];
#else
        y[to + i] = x[source + i] * scale * w[i];
#endif
    }
}
