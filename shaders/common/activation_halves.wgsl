// Powers of two that bring the largest magnitude of a token into 2^14 .. 2^15, so that no f16 overflows.
struct HalfScale { inverse: f32, scale: f32 }

fn half_scale(peak: f32) -> HalfScale {
    // The exponent as stored. Zero, infinity and values near either are not scaled.
    let e = bitcast<u32>(peak) >> 23u;
    let usable = e > 30u && e < 255u;
    let inverse = bitcast<f32>((268u - min(e, 254u)) << 23u);
    let scale = bitcast<f32>((max(min(e, 254u), 14u) - 14u) << 23u);
    return HalfScale(select(1.0, inverse, usable), select(1.0, scale, usable));
}

fn four_halves(v: vec4<f32>) -> vec2<u32> {
    return vec2(pack2x16float(v.xy), pack2x16float(v.zw));
}
