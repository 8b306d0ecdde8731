// Integer dot products of 32 weights with 32 activations in two planes of signed bytes (linear/quantize_activations):
// x = d * (128 * high + low). Two planes cost no bandwidth that counts, and round x to 15 bits instead of 8.
// EVEN_ODD: per 8 columns a word of columns 0, 2, 4, 6 and a word of columns 1, 3, 5, 7, as nibbles are unpacked;
// otherwise in order. s: d, and d times the sums of the codes: of all 32, of the first 16, of the last 16.
struct Plane { a: vec4<u32>, b: vec4<u32> }
struct X32 { high: Plane, low: Plane, s: vec4<f32> }

fn load_x32(t: u32, k32: u32) -> X32 {
    let at = t * 2u * n_groups() + k32;
    let high = Plane(x_values[4u * at], x_values[4u * at + 1u]);
    return X32(high, Plane(x_values[4u * at + 2u], x_values[4u * at + 3u]), x_scales[at]);
}

// Sum over four words of 4 weights.
fn dot16(w: vec4<u32>, x: vec4<u32>) -> i32 {
    return (dot4I8Packed(w.x, x.x) + dot4I8Packed(w.y, x.y)) + (dot4I8Packed(w.z, x.z) + dot4I8Packed(w.w, x.w));
}

// Sums over the words of the first and of the last 16 columns.
fn dots(a: vec4<u32>, b: vec4<u32>, x: X32) -> vec2<f32> {
    return vec2<f32>(128 * vec2(dot16(a, x.high.a), dot16(b, x.high.b)) + vec2(dot16(a, x.low.a), dot16(b, x.low.b)));
}

// The same over 32 nibbles.
fn nibble_dots(q: vec4<u32>, x: X32) -> vec2<f32> {
    let even = q & vec4(0x0f0f0f0fu);
    let odd = (q >> vec4(4u)) & vec4(0x0f0f0f0fu);
    return dots(vec4(even.x, odd.x, even.y, odd.y), vec4(even.z, odd.z, even.w, odd.w), x);
}

fn dot32(w: Block, x: X32) -> f32 {
#ifdef Q4_0
    let p = nibble_dots(w.q ^ vec4(0x80000000u), x);
    return w.d * (x.s.x * (p.x + p.y) - 8.0 * x.s.y);
#endif
#ifdef Q4K
    let p = nibble_dots(w.q ^ vec4(0x80000000u), x);
    return w.dm.x * (x.s.x * (p.x + p.y)) - w.dm.y * x.s.y;
#endif
#ifdef Q5K
#for i in 0..4
    let v#{i} = five_bits(w.q[#{i}], w.high, #{i}u);
#endfor
    let p = dots(vec4(v0.even, v0.odd, v1.even, v1.odd), vec4(v2.even, v2.odd, v3.even, v3.odd), x);
    return w.dm.x * (x.s.x * (p.x + p.y)) - w.dm.y * x.s.y;
#endif
#ifdef Q6K
#for i in 0..2
    let v#{i} = six_bits(w.q[#{i}], w.high.x, #{i}u);
    let u#{i} = six_bits(w.q[#{i+2}], w.high.y, #{i}u);
#endfor
    let p = dots(vec4(v0.even, v0.odd, v1.even, v1.odd), vec4(u0.even, u0.odd, u1.even, u1.odd), x);
    return w.d.x * (x.s.x * p.x - 32.0 * x.s.z) + w.d.y * (x.s.x * p.y - 32.0 * x.s.w);
#endif
#ifdef Q8_0
    let p = dots(quants[w.first], quants[w.first + 1u], x);
    return w.d / TOP_BYTE * x.s.x * (p.x + p.y);
#endif
#ifdef I8G16
    let p = dots(quants[w.first], quants[w.first + 1u], x) * x.s.x / TOP_BYTE;
    return (w.s.x * p.x + w.s.y * x.s.z) + (w.s.z * p.y + w.s.w * x.s.w);
#endif
}

// Scales are those of blocks.
fn x_scale(t: u32) -> f32 {
    return 1.0;
}
