// y = W x in tiles of SIDE rows x SIDE tokens, for real GPUs without matrix units: 2048 / SIDE columns at a time are dequantized
// into workgroup memory, and each of 256 lanes keeps EACH rows x EACH tokens in registers (64: 4, 128: 8).
// Bindings: quants, scales (common/weights) · x f32 [T, K] · y f32 [T, N] · bias f32 [N] (BIAS).
// Grid: (tiles of SIDE rows, tokens / SIDE, 1); workgroup memory 16 KiB.
// Accumulates in f32. The next columns are loaded while these are multiplied.
#import common/linear_params

var<workgroup> w_tile: array<vec4<f32>, 512>; // [512 / SIDE times 4 columns][SIDE rows], row s at s % EACH * 16 + s / EACH
var<workgroup> x_tile: array<vec4<f32>, 512>; // [512 / SIDE times 4 columns][SIDE tokens]

// Columns 8 * part .. 8 * part + 7 of a block.
fn part_of(block: Block, part: u32) -> W8 {
    switch part {
        case 0u: { return w8(block, 0u); }
        case 1u: { return w8(block, 1u); }
        case 2u: { return w8(block, 2u); }
        default: { return w8(block, 3u); }
    }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let first_row = group.x * #{SIDE}u;
    let first_token = group.y * #{SIDE}u;
    // Fill: a lane loads 8 columns (part) of one row and of one token.
    let part = lane / #{SIDE}u;
    let slot = lane % #{SIDE}u;
    let w_at = (slot % #{EACH}u) * 16u + slot / #{EACH}u;
    // The last tile may have fewer rows of weights; rereading the first ones keeps every read in bounds.
    let n_padded = (params.n_rows + 31u) / 32u * 32u;
    let fill_row = select(first_row, first_row + slot, first_row + slot < n_padded);
    let fill_token = min(first_token + slot, params.n_tokens - 1u);
    // Multiply: rows EACH * (lane % 16) .. + EACH - 1, tokens lane / 16 + 16 * t.
    let row = (lane % 16u) * #{EACH}u;
    let token = lane / 16u;
#for t in 0..EACH
#for h in 0..EACH/4
    var y#{t}_#{h} = vec4<f32>();
#endfor
#endfor
    // Columns by eights: each step takes 256 / SIDE of them.
    let n_eights = 8u * n_groups();
    var block = load_block(fill_row, part / 4u);
    var v = load_x8(fill_token, part);
    for (var first = 0u; first < n_eights; first += #{256/SIDE}u) {
        let w = part_of(block, (first + part) % 4u);
        w_tile[part * #{2*SIDE}u + w_at] = w.a;
        w_tile[part * #{2*SIDE}u + #{SIDE}u + w_at] = w.b;
        x_tile[part * #{2*SIDE}u + slot] = v.a;
        x_tile[part * #{2*SIDE}u + #{SIDE}u + slot] = v.b;
        workgroupBarrier();
        let next = min(first + #{256/SIDE}u + part, n_eights - 1u);
        block = load_block(fill_row, next / 4u);
        v = load_x8(fill_token, next);
        for (var k4 = 0u; k4 < #{512/SIDE}u; k4++) {
#for r in 0..EACH
            let w#{r} = w_tile[k4 * #{SIDE}u + lane % 16u + #{r*16}u];
#endfor
#for t in 0..EACH
            let x#{t} = x_tile[k4 * #{SIDE}u + token + #{t*16}u];
#for h in 0..EACH/4
            y#{t}_#{h} += vec4(dot(w#{4*h}, x#{t}), dot(w#{4*h+1}, x#{t}), dot(w#{4*h+2}, x#{t}), dot(w#{4*h+3}, x#{t}));
#endfor
#endfor
        }
        workgroupBarrier();
    }
#for t in 0..EACH
#for h in 0..EACH/4
    finish4(first_token + token + #{t*16}u, first_row + row + #{4*h}u, y#{t}_#{h});
#endfor
#endfor
}
