// Small integers to f32 by way of f16: an integer below 1024 in the low bits of the f16 number 1024 is 1024 more than itself.
// A real GPU converts so two at a time, and four times as many as from integers.
// The low and the high half of each word: a has the low ones, b the high ones.
fn unsigned_halves(v: vec4<u32>) -> W8 {
    let w = v | vec4(0x64006400u);
    let p = unpack2x16float(w.x);
    let q = unpack2x16float(w.y);
    let r = unpack2x16float(w.z);
    let s = unpack2x16float(w.w);
    return W8(vec4(p.x, q.x, r.x, s.x) - 1024.0, vec4(p.y, q.y, r.y, s.y) - 1024.0);
}
