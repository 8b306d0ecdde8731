// Scales of Q4_K and Q5_K: per 32 rows and 256 columns, 32 words (d, dmin as f16), then per group of 64 columns
// 32 words of bytes (scale 0, scale 1, min 0, min 1). w = d * scale * q - dmin * min.
fn scale_min(dm: u32, sm: u32, half: u32) -> vec2<f32> {
    return unpack2x16float(dm) * vec2(f32((sm >> (8u * half)) & 255u), f32((sm >> (16u + 8u * half)) & 255u));
}
#ifdef SUBGROUP8
struct Scales { dm: vec4<u32>, sm: vec4<u32> }
fn load_scales(step: u32, lane: u32) -> Scales {
    let at = (step / 4u) * 40u + lane;
    return Scales(scales4(at), scales4(at + 8u + 8u * (step % 4u)));
}
#else
fn load_scale_min(step: u32, slot: u32, half: u32) -> vec2<f32> {
    let at = (step / 4u) * 160u + slot;
    return scale_min(scales[at], scales[at + 32u + 32u * (step % 4u)], half);
}
#endif
