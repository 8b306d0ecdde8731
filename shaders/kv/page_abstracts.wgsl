// Page abstracts: element-wise minimum and maximum of the 64 keys of a page, per KV head. From f32 they are rounded
// outward; the bounds of a channel with a NaN key are infinite.
// Source: LeoAM §4.3.
// Bindings: blocks f16 or f32 [pages, 4G, 32, D] · abstracts f16 [pages, G, 2, D] (minimum, maximum)
// Grid: n_pages * G * D / 8 lanes in workgroups of 64; a lane owns 8 channels of one head of one page.
struct Params {
    from_page: u32,
    to_page: u32,
    n_pages: u32,
}
#params
@group(0) @binding(0) var<storage, read> blocks: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> abstracts: array<vec4<u32>>;
#import common/f16_bits

const BLOCK_TOKENS: u32 = 16u;
const PAGE_TOKENS: u32 = 64u;
const HEAD_DIM: u32 = #{D}u;
const KV_HEADS: u32 = #{KV_HEADS}u;
const N_CHUNKS: u32 = HEAD_DIM / 8u;
#ifdef WORK_F16
const SIGN: u32 = 0x8000u;
const ALL: u32 = 0xffffu;
const INFINITE: u32 = 0x7c00u;
#else
const SIGN: u32 = 0x80000000u;
const ALL: u32 = 0xffffffffu;
const INFINITE: u32 = 0x7f800000u;
#endif

// Elements 0, 2, 4, 6 and 1, 3, 5, 7 of eight, as bits.
struct EightBits { even: vec4<u32>, odd: vec4<u32> }

// `at` is a multiple of 8, in elements.
fn load8(at: u32) -> EightBits {
#ifdef WORK_F16
    let raw = blocks[at / 8u];
    return EightBits(raw & vec4<u32>(0xffffu), raw >> vec4<u32>(16u));
#else
    let x = blocks[at / 4u];
    let y = blocks[at / 4u + 1u];
    return EightBits(vec4<u32>(x.xz, y.xz), vec4<u32>(x.yw, y.yw));
#endif
}

// Maps the bits of floats to integers of the same order; NaN is beyond both infinities.
fn ordered(x: vec4<u32>) -> vec4<u32> {
    return x ^ select(vec4<u32>(SIGN), vec4<u32>(ALL), x >= vec4<u32>(SIGN));
}

fn bits_of(x: vec4<u32>) -> vec4<u32> {
    return x ^ select(vec4<u32>(ALL), vec4<u32>(SIGN), x >= vec4<u32>(SIGN));
}

// Largest f16 <= x, including minus infinity.
fn half_below(x: vec4<f32>) -> vec4<u32> {
    let finite = floor_halves(clamp(x, vec4<f32>(-HALF_MAX), vec4<f32>(HALF_MAX)));
    return select(finite, vec4<u32>(0xfc00u), x < vec4<f32>(-HALF_MAX));
}

struct Bounds { low: vec4<u32>, high: vec4<u32> }

// f16 bounds of four channels whose ordered keys are between `low` and `high`.
fn bounds(low: vec4<u32>, high: vec4<u32>) -> Bounds {
    let least = bits_of(low);
    let most = bits_of(high);
    let size = max(least & vec4<u32>(ALL ^ SIGN), most & vec4<u32>(ALL ^ SIGN));
    let unknown = size > vec4<u32>(INFINITE);
#ifdef WORK_F16
    let known = Bounds(least, most);
#else
    let below = half_below(bitcast<vec4<f32>>(least));
    let above = half_below(-bitcast<vec4<f32>>(most)) ^ vec4<u32>(0x8000u);
    let known = Bounds(below, above);
#endif
    return Bounds(select(known.low, vec4<u32>(0xfc00u), unknown), select(known.high, vec4<u32>(0x7c00u), unknown));
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let page = id.x / (N_CHUNKS * KV_HEADS);
    let g = id.x / N_CHUNKS % KV_HEADS;
    let d = id.x % N_CHUNKS * 8u;
    if page >= params.n_pages {
        return;
    }
    let first_slot = (params.from_page + page) * 4u * KV_HEADS + g;
    var low = EightBits(vec4<u32>(ALL), vec4<u32>(ALL));
    var high = EightBits(vec4<u32>(0u), vec4<u32>(0u));
    for (var t = 0u; t < PAGE_TOKENS; t += 1u) {
        let slot = first_slot + t / BLOCK_TOKENS * KV_HEADS;
        let x = load8((slot * 2u * BLOCK_TOKENS + t % BLOCK_TOKENS) * HEAD_DIM + d);
        let even = ordered(x.even);
        let odd = ordered(x.odd);
        low = EightBits(min(low.even, even), min(low.odd, odd));
        high = EightBits(max(high.even, even), max(high.odd, odd));
    }
    let even = bounds(low.even, high.even);
    let odd = bounds(low.odd, high.odd);
    let to = (((params.to_page + page) * KV_HEADS + g) * 2u * HEAD_DIM + d) / 8u;
    abstracts[to] = even.low | (odd.low << vec4<u32>(16u));
    abstracts[to + N_CHUNKS] = even.high | (odd.high << vec4<u32>(16u));
}
