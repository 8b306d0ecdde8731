// y = W x, 4 rows of one token per workgroup, for real GPUs. The 64 lanes stride over blocks of 32 columns; each reads
// whole 32-byte sectors of 4 adjacent rows.
// Bindings: quants, scales (common/weights) · x f32 [T, K] · y f32 [T, N] · bias f32 [N] (BIAS).
// Grid: (tiles of 32 rows, tokens, 8 quads of rows); workgroup memory 1 KiB. Accumulates in f32; the 64 partial sums
// are added by a tree, or with SUBGROUP by subgroupAdd and then over the subgroups.
#import common/linear_params

var<workgroup> partial: array<vec4<f32>, 64>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
#ifdef SUBGROUP
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) n_subgroups: u32,
    @builtin(subgroup_invocation_id) in_subgroup: u32,
#endif
) {
    let row = group.x * 32u + group.z * 4u;
    let n_blocks = 2u * n_groups();
    var y = vec4<f32>();
    for (var k32 = lane; k32 < n_blocks; k32 += 64u) {
#for r in 0..4
        let block#{r} = load_block(row + #{r}u, k32);
#endfor
#for i in 0..4
        let x#{i} = load_x8(group.y, k32 * 4u + #{i}u);
#for r in 0..4
        let w#{i}_#{r} = w8(block#{r}, #{i}u);
        y[#{r}] += dot(w#{i}_#{r}.a, x#{i}.a) + dot(w#{i}_#{r}.b, x#{i}.b);
#endfor
#endfor
    }
#ifdef SUBGROUP
    let sum = subgroupAdd(y);
    if in_subgroup == 0u {
        partial[subgroup] = sum;
    }
    workgroupBarrier();
    if lane == 0u {
        var total = partial[0];
        for (var s = 1u; s < n_subgroups; s++) {
            total += partial[s];
        }
        finish4(group.y, row, total);
    }
#else
    partial[lane] = y;
    workgroupBarrier();
    for (var width = 32u; width > 0u; width /= 2u) {
        if lane < width {
            partial[lane] += partial[lane + width];
        }
        workgroupBarrier();
    }
    if lane == 0u {
        finish4(group.y, row, partial[0]);
    }
#endif
}
