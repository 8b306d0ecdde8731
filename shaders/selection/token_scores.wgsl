// Token scores of listed pages: q · k of the 64 keys of each, for each query head, and their maximum and sum of exponentials.
// Source: LeoAM §4.2 (chunks are split by their tokens on the device that has their keys).
// Bindings: q f32 [R, H, D] (scaled) · kv blocks of one segment · table u32 [R G, 1 + n_listed] (selection/page_candidates) ·
//   frames u32 [L, P] (frame of each page) · scores f32 [R, H, n_listed, 64], then [R, H, n_listed, 2] (maximum, sum)
// Grid: (n_listed, G of each of R rows, head sets of GR), 64 lanes. W lanes share a key, with 8 C elements each, for GR
// heads. Pages in other segments are skipped. Workgroup memory: 260 GR W + 320 GR bytes (at most 10 KiB).
struct Params {
    n_listed: u32,
    n_lists: u32,
    group: u32,
    frames_at: u32,     // of the layer
    first_frame: u32,   // of the segment
    n_frames: u32,
}
#params
@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> kv: array<#{KV}>;
@group(0) @binding(2) var<storage, read> table: array<u32>;
@group(0) @binding(3) var<storage, read> frames: array<u32>;
@group(0) @binding(4) var<storage, read_write> scores: array<f32>;
#import common/kv_block
#import common/exp_sum

const GR: u32 = #{GR}u;
const W: u32 = #{W}u;
// Tokens at a time.
const SPAN: u32 = #{64/W}u;

// Parts of the scores, by head, lane of a token, and token. Rows of 65 avoid bank conflicts.
var<workgroup> parts: array<f32, #{GR*W*65}>;
var<workgroup> partial: array<f32, #{GR*64}>;
var<workgroup> sums: array<vec2<f32>, #{GR*8}>;

fn dot8(x: Eight, y: Eight) -> f32 {
    return dot(x.a, y.a) + dot(x.b, y.b);
}

// Maximum of eight scores from `first` on, and sum of their exponentials.
fn add_eight(first: u32) -> vec2<f32> {
    var top = partial[first];
    for (var i = 1u; i < 8u; i += 1u) {
        top = max(top, partial[first + i]);
    }
    var sum = 0.0;
    for (var i = 0u; i < 8u; i += 1u) {
        sum += exp(partial[first + i] - top);
    }
    return vec2<f32>(top, sum);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let list = wg.y;
    let pages_at = list * (1u + params.n_listed);
    if wg.x >= table[pages_at] {
        return;
    }
    let frame = frames[params.frames_at + table[pages_at + 1u + wg.x]] - params.first_frame;
    if frame >= params.n_frames {
        return;
    }
    let g = list % #{G}u;
    let first_head = list * params.group + wg.z * GR;
    // A head set beyond the group repeats the last head and is not stored.
    let last_head = (list + 1u) * params.group - 1u;
    let first_slot = frame * 4u * #{G}u + g;
    let scales = scales_of_slot(first_slot, g);
    let own = lane % W;
#for h in 0..GR
    let q_#{h} = min(first_head + #{h}u, last_head) * (HEAD_DIM / 4u);
    var low_#{h} = 0.0;
#endfor
#for c in 0..C
    let exists_#{c} = f32(own * #{C*8}u + #{c*8}u < HEAD_DIM);
    let d_#{c} = min(own * #{C*8}u + #{c*8}u, HEAD_DIM - 8u);
    let scale_#{c} = key_scale8(scales, d_#{c});
#for h in 0..GR
    let raw_#{h}_#{c} = Eight(q[q_#{h} + d_#{c} / 4u] * exists_#{c}, q[q_#{h} + d_#{c} / 4u + 1u] * exists_#{c});
    let scaled_#{h}_#{c} = scaled_query(raw_#{h}_#{c}, scale_#{c});
    low_#{h} += query_low(raw_#{h}_#{c}, scale_#{c});
#endfor
#endfor
#for i in 0..W
    let token_#{i} = #{i}u * SPAN + lane / W;
    let row_#{i} = key_row(block_of_slot(first_slot + token_#{i} / BLOCK_TOKENS * #{G}u), token_#{i} % BLOCK_TOKENS);
#for c in 0..C
    let key_#{i}_#{c} = key8(row_#{i}, 0u, d_#{c});
#endfor
#endfor
#for i in 0..W
#for h in 0..GR
    var s_#{i}_#{h} = low_#{h};
#for c in 0..C
    s_#{i}_#{h} += dot8(scaled_#{h}_#{c}, key_#{i}_#{c});
#endfor
    parts[(#{h}u * W + own) * 65u + token_#{i}] = s_#{i}_#{h};
#endfor
#endfor
    workgroupBarrier();
#for h in 0..GR
    var s_#{h} = parts[#{h}u * W * 65u + lane];
    for (var i = 1u; i < W; i += 1u) {
        s_#{h} += parts[(#{h}u * W + i) * 65u + lane];
    }
#endfor
    let n_heads = params.n_lists * params.group;
#for h in 0..GR
    partial[#{h}u * 64u + lane] = s_#{h};
    if first_head + #{h}u <= last_head {
        scores[((first_head + #{h}u) * params.n_listed + wg.x) * 64u + lane] = s_#{h};
    }
#endfor
    workgroupBarrier();
    // For each head, eight lanes add eight scores each, and one lane their sums.
    if lane < #{GR*8}u {
        sums[lane] = add_eight(lane * 8u);
    }
    workgroupBarrier();
    if lane < #{GR}u && first_head + lane <= last_head {
        var all = sums[lane * 8u];
        for (var i = 1u; i < 8u; i += 1u) {
            all = merged(all, sums[lane * 8u + i]);
        }
        let part = n_heads * params.n_listed * 64u + ((first_head + lane) * params.n_listed + wg.x) * 2u;
        scores[part] = all.x;
        scores[part + 1u] = all.y;
    }
}
