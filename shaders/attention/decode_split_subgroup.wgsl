// Flash decoding split, as `decode_split`, for real GPUs with subgroups: W lanes share a token, U tokens of each lane are
// in flight, and GR heads share each load of K and V. Everything stays in registers until the end.
// Source: Flash-Decoding (Dao et al. 2023); online softmax as in FlashAttention-2.
// Bindings: q f32 [R, H, D] (scaled) · kv blocks · table u32 [n_lists, n_blocks] (TOKEN_TABLE: [n_lists, n_listed]) ·
//   acc f32 [R, H, n_splits, D] · state f32 [R, H, n_splits, 2] (maximum, sum)
// R rows are separate tokens, with the KV heads of one after those of another. They share lists for G heads, or have R
// G lists.
// TOKEN_TABLE: each KV head reads its selected tokens (common/kv_block); keys are counted in the order of its list.
// Grid: (splits of this segment, G of each row, head sets of GR), 128 lanes. A lane has elements 8 (c W + own) ..+ 8 of
// a token, c < C; those beyond D count as zero. Its tokens are in one page: 8 slots of W lanes have 8 U tokens in a row.
// Subgroups may have any size from MIN_SUBGROUP (a power of two, at least W); shuffles stay within MIN_SUBGROUP lanes.
// Scores are in powers of two until the end. Accumulation in f32.
// Workgroup memory: BATCH D 128 / MIN_SUBGROUP floats (at most 16 KiB, mostly 8) and 8 GR SLOTS bytes.
struct Params {
    n_keys: u32,        // keys in this segment
    n_blocks: u32,      // row stride of the table
    group: u32,
    first_split: u32,   // index of the first split of this segment
    n_splits: u32,      // of all segments
    first_group: u32,   // KV heads of the rows before
    n_lists: u32,       // rows of the table
    first_entry: u32,   // of this segment: other entries are skipped (TOKEN_TABLE)
    n_entries: u32,
    split_keys: u32,    // keys of a split, a multiple of 64
}
#params
@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> kv: array<#{KV}>;
@group(0) @binding(2) var<storage, read> table: array<u32>;
@group(0) @binding(3) var<storage, read_write> acc: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> state: array<vec2<f32>>;
#import common/kv_block

const LOG2_E: f32 = 1.4426950408889634;
const LN_2: f32 = 0.6931471805599453;
// Finite if W lanes add it.
const MASKED: f32 = -1.0e30;
const W: u32 = #{W}u;
const SLOTS: u32 = #{128/W}u;
const STEP: u32 = #{128/W*U}u;
// Lanes of a slot that have scores of one head, and how many of them have the same scores.
const SPAN: u32 = #{W/GR}u;
const COPIES: u32 = #{COPIES}u;
// Slots that are added by shuffles.
const MERGED: u32 = #{MIN_SUBGROUP/W}u;
const ROW: u32 = HEAD_DIM / 4u;

var<workgroup> states: array<vec2<f32>, #{128/W*GR}>;
var<workgroup> sums: array<vec4<f32>, #{128/MIN_SUBGROUP*BATCH*D/4}>;

fn fma8(x: Eight, y: Eight, sum: f32) -> f32 {
    let low = fma(x.a.w, y.a.w, fma(x.a.z, y.a.z, fma(x.a.y, y.a.y, fma(x.a.x, y.a.x, sum))));
    return fma(x.b.w, y.b.w, fma(x.b.z, y.b.z, fma(x.b.y, y.b.y, fma(x.b.x, y.b.x, low))));
}

