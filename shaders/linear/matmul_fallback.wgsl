// y = W x, fallback for software devices without subgroups or 64-bit integers. One lane owns 4 rows x TOKENS tokens.
// Bindings: quants, scales (common/weights) · x f32 [T, K] · y f32 [T, N] · bias f32 [N] (BIAS).
// Grid: (tiles of 32 rows, tokens / TOKENS, 1); 8 lanes; no workgroup memory. Accumulates in f32.
#import common/linear_params

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.x * 32u + lane * 4u;
    let first = group.y * #{TOKENS}u;
#for t in 0..TOKENS
    var y#{t} = vec4<f32>();
    let token#{t} = min(first + #{t}u, params.n_tokens - 1u);
#endfor
    for (var k32 = 0u; k32 < 2u * n_groups(); k32++) {
#for r in 0..4
        let block#{r} = load_block(row + #{r}u, k32);
#endfor
#for i in 0..4
#for r in 0..4
        let w#{i}_#{r} = w8(block#{r}, #{i}u);
#endfor
#for t in 0..TOKENS
        let x#{i}_#{t} = load_x8(token#{t}, k32 * 4u + #{i}u);
#for r in 0..4
        y#{t}[#{r}] += dot(w#{i}_#{r}.a, x#{i}_#{t}.a) + dot(w#{i}_#{r}.b, x#{i}_#{t}.b);
#endfor
#endfor
#endfor
    }
#for t in 0..TOKENS
    finish4(first + #{t}u, row, y#{t});
#endfor
}
