// Flash decoding split, as `decode_split`, for software devices with subgroups of exactly 8 lanes: one subgroup
// processes the split in steps of 32 keys, with broadcasts instead of workgroup memory and barriers.
// Source: Flash-Decoding (Dao et al. 2023); online softmax as in FlashAttention-2.
// Bindings: q f32 [R, H, D] (scaled) · kv blocks · table u32 [n_lists, n_blocks] (TOKEN_TABLE: [n_lists, n_listed]) ·
//   acc f32 [R, H, n_splits, D] · state f32 [R, H, n_splits, 2] (maximum, sum)
// R rows are separate tokens, with the KV heads of one after those of another. They share lists for G heads, or have R
// G lists.
// TOKEN_TABLE: each KV head reads its selected tokens (common/kv_block); keys are counted in the order of its list.
// Grid: (splits of this segment, G of each row, head sets of GR), 8 lanes; no workgroup memory. A lane scores 4 keys of a
// step for GR heads, holds 8 elements of each 64 of q, and owns the same 8 of the output (NC times, for D up to 64 NC).
struct Params {
    n_keys: u32,
    n_blocks: u32,
    group: u32,
    first_split: u32,
    n_splits: u32,
    first_group: u32,
    n_lists: u32,
    first_entry: u32,
    n_entries: u32,
}
#params
@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> kv: array<#{KV}>;
@group(0) @binding(2) var<storage, read> table: array<u32>;
@group(0) @binding(3) var<storage, read_write> acc: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> state: array<vec2<f32>>;
#import common/kv_block
#import common/vec8_subgroup

const GR: u32 = #{GR}u;
const MASKED: f32 = -3.0e38;

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let first_key = wg.x * 256u;
    // A split beyond the last key has zero weight.
    let n_here = min(params.n_keys - min(params.n_keys, first_key), 256u);
    let g = params.first_group + wg.y;
    let list = wg.y % params.n_lists;
    let first_head = g * params.group + wg.z * GR;
    // A head set beyond the group repeats the last head and is not stored.
    let last_head = (g + 1u) * params.group - 1u;
#for h in 0..GR
    let q_#{h} = min(first_head + #{h}u, last_head) * HEAD_DIM;
    var top_#{h} = MASKED;
    var sum_#{h} = 0.0;
#for n in 0..NC
    let q_#{h}_#{n} = Eight(q[(q_#{h} + own(#{n}u, lane)) / 4u], q[(q_#{h} + own(#{n}u, lane)) / 4u + 1u]);
    var a_#{h}_#{n} = vec4<f32>(0.0);
    var b_#{h}_#{n} = vec4<f32>(0.0);
#endfor
#endfor
    for (var step = 0u; step < n_here; step += 32u) {
        let k0 = step + lane * 4u;
#ifdef TOKEN_TABLE
#for j in 0..4
        var entry_#{j} = PAD;
        if k0 + #{j}u < n_here {
            entry_#{j} = table[list * params.n_blocks + first_key + k0 + #{j}u];
        }
        let token_#{j} = in_segment(entry_#{j}, params.first_entry, params.n_entries);
#endfor
        // Shorter lists end here.
        if subgroupBroadcast(entry_0, 0u) == PAD {
            break;
        }
#for j in 0..4
        let any_#{j} = select(token_#{j}, 0u, token_#{j} == PAD);
        let row_#{j} = key_row_of(any_#{j});
        let scales_#{j} = scales_of(any_#{j}, list);
#endfor
        let exists = vec4<u32>(token_0, token_1, token_2, token_3) != vec4<u32>(PAD);
#for h in 0..GR
        var s_#{h} = vec4<f32>(0.0);
#endfor
#else
        // Lanes beyond the last key reread the first keys of the step; their scores are masked.
        let first = select(step, k0, k0 < n_here);
        let block = block_at(list, first_key + first, params.n_blocks);
        let row = key_row(block, first % BLOCK_TOKENS);
        let exists = vec4<u32>(k0) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(n_here);
        // The 32 keys of the step are in one page.
        let scales = scales_at(list, first_key + step, params.n_blocks);
#for n in 0..NC
        let scale_#{n} = key_scale8(scales, own(#{n}u, lane));
#for h in 0..GR
        let scaled_#{h}_#{n} = scaled_query(q_#{h}_#{n}, scale_#{n});
#endfor
#endfor
#for h in 0..GR
        var low_#{h} = 0.0;
