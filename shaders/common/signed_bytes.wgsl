// Signed bytes of a word as f32. A byte is shifted to the top of a word, so that i32 -> f32 yields it times 2^24, exactly;
// scales are multiplied by TOP_BYTE. HALVES: by way of f16 (common/small_halves).
#ifdef HALVES
const TOP_BYTE = 1.0;
fn bytes4(v: u32) -> vec4<f32> {
    let u = v ^ 0x80808080u;
    let a = unpack2x16float((u & 0x00ff00ffu) | 0x64006400u);
    let b = unpack2x16float(((u >> 8u) & 0x00ff00ffu) | 0x64006400u);
    return vec4(a.x, b.x, a.y, b.y) - 1152.0;
}
#else
const TOP_BYTE = 5.9604644775390625e-8; // 2^-24
fn bytes4(v: u32) -> vec4<f32> {
    return vec4<f32>(bitcast<vec4<i32>>(vec4(v << 24u, v << 16u, v << 8u, v) & vec4(0xff000000u)));
}
#endif
