// Token list: the tokens that a KV head reads, in the order of the listed pages: all of the always-read pages, then the n_wanted
// with the highest keys. Ties go to the earlier token.
// Source: LeoAM §4.2 (the most important tokens of a KV head, here by radix selection).
// Bindings: keys u32 [R G, n_listed, 64] · pages u32 [R G, 1 + n_listed] · upper_bits and lower_bits u32 [R G, 2048] (selection/key_histogram) ·
//   counts_of_tiles u32 [R G, n_tiles, 2] (selection/token_counts) · frames u32 [L, P] ·
//   table u32 [R G, 64 n_always + n_wanted] (16 * slot + token, as in common/kv_block) · state u32 (counters: common/selection_counters)
// Grid: (n_tiles of 2,048 keys, G of each of R rows), 256 lanes; a lane has 8 keys in a row. Workgroup memory: 1 KiB.
struct Params {
    n_listed: u32,
    n_wanted: u32,
    n_tiles: u32,
    n_always: u32,
    n_kv_head: u32,
    frames_at: u32,     // of the layer
    counter_at: u32,    // in state
    first_in_ram: u32,  // frame from which pages are in RAM; 0xffffffff: none
}
#params
@group(0) @binding(0) var<storage, read> keys: array<u32>;
@group(0) @binding(1) var<storage, read> pages: array<u32>;
@group(0) @binding(2) var<storage, read> upper_bits: array<u32>;
@group(0) @binding(3) var<storage, read> lower_bits: array<u32>;
@group(0) @binding(4) var<storage, read> counts_of_tiles: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read> frames: array<u32>;
@group(0) @binding(6) var<storage, read_write> table: array<u32>;
@group(0) @binding(7) var<storage, read_write> state: array<atomic<u32>>;
#import common/token_keys
#import common/top_bin
#import common/last_key
#import common/selection_counters

var<workgroup> n_in_ram: atomic<u32>;

const BLOCK_TOKENS: u32 = 16u;
const NONE: u32 = 0xffffffffu;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let list = wg.y;
    let pages_at = list * (1u + params.n_listed);
    let n_keys = n_keys_of(list);
    let first = wg.x * TILE_KEYS;
    if first >= n_keys {
        return;
    }
    if lane == 0u {
        atomicStore(&n_in_ram, 0u);
    }
    let last = last_key(lane, list, params.n_wanted);
    var of_tiles = vec2<u32>(0u);
    for (var tile = lane; tile < wg.x; tile += 256u) {
        of_tiles += counts_of_tiles[list * params.n_tiles + tile];
    }
    var own: array<u32, 8>;
    var n_above = 0u;
    var n_equal = 0u;
    let begin = first + lane * LANE_KEYS;
    for (var i = 0u; i < LANE_KEYS; i += 1u) {
        own[i] = 0u;
        if begin + i < n_keys {
            own[i] = keys[list * params.n_listed * PAGE_TOKENS + begin + i];
            n_above += u32(own[i] > last.key && own[i] != ALWAYS);
            n_equal += u32(own[i] == last.key);
        }
    }
    let all_above = sum_of_all(lane, of_tiles.x);
    let all_equal = sum_of_all(lane, of_tiles.y);
    let above = all_above + sum_before(lane, n_above);
    var ties = all_equal + sum_before(lane, n_equal);
    var rank = above + min(ties, last.n_ties);
    let n_table = PAGE_TOKENS * params.n_always + params.n_wanted;
    // All keys of a lane are of one page.
    let page = pages[pages_at + 1u + min(begin, n_keys - 1u) / PAGE_TOKENS];
    let frame = frames[params.frames_at + page];
    var n_listed = 0u;
    for (var i = 0u; i < LANE_KEYS; i += 1u) {
        let at = begin + i;
        if at >= n_keys {
            break;
        }
        let is_always = own[i] == ALWAYS;
        let is_tie = !is_always && own[i] == last.key;
        let is_selected = is_always || params.n_wanted > 0u && (own[i] > last.key || is_tie && ties < last.n_ties);
        ties += u32(is_tie);
        if is_selected {
            let place = select(PAGE_TOKENS * params.n_always + rank, at, is_always);
            rank += u32(!is_always);
            n_listed += 1u;
            let token = at % PAGE_TOKENS;
            let slot = (frame * 4u + token / BLOCK_TOKENS) * params.n_kv_head + list % params.n_kv_head;
            if place < n_table {
                table[list * n_table + place] = slot * BLOCK_TOKENS + token % BLOCK_TOKENS;
            }
        }
    }
    if params.first_in_ram != NONE {
        if n_listed > 0u {
            atomicAdd(&state[params.counter_at + USES + params.frames_at + page], n_listed);
            atomicAdd(&n_in_ram, select(0u, n_listed, frame >= params.first_in_ram));
        }
        workgroupBarrier();
        if lane == 0u {
            atomicAdd(&state[params.counter_at + LISTED_IN_RAM], atomicLoad(&n_in_ram));
        }
    }
}
