// Flash attention for prefill by cooperative matrices: f16 operands, f32 sums. A workgroup of SGM x SGN subgroups has ROWS
// query rows and reads a run of keys, KEYS at a time. Key tiles that are masked for all rows are skipped.
// Scores go through workgroup memory, because lanes cannot address elements of a matrix. Sums stay in matrices. They are
// rescaled, through workgroup memory, only if a running max grows by more than GROWTH: weights are at most 2^GROWTH.
// Source: FlashAttention-2 Algorithm 1 (Dao 2023); rescaling by threshold as FlashAttention-4.
// Bindings: q, kv, table, state, out (common/prefill_flash).
// Grid: (row tiles of ROWS, G); SGM * SGN subgroups of LANES lanes. The last row tile has the most visible keys and starts first.
// Workgroup memory: at most 32 KiB, 48 KiB if the device has it. Accumulation in f32.
// 1. Every workgroup array is a multiple of 16 bytes, and the flag is atomic, read by workgroupUniformLoad: a lone plain word
//    beside cooperative loads gave wrong results on an NVIDIA driver.
// 2. A matrix is copied to a `let` before it is stored.
enable f16;
enable wgpu_cooperative_matrix;
#import common/prefill_flash

// Rows and columns of a matrix.
const SIZE: u32 = #{SIZE}u;
const GROWTH: f32 = 8.0;
const LOG2_E: f32 = 1.4426950408889634;
// Vectors of 4 in a row of D, and row strides of the workgroup arrays (padded against bank conflicts).
const D4: u32 = HEAD_DIM / 4u;
const STRIDE: u32 = #{D/4+2}u;
const Q_STRIDE: u32 = #{Q_MATRICES*SIZE/4+2}u;
const S_STRIDE: u32 = #{KEYS+4}u;
const W_STRIDE: u32 = #{KEYS/4+2}u;
// Begin of the values in `tile`: behind the keys, or in their place.
const TILE_VALUES: u32 = #{VALUES_AT}u;
// Groups of 8 elements in a tile of keys.
const UNITS: u32 = #{KEYS*D/8}u;
const LARGEST: vec4<f32> = vec4<f32>(65504.0);

var<workgroup> s: array<f32, #{ROWS*KEYS+ROWS*4}>;              // scores, and matrices of sums
var<workgroup> w: array<vec4<f16>, #{ROWS*KEYS/4+ROWS*2}>;      // weights
var<workgroup> tile: array<vec4<f16>, #{TILE}>;                 // queries, then keys and values
var<workgroup> factors: array<vec2<f32>, #{ROWS}>;              // by row
var<workgroup> flag: array<atomic<u32>, 4>;                     // nonzero if sums must be rescaled

struct Halves { a: vec4<f16>, b: vec4<f16> }

fn halves(x: Eight) -> Halves {
    return Halves(vec4<f16>(clamp(x.a, -LARGEST, LARGEST)), vec4<f16>(clamp(x.b, -LARGEST, LARGEST)));
}

// Elements of unit i of the key tile from k0.
fn key_unit(i: u32, k0: u32, g: u32) -> Halves {
    let unit = min(i, UNITS - 1u);
    let d = unit % (HEAD_DIM / 8u) * 8u;
    let token = token_of(k0 + unit / (HEAD_DIM / 8u));
    let row = key_row(block_at(g, token, params.n_blocks), token % BLOCK_TOKENS);
#ifdef KV_F16
    return Halves(kv[(row + d) / 4u], kv[(row + d) / 4u + 1u]);
#else
    return halves(whole_key(key8(row, 0u, d), key_scale8(scales_at(g, token, params.n_blocks), d)));
#endif
}

