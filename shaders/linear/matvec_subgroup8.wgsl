// y = W x, one token per workgroup row, for software devices with subgroups of exactly 8 lanes.
// Each lane owns 4 rows of a tile and reads their weights with 64-bit loads; each lane loads 8 of 64 activations, which
// are then broadcast: on lavapipe a load costs 10 to 80 cycles, a broadcast one.
// Bindings: quants, scales (common/weights) · x f32 [T, K] · y f32 [T, N] · bias f32 [N] (BIAS).
// Grid: (pairs of tiles of 32 rows, tokens, 1); 2 x 8 lanes; no workgroup memory. Accumulates in f32.
#import common/linear_params

@compute @workgroup_size(16)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
    let lane = index % 8u;
    let tile = 2u * group.x + index / 8u;
    // The last pair may be incomplete: its second tile rereads the first, and stores nothing.
    let readable = min(tile, (params.n_rows - 1u) / 32u);
    let n_groups = (params.n_cols + 63u) / 64u;
    var y = vec4<f32>();
    for (var g = 0u; g < n_groups; g++) {
        y += dot64(readable * n_groups + g, lane, load_x8(group.y, g * 8u + lane));
    }
    finish4(group.y, tile * 32u + lane * 4u, y);
}
