// Token counts: in each tile, how many keys are above that of the last selected token, and how many are equal to it.
// Source: LeoAM §4.2 (the most important tokens of a KV head, here by radix selection).
// Bindings: keys u32 [R G, n_listed, 64] · pages u32 [R G, 1 + n_listed] · upper_bits and lower_bits u32 [R G, 2048] (selection/key_histogram) ·
//   counts_of_tiles u32 [R G, n_tiles, 2]
// Grid: (n_tiles of 2,048 keys, G of each of R rows), 256 lanes. Workgroup memory: 1 KiB.
struct Params {
    n_listed: u32,
    n_wanted: u32,
    n_tiles: u32,
}
#params
@group(0) @binding(0) var<storage, read> keys: array<u32>;
@group(0) @binding(1) var<storage, read> pages: array<u32>;
@group(0) @binding(2) var<storage, read> upper_bits: array<u32>;
@group(0) @binding(3) var<storage, read> lower_bits: array<u32>;
@group(0) @binding(4) var<storage, read_write> counts_of_tiles: array<vec2<u32>>;
#import common/token_keys
#import common/top_bin
#import common/last_key

var<workgroup> n_above: atomic<u32>;
var<workgroup> n_equal: atomic<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let list = wg.y;
    let n_keys = n_keys_of(list);
    let first = wg.x * TILE_KEYS;
    if first >= n_keys {
        return;
    }
    if lane == 0u {
        atomicStore(&n_above, 0u);
        atomicStore(&n_equal, 0u);
    }
    let last = last_key(lane, list, params.n_wanted).key;
    var above = 0u;
    var equal = 0u;
    for (var i = lane; i < min(TILE_KEYS, n_keys - first); i += 256u) {
        let key = keys[list * params.n_listed * PAGE_TOKENS + first + i];
        above += u32(key > last && key != ALWAYS);
        equal += u32(key == last);
    }
    atomicAdd(&n_above, above);
    atomicAdd(&n_equal, equal);
    workgroupBarrier();
    if lane == 0u {
        counts_of_tiles[list * params.n_tiles + wg.x] = vec2<u32>(atomicLoad(&n_above), atomicLoad(&n_equal));
    }
}
