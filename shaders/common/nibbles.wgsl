// Words of 8 nibbles, weight j in bits 4j .. 4j + 3. The top bit of a word is stored flipped, so that its last nibble
// read as the sign end of an i32 is n - 8, and the others, masked in place, are n * 16^j: no shifts in the inner loop.
#ifdef HALVES
#import common/small_halves
#endif
fn nibbles8(word: u32) -> W8 {
    let w = word ^ 0x80000000u;
#ifdef HALVES
    return unsigned_halves(vec4(w, w >> 4u, w >> 8u, w >> 12u) & vec4(0x000f000fu));
#else
    return W8(vec4<f32>(bitcast<vec4<i32>>((vec4(w) >> vec4(0u, 4u, 8u, 12u)) & vec4(15u))),
        vec4<f32>(bitcast<vec4<i32>>((vec4(w) >> vec4(16u, 20u, 24u, 28u)) & vec4(15u))));
#endif
}
#ifdef SUBGROUP8
// Activations divided by the factors 16^j of masked nibbles.
fn nibble_x(x: W8) -> W8 {
    return W8(x.a * vec4(1.0, 0.0625, 0.00390625, 0.000244140625),
        x.b * vec4(1.52587890625e-5, 9.5367431640625e-7, 5.9604644775390625e-8, 3.7252902984619140625e-9));
}
// Sum of weight times activation over one word, with 8 subtracted from the last nibble.
fn nibble_dot(w: u32, xa: vec4<f32>, xb: vec4<f32>) -> f32 {
    let a = vec4<f32>(bitcast<vec4<i32>>(vec4(w) & vec4(0xfu, 0xf0u, 0xf00u, 0xf000u)));
    let b = vec4<f32>(bitcast<vec4<i32>>(vec4(w) & vec4(0xf0000u, 0xf00000u, 0xf000000u, 0xf0000000u)));
    return dot(a, xa) + dot(b, xb);
}
#endif
