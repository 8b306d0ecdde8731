// KV block access: reads K and V from a KV buffer in any element format.
// `table[g * n_blocks + b]` is the slot of logical block b (16 tokens) of KV head g.
// Heads may have separate lists of any blocks. Lists shorter than the longest are padded with PAD.
// TOKEN_TABLE: lists of single tokens, with entries 16 * slot + token.
//   in_segment(entry, first, n)    the entry counted from the first one of a segment of n, or PAD if it is in another
//   block_of(entry), key_row_of(entry), scales_of(entry, g)   TOKEN_TABLE: a token's block, its key, the scales of its page
//   block_at(g, token, n_blocks)   the block of a token, counted from the first token of the segment
//   value8(block, t, d)            elements d .. d + 8 of the value of the block's token t
//   stored_value8, value_of        the same in two steps, so that many loads are in flight before the first use
//   key_row(block, t)              its key
//   key8(row, j, d)                elements d .. d + 8 of the j-th key from there, as codes: key = low + step * code
//   stored_key8, key_of            the same in two steps, for j = 0
//   scales_at, key_scale8          low and step of these 8 channels, the same for the 64 tokens of a page
//   whole_key(codes, scale)        the key itself
//   scaled_query, query_low        or the query scaled for codes: q · key = scaled_query · code + query_low
// For f16 and f32 the code is the key, and there is no scale.
#import common/vec8
const PAD: u32 = 0xffffffffu;

#ifdef KV_QUANTIZED
#import common/kv_quantized
#else
#import common/kv_float
#endif

fn slot_at(g: u32, token: u32, n_blocks: u32) -> u32 {
    return table[g * n_blocks + token / BLOCK_TOKENS];
}

fn block_at(g: u32, token: u32, n_blocks: u32) -> u32 {
    return block_of_slot(slot_at(g, token, n_blocks));
}

fn scales_at(g: u32, token: u32, n_blocks: u32) -> u32 {
    return scales_of_slot(slot_at(g, token, n_blocks), g);
}
#ifdef TOKEN_TABLE
fn in_segment(entry: u32, first: u32, n: u32) -> u32 {
    let own = entry - first;
    return select(PAD, own, entry != PAD && own < n);
}

fn block_of(entry: u32) -> u32 {
    return block_of_slot(entry / BLOCK_TOKENS);
}

fn key_row_of(entry: u32) -> u32 {
    return key_row(block_of(entry), entry % BLOCK_TOKENS);
}

fn scales_of(entry: u32, g: u32) -> u32 {
    return scales_of_slot(entry / BLOCK_TOKENS, g);
}
#endif
