// Page candidates: the free pages with the highest bounds on their attention, for each KV head of each row. Their tokens are
// scored next. As many as may hold a token with a weight of at least exp(least), but from n_min to n_max; ties go to the
// earlier page. After the first step only the n_best with the highest bounds, and those that may hold a token with much attention
// if their bound is as tight as the tightest of such a page so far, and a little more. The always-read pages come first: sinks,
// then recent pages.
// Source: LeoAM §4.2 (chunks by the upper bound of their abstract).
// Bindings: bounds f32 [R, H, P, 2] (upper, lower of q · k) · heads f32 [L, R, H, 2] (highest bound of this step, bound slack of
//   the last step: its highest bound minus the log-sum-exp of its scores, or UNKNOWN) · state u32 [L, R G, 2] (least gap between
//   the bound and the best token of a page in the last step, and of a page with much attention so far, as ordered bits), then
//   counters (common/selection_counters) · frames u32 [L, P] (frame of each page) · page_keys u32 [R G, P] (scratch) ·
//   pages u32 [R G, 1 + n_listed] (number of pages, then their indices, ascending except for the always-read ones) ·
//   upper_bits and lower_bits u32 [R G, 2048] (cleared)
// Grid: one workgroup of 256 lanes per KV head of each row. Workgroup memory: 9 KiB.
struct Params {
    n_pages: u32,
    group: u32,
    first_head: u32,    // of the layer, in heads
    first_list: u32,    // of the layer, in state
    frames_at: u32,     // of the layer
    counter_at: u32,    // in state
    first_in_ram: u32,  // frame from which pages are in RAM; 0xffffffff: none
    n_best: u32,
    n_sink: u32,
    n_recent: u32,
    n_min: u32,
    n_max: u32,
    least: f32,
}
#params
@group(0) @binding(0) var<storage, read> bounds: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read_write> heads: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> state: array<atomic<u32>>;
@group(0) @binding(3) var<storage, read_write> page_keys: array<u32>;
@group(0) @binding(4) var<storage, read_write> pages: array<u32>;
@group(0) @binding(5) var<storage, read_write> upper_bits: array<u32>;
@group(0) @binding(6) var<storage, read_write> lower_bits: array<u32>;
@group(0) @binding(7) var<storage, read> frames: array<u32>;
#import common/ordered_bits
#import common/selection_counters
#import common/top_bin

const UNBOUNDED: f32 = 3.0e38;
const UNKNOWN: f32 = 3.0e38;
// How much tighter a bound may be than those seen so far.
const GAP_MARGIN: f32 = 3.0;

var<workgroup> partial: array<f32, 256>;
var<workgroup> of_sixteen: array<f32, 16>;
var<workgroup> local: array<atomic<u32>, 2048>;
var<workgroup> n_reaching: atomic<u32>;
var<workgroup> n_in_ram: atomic<u32>;

fn maximum(lane: u32, value: f32) -> f32 {
    partial[lane] = value;
    workgroupBarrier();
    if lane < 16u {
        var sixteen = partial[lane * 16u];
        for (var i = 1u; i < 16u; i += 1u) {
            sixteen = max(sixteen, partial[lane * 16u + i]);
        }
        of_sixteen[lane] = sixteen;
    }
    workgroupBarrier();
    var result = of_sixteen[0];
    for (var i = 1u; i < 16u; i += 1u) {
        result = max(result, of_sixteen[i]);
    }
    return result;
}

