// Lanes of the subgroups that a driver gives to a kernel with cooperative matrices: it may pick their size per pipeline.
// Every subgroup multiplies two matrices of ones, as the real kernels do, and every lane reports what it sees.
// Bindings: seen vec4<u32> [lanes]: lanes of the own subgroup, subgroups, one sum of the product (bits of f32), 0.
// Grid: one workgroup of SUBGROUPS subgroups of LANES lanes. Workgroup memory: one matrix of f16, SUBGROUPS of f32.
enable f16;
enable wgpu_cooperative_matrix;
@group(0) @binding(0) var<storage, read_write> seen: array<vec4<u32>>;

var<workgroup> ones: array<vec4<f16>, #{SIZE*SIZE/4}>;
var<workgroup> sums: array<f32, #{SUBGROUPS*SIZE*SIZE}>;

@compute @workgroup_size(#{SUBGROUPS*LANES})
fn main(
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) n_subgroups: u32,
    @builtin(subgroup_invocation_id) in_subgroup: u32,
) {
    for (var i = lane; i < #{SIZE*SIZE/4}u; i += #{SUBGROUPS*LANES}u) {
        ones[i] = vec4<f16>(1.0);
    }
    workgroupBarrier();
    let own = min(subgroup, #{SUBGROUPS-1}u) * #{SIZE*SIZE}u;
    let a = coopLoadT<coop_mat#{SIZE}x#{SIZE}<f16, A>>(&ones[0], #{SIZE/4}u);
    let b = coopLoad<coop_mat#{SIZE}x#{SIZE}<f16, B>>(&ones[0], #{SIZE/4}u);
    var y: coop_mat#{SIZE}x#{SIZE}<f32, C>;
    y = coopMultiplyAdd(a, b, y);
    let r = y;
    coopStoreT(r, &sums[own], #{SIZE}u);
    workgroupBarrier();
    let sum = sums[own + in_subgroup % #{SIZE*SIZE}u];
    seen[lane] = vec4<u32>(subgroupAdd(1u), n_subgroups, bitcast<u32>(sum), 0u);
}
