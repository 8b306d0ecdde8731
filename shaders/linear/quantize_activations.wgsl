// Activations quantized to two planes of signed bytes (common/activation_bytes).
// Bindings: x f32 [T, x_stride] · codes u32 [T, Kp / 32, 2 planes, 8] · code_scales vec4<f32> [T, Kp / 32]. Kp is K padded to 64;
// codes beyond K are zero. Grid: (Kp / 512 rounded up, T, 1); LANES (64) lanes; workgroup memory 512 bytes.
struct Params {
    n_cols: u32,
    x_stride: u32,
}
#params
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> codes: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> code_scales: array<vec4<f32>>;
#import common/activation_bytes

@compute @workgroup_size(#{LANES})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let n8 = (params.n_cols + 63u) / 64u * 8u;
    let k8 = group.x * #{LANES}u + lane;
    var a = vec4<f32>();
    var b = vec4<f32>();
    if 8u * k8 < params.n_cols {
        let at = group.y * params.x_stride / 4u + 2u * k8;
        a = x[at];
        b = x[at + 1u];
    }
    store_bytes(lane, group.y, k8, n8, a, b);
}
