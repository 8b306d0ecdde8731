// y = W x in tiles of 64 rows x 64 tokens, for real GPUs: 32 columns at a time are dequantized into workgroup memory,
// and each of 256 lanes keeps 4 rows x 4 tokens in registers.
// Bindings: quants, scales (common/weights) · x f32 [T, K] · y f32 [T, N] · bias f32 [N] (BIAS).
// Grid: (tiles of 64 rows, tokens / 64, 1); workgroup memory 16 KiB.
// Accumulates in f32.
#import common/linear_params

var<workgroup> w_tile: array<vec4<f32>, 512>; // [4 columns][64 rows], row s at s % 4 * 16 + s / 4
var<workgroup> x_tile: array<vec4<f32>, 512>; // [4 columns][64 tokens]

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let first_row = group.x * 64u;
    let first_token = group.y * 64u;
    // Fill: a lane loads 8 columns (part) of one row and of one token.
    let part = lane / 64u;
    let slot = lane % 64u;
    let w_at = (slot % 4u) * 16u + slot / 4u;
    // The last tile of 64 may have only 32 rows of weights; rereading the first ones keeps every read in bounds.
    let n_padded = (params.n_rows + 31u) / 32u * 32u;
    let fill_row = select(first_row, first_row + slot, first_row + slot < n_padded);
    let fill_token = min(first_token + slot, params.n_tokens - 1u);
    // Multiply: rows 4 * (lane % 16) .. + 3, tokens lane / 16 + 16 * t.
    let row = (lane % 16u) * 4u;
    let token = lane / 16u;
#for t in 0..4
    var y#{t} = vec4<f32>();
#endfor
    for (var k32 = 0u; k32 < 2u * n_groups(); k32++) {
        let block = load_block(fill_row, k32);
        var w: W8;
        switch part {
            case 0u: { w = w8(block, 0u); }
            case 1u: { w = w8(block, 1u); }
            case 2u: { w = w8(block, 2u); }
            default: { w = w8(block, 3u); }
        }
        let v = load_x8(fill_token, k32 * 4u + part);
        w_tile[part * 128u + w_at] = w.a;
        w_tile[part * 128u + 64u + w_at] = w.b;
        x_tile[part * 128u + slot] = v.a;
        x_tile[part * 128u + 64u + slot] = v.b;
        workgroupBarrier();
        for (var k4 = 0u; k4 < 8u; k4++) {
#for r in 0..4
            let w#{r} = w_tile[k4 * 64u + lane % 16u + #{r*16}u];
#endfor
#for t in 0..4
            let x#{t} = x_tile[k4 * 64u + token + #{t*16}u];
            y#{t} += vec4(dot(w0, x#{t}), dot(w1, x#{t}), dot(w2, x#{t}), dot(w3, x#{t}));
#endfor
        }
        workgroupBarrier();
    }
#for t in 0..4
    finish4(first_token + token + #{t*16}u, first_row + row, y#{t});
#endfor
}
