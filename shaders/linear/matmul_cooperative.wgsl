// y = W x for many tokens by cooperative matrices of SIZE x SIZE: f16 operands, f32 sums. 32 columns at a time, weights are
// dequantized to f16 into one of two stages of workgroup memory, while the other stage is multiplied and the next columns
// are on their way to registers. Each of SGM x SGN subgroups has FM x FN matrices of sums (tokens x rows).
// Bindings: quants, scales (common/weights) · x f16 [T, Kp], x scales f32 [T] (linear/halve_activations) · y f32 [T, N] ·
// bias f32 [N] (BIAS). Grid: (rows / (SGN FN SIZE), tokens / (SGM FM SIZE), 1); LANES lanes per subgroup.
// Workgroup memory: 160 (rows + tokens) bytes for the stages, and one matrix of f32 per subgroup.
// The error is that of rounding weights and activations to f16.
enable f16;
enable wgpu_cooperative_matrix;
#import common/linear_params

// vec4s between rows of a stage: 32 columns, and 8 more against bank conflicts.
const STRIDE: u32 = 10u;
const TOKENS: u32 = #{SGM*FM*SIZE}u;
const ROWS: u32 = #{SGN*FN*SIZE}u;
const ALL_LANES: u32 = #{SGM*SGN*LANES}u;
// Quads of consecutive rows in a row of a matrix of sums.
const QUADS: u32 = #{SIZE/4}u;
var<workgroup> x_tile: array<vec4<f16>, #{SGM*FM*SIZE*20}>;
var<workgroup> w_tile: array<vec4<f16>, #{SGN*FN*SIZE*20}>;
var<workgroup> sums: array<f32, #{SGM*SGN*SIZE*SIZE}>;

// What one lane loads of 32 columns: X_LOADS times 8 columns of a token, W_LOADS times a half block of a row.
struct Loaded {
#for i in 0..X_LOADS
    x#{i}_0: vec4<f16>,
    x#{i}_1: vec4<f16>,
#endfor
#for i in 0..W_LOADS
    w#{i}: Block,
#endfor
}

fn load(k32: u32, lane: u32, first_token: u32, first_row: u32) -> Loaded {
    var v: Loaded;
    // The last rows may lie beyond the weights; rereading the first ones keeps every read in bounds.
    let n_padded = (params.n_rows + 31u) / 32u * 32u;
#for i in 0..X_LOADS
    let x_load#{i} = lane + #{i}u * ALL_LANES;
    let token#{i} = min(first_token + x_load#{i} / 4u, params.n_tokens - 1u);
    let x_at#{i} = token#{i} * n_groups() * 16u + k32 * 8u + x_load#{i} % 4u * 2u;
    v.x#{i}_0 = x_values[x_at#{i}];
    v.x#{i}_1 = x_values[x_at#{i} + 1u];
#endfor
#for i in 0..W_LOADS
    let row#{i} = first_row + (lane + #{i}u * ALL_LANES) % ROWS;
    v.w#{i} = load_block(select(first_row, row#{i}, row#{i} < n_padded), k32);
#endfor
    return v;
}

fn put_half_block(at: u32, a: W8, b: W8) {
    w_tile[at] = vec4<f16>(a.a);
    w_tile[at + 1u] = vec4<f16>(a.b);
    w_tile[at + 2u] = vec4<f16>(b.a);
    w_tile[at + 3u] = vec4<f16>(b.b);
}