// The same for values. Unwritten memory may have any bits (NaN): it is replaced by zero.
fn value_unit(i: u32, k0: u32, g: u32) -> Halves {
    let unit = min(i, UNITS - 1u);
    let d = unit % (HEAD_DIM / 8u) * 8u;
    let k = k0 + unit / (HEAD_DIM / 8u);
    let token = token_of(k);
    let block = block_at(g, token, params.n_blocks);
#ifdef KV_F16
    let at = (block + (BLOCK_TOKENS + token % BLOCK_TOKENS) * HEAD_DIM + d) / 4u;
    let v = Halves(kv[at], kv[at + 1u]);
#else
    let v = halves(value8(block, token % BLOCK_TOKENS, d));
#endif
    let exists = vec4<bool>(k < params.n_keys);
    return Halves(select(vec4<f16>(), v.a, exists), select(vec4<f16>(), v.b, exists));
}

fn store_unit(i: u32, first: u32, x: Halves) {
    if i < UNITS {
        let at = first + i / (HEAD_DIM / 8u) * STRIDE + i % (HEAD_DIM / 8u) * 2u;
        tile[at] = x.a;
        tile[at + 1u] = x.b;
    }
}

fn four_of_s(at: u32) -> vec4<f32> {
    return vec4<f32>(s[at], s[at + 1u], s[at + 2u], s[at + 3u]);
}

