// Page quantization: complete pages of f16 or f32 blocks to quantized ones (common/kv_page).
// Source: KIVI §3. Scale and low are first rounded outward to f16, so that codes and reader agree and no number falls
// outside. Bit-exact, whatever the division and f16 rounding of the device.
// Bindings: blocks f16 or f32 [pages, 4G, 32, D] · pages u32 (common/kv_page)
// Grid: (pages, G, keys and values), 64 lanes; a lane owns every 64th 8 channels of the keys, or every 64th group of a value.
struct Params {
    from_page: u32,
    to_page: u32,
}
#params
#ifdef WORK_F16
@group(0) @binding(0) var<storage, read> blocks: array<vec4<u32>>;
#else
@group(0) @binding(0) var<storage, read> blocks: array<vec4<f32>>;
#endif
@group(0) @binding(1) var<storage, read_write> pages: array<u32>;
#import common/vec8
#import common/f16_bits
#import common/kv_page

const PAGE_TOKENS: u32 = 64u;
#ifdef KV_Q8
const LEVELS: f32 = 255.0;
#else
const LEVELS: f32 = 15.0;
#endif

// Row `row` of a slot, elements d .. d + 8, clamped to finite.
fn source8(slot: u32, row: u32, d: u32) -> Eight {
    let at = (slot * 2u * BLOCK_TOKENS + row) * HEAD_DIM + d;
#ifdef WORK_F16
    let x = eight_halves(blocks[at / 8u]);
#else
    let x = Eight(blocks[at / 4u], blocks[at / 4u + 1u]);
#endif
    let most = vec4<f32>(HALF_MAX);
    return Eight(min(max(x.a, -most), most), min(max(x.b, -most), most));
}

// Smallest f16 that spans `range` in LEVELS steps. The product is exact; the quotient may not be.
fn step_halves(range: vec4<f32>) -> vec4<u32> {
    let h = halves(range / LEVELS);
    let below = select(h, h - 1u, h > vec4<u32>(0u));
    let lower = select(h, below, half_values(below) * LEVELS >= range);
    return select(lower, lower + 1u, half_values(lower) * LEVELS < range);
}

struct Scale { step: vec4<f32>, low: vec4<f32>, word: vec4<u32> }

// Scales of four sets of numbers between `low` and `high`.
fn fit(low: vec4<f32>, high: vec4<f32>) -> Scale {
    let low_bits = floor_halves(low);
    let low_half = half_values(low_bits);
    let step_bits = step_halves(high - low_half);
    return Scale(half_values(step_bits), low_half, step_bits | (low_bits << vec4<u32>(16u)));
}

// Nearest codes, rounding half up. The midpoint of two codes is exact; the quotient may not be.
fn encode(x: vec4<f32>, step: vec4<f32>, low: vec4<f32>) -> vec4<u32> {
    let none = step == vec4<f32>(0.0);
    let v = x - low;
    let guess = clamp(floor(v / select(step, vec4<f32>(1.0), none) + 0.5), vec4<f32>(0.0), vec4<f32>(LEVELS));
    let more = select(vec4<f32>(0.0), vec4<f32>(1.0), v >= (guess + 0.5) * step);
    let less = select(vec4<f32>(0.0), vec4<f32>(1.0), v < (guess - 0.5) * step);
    return select(vec4<u32>(guess + more - less), vec4<u32>(0u), none);
}

fn store_codes(row: u32, d: u32, a: vec4<u32>, b: vec4<u32>) {
#ifdef KV_Q8
    pages[row + d / 4u] = a.x | (a.y << 8u) | (a.z << 16u) | (a.w << 24u);
    pages[row + d / 4u + 1u] = b.x | (b.y << 8u) | (b.z << 16u) | (b.w << 24u);
#else
    pages[row + d / 8u] = a.x | (a.y << 4u) | (a.z << 8u) | (a.w << 12u)
        | (b.x << 16u) | (b.y << 20u) | (b.z << 24u) | (b.w << 28u);
#endif
}

fn seal_keys(from_slot: u32, to: u32, g: u32, lane: u32) {
    for (var d = lane * 8u; d < HEAD_DIM; d += 512u) {
        var low = Eight(vec4<f32>(HALF_MAX), vec4<f32>(HALF_MAX));
        var high = Eight(vec4<f32>(-HALF_MAX), vec4<f32>(-HALF_MAX));
        for (var t = 0u; t < PAGE_TOKENS; t += 1u) {
            let x = source8(from_slot + t / BLOCK_TOKENS * KV_HEADS + g, t % BLOCK_TOKENS, d);
            low = Eight(min(low.a, x.a), min(low.b, x.b));
            high = Eight(max(high.a, x.a), max(high.b, x.b));
        }
        let a = fit(low.a, high.a);
        let b = fit(low.b, high.b);
        for (var i = 0u; i < 4u; i += 1u) {
            pages[to + KEY_SCALES_AT + g * HEAD_DIM + d + i] = a.word[i];
            pages[to + KEY_SCALES_AT + g * HEAD_DIM + d + 4u + i] = b.word[i];
        }
        for (var t = 0u; t < PAGE_TOKENS; t += 1u) {
            let slot = t / BLOCK_TOKENS * KV_HEADS + g;
            let x = source8(from_slot + slot, t % BLOCK_TOKENS, d);
            let row = to + slot * BLOCK_WORDS + t % BLOCK_TOKENS * ROW_WORDS;
            store_codes(row, d, encode(x.a, a.step, a.low), encode(x.b, b.step, b.low));
        }
    }
}

fn seal_values(from_slot: u32, to: u32, g: u32, lane: u32) {
    for (var i = lane; i < PAGE_TOKENS * N_GROUPS; i += 64u) {
        let token = i / N_GROUPS;
        let group = i % N_GROUPS;
        let slot = token / BLOCK_TOKENS * KV_HEADS + g;
        let t = token % BLOCK_TOKENS;
        let end = min((group + 1u) * GROUP_CHANNELS, HEAD_DIM);
        var low = vec4<f32>(HALF_MAX);
        var high = vec4<f32>(-HALF_MAX);
        for (var d = group * GROUP_CHANNELS; d < end; d += 8u) {
            let x = source8(from_slot + slot, BLOCK_TOKENS + t, d);
            low = min(low, min(x.a, x.b));
            high = max(high, max(x.a, x.b));
        }
        let lowest = vec4<f32>(min(min(low.x, low.y), min(low.z, low.w)));
        let highest = vec4<f32>(max(max(high.x, high.y), max(high.z, high.w)));
        let scale = fit(lowest, highest);
        let block = to + slot * BLOCK_WORDS;
        pages[block + VALUE_SCALES_AT + t * N_GROUPS + group] = scale.word.x;
        for (var d = group * GROUP_CHANNELS; d < end; d += 8u) {
            let x = source8(from_slot + slot, BLOCK_TOKENS + t, d);
            let row = block + VALUES_AT + t * ROW_WORDS;
            store_codes(row, d, encode(x.a, scale.step, scale.low), encode(x.b, scale.step, scale.low));
        }
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let from_slot = (params.from_page + wg.x) * PAGE_SLOTS;
    let to = (params.to_page + wg.x) * PAGE_WORDS;
    if wg.z == 0u {
        seal_keys(from_slot, to, wg.y, lane);
    } else {
        seal_values(from_slot, to, wg.y, lane);
    }
}
