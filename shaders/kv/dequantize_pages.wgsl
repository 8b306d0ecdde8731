// Page dequantization: quantized pages (common/kv_page) to f16 blocks, the inverse of quantize_pages.
// Source: KIVI §3; LeoAM §4.4. Bit-exact, whatever the f16 rounding of the device.
// Bindings: kv u32 (common/kv_page) · blocks f16 [pages, 4G, 32, D]
// Grid: n_pages * 4G * D / 8 lanes in workgroups of 64; a lane owns 8 channels of one block.
struct Params {
    from_page: u32,
    to_page: u32,
    n_pages: u32,
}
#params
@group(0) @binding(0) var<storage, read> kv: array<#{KV}>;
@group(0) @binding(1) var<storage, read_write> blocks: array<vec4<u32>>;
#import common/vec8
#import common/f16_bits
#import common/kv_page
#import common/kv_int_codes

const N_CHUNKS: u32 = HEAD_DIM / 8u;

// Row `row` of a slot, elements d .. d + 8.
fn store8(slot: u32, row: u32, d: u32, x: Eight) {
    let a = nearest_halves(x.a);
    let b = nearest_halves(x.b);
    let raw = vec4<u32>(a.xz, b.xz) | (vec4<u32>(a.yw, b.yw) << vec4<u32>(16u));
    blocks[((slot * 2u * BLOCK_TOKENS + row) * HEAD_DIM + d) / 8u] = raw;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let page = id.x / (N_CHUNKS * PAGE_SLOTS);
    let slot = id.x / N_CHUNKS % PAGE_SLOTS;
    let d = id.x % N_CHUNKS * 8u;
    if page >= params.n_pages {
        return;
    }
    let start = (params.from_page + page) * PAGE_WORDS;
    let block = start + slot * BLOCK_WORDS;
    let to_slot = (params.to_page + page) * PAGE_SLOTS + slot;
    let scale = key_scale8(start + KEY_SCALES_AT + slot % KV_HEADS * HEAD_DIM, d);
    for (var t = 0u; t < BLOCK_TOKENS; t += 1u) {
        store8(to_slot, t, d, whole_key(key8(key_row(block, t), 0u, d), scale));
        store8(to_slot, BLOCK_TOKENS + t, d, value8(block, t, d));
    }
}
