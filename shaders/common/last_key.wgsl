// The key of the last selected token, and how many tokens with this key are selected.
#import common/upper_bin

struct LastKey { key: u32, n_ties: u32 }

fn last_key(lane: u32, list: u32, n_wanted: u32) -> LastKey {
    let upper = upper_bin(lane, list, n_wanted);
    var counts: array<u32, 8>;
    for (var i = 0u; i < 8u; i += 1u) {
        counts[i] = lower_bits[list * 2048u + 2047u - (lane * 8u + i)];
    }
    let lower = top_bin(lane, counts, n_wanted - upper.n_above);
    return LastKey(upper.bin * 2048u + lower.bin, n_wanted - upper.n_above - lower.n_above);
}
