// The bin of the upper bits of the last selected key.
fn upper_bin(lane: u32, list: u32, n_wanted: u32) -> Found {
    var counts: array<u32, 8>;
    for (var i = 0u; i < 8u; i += 1u) {
        counts[i] = upper_bits[list * 2048u + 2047u - (lane * 8u + i)];
    }
    return top_bin(lane, counts, n_wanted);
}
