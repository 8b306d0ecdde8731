// Codes and scales of quantized pages in `kv`, in the layout of common/kv_page. The caller computes the begin of a
// block; all offsets are in words.
// Eight codes as stored. `row` is the first word of a row.
#ifdef KV_Q8
alias Stored = vec2<u32>;

fn stored8(row: u32, d: u32) -> Stored {
    return kv[row / 2u + d / 8u];
}

fn codes_of(raw: Stored) -> Eight {
    let shifts = vec4<u32>(0u, 8u, 16u, 24u);
    return Eight(
        vec4<f32>(bitcast<vec4<i32>>((vec4<u32>(raw.x) >> shifts) & vec4<u32>(255u))),
        vec4<f32>(bitcast<vec4<i32>>((vec4<u32>(raw.y) >> shifts) & vec4<u32>(255u))),
    );
}
#else
alias Stored = u32;

fn stored8(row: u32, d: u32) -> Stored {
    let at = row + d / 8u;
    return kv[at / 4u][at % 4u];
}

fn codes_of(stored: Stored) -> Eight {
    let raw = vec4<u32>(stored);
    return Eight(
        vec4<f32>(bitcast<vec4<i32>>((raw >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u))),
        vec4<f32>(bitcast<vec4<i32>>((raw >> vec4<u32>(16u, 20u, 24u, 28u)) & vec4<u32>(15u))),
    );
}
#endif

fn codes8(row: u32, d: u32) -> Eight {
    return codes_of(stored8(row, d));
}

fn key_row(block: u32, t: u32) -> u32 {
    return block + t * ROW_WORDS;
}

fn key8(row: u32, j: u32, d: u32) -> Eight {
    return codes8(row + j * ROW_WORDS, d);
}

fn stored_key8(row: u32, d: u32) -> Stored {
    return stored8(row, d);
}

fn key_of(stored: Stored) -> Eight {
    return codes_of(stored);
}

struct StoredValue { codes: Stored, scale: u32 }

fn stored_value8(block: u32, t: u32, d: u32) -> StoredValue {
    let at = block + VALUE_SCALES_AT + t * N_GROUPS + d / GROUP_CHANNELS;
#ifdef KV_Q8
    return StoredValue(stored8(block + VALUES_AT + t * ROW_WORDS, d), kv[at / 2u][at % 2u]);
#else
    return StoredValue(stored8(block + VALUES_AT + t * ROW_WORDS, d), kv[at / 4u][at % 4u]);
#endif
}

fn value_of(stored: StoredValue) -> Eight {
    let codes = codes_of(stored.codes);
    let scale = unpack2x16float(stored.scale);
    return Eight(scale.y + scale.x * codes.a, scale.y + scale.x * codes.b);
}

fn value8(block: u32, t: u32, d: u32) -> Eight {
    return value_of(stored_value8(block, t, d));
}

struct KeyScale { step: Eight, low: Eight }

fn key_scale8(scales: u32, d: u32) -> KeyScale {
    let at = scales + d;
#ifdef KV_Q8
    let raw_a = vec4<u32>(kv[at / 2u], kv[at / 2u + 1u]);
    let raw_b = vec4<u32>(kv[at / 2u + 2u], kv[at / 2u + 3u]);
#else
    let raw_a = kv[at / 4u];
    let raw_b = kv[at / 4u + 1u];
#endif
    let x = eight_halves(raw_a);
    let y = eight_halves(raw_b);
    return KeyScale(
        Eight(vec4<f32>(x.a.xz, x.b.xz), vec4<f32>(y.a.xz, y.b.xz)),
        Eight(vec4<f32>(x.a.yw, x.b.yw), vec4<f32>(y.a.yw, y.b.yw)),
    );
}

fn whole_key(codes: Eight, scale: KeyScale) -> Eight {
    return Eight(scale.low.a + scale.step.a * codes.a, scale.low.b + scale.step.b * codes.b);
}

fn scaled_query(q: Eight, scale: KeyScale) -> Eight {
    return Eight(q.a * scale.step.a, q.b * scale.step.b);
}

fn query_low(q: Eight, scale: KeyScale) -> f32 {
    return dot(q.a, scale.low.a) + dot(q.b, scale.low.b);
}
