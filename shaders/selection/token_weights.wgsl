// Token weights: log attention weights of the scored tokens, the highest of the query heads of a group, as integer keys; and a
// histogram of their upper 11 bits. Tokens of always-read pages have the key ALWAYS and are not counted.
// A key is (weight + 64) * 2^16, from 0 to 2^22 - 1: weights below -64 are equal, NaN is the highest.
// Source: LeoAM §4.2 (the importance of a token for a KV head is that for its best query head).
// Bindings: scores f32 (selection/token_scores) · bounds f32 [R, H, P, 2] · heads f32 [L, R, H, 2] (selection/head_totals) ·
//   state u32 (selection/page_candidates) ·
//   pages u32 [R G, 1 + n_listed] · keys u32 [R G, n_listed, 64] · upper_bits u32 [R G, 2048]
// Grid: (tiles of 4 pages, G of each of R rows), 256 lanes; a lane owns one token. Workgroup memory: 16 bytes.
struct Params {
    n_listed: u32,
    group: u32,
    n_pages: u32,
    n_always: u32,
    first_head: u32,    // of the layer, in heads
    first_list: u32,    // of the layer, in state
}
#params
@group(0) @binding(0) var<storage, read> scores: array<f32>;
@group(0) @binding(1) var<storage, read> bounds: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> heads: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read_write> state: array<atomic<u32>>;
@group(0) @binding(4) var<storage, read> pages: array<u32>;
@group(0) @binding(5) var<storage, read_write> keys: array<u32>;
@group(0) @binding(6) var<storage, read_write> upper_bits: array<atomic<u32>>;
#import common/ordered_bits
#import common/token_keys
#import common/selection_counters

const UNBOUNDED: f32 = 3.0e38;

var<workgroup> best: array<atomic<u32>, 4>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let list = wg.y;
    let pages_at = list * (1u + params.n_listed);
    let n_here = n_keys_of(list) / PAGE_TOKENS;
    if wg.x * 4u >= n_here {
        return;
    }
    let place = wg.x * 4u + lane / 64u;
    let exists = place < n_here;
    if lane < 4u {
        atomicStore(&best[lane], 0u);
    }
    // The bound of this lane's page, if it is a free one.
    let is_free = exists && place >= params.n_always;
    let page = pages[pages_at + 1u + min(place, n_here - 1u)];
    var weight = -3.4e38;
    var bound = -3.4e38;
    var is_invalid = false;
    for (var h = 0u; h < params.group; h += 1u) {
        let head = list * params.group + h;
        let known = heads[params.first_head + head];
        let total = known.x - known.y;
        if exists {
            let score = scores[(head * params.n_listed + place) * 64u + lane % 64u] - total;
            is_invalid = is_invalid || is_nan(score);
            weight = max(weight, score);
            bound = max(bound, bounds[head * params.n_pages + page].x - total);
        }
    }
    let key = select(key_of_weight(weight), MAX_KEY, is_invalid);
    if exists {
        keys[(list * params.n_listed + place) * 64u + lane % 64u] = select(ALWAYS, key, is_free);
    }
    if is_free {
        atomicMax(&best[lane / 64u], ordered(weight));
        atomicAdd(&upper_bits[list * 2048u + key / 2048u], 1u);
    }
    workgroupBarrier();
    if is_free && lane % 64u == 0u && bound < UNBOUNDED {
        let top = from_ordered(atomicLoad(&best[lane / 64u]));
        let gap = ordered(bound - top);
        let state_at = 2u * (params.first_list + list);
        atomicMin(&state[state_at], gap);
        if top >= LN_MUCH {
            atomicMin(&state[state_at + 1u], gap);
        }
    }
}
