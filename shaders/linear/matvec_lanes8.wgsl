// y = W x, one token per workgroup row, for software devices with subgroups of exactly 8 lanes.
// Each lane owns 4 rows and reads their weights with 64-bit loads; each lane loads 8 of 64 activations, which are then
// broadcast: on lavapipe a load costs 10 to 80 cycles, a broadcast one.
// Bindings: quants, scales (common/weights) · x f32 [T, K] · y f32 [T, N] · bias f32 [N] (BIAS). Weights decide the variant.
// Grid: (tiles of 32 rows, tokens, 1); 8 lanes; no workgroup memory. Accumulates in f32.
#import common/linear_params

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let tile = params.first_tile + group.x;
    let n_groups = (params.n_cols + 63u) / 64u;
    var y = vec4<f32>();
    for (var g = 0u; g < n_groups; g++) {
        y += dot64(tile * n_groups + g, lane, load_x8(group.y, g * 8u + lane));
    }
    finish4(group.y, tile * 32u + lane * 4u, y);
}
