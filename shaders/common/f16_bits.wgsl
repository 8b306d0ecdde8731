// f16 conversion by bits, with defined rounding on every device.
const HALF_MAX: f32 = 65504.0;

fn halves(x: vec4<f32>) -> vec4<u32> {
    let packed = vec2<u32>(pack2x16float(x.xy), pack2x16float(x.zw));
    return vec4<u32>(packed.x & 0xffffu, packed.x >> 16u, packed.y & 0xffffu, packed.y >> 16u);
}

fn half_values(h: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(h.x | (h.y << 16u)), unpack2x16float(h.z | (h.w << 16u)));
}

// Largest f16 <= x. A device may round to either neighbor; one step down corrects that.
fn floor_halves(x: vec4<f32>) -> vec4<u32> {
    let h = halves(x);
    let down = select((h | vec4<u32>(0x8000u)) + 1u, h - 1u, x >= vec4<f32>(0.0));
    let floored = select(h, down, half_values(h) > x);
    return select(floored, vec4<u32>(0u), floored == vec4<u32>(0x8000u));
}

// Nearest f16, ties to even; clamped to the finite range.
fn nearest_halves(x: vec4<f32>) -> vec4<u32> {
    let bits = bitcast<vec4<u32>>(x);
    let size = min(bits & vec4<u32>(0x7fffffffu), vec4<u32>(0x477fe000u));
    let odd = (size >> vec4<u32>(13u)) & vec4<u32>(1u);
    let normal = ((size + 0x0fffu + odd) >> vec4<u32>(13u)) - 0x1c000u;
    // The last place of 0.5 in f32 equals that of the f16 subnormals (below 2^-14).
    let tiny = bitcast<vec4<u32>>(bitcast<vec4<f32>>(size) + 0.5) - 0x3f000000u;
    return select(normal, tiny, size < vec4<u32>(0x38800000u)) | ((bits >> vec4<u32>(16u)) & vec4<u32>(0x8000u));
}
