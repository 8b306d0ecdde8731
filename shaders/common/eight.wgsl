// Eight consecutive elements of a row.
struct Eight { a: vec4<f32>, b: vec4<f32> }

fn eight_halves(raw: vec4<u32>) -> Eight {
    return Eight(
        vec4<f32>(unpack2x16float(raw.x), unpack2x16float(raw.y)),
        vec4<f32>(unpack2x16float(raw.z), unpack2x16float(raw.w)),
    );
}