// Maximum and sum over the lanes of a row.
fn max_of_row(x: f32) -> f32 {
    var y = x;
#for n in 0..ROW_STEPS
    y = max(y, subgroupShuffleXor(y, 1u << #{n}u));
#endfor
    return y;
}

fn sum_of_row(x: f32) -> f32 {
    var y = x;
#for n in 0..ROW_STEPS
    y += subgroupShuffleXor(y, 1u << #{n}u);
#endfor
    return y;
}

@compute @workgroup_size(#{LANES*SGM*SGN})
fn main(
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) n_wg: vec3<u32>,
    @builtin(subgroup_id) subgroup_id: u32,
    @builtin(num_subgroups) n_subgroups: u32,
    @builtin(subgroup_invocation_id) in_subgroup: u32,
) {
    let row0 = (n_wg.x - 1u - wg.x) * ROWS;
    let g = wg.y;
    let subgroup = min(subgroup_id, #{SGM*SGN-1}u);
    // 1, or NaN if the driver gives other subgroups than those that the kernel is built for.
    let valid = bitcast<f32>(select(0x7fc00000u, 0x3f800000u, n_subgroups == #{SGM*SGN}u));
    let lane = subgroup * #{LANES}u + in_subgroup;
    // Products: first row of the subgroup, and its share of the columns. Softmax: ROW_LANES lanes a row.
    let sm = subgroup / #{SGN}u * #{FM*SIZE}u;
    let sn = subgroup % #{SGN}u;
    let row = lane / #{ROW_LANES}u;
    let part = lane % #{ROW_LANES}u;

    // Queries, scaled by a power of two a row so that f16 neither overflows nor loses bits: the greatest is in [1, 2).
    let from_q = row_at(row0 + row, g);
    var greatest = vec4<f32>(0.0);
    for (var d = part; d < D4; d += #{ROW_LANES}u) {
        greatest = max(greatest, abs(q[from_q + d]));
    }
    let greatest_of_row = max_of_row(max(max(greatest.x, greatest.y), max(greatest.z, greatest.w)));
    let exponent = clamp(bitcast<u32>(greatest_of_row) >> 23u, 1u, 253u);
    let to_unit = bitcast<f32>((254u - exponent) << 23u);
    let score_scale = bitcast<f32>(exponent << 23u) * LOG2_E;
#for n in 0..Q_SLICES
    for (var d = part; d < #{Q_MATRICES*SIZE/4}u; d += #{ROW_LANES}u) {
        tile[row * Q_STRIDE + d] = vec4<f16>(q[from_q + #{n*Q_MATRICES*SIZE/4}u + d] * to_unit);
    }
    workgroupBarrier();
#for k in 0..Q_MATRICES
#for i in 0..FM
    let q#{i}_#{n*Q_MATRICES+k} = coopLoadT<coop_mat#{SIZE}x#{SIZE}<f16, A>>(&tile[(sm + #{i*SIZE}u) * Q_STRIDE + #{k*SIZE/4}u], Q_STRIDE);
#endfor
#endfor
    workgroupBarrier();
#endfor

#for i in 0..FM
#for j in 0..ON
    var o#{i}_#{j}: coop_mat#{SIZE}x#{SIZE}<f32, C>;
#endfor
#endfor
    // From here on, scores and the running max are in base 2.
    let carried = carried_state(row0 + row, g);
    let row_keys = visible_keys(row0 + row);
    let fewest_keys = visible_keys(row0);
    var highest = carried.x * LOG2_E;
    var sum = select(0.0, carried.y, part == 0u);
    if lane == 0u {
        atomicStore(&flag[0], 0u);
    }
    let n_visible = visible_keys(row0 + ROWS - 1u);
#for n in 0..LOADS
    var key_#{n} = key_unit(lane + #{n*LANES*SGM*SGN}u, 0u, g);
    var value_#{n} = Halves();
#endfor
    for (var k0 = 0u; k0 < n_visible; k0 += KEYS) {
#for n in 0..LOADS
        store_unit(lane + #{n*LANES*SGM*SGN}u, 0u, key_#{n});
#endfor
        workgroupBarrier();
        // Values load during the products, and the keys of the next tile during those of the values.
#for n in 0..LOADS
        value_#{n} = value_unit(lane + #{n*LANES*SGM*SGN}u, k0, g);
#endfor
        {
#for i in 0..FM
#for j in 0..FN
            var c#{i}_#{j}: coop_mat#{SIZE}x#{SIZE}<f32, C>;
#endfor
#endfor
#for k in 0..D/SIZE
#for j in 0..FN
            let b#{k}_#{j} = coopLoad<coop_mat#{SIZE}x#{SIZE}<f16, B>>(&tile[(sn * #{FN}u + #{j}u) * SIZE * STRIDE + #{k*SIZE/4}u], STRIDE);
#for i in 0..FM
            c#{i}_#{j} = coopMultiplyAdd(q#{i}_#{k}, b#{k}_#{j}, c#{i}_#{j});
#endfor
#endfor
#endfor
#for i in 0..FM
#for j in 0..FN
            let r#{i}_#{j} = c#{i}_#{j};
            coopStoreT(r#{i}_#{j}, &s[(sm + #{i*SIZE}u) * S_STRIDE + (sn * #{FN}u + #{j}u) * SIZE], S_STRIDE);
#endfor
#endfor
        }
#ifndef ONE_TILE
#for n in 0..LOADS
        store_unit(lane + #{n*LANES*SGM*SGN}u, TILE_VALUES, value_#{n});
#endfor
#endif
        workgroupBarrier();
#ifdef ONE_TILE
#for n in 0..LOADS
        store_unit(lane + #{n*LANES*SGM*SGN}u, TILE_VALUES, value_#{n});
#endfor
#endif
        {
            let at = row * S_STRIDE + part * 4u;
#for n in 0..KEYS/4/ROW_LANES
            var e#{n} = four_of_s(at + #{n*ROW_LANES*4}u) * score_scale;
#endfor
            if k0 + KEYS > fewest_keys {
                let key = vec4<u32>(k0 + part * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
#for n in 0..KEYS/4/ROW_LANES
                e#{n} = select(vec4<f32>(MASKED), e#{n}, key + vec4<u32>(#{n*ROW_LANES*4}u) < vec4<u32>(row_keys));
#endfor
            }
            var top = e0;
#for n in 1..KEYS/4/ROW_LANES
            top = max(top, e#{n});
#endfor
            let top_of_row = max_of_row(max(max(top.x, top.y), max(top.z, top.w)));
            var factor = 1.0;
            if top_of_row > highest + GROWTH {
                factor = exp2(highest - top_of_row);
                highest = top_of_row;
                // The sums of the first tile begin at zero.
                if k0 > 0u {
                    atomicStore(&flag[0], 1u);
                }
            }
            if part == 0u {
                factors[row] = vec2<f32>(factor, 0.0);
            }
            var added = vec4<f32>(0.0);
#for n in 0..KEYS/4/ROW_LANES
            let x#{n} = exp2(e#{n} - highest);
            added += x#{n};
            w[row * W_STRIDE + part + #{n*ROW_LANES}u] = vec4<f16>(x#{n});
#endfor
            sum = sum * factor + (added.x + added.y) + (added.z + added.w);
        }
#for n in 0..LOADS
        key_#{n} = key_unit(lane + #{n*LANES*SGM*SGN}u, k0 + KEYS, g);
#endfor
        let is_rescaled = workgroupUniformLoad(&flag[0]) != 0u;
        if lane == 0u {
            atomicStore(&flag[0], 0u);
        }
        if is_rescaled {
#for i in 0..FM
#for j in 0..ON
            {
                let r = o#{i}_#{j};
                coopStoreT(r, &s[subgroup * SIZE * SIZE], SIZE);
                workgroupBarrier();
                for (var x = in_subgroup; x < SIZE * SIZE / 4u; x += #{LANES}u) {
                    let at = subgroup * SIZE * SIZE + x * 4u;
                    let f = factors[sm + #{i*SIZE}u + x / (SIZE / 4u)].x;
                    s[at] *= f;
                    s[at + 1u] *= f;
                    s[at + 2u] *= f;
                    s[at + 3u] *= f;
                }
                workgroupBarrier();
                o#{i}_#{j} = coopLoadT<coop_mat#{SIZE}x#{SIZE}<f32, C>>(&s[subgroup * SIZE * SIZE], SIZE);
                workgroupBarrier();
            }
#endfor
#endfor
        }
#for k in 0..KEYS/SIZE
        {
#for i in 0..FM
            let a#{i} = coopLoadT<coop_mat#{SIZE}x#{SIZE}<f16, A>>(&w[(sm + #{i*SIZE}u) * W_STRIDE + #{k*SIZE/4}u], W_STRIDE);
#endfor
#for j in 0..ON
            let b#{j} = coopLoadT<coop_mat#{SIZE}x#{SIZE}<f16, B>>(&tile[TILE_VALUES + #{k*SIZE}u * STRIDE + (sn * #{ON}u + #{j}u) * #{SIZE/4}u], STRIDE);
#for i in 0..FM
            o#{i}_#{j} = coopMultiplyAdd(a#{i}, b#{j}, o#{i}_#{j});
#endfor
#endfor
        }
#endfor
#ifdef ONE_TILE
        workgroupBarrier();
#endif
    }
    let total = sum_of_row(sum);
    workgroupBarrier();
    if part == 0u {
        // Factors of the row: of the part of `out` from earlier runs, and of everything.
        factors[row] = vec2<f32>(exp2(carried.x * LOG2_E - highest), valid * select(1.0, 1.0 / total, params.is_last == 1u));
        if row0 + row < params.n_rows {
            state[g * params.n_rows + row0 + row] = vec4<f32>(highest / LOG2_E, total, 0.0, 0.0);
        }
    }
#for i in 0..FM
#for j in 0..ON
    {
        let r = o#{i}_#{j};
        coopStoreT(r, &s[subgroup * SIZE * SIZE], SIZE);
        workgroupBarrier();
        for (var x = in_subgroup; x < SIZE * SIZE / 4u; x += #{LANES}u) {
            let r_out = sm + #{i*SIZE}u + x / (SIZE / 4u);
            if row0 + r_out < params.n_rows {
                let f = factors[r_out];
                let at = row_at(row0 + r_out, g) + (sn * #{ON}u + #{j}u) * #{SIZE/4}u + x % (SIZE / 4u);
                var v = four_of_s(subgroup * SIZE * SIZE + x * 4u);
                if params.is_first == 0u {
                    v += out[at] * f.x;
                }
                out[at] = v * f.y;
            }
        }
        workgroupBarrier();
    }
#endfor
#endfor
}
