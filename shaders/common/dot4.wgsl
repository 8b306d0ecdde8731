// Integer dot products of 32 weights with 32 activations quantized to signed bytes (linear/quantize_activations).
// x.a, x.b: the codes. EVEN_ODD: per 8 columns a word of columns 0, 2, 4, 6 and a word of columns 1, 3, 5, 7, as nibbles
// are unpacked; otherwise in order.
// x.s: scale d, d * sum of the 32 codes, d * sum of the first 16, d * sum of the last 16.
struct X32 { a: vec4<u32>, b: vec4<u32>, s: vec4<f32> }

fn load_x32(t: u32, k32: u32) -> X32 {
    let at = t * 2u * n_groups() + k32;
    return X32(x_codes[2u * at], x_codes[2u * at + 1u], x_scales[at]);
}

// Words of even and odd columns 8i .. 8i + 7 with those of x.
fn pair_dot(even: u32, odd: u32, x_even: u32, x_odd: u32) -> i32 {
    return dot4I8Packed(even, x_even) + dot4I8Packed(odd, x_odd);
}

fn bytes_dot(q: vec4<u32>, x: vec4<u32>) -> i32 {
    return (dot4I8Packed(q.x, x.x) + dot4I8Packed(q.y, x.y)) + (dot4I8Packed(q.z, x.z) + dot4I8Packed(q.w, x.w));
}

#ifdef NIBBLES
fn nibbles_dot(q: vec4<u32>, x: X32) -> i32 {
    let even = q & vec4(0x0f0f0f0fu);
    let odd = (q >> vec4(4u)) & vec4(0x0f0f0f0fu);
    return (pair_dot(even.x, odd.x, x.a.x, x.a.y) + pair_dot(even.y, odd.y, x.a.z, x.a.w))
        + (pair_dot(even.z, odd.z, x.b.x, x.b.y) + pair_dot(even.w, odd.w, x.b.z, x.b.w));
}
#endif

fn dot32(w: Block, x: X32) -> f32 {
#ifdef Q4_0
    return w.d * (x.s.x * f32(nibbles_dot(w.q ^ vec4(0x80000000u), x)) - 8.0 * x.s.y);
#endif
#ifdef Q4K
    return w.dm.x * (x.s.x * f32(nibbles_dot(w.q ^ vec4(0x80000000u), x))) - w.dm.y * x.s.y;
#endif
#ifdef Q5K
#for i in 0..4
    let v#{i} = five_bits(w.q[#{i}], w.high, #{i}u);
#endfor
    let p0 = pair_dot(v0.even, v0.odd, x.a.x, x.a.y) + pair_dot(v1.even, v1.odd, x.a.z, x.a.w);
    let p1 = pair_dot(v2.even, v2.odd, x.b.x, x.b.y) + pair_dot(v3.even, v3.odd, x.b.z, x.b.w);
    return w.dm.x * (x.s.x * f32(p0 + p1)) - w.dm.y * x.s.y;
#endif
#ifdef Q6K
#for i in 0..2
    let v#{i} = six_bits(w.q[#{i}], w.high.x, #{i}u);
    let u#{i} = six_bits(w.q[#{i+2}], w.high.y, #{i}u);
#endfor
    let p0 = pair_dot(v0.even, v0.odd, x.a.x, x.a.y) + pair_dot(v1.even, v1.odd, x.a.z, x.a.w);
    let p1 = pair_dot(u0.even, u0.odd, x.b.x, x.b.y) + pair_dot(u1.even, u1.odd, x.b.z, x.b.w);
    return w.d.x * (x.s.x * f32(p0) - 32.0 * x.s.z) + w.d.y * (x.s.x * f32(p1) - 32.0 * x.s.w);
#endif
#ifdef Q8_0
    let q = vec2(bytes_dot(quants[w.first], x.a), bytes_dot(quants[w.first + 1u], x.b));
    return w.d / TOP_BYTE * x.s.x * f32(q.x + q.y);
#endif
#ifdef I8G16
    let p = vec2<f32>(vec2(bytes_dot(quants[w.first], x.a), bytes_dot(quants[w.first + 1u], x.b))) * x.s.x / TOP_BYTE;
    return (w.s.x * p.x + w.s.y * x.s.z) + (w.s.z * p.y + w.s.w * x.s.w);
#endif
}
