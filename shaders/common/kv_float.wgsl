// common/kv_block for f16 and f32. A block is 16 rows of D keys, then 16 rows of D values. HALVES: kv is array<vec4<f16>>.
const BLOCK_TOKENS: u32 = 16u;
const HEAD_DIM: u32 = #{D}u;

// In elements.
fn block_of_slot(slot: u32) -> u32 {
    return slot * (2u * BLOCK_TOKENS * HEAD_DIM);
}

// Eight elements as stored. `at` is a multiple of 8.
#ifdef KV_F16
#ifdef HALVES
struct Stored { a: vec4<f16>, b: vec4<f16> }

fn stored8(at: u32) -> Stored {
    return Stored(kv[at / 4u], kv[at / 4u + 1u]);
}

fn eight_of(stored: Stored) -> Eight {
    return Eight(vec4<f32>(stored.a), vec4<f32>(stored.b));
}
#else
alias Stored = #{KV};

fn stored8(at: u32) -> Stored {
    return kv[at / 8u];
}

fn eight_of(stored: Stored) -> Eight {
#ifdef WIDE
    return eight_halves(words4(stored));
#else
    return eight_halves(stored);
#endif
}
#endif
#else
struct Stored { a: Four, b: Four }

fn stored8(at: u32) -> Stored {
    return Stored(kv[at / 4u], kv[at / 4u + 1u]);
}

fn eight_of(stored: Stored) -> Eight {
    return Eight(four(stored.a), four(stored.b));
}
#endif
alias StoredValue = Stored;

fn load8(at: u32) -> Eight {
    return eight_of(stored8(at));
}

fn stored_key8(row: u32, d: u32) -> Stored {
    return stored8(row + d);
}

fn key_of(stored: Stored) -> Eight {
    return eight_of(stored);
}

fn stored_value8(block: u32, t: u32, d: u32) -> StoredValue {
    return stored8(block + (BLOCK_TOKENS + t) * HEAD_DIM + d);
}

fn value_of(stored: StoredValue) -> Eight {
    return eight_of(stored);
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
