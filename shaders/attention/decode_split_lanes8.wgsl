// Attention of one new token over one split of 256 keys, as `decode_split`, for software devices whose subgroups are exactly
// 8 lanes: one subgroup walks the split in steps of 32 keys, with broadcasts instead of workgroup memory and barriers.
// Source: Flash-Decoding (Dao et al. 2023); online softmax as in FlashAttention-2.
// Bindings: q f32 [R, H, D] (scaled) · kv blocks · table u32 [n_lists, n_blocks] (SELECTIVE: [.., 2]) · acc f32 [R, H, n_splits, D] ·
//   state f32 [R, H, n_splits, 2] (maximum, sum)
// R rows are tokens of their own: the KV heads of one follow those of another. They share the lists of G heads, or have R G.
// SELECTIVE: each KV head reads tokens of blocks of its own choice (common/kv_block).
// TWO_SCALES: the two blocks of a step may be of different pages, whose codes have different scales.
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
}
#params
@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> kv: array<#{KV}>;
@group(0) @binding(2) var<storage, read> table: array<u32>;
@group(0) @binding(3) var<storage, read_write> acc: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> state: array<vec2<f32>>;
#import common/kv_block

const GR: u32 = #{GR}u;
const MASKED: f32 = -3.0e38;

// The lane's 8 elements of the n-th 64; lanes past D hold the last ones again.
fn own(n: u32, lane: u32) -> u32 {
    return min(n * 64u + lane * 8u, HEAD_DIM - 8u);
}

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let first_key = wg.x * 256u;
    // A split past the last key comes out as nothing.
    let n_here = min(params.n_keys - min(params.n_keys, first_key), 256u);
    let g = params.first_group + wg.y;
    let list = wg.y % params.n_lists;
    let first_head = g * params.group + wg.z * GR;
    // A head set past the group's end repeats the last head and is not stored.
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
#ifdef SELECTIVE
        let second_block = first_key + select(step, step + BLOCK_TOKENS, step + BLOCK_TOKENS < n_here);
        if (tokens_at(list, first_key + step, params.n_blocks) | tokens_at(list, second_block, params.n_blocks)) == 0u {
            continue;
        }
#endif
        let k0 = step + lane * 4u;
        // Lanes past the last key read the step's first ones again; what they score is masked.
        let first = select(step, k0, k0 < n_here);
        let block = block_at(list, first_key + first, params.n_blocks);
        let row = key_row(block, first % BLOCK_TOKENS);
#ifdef SELECTIVE
        let quad = select(0u, quad_at(list, first_key + first, params.n_blocks), k0 < n_here);
#endif
#ifdef TWO_SCALES
        let is_second = lane >= 4u;
        let second_scales = scales_at(list, second_block, params.n_blocks);
#for n in 0..NC
        let second_scale_#{n} = key_scale8(second_scales, own(#{n}u, lane));
#for h in 0..GR
        let second_#{h}_#{n} = scaled_query(q_#{h}_#{n}, second_scale_#{n});
#endfor
#endfor
#endif
        // Dense, the step's 32 keys are of one page.
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
#ifdef TWO_SCALES
        var second_low_#{h} = 0.0;
#for n in 0..NC
        if #{n*64}u + lane * 8u < HEAD_DIM {
            second_low_#{h} += query_low(q_#{h}_#{n}, second_scale_#{n});
        }
#endfor
        s_#{h} = select(s_#{h}, vec4<f32>(subgroupAdd(second_low_#{h})), is_second);
#endif
#endfor
        var k: Eight;
#for n in 0..NC
#for l in 0..8
        if #{n*64}u + #{l*8}u < HEAD_DIM {
#for h in 0..GR
#ifdef TWO_SCALES
            let x_#{h} = select(subgroupBroadcast(scaled_#{h}_#{n}.a, #{l}u),
                subgroupBroadcast(second_#{h}_#{n}.a, #{l}u), is_second);
            let y_#{h} = select(subgroupBroadcast(scaled_#{h}_#{n}.b, #{l}u),
                subgroupBroadcast(second_#{h}_#{n}.b, #{l}u), is_second);
#else
            let x_#{h} = subgroupBroadcast(scaled_#{h}_#{n}.a, #{l}u);
            let y_#{h} = subgroupBroadcast(scaled_#{h}_#{n}.b, #{l}u);
#endif
#endfor
#for j in 0..4
            k = key8(row, #{j}u, #{n*64}u + #{l*8}u);
#for h in 0..GR
            s_#{h}[#{j}] += dot(x_#{h}, k.a) + dot(y_#{h}, k.b);
#endfor
#endfor
        }
#endfor
#endfor
#ifdef SELECTIVE
        let exists = are_set(quad);
#else
        let exists = vec4<u32>(k0) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(n_here);
#endif
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
        let block_#{l} = subgroupBroadcast(block, #{l}u);
#ifdef SELECTIVE
        let quad_#{l} = subgroupBroadcast(quad, #{l}u);
#endif
#for h in 0..GR
        let w_#{h}_#{l} = subgroupBroadcast(e_#{h}, #{l}u);
#endfor
#for j in 0..4
        // What was never written may be anything: weight zero does not make it harmless.
#ifdef SELECTIVE
        if (quad_#{l} & (1u << #{j}u)) != 0u {
#else
        if step + #{l*4}u + #{j}u < n_here {
#endif
#for n in 0..NC
            v = value8(block_#{l}, #{l*4}u % BLOCK_TOKENS + #{j}u, own(#{n}u, lane));
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
