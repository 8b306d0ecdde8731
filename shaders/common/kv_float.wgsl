// common/kv_block for f16 and f32. A block is 16 rows of D keys, then 16 rows of D values. HALVES: kv is array<vec4<f16>>.
const BLOCK_TOKENS: u32 = 16u;
const HEAD_DIM: u32 = #{D}u;

// In elements.
fn block_of_slot(slot: u32) -> u32 {
    return slot * (2u * BLOCK_TOKENS * HEAD_DIM);
}

// `at` is a multiple of 8.
fn load8(at: u32) -> Eight {
#ifdef KV_F16
#ifdef WIDE
    return eight_halves(words4(kv[at / 8u]));
#else
#ifdef HALVES
    return Eight(vec4<f32>(kv[at / 4u]), vec4<f32>(kv[at / 4u + 1u]));
#else
    return eight_halves(kv[at / 8u]);
#endif
#endif
#else
    return Eight(four(kv[at / 4u]), four(kv[at / 4u + 1u]));
#endif
}

fn key_row(block: u32, t: u32) -> u32 {
    return block + t * HEAD_DIM;
}

fn key8(row: u32, j: u32, d: u32) -> Eight {
    return load8(row + j * HEAD_DIM + d);
}

fn value8(block: u32, t: u32, d: u32) -> Eight {
    return load8(block + (BLOCK_TOKENS + t) * HEAD_DIM + d);
}

struct KeyScale { none: u32 }

fn scales_of_slot(slot: u32, g: u32) -> u32 {
    return 0u;
}

fn key_scale8(scales: u32, d: u32) -> KeyScale {
    return KeyScale(0u);
}

fn whole_key(codes: Eight, scale: KeyScale) -> Eight {
    return codes;
}

fn scaled_query(q: Eight, scale: KeyScale) -> Eight {
    return q;
}

fn query_low(q: Eight, scale: KeyScale) -> f32 {
    return 0.0;
}
