// Weight layout: quantized weights W [rows, cols] in VRAM, and their conversion to f32.
//
//   tile = 32 rows, group = 64 columns (the last one padded with zero weights); for every (tile, group), in this order:
//     quants:  per 32-byte chunk of a row's group, the 32 rows one after the other; then the rows' high bits, if any
//     scales:  the 32 rows one after the other (K-quants: per 256 columns, see dequant_q4k)
//
// So 8 lanes with 4 rows each read memory sequentially, and a single row reads whole 32-byte sectors.
// Every format has
//   plain:   load_block(row, k32) -> Block           32 weights of one row;  w8(block, i) -> weights 8i .. 8i + 7
//   SUBGROUP8:  load_scales(step, lane) -> Scales       for rows 4 * lane .. 4 * lane + 3 of a tile, step = tile * groups + group
//            load_row(step, slot, scales, r) -> Row  64 weights of row slot = 4 * lane + r;  block(row, half) -> Block
//            dot64(step, lane, x) -> vec4            4 rows times 64 activations, 8 on each of 8 lanes
// SUBGROUP8 is for devices whose subgroups are exactly 8 lanes (software Vulkan): it uses 64-bit loads and broadcasts.
struct W8 { a: vec4<f32>, b: vec4<f32> }
#ifdef SUBGROUP8
@group(0) @binding(0) var<storage, read> quants: array<vec4<u64>>;
@group(0) @binding(1) var<storage, read> scales: array<vec2<u64>>;
fn words4(v: vec2<u64>) -> vec4<u32> {
    return vec4(u32(v.x), u32(v.x >> 32u), u32(v.y), u32(v.y >> 32u));
}
// Four words of the scales.
fn scales4(at: u32) -> vec4<u32> {
    return words4(scales[at]);
}
fn sum8(x: W8) -> f32 {
    return (x.a.x + x.a.y + x.a.z + x.a.w) + (x.b.x + x.b.y + x.b.z + x.b.w);
}
#else
@group(0) @binding(0) var<storage, read> quants: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> scales: array<u32>;
fn n_groups() -> u32 {
    return (params.n_cols + 63u) / 64u;
}
#endif
#ifdef F32
#import common/dequant_f32
#endif
#ifdef F16
#import common/dequant_f16
#endif
#ifdef BF16
#import common/dequant_f16
#endif
#ifdef Q8_0
#import common/dequant_q8_0
#endif
#ifdef I8G16
#import common/dequant_i8g16
#endif
#ifdef Q4_0
#import common/dequant_q4_0
#endif
#ifdef Q4K
#import common/dequant_q4k
#endif
#ifdef Q5K
#import common/dequant_q5k
#endif
#ifdef Q6K
#import common/dequant_q6k
#endif
