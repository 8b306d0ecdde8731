// Flash decoding split: attention of one new token over 256 keys; unnormalized output, maximum and sum for the merge.
// Source: Flash-Decoding (Dao et al. 2023); online softmax as in FlashAttention-2.
// Bindings: q f32 [R, H, D] (scaled) · kv blocks · table u32 [n_lists, n_blocks] (TOKEN_TABLE: [n_lists, n_listed]) ·
//   acc f32 [R, H, n_splits, D] · state f32 [R, H, n_splits, 2] (maximum, sum)
// R rows are separate tokens, with the KV heads of one after those of another. They share lists for G heads, or have R
// G lists.
// TOKEN_TABLE: each KV head reads its selected tokens (common/kv_block); keys are counted in the order of its list.
// Grid: (splits of this segment, G of each row, head sets of GR), 64 lanes.
// Stage 1: a lane scores 4 keys for GR heads. Stage 2: a lane owns 8 elements of D and every n-th key.
// Workgroup memory: GR * (256 + 64 + 64 * 8) floats (13 KiB at GR = 4).
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
}
#params
@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> kv: array<#{KV}>;
@group(0) @binding(2) var<storage, read> table: array<u32>;
@group(0) @binding(3) var<storage, read_write> acc: array<f32>;
@group(0) @binding(4) var<storage, read_write> state: array<vec2<f32>>;
#import common/kv_block

const GR: u32 = #{GR}u;
const MASKED: f32 = -3.0e38;
const N_CHUNKS: u32 = HEAD_DIM / 8u;
const N_STRIDES: u32 = 64u / N_CHUNKS;

var<workgroup> weight: array<f32, #{GR*256}>;
var<workgroup> partial: array<f32, #{GR*64}>;
var<workgroup> sums: array<f32, #{GR*512}>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let split = wg.x;
    let g = params.first_group + wg.y;
    let list = wg.y % params.n_lists;
    let first_head = g * params.group + wg.z * GR;
    // A head set beyond the group repeats the last head and is not stored.
    let last_head = (g + 1u) * params.group - 1u;
    let k0 = split * 256u + lane * 4u;
#for h in 0..GR
    let q_#{h} = min(first_head + #{h}u, last_head) * (HEAD_DIM / 4u);
    var s_#{h} = vec4<f32>(MASKED);
#endfor
#ifdef TOKEN_TABLE
#for j in 0..4
    var token_#{j} = PAD;
    if k0 + #{j}u < params.n_keys {
        token_#{j} = in_segment(table[list * params.n_blocks + k0 + #{j}u], params.first_entry, params.n_entries);
    }
    let any_#{j} = select(token_#{j}, 0u, token_#{j} == PAD);
    let row_#{j} = key_row_of(any_#{j});
    let scales_#{j} = scales_of(any_#{j}, list);
