// f16 by its bits, rounded as asked for whatever a device's own rounding.
const HALF_MAX: f32 = 65504.0;

fn halves(x: vec4<f32>) -> vec4<u32> {
    let packed = vec2<u32>(pack2x16float(x.xy), pack2x16float(x.zw));
    return vec4<u32>(packed.x & 0xffffu, packed.x >> 16u, packed.y & 0xffffu, packed.y >> 16u);
}

fn half_values(h: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(h.x | (h.y << 16u)), unpack2x16float(h.z | (h.w << 16u)));
}

// The largest f16 not above x. A device may round to either neighbour; one step down mends that.
fn floor_halves(x: vec4<f32>) -> vec4<u32> {
    let h = halves(x);
    let down = select((h | vec4<u32>(0x8000u)) + 1u, h - 1u, x >= vec4<f32>(0.0));
    let floored = select(h, down, half_values(h) > x);
    return select(floored, vec4<u32>(0u), floored == vec4<u32>(0x8000u));
}
