// Two planes of signed bytes of activations, one f32 scale per 32 columns: x = d * (128 * high + low),
// d = max |x| / 16256. A lane has 8 columns, 4 lanes a block. Needs LANES, and these bindings: codes vec2<u32>
// [T, Kp / 32, 2 planes, 4] · code_scales vec4<f32> [T, Kp / 32] (d, and d times the sums of 128 * high + low: of all 32, of the first
// 16, of the last 16). Workgroup memory: 8 LANES bytes.
// EVEN_ODD: per 8 columns a word of columns 0, 2, 4, 6 and a word of columns 1, 3, 5, 7; otherwise in order.
var<workgroup> byte_peaks: array<f32, #{LANES}>;
var<workgroup> byte_sums: array<i32, #{LANES}>;

fn packed(a: vec4<i32>, b: vec4<i32>) -> vec2<u32> {
#ifdef EVEN_ODD
    return vec2(pack4xI8(vec4(a.x, a.z, b.x, b.z)), pack4xI8(vec4(a.y, a.w, b.y, b.w)));
#else
    return vec2(pack4xI8(a), pack4xI8(b));
#endif
}

// Stores columns 8 * k8 .. 8 * k8 + 7 of token t, if there are that many (n8 per token). Every lane calls it, with k8 = lane + a
// multiple of 4, or with one beyond n8.
fn store_bytes(lane: u32, t: u32, k8: u32, n8: u32, a: vec4<f32>, b: vec4<f32>) {
    let m = max(abs(a), abs(b));
    byte_peaks[lane] = max(max(m.x, m.y), max(m.z, m.w));
    workgroupBarrier();
    let first = lane / 4u * 4u;
    let peak = max(max(byte_peaks[first], byte_peaks[first + 1u]), max(byte_peaks[first + 2u], byte_peaks[first + 3u]));
    let d = peak / 16256.0;
    let inverse = select(0.0, 16256.0 / peak, peak > 0.0);
    let qa = vec4<i32>(round(a * inverse));
    let qb = vec4<i32>(round(b * inverse));
    let total = qa + qb;
    byte_sums[lane] = (total.x + total.y) + (total.z + total.w);
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
        let low = d * f32(byte_sums[lane] + byte_sums[lane + 1u]);
        let high = d * f32(byte_sums[lane + 2u] + byte_sums[lane + 3u]);
        code_scales[t * n8 / 4u + k8 / 4u] = vec4(d, d * f32((byte_sums[lane] + byte_sums[lane + 1u]) + (byte_sums[lane + 2u] + byte_sums[lane + 3u])), low, high);
    }
}
