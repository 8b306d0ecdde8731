// y = W x for TOKENS (8 or 16) tokens at a time, for software devices with subgroups of exactly 8 lanes. Each lane owns
// 4 rows x TOKENS tokens, dequantizes its rows in registers, and loads the activations of one token of each eight,
// which are then broadcast.
// Bindings: quants, scales (common/weights) · x f32 [T, K] · y f32 [T, N] · bias f32 [N] (BIAS).
// Grid: (tiles of 32 rows, tokens / TOKENS, 1); 8 lanes; no workgroup memory. Accumulates in f32.
#import common/linear_params

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let tile = group.x;
    let n_groups = (params.n_cols + 63u) / 64u;
    let first = group.y * #{TOKENS}u;
#for e in 0..TOKENS/8
    let token#{e} = min(first + #{e*8}u + lane, params.n_tokens - 1u);
#endfor
#for t in 0..TOKENS
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
#for r in 0..4
            let w#{i}_#{r} = w8(block#{r}, #{i}u);
#endfor
#for e in 0..TOKENS/8
            let x#{i}_#{e} = load_x8(token#{e}, g * 8u + half * 4u + #{i}u);
#for t in 0..8
            let a#{i}_#{e}_#{t} = subgroupBroadcast(x#{i}_#{e}.a, #{t}u);
            let b#{i}_#{e}_#{t} = subgroupBroadcast(x#{i}_#{e}.b, #{t}u);
#for r in 0..4
            y#{e*8+t}[#{r}] += dot(w#{i}_#{r}.a, a#{i}_#{e}_#{t}) + dot(w#{i}_#{r}.b, b#{i}_#{e}_#{t});
#endfor
#endfor
#endfor
#endfor
        }
    }
#for t in 0..TOKENS
    finish4(first + #{t}u, tile * 32u + lane * 4u, y#{t});
#endfor
}
