// Splits words of 8 nibbles into even and odd ones, one per byte, so that high bits can be added above them.
// Byte b of `even` is weight 2b, of `odd` weight 2b + 1.
#ifdef HALVES
#import common/small_halves
#endif
struct EvenOdd { even: u32, odd: u32 }
fn in_order(v: EvenOdd) -> W8 {
#ifdef HALVES
    return unsigned_halves(vec4(v.even, v.odd, v.even >> 8u, v.odd >> 8u) & vec4(0x00ff00ffu));
#else
    let e = vec4<f32>(bitcast<vec4<i32>>((vec4(v.even) >> vec4(0u, 8u, 16u, 24u)) & vec4(255u)));
    let o = vec4<f32>(bitcast<vec4<i32>>((vec4(v.odd) >> vec4(0u, 8u, 16u, 24u)) & vec4(255u)));
    return W8(vec4(e.x, o.x, e.y, o.y), vec4(e.z, o.z, e.w, o.w));
#endif
}
#ifdef SUBGROUP8
// Activations split the same way (a even, b odd), divided by the factors 256^b of bytes masked in place.
fn byte_x(x: W8) -> W8 {
    let scale = vec4(1.0, 0.00390625, 1.52587890625e-5, 5.9604644775390625e-8);
    return W8(vec4(x.a.x, x.a.z, x.b.x, x.b.z) * scale, vec4(x.a.y, x.a.w, x.b.y, x.b.w) * scale);
}
fn byte_dot(v: EvenOdd, xe: vec4<f32>, xo: vec4<f32>) -> f32 {
    let mask = vec4(0xffu, 0xff00u, 0xff0000u, 0xff000000u);
    return dot(vec4<f32>(bitcast<vec4<i32>>(vec4(v.even) & mask)), xe) + dot(vec4<f32>(bitcast<vec4<i32>>(vec4(v.odd) & mask)), xo);
}
#endif
