// Keys of token weights (selection/token_weights), and the search for the last one that is selected.
const KEY_RANGE: f32 = 64.0;
const KEY_STEPS: f32 = 65536.0;
const MAX_KEY: u32 = 0x3fffffu;
const ALWAYS: u32 = 0xffffffffu;
const PAGE_TOKENS: u32 = 64u;
// Keys of a workgroup, and of each lane.
const TILE_KEYS: u32 = 2048u;
const LANE_KEYS: u32 = 8u;

// Keys of a list, from the number of its pages.
fn n_keys_of(list: u32) -> u32 {
    return min(pages[list * (1u + params.n_listed)], params.n_listed) * PAGE_TOKENS;
}

fn is_nan(v: f32) -> bool {
    return (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u;
}

fn key_of_weight(weight: f32) -> u32 {
    return min(u32(clamp(weight + KEY_RANGE, 0.0, KEY_RANGE) * KEY_STEPS), MAX_KEY);
}