// The n-th highest of n_keys keys from `begin` on, and how many of those with this key are among the n.
fn nth_key(lane: u32, begin: u32, n_keys: u32, n: u32) -> vec2<u32> {
    var known = 0u;
    var left = n;
    for (var level = 0u; level < 3u; level += 1u) {
        let shift = select(select(21u, 10u, level == 1u), 0u, level == 2u);
        let width = select(11u, 10u, level == 2u);
        for (var bin = lane; bin < 2048u; bin += 256u) {
            atomicStore(&local[bin], 0u);
        }
        workgroupBarrier();
        for (var i = lane; i < n_keys; i += 256u) {
            let key = page_keys[begin + i];
            if level == 0u || (key >> (shift + width)) == known {
                atomicAdd(&local[(key >> shift) & ((1u << width) - 1u)], 1u);
            }
        }
        workgroupBarrier();
        var counts: array<u32, 8>;
        for (var i = 0u; i < 8u; i += 1u) {
            counts[i] = atomicLoad(&local[2047u - (lane * 8u + i)]);
        }
        let found = top_bin(lane, counts, left);
        known = (known << width) | found.bin;
        left -= found.n_above;
    }
    return vec2<u32>(known, left);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let list = wg.x;
    let n_pages = params.n_pages;
    let n_always = min(params.n_sink + params.n_recent, n_pages);
    let first = min(params.n_sink, n_pages);
    let n_free = n_pages - n_always;
    let keys_at = list * n_pages;
    let stride = 1u + n_always + params.n_max;

    // Upper bounds as log weights, the highest of the group: the total of each head is its highest bound minus the last slack.
    for (var h = 0u; h < params.group; h += 1u) {
        let head = list * params.group + h;
        var highest = -3.4e38;
        for (var page = lane; page < n_pages; page += 256u) {
            let upper = bounds[head * n_pages + page].x;
            highest = max(highest, select(highest, upper, upper < UNBOUNDED));
        }
        let top = maximum(lane, highest);
        let slack = heads[params.first_head + head].y;
        let total = top - select(slack, 0.0, slack >= UNKNOWN);
        for (var page = lane; page < n_pages; page += 256u) {
            let weight = bounds[head * n_pages + page].x - total;
            let key = ordered(weight);
            page_keys[keys_at + page] = select(max(key, page_keys[keys_at + page]), key, h == 0u);
        }
        storageBarrier();
        workgroupBarrier();
        if lane == 0u {
            heads[params.first_head + head] = vec2<f32>(top, slack);
            if h == 0u {
                atomicStore(&n_reaching, 0u);
                atomicStore(&n_in_ram, 0u);
            }
        }
    }
    let is_known = heads[params.first_head + list * params.group].y < UNKNOWN;
    workgroupBarrier();
    let state_at = 2u * (params.first_list + list);
    let best = nth_key(lane, keys_at + first, n_free, min(params.n_best, n_free)).x;
    let peak = ordered(LN_MUCH - GAP_MARGIN + from_ordered(atomicLoad(&state[state_at + 1u])));
    for (var i = lane; i < n_free; i += 256u) {
        if is_known && page_keys[keys_at + first + i] < min(best, peak) {
            page_keys[keys_at + first + i] = 0u;
        }
    }
    storageBarrier();
    workgroupBarrier();
    let gap = from_ordered(atomicLoad(&state[state_at]));
    let least = ordered(params.least + select(0.0, gap, is_known));
    var n_here = 0u;
    for (var i = lane; i < n_free; i += 256u) {
        n_here += u32(page_keys[keys_at + first + i] >= least);
    }
    atomicAdd(&n_reaching, n_here);
    workgroupBarrier();
    let reaching = select(n_free, atomicLoad(&n_reaching), is_known);
    let wanted = min(clamp(reaching, params.n_min, params.n_max), n_free);

    // Key of the last candidate, and how many with this key are candidates.
    let last = nth_key(lane, keys_at + first, n_free, wanted);
    let known = last.x;
    let left = last.y;

    // A lane has consecutive pages, so that the list is ascending.
    let each = (n_free + 255u) / 256u;
    let begin = min(lane * each, n_free);
    let end = min(begin + each, n_free);
    var n_above = 0u;
    var n_equal = 0u;
    for (var i = begin; i < end; i += 1u) {
        let key = page_keys[keys_at + first + i];
        n_above += u32(key > known);
        n_equal += u32(key == known);
    }
    let before = vec2<u32>(sum_before(lane, n_above), sum_before(lane, n_equal));
    var rank = before.x + min(before.y, left);
    var ties = before.y;
    var in_ram = 0u;
    for (var i = begin; i < end; i += 1u) {
        let key = page_keys[keys_at + first + i];
        let is_tie = key == known;
        if wanted > 0u && (key > known || is_tie && ties < left) {
            pages[list * stride + 1u + n_always + rank] = first + i;
            rank += 1u;
            in_ram += u32(frames[params.frames_at + first + i] >= params.first_in_ram);
        }
        ties += u32(is_tie);
    }
    for (var i = lane; i < n_always; i += 256u) {
        let page = select(n_pages - n_always + i, i, i < first);
        pages[list * stride + 1u + i] = page;
        in_ram += u32(frames[params.frames_at + page] >= params.first_in_ram);
    }
    atomicAdd(&n_in_ram, in_ram);
    workgroupBarrier();
    for (var bin = lane; bin < 2048u; bin += 256u) {
        upper_bits[list * 2048u + bin] = 0u;
        lower_bits[list * 2048u + bin] = 0u;
    }
    if lane == 0u {
        pages[list * stride] = n_always + wanted;
        // The next step has its own gaps.
        atomicStore(&state[state_at], ordered(UNBOUNDED));
        if !is_known {
            atomicStore(&state[state_at + 1u], ordered(UNBOUNDED));
        }
        atomicAdd(&state[params.counter_at + SCORED], n_always + wanted);
        atomicAdd(&state[params.counter_at + SCORED_IN_RAM], atomicLoad(&n_in_ram));
    }
}
