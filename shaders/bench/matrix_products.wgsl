// Arithmetic of matrix units: products of SIZE x SIZE matrices of f16 with f32 sums, in registers, as the peak of kernels that
// use them. Every subgroup has 2 x 4 matrices of sums.
// Bindings: numbers f32 [2] (elements of the first operand, difference of the next) · sums f32 [workgroups, SIZE, SIZE].
// Grid: any number of workgroups of 4 subgroups of LANES lanes, `n_steps` steps of 8 products each.
// Workgroup memory: six matrices of f16, four of f32.
enable f16;
enable wgpu_cooperative_matrix;
struct Params { n_steps: u32 }
#params
@group(0) @binding(0) var<storage, read> numbers: array<f32>;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;

const QUADS: u32 = #{SIZE*SIZE/4}u;
var<workgroup> operands: array<vec4<f16>, #{SIZE*SIZE/4*6}>;
var<workgroup> results: array<f32, #{4*SIZE*SIZE}>;

@compute @workgroup_size(#{4*LANES})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
) {
    // No two operands are equal, so that no product can be left out.
    for (var i = lane; i < 6u * QUADS; i += #{4*LANES}u) {
        operands[i] = vec4<f16>(f16(numbers[0] + f32(i / QUADS) * numbers[1]));
    }
    workgroupBarrier();
#for i in 0..2
    let a#{i} = coopLoadT<coop_mat#{SIZE}x#{SIZE}<f16, A>>(&operands[#{i}u * QUADS], #{SIZE/4}u);
#endfor
#for j in 0..4
    let b#{j} = coopLoad<coop_mat#{SIZE}x#{SIZE}<f16, B>>(&operands[#{j+2}u * QUADS], #{SIZE/4}u);
#endfor
#for i in 0..2
#for j in 0..4
    var y#{i}_#{j}: coop_mat#{SIZE}x#{SIZE}<f32, C>;
#endfor
#endfor
    for (var step = 0u; step < params.n_steps; step++) {
#for i in 0..2
#for j in 0..4
        y#{i}_#{j} = coopMultiplyAdd(a#{i}, b#{j}, y#{i}_#{j});
#endfor
#endfor
    }
    let at = min(subgroup, 3u) * #{SIZE*SIZE}u;
#for i in 0..2
#for j in 0..4
    let r#{i}_#{j} = y#{i}_#{j};
    coopStoreT(r#{i}_#{j}, &results[at], #{SIZE}u);
    workgroupBarrier();
    for (var i = lane; i < #{SIZE*SIZE}u; i += #{4*LANES}u) {
        sums[group.x * #{SIZE*SIZE}u + i] += results[i] + results[i + #{3*SIZE*SIZE}u];
    }
    workgroupBarrier();
#endfor
#endfor
}