fn store(v: Loaded, stage: u32, lane: u32) {
#ifdef SOME_LOAD_X
    if lane < 4u * TOKENS {
#endif
#for i in 0..X_LOADS
    let x_load#{i} = lane + #{i}u * ALL_LANES;
    let x_to#{i} = (stage * TOKENS + x_load#{i} / 4u) * STRIDE + x_load#{i} % 4u * 2u;
    x_tile[x_to#{i}] = v.x#{i}_0;
    x_tile[x_to#{i} + 1u] = v.x#{i}_1;
#endfor
#ifdef SOME_LOAD_X
    }
#endif
#ifdef SOME_LOAD_W
    if lane >= 2u * ROWS {
        return;
    }
#endif
#for i in 0..W_LOADS
    let w_load#{i} = lane + #{i}u * ALL_LANES;
    let w_to#{i} = (stage * ROWS + w_load#{i} % ROWS) * STRIDE;
    // The same half for all lanes of a subgroup.
    if w_load#{i} < ROWS {
        put_half_block(w_to#{i}, w8(v.w#{i}, 0u), w8(v.w#{i}, 1u));
    } else {
        put_half_block(w_to#{i} + 4u, w8(v.w#{i}, 2u), w8(v.w#{i}, 3u));
    }
#endfor
}

@compute @workgroup_size(#{SGM*SGN*LANES})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup_id: u32,
    @builtin(num_subgroups) n_subgroups: u32,
    @builtin(subgroup_invocation_id) in_subgroup: u32,
) {
    let first_row = group.x * ROWS;
    let first_token = group.y * TOKENS;
    let subgroup = min(subgroup_id, #{SGM*SGN-1}u);
    // 1, or NaN if the driver gives other subgroups than those that the kernel is built for.
    let valid = bitcast<f32>(select(0x7fc00000u, 0x3f800000u, n_subgroups == #{SGM*SGN}u));
    let m0 = subgroup / #{SGN}u * #{FM*SIZE}u;
    let n0 = subgroup % #{SGN}u * #{FN*SIZE}u;
#for i in 0..FM
#for j in 0..FN
    var y#{i}_#{j}: coop_mat#{SIZE}x#{SIZE}<f32, C>;
#endfor
#endfor
    let n_blocks = 2u * n_groups();
    store(load(0u, lane, first_token, first_row), 0u, lane);
    workgroupBarrier();
    for (var k32 = 0u; k32 < n_blocks; k32++) {
        let next = load(min(k32 + 1u, n_blocks - 1u), lane, first_token, first_row);
        let x_from = (k32 % 2u * TOKENS + m0) * STRIDE;
        let w_from = (k32 % 2u * ROWS + n0) * STRIDE;
#for k in 0..32/SIZE
#for i in 0..FM
        let a#{k}_#{i} = coopLoadT<coop_mat#{SIZE}x#{SIZE}<f16, A>>(&x_tile[x_from + #{i*SIZE}u * STRIDE + #{k*SIZE/4}u], STRIDE);
#endfor
#for j in 0..FN
        let b#{k}_#{j} = coopLoad<coop_mat#{SIZE}x#{SIZE}<f16, B>>(&w_tile[w_from + #{j*SIZE}u * STRIDE + #{k*SIZE/4}u], STRIDE);
#for i in 0..FM
        y#{i}_#{j} = coopMultiplyAdd(a#{k}_#{i}, b#{k}_#{j}, y#{i}_#{j});
#endfor
#endfor
#endfor
        store(next, (k32 + 1u) % 2u, lane);
        workgroupBarrier();
    }
    let at = subgroup * #{SIZE*SIZE}u;
#for i in 0..FM
#for j in 0..FN
    {
        // By a name: naga 30 does not evaluate an expression that stands in the call.
        let y = y#{i}_#{j};
        coopStoreT(y, &sums[at], #{SIZE}u);
        workgroupBarrier();
        for (var q = in_subgroup; q < #{SIZE}u * QUADS; q += #{LANES}u) {
            let t = first_token + m0 + #{i*SIZE}u + q / QUADS;
            let from_ = at + 4u * q;
            let v = vec4(sums[from_], sums[from_ + 1u], sums[from_ + 2u], sums[from_ + 3u]);
            finish4(t, first_row + n0 + #{j*SIZE}u + q % QUADS * 4u, v * (valid * x_scales[min(t, params.n_tokens - 1u)]));
        }
        workgroupBarrier();
    }
#endfor
#endfor
}