@compute @workgroup_size(128)
fn main(
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) n_subgroups: u32,
    @builtin(subgroup_invocation_id) in_subgroup: u32,
) {
    let split = wg.x;
    let g = params.first_group + wg.y;
    let list = wg.y % params.n_lists;
    let first_head = g * params.group + wg.z * #{GR}u;
    // A head set beyond the group repeats the last head and is not stored.
    let last_head = (g + 1u) * params.group - 1u;
    let own = in_subgroup % W;
    let base = in_subgroup - own;
    let slot = subgroup * (SLOTS / n_subgroups) + in_subgroup / W;
    let upper_1 = (own & #{W/2}u) != 0u;
    let upper_2 = (own & #{W/4}u) != 0u;
#ifdef W8
    let upper_3 = (own & #{W/8}u) != 0u;
#endif
#ifdef W16
    let upper_4 = (own & #{W/16}u) != 0u;
#endif
#for c in 0..C
    let has_#{c} = #{c*W}u + own < HEAD_DIM / 8u;
    let d_#{c} = min(#{c*W}u + own, HEAD_DIM / 8u - 1u) * 8u;
    let to_log2_#{c} = select(0.0, LOG2_E, has_#{c});
#endfor
#for h in 0..GR
    let q_#{h} = min(first_head + #{h}u, last_head) * ROW;
#for c in 0..C
    let q_#{h}_#{c} = Eight(q[q_#{h} + d_#{c} / 4u] * to_log2_#{c}, q[q_#{h} + d_#{c} / 4u + 1u] * to_log2_#{c});
    var a_#{h}_#{c} = vec4<f32>(0.0);
    var b_#{h}_#{c} = vec4<f32>(0.0);
#endfor
#endfor
    // Of the head and the tokens whose scores this lane ends with.
    var top = MASKED;
    var sum = 0.0;
    let offset = own / COPIES * #{SCORES}u % #{U}u * 8u;

    // A split beyond the last key has zero weight.
    let first = min(split * params.split_keys, params.n_keys);
    let end = min(first + params.split_keys, params.n_keys);
    let in_block = slot % 8u;
    let run = slot / 8u * #{U*8}u;
    let entries = list * params.n_blocks;
#ifdef TOKEN_TABLE
    let last = max(end, 1u) - 1u;
    // Instead of those that do not exist: unwritten memory may have any bits (NaN), so zero weight is not enough.
    let some_entry = in_segment(table[entries + min(first, last)], params.first_entry, params.n_entries);
    let some_token = select(some_entry, 0u, some_entry == PAD);
#for u in 0..U
    var entry_#{u} = table[entries + min(first + run + in_block + #{u*8}u, last)];
#endfor
#else
    let last_block = (max(end, 1u) - 1u) / BLOCK_TOKENS;
#for b in 0..U/2
    var slot_#{b} = table[entries + min((first + run) / BLOCK_TOKENS + #{b}u, last_block)];
#endfor
#endif
    for (var step = first; step < end; step += STEP) {
        let t = step + run + in_block;
#ifdef TOKEN_TABLE
#for u in 0..U
        let own_#{u} = in_segment(entry_#{u}, params.first_entry, params.n_entries);
        let exists_#{u} = t + #{u*8}u < end && own_#{u} != PAD;
        let token_#{u} = select(some_token, own_#{u}, exists_#{u});
#endfor
        // Shorter lists end here.
        if !subgroupAny(t < end && entry_0 != PAD) {
            break;
        }
#for u in 0..U
        let block_#{u} = block_of(token_#{u});
        let row_#{u} = token_#{u} % BLOCK_TOKENS;
#endfor
#else
        if !subgroupAny(t < end) {
            break;
        }
        // Tokens beyond the last one reread the first of a block: unwritten memory may have any bits (NaN).
#for b in 0..U/2
#for i in 0..2
        let block_#{b*2+i} = block_of_slot(slot_#{b});
        let row_#{b*2+i} = select(0u, in_block + #{i*8}u, t + #{b*16+i*8}u < end);
#endfor
#endfor
        let scales = scales_of_slot(slot_0, list);
#endif
#for u in 0..U
        let key_row_#{u} = key_row(block_#{u}, row_#{u});
#for c in 0..C
        let k_#{u}_#{c} = stored_key8(key_row_#{u}, d_#{c});
#endfor
#endfor
#for u in 0..U
#for c in 0..C
        let v_#{u}_#{c} = stored_value8(block_#{u}, row_#{u}, d_#{c});
#endfor
#endfor
#ifdef TOKEN_TABLE
#for u in 0..U
        entry_#{u} = table[entries + min(t + STEP + #{u*8}u, last)];
#endfor
#else
#for b in 0..U/2
        slot_#{b} = table[entries + min((step + STEP + run) / BLOCK_TOKENS + #{b}u, last_block)];
#endfor
        // The tokens of a lane are in one page.
#for h in 0..GR
        var low_#{h} = 0.0;
#endfor
#for c in 0..C
        let scale_#{c} = key_scale8(scales, d_#{c});
#for h in 0..GR
        let scaled_#{h}_#{c} = scaled_query(q_#{h}_#{c}, scale_#{c});
#ifdef KV_QUANTIZED
        low_#{h} += query_low(q_#{h}_#{c}, scale_#{c});
#endif
#endfor
#endfor
#endif
        // This lane's part of the score of head h and token u, number h U + u.
#for u in 0..U
#for c in 0..C
#ifdef TOKEN_TABLE
        let key_#{u}_#{c} = whole_key(key_of(k_#{u}_#{c}), key_scale8(scales_of(token_#{u}, list), d_#{c}));
#else
        let key_#{u}_#{c} = key_of(k_#{u}_#{c});
#endif
#endfor
#for h in 0..GR
#ifdef TOKEN_TABLE
        var s_#{h*U+u} = 0.0;
#for c in 0..C
        s_#{h*U+u} = fma8(key_#{u}_#{c}, q_#{h}_#{c}, s_#{h*U+u});
#endfor
        s_#{h*U+u} = select(MASKED, s_#{h*U+u}, exists_#{u});
#else
        var s_#{h*U+u} = low_#{h};
#for c in 0..C
        s_#{h*U+u} = fma8(key_#{u}_#{c}, scaled_#{h}_#{c}, s_#{h*U+u});
#endfor
#endif
#endfor
#endfor
        // Sums over the lanes of a slot: each step halves the scores of a lane, then the lanes with the same scores.
#for i in 0..N/2
        s_#{i} = select(s_#{i}, s_#{i+N/2}, upper_1) + subgroupShuffleXor(select(s_#{i+N/2}, s_#{i}, upper_1), #{W/2}u);
#endfor
#for i in 0..N/4
        s_#{i} = select(s_#{i}, s_#{i+N/4}, upper_2) + subgroupShuffleXor(select(s_#{i+N/4}, s_#{i}, upper_2), #{W/4}u);
#endfor
#ifdef W8
#for i in 0..N/8
        s_#{i} = select(s_#{i}, s_#{i+N/8}, upper_3) + subgroupShuffleXor(select(s_#{i+N/8}, s_#{i}, upper_3), #{W/8}u);
#endfor
#ifdef COPIES_3
        s_0 += subgroupShuffleXor(s_0, #{W/8}u);
#endif
#endif
#ifdef W16
#for i in 0..N/16
        s_#{i} = select(s_#{i}, s_#{i+N/16}, upper_4) + subgroupShuffleXor(select(s_#{i+N/16}, s_#{i}, upper_4), #{W/16}u);
#endfor
#ifdef COPIES_4
        s_0 += subgroupShuffleXor(s_0, #{W/16}u);
#endif
#endif
        var high = MASKED;
#for r in 0..SCORES
#ifndef TOKEN_TABLE
        s_#{r} = select(MASKED, s_#{r}, t + offset + #{r*8}u < end);
#endif
        high = max(high, s_#{r});
#endfor
#for k in 0..SPAN_BITS
        high = max(high, subgroupShuffleXor(high, 1u << #{k}u));
#endfor
        if subgroupAny(high > top) {
            let new_top = max(top, high);
            let factor = exp2(top - new_top);
            top = new_top;
            sum *= factor;
#for h in 0..GR
            let factor_#{h} = subgroupShuffle(factor, base + #{h}u * SPAN);
#for c in 0..C
            a_#{h}_#{c} *= factor_#{h};
            b_#{h}_#{c} *= factor_#{h};
#endfor
#endfor
        }
#for r in 0..SCORES
        let e_#{r} = exp2(s_#{r} - top);
        sum += e_#{r};
#endfor
#for j in 0..U/SCORES
#for r in 0..SCORES
#for c in 0..C
        let value_#{j*SCORES+r}_#{c} = value_of(v_#{j*SCORES+r}_#{c});
#endfor
#for h in 0..GR
        let w_#{h}_#{j*SCORES+r} = vec4<f32>(subgroupShuffle(e_#{r}, base + #{h*U/SCORES+j}u * COPIES));
#for c in 0..C
        a_#{h}_#{c} = fma(w_#{h}_#{j*SCORES+r}, value_#{j*SCORES+r}_#{c}.a, a_#{h}_#{c});
        b_#{h}_#{c} = fma(w_#{h}_#{j*SCORES+r}, value_#{j*SCORES+r}_#{c}.b, b_#{h}_#{c});
#endfor
#endfor
#endfor
#endfor
    }

    // Slots are added by their maxima: within MIN_SUBGROUP lanes by shuffles, then in workgroup memory.
#for k in 0..SPAN_BITS
    sum += subgroupShuffleXor(sum, 1u << #{k}u);
#endfor
    if own % SPAN == 0u {
        states[slot * #{GR}u + own / SPAN] = vec2<f32>(top, sum / f32(COPIES));
    }
    workgroupBarrier();
    let out_split = params.first_split + split;
#for h in 0..GR
    var top_#{h} = states[#{h}].x;
    for (var i = 1u; i < SLOTS; i += 1u) {
        top_#{h} = max(top_#{h}, states[i * #{GR}u + #{h}u].x);
    }
    let weight_#{h} = exp2(states[slot * #{GR}u + #{h}u].x - top_#{h});
#for c in 0..C
    a_#{h}_#{c} *= weight_#{h};
    b_#{h}_#{c} *= weight_#{h};
#for k in 0..MERGED_BITS
    a_#{h}_#{c} += subgroupShuffleXor(a_#{h}_#{c}, W << #{k}u);
    b_#{h}_#{c} += subgroupShuffleXor(b_#{h}_#{c}, W << #{k}u);
#endfor
#endfor
    if lane == #{h}u && first_head + #{h}u <= last_head {
        var total = 0.0;
        for (var i = 0u; i < SLOTS; i += 1u) {
            let s = states[i * #{GR}u + #{h}u];
            total += s.y * exp2(s.x - top_#{h});
        }
        state[(first_head + #{h}u) * params.n_splits + out_split] = vec2<f32>(top_#{h} * LN_2, total);
    }
#endfor
#for p in 0..GR/BATCH
    if slot % MERGED == 0u {
#for j in 0..BATCH
#for c in 0..C
        if has_#{c} {
            let at = (slot / MERGED * #{BATCH}u + #{j}u) * ROW + d_#{c} / 4u;
            sums[at] = a_#{p*BATCH+j}_#{c};
            sums[at + 1u] = b_#{p*BATCH+j}_#{c};
        }
#endfor
#endfor
    }
    workgroupBarrier();
    for (var i = lane; i < #{BATCH}u * ROW; i += 128u) {
        let head = first_head + #{p*BATCH}u + i / ROW;
        if head <= last_head {
            var total = sums[i];
            for (var s = 1u; s < SLOTS / MERGED; s += 1u) {
                total += sums[s * (#{BATCH}u * ROW) + i];
            }
            acc[(head * params.n_splits + out_split) * ROW + i % ROW] = total;
        }
    }
    // The next heads overwrite the sums.
    workgroupBarrier();
#endfor
}
