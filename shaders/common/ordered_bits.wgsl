// Bits of floats as integers of the same order; NaN is above all others.
fn ordered(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    let key = select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u);
    return select(key, 0xffffffffu, (bits & 0x7fffffffu) > 0x7f800000u);
}

fn from_ordered(key: u32) -> f32 {
    return bitcast<f32>(select(~key, key & 0x7fffffffu, (key & 0x80000000u) != 0u));
}
