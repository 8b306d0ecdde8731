// Shared parameters and bindings of matvec and matmul: y[t, r] = epilogue(sum_k W[r, k] x[t, k]).
// Tokens t in 0 .. n_tokens, rows r of the bound slab in 0 .. n_rows, k in 0 .. n_cols.
// x element (t, k) is at t * x_stride + k; output o of token t at y_offset + t * y_stride + o.
struct Params {
    n_cols: u32,
    n_rows: u32,
    n_tokens: u32,
    x_stride: u32,
    y_offset: u32,
    y_stride: u32,
    bias_offset: u32,
#ifdef FUSED
    eps: f32,           // of the norm that the input lacks
#endif
}
#params
#import common/weights
#ifdef CONVERTED
@group(0) @binding(2) var<storage, read> x_values: array<#{X}>;
@group(0) @binding(3) var<storage, read> x_scales: array<#{SCALE}>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
#ifdef BIAS
@group(0) @binding(5) var<storage, read> bias: array<f32>;
#endif
#else
#ifdef SCALAR_X
@group(0) @binding(2) var<storage, read> x: array<f32>;
#else
#ifdef SUBGROUP8
@group(0) @binding(2) var<storage, read> x: array<vec4<u64>>;
#else
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;
#endif
#endif
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
#ifdef BIAS
@group(0) @binding(4) var<storage, read> bias: array<f32>;
#endif

// Activations k = 8 * k8 .. 8 * k8 + 7 of token t; zero beyond the last column.
fn load_x8(t: u32, k8: u32) -> W8 {
#ifdef SCALAR_X
    let start = t * params.x_stride + 8u * k8;
    let left = max(params.n_cols, 8u * k8) - 8u * k8;
    var v: W8;
#for i in 0..4
    v.a[#{i}] = select(0.0, x[start + #{i}u], left > #{i}u);
    v.b[#{i}] = select(0.0, x[start + #{i+4}u], left > #{i+4}u);
#endfor
    return v;
#else
    let inside = 8u * k8 < params.n_cols;
#ifdef SUBGROUP8
    let v = x[t * params.x_stride / 8u + k8];
    let a = bitcast<vec4<f32>>(vec4(u32(v.x), u32(v.x >> 32u), u32(v.y), u32(v.y >> 32u)));
    let b = bitcast<vec4<f32>>(vec4(u32(v.z), u32(v.z >> 32u), u32(v.w), u32(v.w >> 32u)));
#else
    let start = t * params.x_stride / 4u + 2u * k8;
    let a = x[start];
    let b = x[start + 1u];
#endif
    return W8(select(vec4(0.0), a, inside), select(vec4(0.0), b, inside));
#endif
}
#endif

fn silu(v: f32) -> f32 {
    return v / (1.0 + exp(-max(v, -80.0)));
}

// Abramowitz & Stegun 7.1.26, absolute error below 1.5e-7.
fn erf(v: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.3275911 * abs(v));
    let p = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    return sign(v) * (1.0 - p * exp(-min(v * v, 80.0)));
}

fn activate(v: f32) -> f32 {
#ifdef GELU_TANH
    return 0.5 * v * (1.0 + tanh(clamp(0.7978845608 * (v + 0.044715 * v * v * v), -15.0, 15.0)));
#else
#ifdef GELU_ERF
    return 0.5 * v * (1.0 + erf(v * 0.70710678));
#else
#ifdef RELU
    return max(v, 0.0);
#else
    return v;
#endif
#endif
#endif
}

fn put(at: u32, v: f32) {
#ifdef RESIDUAL
    y[at] += v;
#else
    y[at] = v;
#endif
}

// Sums of rows row .. row + 3, with their bias.
fn biased(row: u32, sums: vec4<f32>) -> vec4<f32> {
    var v = sums;
#ifdef BIAS
#for r in 0..4
    v[#{r}] += bias[params.bias_offset + min(row + #{r}u, params.n_rows - 1u)];
#endfor
#endif
    return v;
}

// Stores rows row .. row + 3 of token t (row is a multiple of 4).
fn finish4(t: u32, row: u32, sums: vec4<f32>) {
    if t >= params.n_tokens {
        return;
    }
    let at = params.y_offset + t * params.y_stride;
    let v = biased(row, sums);
#ifdef SWIGLU
    if row < params.n_rows {
        put(at + row / 2u, silu(v.x) * v.y);
    }
    if row + 2u < params.n_rows {
        put(at + row / 2u + 1u, silu(v.z) * v.w);
    }
#else
#for r in 0..4
    if row + #{r}u < params.n_rows {
        put(at + row + #{r}u, activate(v[#{r}]));
    }
#endfor
#endif
}
