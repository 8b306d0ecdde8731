// Flash attention for prefill in f32: 64 query rows attend to a run of keys, 32 keys at a time. Scores stay in workgroup
// memory, the softmax is online, and key tiles that are masked for all rows are skipped.
// Source: FlashAttention-2 Algorithm 1 (Dao 2023).
// Bindings: q, kv, table, state, out (common/prefill_flash).
// Grid: (row tiles of 64, G), 256 lanes: 16 x 16 lanes with 4 rows x 2 keys of scores, or 4 rows x D / 16 elements of out,
//   each; in the softmax, 4 lanes a row. The last row tile, which has the most visible keys, is the first to start.
// Workgroup memory: 24.5 KiB to 25.5 KiB. Accumulation in f32.
#import common/prefill_flash

// Elements of D per slice of queries and keys, and its row stride in vec4 (odd, against bank conflicts).
const SLICE: u32 = 32u;
const STRIDE: u32 = 9u;
const KEYS_AT: u32 = ROWS * STRIDE;
// vec4 of a row of D.
const D4: u32 = HEAD_DIM / 4u;
// A row of weights has KEYS / 2 pairs: keys j and j + KEYS / 2 of the tile.
const PAIRS: u32 = KEYS / 2u;
const P_STRIDE: u32 = PAIRS + 1u;
// Pairs of which the values are in workgroup memory at the same time.
const VALUE_PAIRS: u32 = #{VALUE_PAIRS}u;

var<workgroup> tile: array<vec4<f32>, #{TILE}>;
var<workgroup> p: array<vec2<f32>, #{ROWS*KEYS/2+ROWS}>;
// A maximum or sum of each quarter of a row.
var<workgroup> quarters: array<f32, #{ROWS*4}>;
var<workgroup> factors: array<f32, #{ROWS}>;

// Loads elements d0 .. d0 + SLICE of the query rows and keys. Elements beyond D are zero.
fn load_slice(lane: u32, row0: u32, k0: u32, d0: u32, g: u32) {
    let d = d0 + lane % 4u * 8u;
    let to = lane / 4u * STRIDE + lane % 4u * 2u;
    var x = Eight(vec4<f32>(0.0), vec4<f32>(0.0));
    if d < HEAD_DIM {
        let at = row_at(row0 + lane / 4u, g) + d / 4u;
        x = Eight(q[at], q[at + 1u]);
    }
    tile[to] = x.a;
    tile[to + 1u] = x.b;
    if lane < KEYS * 4u {
        var k = Eight(vec4<f32>(0.0), vec4<f32>(0.0));
        if d < HEAD_DIM {
            let token = token_of(k0 + lane / 4u);
            let row = key_row(block_at(g, token, params.n_blocks), token % BLOCK_TOKENS);
            k = whole_key(key8(row, 0u, d), key_scale8(scales_at(g, token, params.n_blocks), d));
        }
        tile[KEYS_AT + to] = k.a;
        tile[KEYS_AT + to + 1u] = k.b;
    }
}

// Loads the values of VALUE_PAIRS pairs from pair0. Unwritten memory may have any bits (NaN): it is replaced by zero.
fn load_values(lane: u32, k0: u32, pair0: u32, g: u32) {
    for (var i = lane; i < VALUE_PAIRS * HEAD_DIM / 4u; i += 256u) {
        let row = i / (HEAD_DIM / 8u);
        let d = i % (HEAD_DIM / 8u) * 8u;
        let k = k0 + pair0 + row / 2u + row % 2u * PAIRS;
        var v = Eight(vec4<f32>(0.0), vec4<f32>(0.0));
        if k < params.n_keys {
            let token = params.first_key + k;
            v = value8(block_at(g, token, params.n_blocks), token % BLOCK_TOKENS, d);
        }
        tile[row * D4 + d / 4u] = v.a;
        tile[row * D4 + d / 4u + 1u] = v.b;
    }
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) n_wg: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row0 = (n_wg.x - 1u - wg.x) * ROWS;
    let g = wg.y;
    // Products: rows ty * 4 .., keys tx and tx + PAIRS, vec4 tx, tx + 16, .. of D.
    let tx = lane % 16u;
    let ty = lane / 16u;
    // Softmax: a quarter of a row.
    let row = lane / 4u;
    let quarter = lane % 4u;
    let carried = carried_state(row0 + row, g);
    let row_keys = visible_keys(row0 + row);
    var highest = carried.x;
    var sum = select(0.0, carried.y, quarter == 0u);
#for i in 0..4
#for e in 0..VECS
    var acc_#{i}_#{e} = vec4<f32>(0.0);
