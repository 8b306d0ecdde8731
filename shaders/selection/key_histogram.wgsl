// Key histogram: the lower 11 bits of the keys that share their upper bits with the last selected one.
// Source: LeoAM §4.2 (the most important tokens of a KV head, here by radix selection).
// Bindings: keys u32 [R G, n_listed, 64] · pages u32 [R G, 1 + n_listed] · upper_bits u32 [R G, 2048] (selection/token_weights) ·
//   lower_bits u32 [R G, 2048]
// Grid: (tiles of 2,048 keys, G of each of R rows), 256 lanes. Workgroup memory: 1 KiB.
struct Params {
    n_listed: u32,
    n_wanted: u32,
}
#params
@group(0) @binding(0) var<storage, read> keys: array<u32>;
@group(0) @binding(1) var<storage, read> pages: array<u32>;
@group(0) @binding(2) var<storage, read> upper_bits: array<u32>;
@group(0) @binding(3) var<storage, read_write> lower_bits: array<atomic<u32>>;
#import common/token_keys
#import common/top_bin
#import common/upper_bin

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let list = wg.y;
    let n_keys = n_keys_of(list);
    let first = wg.x * TILE_KEYS;
    if first >= n_keys {
        return;
    }
    let upper = upper_bin(lane, list, params.n_wanted).bin;
    for (var i = lane; i < min(TILE_KEYS, n_keys - first); i += 256u) {
        let key = keys[list * params.n_listed * PAGE_TOKENS + first + i];
        if key / 2048u == upper {
            atomicAdd(&lower_bits[list * 2048u + key % 2048u], 1u);
        }
    }
}
