// y = W x for 8 tokens at a time, for software devices with subgroups of exactly 8 lanes: 4 rows x 8 tokens per lane.
// Each lane owns 4 rows, dequantised in registers, and loads the activations of one token, which are then broadcast.
// Bindings: quants, scales (common/weights) · x f32 [T, K] · y f32 [T, N] · bias f32 [N] (BIAS).
// Grid: (tiles of 32 rows, tokens / 8, 1); 8 lanes; no workgroup memory. Accumulates in f32.
#import common/linear_params

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let tile = params.first_tile + group.x;
    let n_groups = (params.n_cols + 63u) / 64u;
    let first = group.y * 8u;
    let token = min(first + lane, params.n_tokens - 1u);
#for t in 0..8
    var y#{t} = vec4<f32>();
#endfor
    for (var g = 0u; g < n_groups; g++) {
        let step = tile * n_groups + g;
        let s = load_scales(step, lane);
#for r in 0..4
        let row#{r} = load_row(step, lane * 4u + #{r}u, s, #{r}u);
#endfor
        for (var half = 0u; half < 2u; half++) {
#for r in 0..4
            let block#{r} = block(row#{r}, half);
#endfor
#for i in 0..4
            let x#{i} = load_x8(token, g * 8u + half * 4u + #{i}u);
#for r in 0..4
            let w#{i}_#{r} = w8(block#{r}, #{i}u);
#endfor
#for t in 0..8
            let a#{i}_#{t} = subgroupBroadcast(x#{i}.a, #{t}u);
            let b#{i}_#{t} = subgroupBroadcast(x#{i}.b, #{t}u);
#for r in 0..4
            y#{t}[#{r}] += dot(w#{i}_#{r}.a, a#{i}_#{t}) + dot(w#{i}_#{r}.b, b#{i}_#{t});
#endfor
#endfor
#endfor
        }
    }
#for t in 0..8
    finish4(first + #{t}u, tile * 32u + lane * 4u, y#{t});
#endfor
}
