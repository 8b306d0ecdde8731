// Rows of an embedding table for token ids, f32 table.
// Bindings: ids u32 [T] · quants f32 [rows, C] · scales unused · y f32 [T, C]
// Grid: (C / 64, T), 64 lanes. Tokens outside first_row .. first_row + n_rows are left to another slab.
struct Params { n_cols: u32, first_row: u32, n_rows: u32, id_offset: u32 }
#params
@group(0) @binding(0) var<storage, read> ids: array<u32>;
@group(0) @binding(1) var<storage, read> quants: array<f32>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let token = ids[id.y] + params.id_offset;
    if id.x >= params.n_cols || token < params.first_row || token - params.first_row >= params.n_rows {
        return;
    }
    let value = quants[(token - params.first_row) * params.n_cols + id.x];
#ifdef ADD
    y[id.y * params.n_cols + id.x] += value;
#else
    y[id.y * params.n_cols + id.x] = value;
#endif
}
