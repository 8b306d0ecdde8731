// Reads K and V out of a KV buffer, so that an attention kernel need not know the element type.
// `table[g * n_blocks + b]` is the slot of logical block b (16 tokens) of KV head g.
// SELECTIVE: heads have lists of their own, of any blocks; a shorter one ends in NO_BLOCK.
//   has_block(g, token, n_blocks)  SELECTIVE: there is a block at all
//   block_at(g, token, n_blocks)   the block that holds a token, counted from the segment's first
//   value8(block, t, d)            elements d .. d + 8 of the value of the block's token t
//   key_row(block, t)              its key
//   key8(row, j, d)                elements d .. d + 8 of the j-th key from there, as codes: key = low + step * code
//   scales_at, key_scale8          low and step of these 8 channels, the same for the 64 tokens of a page
//   whole_key(codes, scale)        the key itself
//   scaled_query, query_low        or the query made ready for codes: q · key = scaled_query · code + query_low
// For f16 and f32 the code is the key, and the scale is nothing.
#import common/eight
#ifdef SELECTIVE
const NO_BLOCK: u32 = 0xffffffffu;

fn has_block(g: u32, token: u32, n_blocks: u32) -> bool {
    return table[g * n_blocks + token / BLOCK_TOKENS] != NO_BLOCK;
}
#endif

fn slot_at(g: u32, token: u32, n_blocks: u32) -> u32 {
    let slot = table[g * n_blocks + token / BLOCK_TOKENS];
#ifdef SELECTIVE
    // Any block is readable where there is none; what comes of it is masked.
    return select(slot, 0u, slot == NO_BLOCK);
#else
    return slot;
#endif
}

#ifdef KV_QUANTISED
#import common/kv_quantised
#else
#import common/kv_float
#endif
