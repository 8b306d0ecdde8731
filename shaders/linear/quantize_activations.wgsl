// Activations quantized to two planes of signed bytes, one f32 scale per 32 columns: x = d * (128 * high + low),
// d = max |x| / 16256. Bindings: x f32 [T, x_stride] · codes u32 [T, Kp / 32, 2 planes, 8] ·
// scales vec4<f32> [T, Kp / 32] (d, and d times the sums of the codes 128 * high + low: of all 32, of the first 16, of the
// last 16). Kp is K padded to 64; codes beyond K are zero.
// Grid: (Kp / 512 rounded up, T, 1); workgroup memory 512 bytes. A lane has 8 columns, 4 lanes a block.
// EVEN_ODD: per 8 columns a word of columns 0, 2, 4, 6 and a word of columns 1, 3, 5, 7; otherwise in order.
struct Params {
    n_cols: u32,
    x_stride: u32,
}
#params
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> codes: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> scales: array<vec4<f32>>;

var<workgroup> peaks: array<f32, 64>;
var<workgroup> sums: array<i32, 64>;

fn packed(a: vec4<i32>, b: vec4<i32>) -> vec2<u32> {
#ifdef EVEN_ODD
    return vec2(pack4xI8(vec4(a.x, a.z, b.x, b.z)), pack4xI8(vec4(a.y, a.w, b.y, b.w)));
#else
    return vec2(pack4xI8(a), pack4xI8(b));
#endif
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let n8 = (params.n_cols + 63u) / 64u * 8u;
    let k8 = group.x * 64u + lane;
    let t = group.y;
    var a = vec4<f32>();
    var b = vec4<f32>();
    if 8u * k8 < params.n_cols {
        let at = t * params.x_stride / 4u + 2u * k8;
        a = x[at];
        b = x[at + 1u];
    }
    let m = max(abs(a), abs(b));
    peaks[lane] = max(max(m.x, m.y), max(m.z, m.w));
    workgroupBarrier();
    let first = lane / 4u * 4u;
    let peak = max(max(peaks[first], peaks[first + 1u]), max(peaks[first + 2u], peaks[first + 3u]));
    let d = peak / 16256.0;
    let inverse = select(0.0, 16256.0 / peak, peak > 0.0);
    let qa = vec4<i32>(round(a * inverse));
    let qb = vec4<i32>(round(b * inverse));
    let total = qa + qb;
    sums[lane] = (total.x + total.y) + (total.z + total.w);
    workgroupBarrier();
    if k8 >= n8 {
        return;
    }
    // Lanes of a block write its planes one after the other.
    let at = (t * n8 + k8 / 4u * 4u) * 2u + lane % 4u;
    let high_a = (qa + vec4(64)) >> vec4(7u);
    let high_b = (qb + vec4(64)) >> vec4(7u);
    codes[at] = packed(high_a, high_b);
    codes[at + 4u] = packed(qa - 128 * high_a, qb - 128 * high_b);
    if lane % 4u == 0u {
        let low = d * f32(sums[lane] + sums[lane + 1u]);
        let high = d * f32(sums[lane + 2u] + sums[lane + 3u]);
        scales[t * n8 / 4u + k8 / 4u] = vec4(d, d * f32((sums[lane] + sums[lane + 1u]) + (sums[lane + 2u] + sums[lane + 3u])), low, high);
    }
}
