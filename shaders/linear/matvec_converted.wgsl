// y = W x for up to COLS tokens with converted activations, for real GPUs: weights are read once for all tokens.
// DOT4: integer dot products with two planes of bytes (common/dot4). Otherwise f16 weights with f16 activations.
// Lanes of a workgroup: [slices of K][ROWS rows][2 halves of a group of 64 columns], so that neighboring lanes read
// neighboring 16 bytes (4-bit weights) or 32 bytes of a group, and rows are shared by LANES / (2 ROWS) slices.
// Bindings: quants, scales (common/weights) · x values, x scales (linear/quantize_activations, linear/halve_activations) ·
// y f32 [T, N] · bias f32 [N] (BIAS). Grid: (rows / ROWS, tokens / COLS, 1); workgroup memory 4 COLS LANES bytes.
// FUSED (one token; DOT4): the product also does what the next op would need dispatches of its own for.
//   SQUARES: x was not normalized yet; the result is divided by its root mean square. Binding: squares f32 [K / 32], sums of
//   squares of blocks of x. OUT: ROWS / 32 (SWIGLU: / 64) blocks of results per workgroup, see common/fused_output.
//   Bindings begin at AFTER. Workgroup memory: 8 LANES bytes more.
// Sums of DOT4 are exact within 32 columns; f32 beyond. The error is that of rounding x to 15 or 11 bits.
#import common/linear_params
#ifdef DOT4
#import common/dot4
#else
#import common/dot_halves
#endif

#ifdef SQUARES
@group(0) @binding(#{AFTER}) var<storage, read> squares: array<f32>;
#endif
#ifdef OUT
#import common/fused_output
#endif

var<workgroup> partial: array<f32, #{COLS*LANES}>;

#ifdef SQUARES
// 1 / root mean square of x. Each subgroup computes it.
fn input_norm(in_subgroup: u32, subgroup_size: u32) -> f32 {
    var sum = 0.0;
    for (var i = in_subgroup; i < params.n_cols / 32u; i += subgroup_size) {
        sum += squares[i];
    }
    return 1.0 / sqrt(subgroupAdd(sum) / f32(params.n_cols) + params.eps);
}
#endif

@compute @workgroup_size(#{LANES})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
#ifdef SQUARES
    @builtin(subgroup_invocation_id) in_subgroup: u32,
    @builtin(subgroup_size) subgroup_size: u32,
#endif
) {
    let half = lane % 2u;
    let first_row = group.x * #{ROWS}u;
    let row = first_row + lane / 2u % #{ROWS}u;
    let first_token = group.y * #{COLS}u;
#for c in 0..COLS
    let t#{c} = min(first_token + #{c}u, params.n_tokens - 1u);
    var y#{c} = 0.0;
#endfor
#ifdef SQUARES
    let norm = input_norm(in_subgroup, subgroup_size);
#else
    let norm = 1.0;
#endif
    for (var g = lane / #{ROWS*2}u; g < n_groups(); g += #{LANES/ROWS/2}u) {
        let k32 = 2u * g + half;
        let block = load_block(row, k32);
#for c in 0..COLS
        y#{c} += dot32(block, load_x32(t#{c}, k32));
#endfor
    }
#for c in 0..COLS
    partial[#{c*LANES}u + lane] = y#{c};
#endfor
    workgroupBarrier();
    for (var width = #{LANES/2}u; width >= #{ROWS*2}u; width /= 2u) {
        if lane < width {
#for c in 0..COLS
            partial[#{c*LANES}u + lane] += partial[#{c*LANES}u + lane + width];
#endfor
        }
        workgroupBarrier();
    }
    // A lane finishes four rows of one token.
    if lane < #{ROWS/4*COLS}u {
        let c = lane / #{ROWS/4}u;
        let quad = lane % #{ROWS/4}u;
        let at = c * #{LANES}u + quad * 8u;
        let sums = vec4(partial[at] + partial[at + 1u], partial[at + 2u] + partial[at + 3u],
            partial[at + 4u] + partial[at + 5u], partial[at + 6u] + partial[at + 7u]);
        let scaled = sums * (x_scale(min(first_token + c, params.n_tokens - 1u)) * norm);
#ifdef OUT
        keep4(quad, first_row + quad * 4u, scaled);
#else
        finish4(first_token + c, first_row + quad * 4u, scaled);
#endif
    }
#ifdef OUT
    convert_outputs(group.x, lane);
#endif
}
