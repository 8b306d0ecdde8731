// Activations as f16, each token divided by a power of two (common/activation_halves): the rounding is that of f16 (11 bits).
// Bindings: x f32 [T, x_stride] · halves f16 [T, Kp] · scales f32 [T]. Kp is K padded to 64 with zeros.
// Grid: (T, 1, 1), 256 lanes; workgroup memory 1 KiB.
struct Params {
    n_cols: u32,
    x_stride: u32,
}
#params
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> halves: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> scales: array<f32>;
#import common/activation_halves

var<workgroup> peaks: array<f32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let t = group.x;
    let n4 = params.n_cols / 4u;
    let padded4 = (params.n_cols + 63u) / 64u * 16u;
    let from_ = t * params.x_stride / 4u;
    var peak = 0.0;
    for (var i = lane; i < n4; i += 256u) {
        let v = abs(x[from_ + i]);
        peak = max(peak, max(max(v.x, v.y), max(v.z, v.w)));
    }
    peaks[lane] = peak;
    workgroupBarrier();
    for (var width = 128u; width > 0u; width /= 2u) {
        if lane < width {
            peaks[lane] = max(peaks[lane], peaks[lane + width]);
        }
        workgroupBarrier();
    }
    let s = half_scale(peaks[0]);
    for (var i = lane; i < padded4; i += 256u) {
        halves[t * padded4 + i] = four_halves(select(vec4<f32>(), x[from_ + min(i, n4 - 1u)] * s.inverse, i < n4));
    }
    if lane == 0u {
        scales[t] = s.scale;
    }
}
