// y = W x, one thread per row and token, f32 weights: the simplest form of the op.
// Bindings: x f32 [T, x_stride] · quants f32 [rows, K] · scales unused · bias f32 (BIAS) · y f32 [T, y_stride]
// Grid: (rows / 64, T), 64 lanes.
struct Params { n_rows: u32, n_cols: u32, x_stride: u32, y_stride: u32, y_offset: u32, bias_offset: u32 }
#params
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> quants: array<f32>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
#ifdef BIAS
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
#else
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
#endif

fn dot_row(row: u32, t: u32) -> f32 {
    var sum = 0.0;
    for (var k = 0u; k < params.n_cols; k += 1u) {
        sum += quants[row * params.n_cols + k] * x[t * params.x_stride + k];
    }
#ifdef BIAS
    sum += bias[params.bias_offset + row];
#endif
    return sum;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = id.x;
    let t = id.y;
#ifdef SWIGLU
    if row >= params.n_rows / 2u {
        return;
    }
    let gate = dot_row(2u * row, t);
    let value = gate / (1.0 + exp(-gate)) * dot_row(2u * row + 1u, t);
#else
    if row >= params.n_rows {
        return;
    }
    var value = dot_row(row, t);
#ifdef RELU
    value = max(value, 0.0);
#endif
#ifdef GELU_TANH
    let u = clamp(0.7978845608028654 * (value + 0.044715 * value * value * value), -15.0, 15.0);
    value = 0.5 * value * (1.0 + tanh(u));
#endif
#endif
    let at = t * params.y_stride + params.y_offset + row;
#ifdef RESIDUAL
    y[at] += value;
#else
    y[at] = value;
#endif
}