#endfor
    let exists = vec4<u32>(token_0, token_1, token_2, token_3) != vec4<u32>(PAD);
    if any(exists) {
#else
    let exists = vec4<u32>(k0) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(params.n_keys);
    if k0 < params.n_keys {
        let row = key_row(block_at(list, k0, params.n_blocks), k0 % BLOCK_TOKENS);
        let scales = scales_at(list, k0, params.n_blocks);
#endif
#for h in 0..GR
        s_#{h} = vec4<f32>(0.0);
#endfor
        for (var d = 0u; d < HEAD_DIM; d += 8u) {
#for h in 0..GR
            let x_#{h} = q[q_#{h} + d / 4u];
            let y_#{h} = q[q_#{h} + d / 4u + 1u];
#endfor
#ifndef TOKEN_TABLE
            let scale = key_scale8(scales, d);
#endif
            var k: Eight;
#for j in 0..4
#ifdef TOKEN_TABLE
            k = whole_key(key8(row_#{j}, 0u, d), key_scale8(scales_#{j}, d));
#else
            k = whole_key(key8(row, #{j}u, d), scale);
#endif
#for h in 0..GR
            s_#{h}[#{j}] += dot(x_#{h}, k.a) + dot(y_#{h}, k.b);
#endfor
#endfor
        }
#for h in 0..GR
        s_#{h} = select(vec4<f32>(MASKED), s_#{h}, exists);
#endfor
    }
#for h in 0..GR
    partial[#{h}u * 64u + lane] = max(max(s_#{h}.x, s_#{h}.y), max(s_#{h}.z, s_#{h}.w));
#endfor
    workgroupBarrier();
    for (var step = 32u; step > 0u; step /= 2u) {
        if lane < step {
#for h in 0..GR
            partial[#{h}u * 64u + lane] = max(partial[#{h}u * 64u + lane], partial[#{h}u * 64u + lane + step]);
#endfor
        }
        workgroupBarrier();
    }
#for h in 0..GR
    let top_#{h} = partial[#{h}u * 64u];
    let e_#{h} = select(exp(s_#{h} - top_#{h}), vec4<f32>(0.0), s_#{h} <= vec4<f32>(MASKED));
#for j in 0..4
    weight[#{h}u * 256u + lane * 4u + #{j}u] = e_#{h}[#{j}];
#endfor
#endfor
    workgroupBarrier();

    let chunk = lane % N_CHUNKS;
    let stride = lane / N_CHUNKS;
    // A split beyond the last key has zero weight.
    let n_here = min(params.n_keys - min(params.n_keys, split * 256u), 256u);
#for h in 0..GR
    var a_#{h} = vec4<f32>(0.0);
    var b_#{h} = vec4<f32>(0.0);
    var sum_#{h} = 0.0;
#endfor
    if stride < N_STRIDES {
        for (var k = stride; k < n_here; k += N_STRIDES) {
#ifdef TOKEN_TABLE
            let entry = table[list * params.n_blocks + split * 256u + k];
            // Shorter lists end here.
            if entry == PAD {
                break;
            }
            let token = in_segment(entry, params.first_entry, params.n_entries);
            if token == PAD {
                continue;
            }
            let v = value8(block_of(token), token % BLOCK_TOKENS, chunk * 8u);
#else
            let v = value8(block_at(list, split * 256u + k, params.n_blocks), k % BLOCK_TOKENS, chunk * 8u);
#endif
#for h in 0..GR
            let w_#{h} = weight[#{h}u * 256u + k];
            a_#{h} += w_#{h} * v.a;
            b_#{h} += w_#{h} * v.b;
            sum_#{h} += w_#{h};
#endfor
        }
    }
#for h in 0..GR
#for i in 0..4
    sums[(#{h}u * 64u + lane) * 8u + #{i}u] = a_#{h}[#{i}];
    sums[(#{h}u * 64u + lane) * 8u + #{i+4}u] = b_#{h}[#{i}];
#endfor
#endfor
    workgroupBarrier();
#for h in 0..GR
    // All lanes have read their maximum by now, so this memory is reused for the sums of the strides.
    partial[#{h}u * 64u + lane] = sum_#{h};
#endfor
    workgroupBarrier();
    let out_split = params.first_split + split;
#for h in 0..GR
    if first_head + #{h}u <= last_head {
        let row = (first_head + #{h}u) * params.n_splits + out_split;
        for (var d = lane; d < HEAD_DIM; d += 64u) {
            var total = 0.0;
            for (var i = 0u; i < N_STRIDES; i += 1u) {
                total += sums[(#{h}u * 64u + i * N_CHUNKS + d / 8u) * 8u + d % 8u];
            }
            acc[row * HEAD_DIM + d] = total;
        }
        if lane == 0u {
            var total = 0.0;
            for (var i = 0u; i < N_STRIDES; i += 1u) {
                total += partial[#{h}u * 64u + i * N_CHUNKS];
            }
            state[row] = vec2<f32>(top_#{h}, total);
        }
    }
#endfor
}
