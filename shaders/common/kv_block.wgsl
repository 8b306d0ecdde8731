// Addresses inside a KV segment, and loads of 8 consecutive elements of K or V.
// A block holds 16 tokens of one KV head: 16 rows of D keys, then 16 rows of D values.
// `table[g * n_blocks + b]` is the slot of logical block b of KV head g.
const BLOCK_TOKENS: u32 = 16u;
const HEAD_DIM: u32 = #{D}u;
const BLOCK_ELEMENTS: u32 = 2u * BLOCK_TOKENS * HEAD_DIM;

// First element of the key row of `token` (counted from the segment's first token) of KV head g.
fn key_row(g: u32, token: u32, n_blocks: u32) -> u32 {
    let slot = table[g * n_blocks + token / BLOCK_TOKENS];
    return slot * BLOCK_ELEMENTS + (token % BLOCK_TOKENS) * HEAD_DIM;
}

struct Eight { a: vec4<f32>, b: vec4<f32> }

// Elements at .. at + 8 (at is a multiple of 8).
fn load8(at: u32) -> Eight {
#ifdef KV_F16
    let raw = kv[at / 8u];
    return Eight(
        vec4<f32>(unpack2x16float(raw.x), unpack2x16float(raw.y)),
        vec4<f32>(unpack2x16float(raw.z), unpack2x16float(raw.w)),
    );
#else
    return Eight(kv[at / 4u], kv[at / 4u + 1u]);
#endif
}