#for n in 0..NC
        if #{n*64}u + lane * 8u < HEAD_DIM {
            low_#{h} += query_low(q_#{h}_#{n}, scale_#{n});
        }
#endfor
        var s_#{h} = vec4<f32>(subgroupAdd(low_#{h}));
#endfor
#endif
        var k: Eight;
#for n in 0..NC
#for l in 0..8
        if #{n*64}u + #{l*8}u < HEAD_DIM {
#for h in 0..GR
#ifdef TOKEN_TABLE
            let x_#{h} = subgroupBroadcast(q_#{h}_#{n}.a, #{l}u);
            let y_#{h} = subgroupBroadcast(q_#{h}_#{n}.b, #{l}u);
#else
            let x_#{h} = subgroupBroadcast(scaled_#{h}_#{n}.a, #{l}u);
            let y_#{h} = subgroupBroadcast(scaled_#{h}_#{n}.b, #{l}u);
#endif
#endfor
#for j in 0..4
#ifdef TOKEN_TABLE
            k = whole_key(key8(row_#{j}, 0u, #{n*64}u + #{l*8}u), key_scale8(scales_#{j}, #{n*64}u + #{l*8}u));
#else
            k = key8(row, #{j}u, #{n*64}u + #{l*8}u);
#endif
#for h in 0..GR
            s_#{h}[#{j}] += dot(x_#{h}, k.a) + dot(y_#{h}, k.b);
#endfor
#endfor
        }
#endfor
#endfor
#for h in 0..GR
        s_#{h} = select(vec4<f32>(MASKED), s_#{h}, exists);
        let high_#{h} = max(top_#{h}, subgroupMax(max(max(s_#{h}.x, s_#{h}.y), max(s_#{h}.z, s_#{h}.w))));
        let factor_#{h} = exp(top_#{h} - high_#{h});
        let e_#{h} = select(exp(s_#{h} - high_#{h}), vec4<f32>(0.0), s_#{h} <= vec4<f32>(MASKED));
        top_#{h} = high_#{h};
        sum_#{h} = sum_#{h} * factor_#{h} + (e_#{h}.x + e_#{h}.y + e_#{h}.z + e_#{h}.w);
#for n in 0..NC
        a_#{h}_#{n} *= factor_#{h};
        b_#{h}_#{n} *= factor_#{h};
#endfor
#endfor
        var v: Eight;
#for l in 0..8
#ifndef TOKEN_TABLE
        let block_#{l} = subgroupBroadcast(block, #{l}u);
#endif
#for h in 0..GR
        let w_#{h}_#{l} = subgroupBroadcast(e_#{h}, #{l}u);
#endfor
#for j in 0..4
        // Unwritten memory may have any bits (NaN), so zero weight is not enough.
#ifdef TOKEN_TABLE
        let token_#{l}_#{j} = subgroupBroadcast(token_#{j}, #{l}u);
        if token_#{l}_#{j} != PAD {
            let block = block_of(token_#{l}_#{j});
#else
        if step + #{l*4}u + #{j}u < n_here {
#endif
#for n in 0..NC
#ifdef TOKEN_TABLE
            v = value8(block, token_#{l}_#{j} % BLOCK_TOKENS, own(#{n}u, lane));
#else
            v = value8(block_#{l}, #{l*4}u % BLOCK_TOKENS + #{j}u, own(#{n}u, lane));
#endif
#for h in 0..GR
            a_#{h}_#{n} += w_#{h}_#{l}[#{j}] * v.a;
            b_#{h}_#{n} += w_#{h}_#{l}[#{j}] * v.b;
#endfor
#endfor
        }
#endfor
#endfor
    }
    let out_split = params.first_split + wg.x;
#for h in 0..GR
    let total_#{h} = subgroupAdd(sum_#{h});
    if first_head + #{h}u <= last_head {
        let row = (first_head + #{h}u) * params.n_splits + out_split;
#for n in 0..NC
        if #{n*64}u + lane * 8u < HEAD_DIM {
            acc[(row * HEAD_DIM + own(#{n}u, lane)) / 4u] = a_#{h}_#{n};
            acc[(row * HEAD_DIM + own(#{n}u, lane)) / 4u + 1u] = b_#{h}_#{n};
        }
#endfor
        if lane == 0u {
            state[row] = vec2<f32>(top_#{h}, total_#{h});
        }
    }
#endfor
}
