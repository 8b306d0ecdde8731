// Embedding lookup by token id: y[t] = W[ids[t] + id_offset] (added to y with ADD), for ids in the bound slab of rows
// first_row .. first_row + n_rows.
// Bindings: quants, scales (common/weights) · ids u32 [T] · y f32 [T, C].
// Grid: (blocks of 32 columns / 64, tokens, 1); 64 lanes, one block each; no workgroup memory.
struct Params { n_cols: u32, first_row: u32, n_rows: u32, id_offset: u32 }
#params
#import common/weights
@group(0) @binding(2) var<storage, read> ids: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

fn put(at: u32, v: f32) {
#ifdef ADD
    y[at] += v;
#else
    y[at] = v;
#endif
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(global_invocation_id) id: vec3<u32>) {
    let k32 = id.x;
    let token = ids[group.y] + params.id_offset;
    let outside = token < params.first_row || token - params.first_row >= params.n_rows;
    if outside || k32 >= (params.n_cols + 31u) / 32u {
        return;
    }
    let block = load_block(token - params.first_row, k32);
    let at = group.y * params.n_cols + k32 * 32u;
    let left = params.n_cols - k32 * 32u;
#for i in 0..4
    let w#{i} = w8(block, #{i}u);
#for j in 0..4
    if left > #{i*8+j}u {
        put(at + #{i*8+j}u, w#{i}.a[#{j}]);
    }
    if left > #{i*8+j+4}u {
        put(at + #{i*8+j+4}u, w#{i}.b[#{j}]);
    }
#endfor
#endfor
}