#endfor
#endfor
    let n_visible = visible_keys(row0 + ROWS - 1u);
    for (var k0 = 0u; k0 < n_visible; k0 += KEYS) {
#for i in 0..4
        var s_#{i} = vec2<f32>(0.0);
#endfor
        for (var d0 = 0u; d0 < HEAD_DIM; d0 += SLICE) {
            workgroupBarrier();
            load_slice(lane, row0, k0, d0, g);
            workgroupBarrier();
            for (var e = 0u; e < SLICE / 4u; e += 1u) {
                let a = tile[KEYS_AT + tx * STRIDE + e];
                let b = tile[KEYS_AT + (tx + PAIRS) * STRIDE + e];
#for i in 0..4
                let y_#{i} = tile[(ty * 4u + #{i}u) * STRIDE + e];
                s_#{i} += vec2<f32>(dot(a, y_#{i}), dot(b, y_#{i}));
#endfor
            }
        }
#for i in 0..4
        p[(ty * 4u + #{i}u) * P_STRIDE + tx] = s_#{i};
#endfor
        workgroupBarrier();
        load_values(lane, k0, 0u, g);
        var top = vec2<f32>(MASKED);
#for j in 0..KEYS/8
        let at_#{j} = row * P_STRIDE + quarter + #{j*4}u;
        let key_#{j} = vec2<u32>(k0 + quarter + #{j*4}u) + vec2<u32>(0u, PAIRS);
        let score_#{j} = select(vec2<f32>(MASKED), p[at_#{j}], key_#{j} < vec2<u32>(row_keys));
        top = max(top, score_#{j});
#endfor
        quarters[lane] = max(top.x, top.y);
        workgroupBarrier();
        let before = highest;
        highest = max(highest, max(max(quarters[row * 4u], quarters[row * 4u + 1u]), max(quarters[row * 4u + 2u], quarters[row * 4u + 3u])));
        let factor = exp(before - highest);
        var added = vec2<f32>(0.0);
#for j in 0..KEYS/8
        let weight_#{j} = exp(score_#{j} - highest);
        p[at_#{j}] = weight_#{j};
        added += weight_#{j};
#endfor
        sum = sum * factor + (added.x + added.y);
        if quarter == 0u {
            factors[row] = factor;
        }
        workgroupBarrier();
#for i in 0..4
        let f_#{i} = factors[ty * 4u + #{i}u];
#for e in 0..VECS
        acc_#{i}_#{e} *= f_#{i};
#endfor
#endfor
#for part in 0..VALUE_PARTS
        if #{part}u > 0u {
            workgroupBarrier();
            load_values(lane, k0, #{part}u * VALUE_PAIRS, g);
            workgroupBarrier();
        }
        for (var j = 0u; j < VALUE_PAIRS; j += 1u) {
#for i in 0..4
            let w_#{i} = p[(ty * 4u + #{i}u) * P_STRIDE + #{part}u * VALUE_PAIRS + j];
#endfor
#for e in 0..VECS
            {
                let at = j * (2u * D4) + min(tx + #{e*16}u, D4 - 1u);
                let v = tile[at];
                let v_half = tile[at + D4];
#for i in 0..4
                acc_#{i}_#{e} += w_#{i}.x * v + w_#{i}.y * v_half;
#endfor
            }
#endfor
        }
#endfor
    }
    workgroupBarrier();
    quarters[lane] = sum;
    workgroupBarrier();
    let total = (quarters[row * 4u] + quarters[row * 4u + 1u]) + (quarters[row * 4u + 2u] + quarters[row * 4u + 3u]);
    if quarter == 0u {
        // Factors of the row: of what `out` has from earlier runs, and of everything.
        p[row] = vec2<f32>(exp(carried.x - highest), select(1.0, 1.0 / total, params.is_last == 1u));
        if row0 + row < params.n_rows {
            state[g * params.n_rows + row0 + row] = vec4<f32>(highest, total, 0.0, 0.0);
        }
    }
    workgroupBarrier();
#for i in 0..4
    if row0 + ty * 4u + #{i}u < params.n_rows {
        let f = p[ty * 4u + #{i}u];
        let at = row_at(row0 + ty * 4u + #{i}u, g) + tx;
#for e in 0..VECS
        if tx + #{e*16}u < D4 {
            var v = acc_#{i}_#{e};
            if params.is_first == 0u {
                v += out[at + #{e*16}u] * f.x;
            }
            out[at + #{e*16}u] = v * f.y;
        }
#endfor
    }
#endfor
}
