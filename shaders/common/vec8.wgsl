// Eight consecutive elements of a row.
struct Eight { a: vec4<f32>, b: vec4<f32> }

// Four f32 as stored in a buffer: WIDE kernels load 64 bits at a time.
#ifdef WIDE
alias Four = vec2<u64>;
fn words4(v: vec2<u64>) -> vec4<u32> {
    return vec4(u32(v.x), u32(v.x >> 32u), u32(v.y), u32(v.y >> 32u));
}
fn four(v: Four) -> vec4<f32> {
    return bitcast<vec4<f32>>(words4(v));
}
#else
alias Four = vec4<f32>;
fn four(v: Four) -> vec4<f32> {
    return v;
}
#endif

fn eight_halves(raw: vec4<u32>) -> Eight {
    return Eight(
        vec4<f32>(unpack2x16float(raw.x), unpack2x16float(raw.y)),
        vec4<f32>(unpack2x16float(raw.z), unpack2x16float(raw.w)),
    );
}
