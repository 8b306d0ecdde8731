// Arithmetic of f16 vectors: fused multiply-adds in registers, as the peak of kernels that compute in f16.
// Bindings: numbers f32 [2] (factor, summand) · sums f32 [lanes].
// Grid: any number of workgroups of 64 lanes; each lane has 8 independent chains of vec4<f16>, `n_steps` long.
enable f16;
struct Params { n_steps: u32 }
#params
@group(0) @binding(0) var<storage, read> numbers: array<f32>;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let factor = vec4<f16>(f16(numbers[0]));
    let summand = vec4<f16>(f16(numbers[1]));
    // No two chains are equal, so that none can be left out.
    let first = f16(id.x % 61u) + vec4<f16>(0.0, 1.0, 0.5, 0.25);
#for i in 0..8
    var x#{i} = first + f16(#{i});
#endfor
    for (var step = 0u; step < params.n_steps; step++) {
#for i in 0..8
        x#{i} = fma(x#{i}, factor, summand);
#endfor
    }
    let x = x0 + x1 + x2 + x3 + x4 + x5 + x6 + x7;
    sums[id.x] = f32(x.x + x.y) + f32(x.z + x.w);
}
