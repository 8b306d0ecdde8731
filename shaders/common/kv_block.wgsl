// Reads K and V out of a KV buffer, so that an attention kernel need not know the element type.
// `table[g * n_blocks + b]` is the slot of logical block b (16 tokens) of KV head g.
// SELECTIVE: heads have lists of their own, of any blocks, and read only some tokens of each: entries are two words, the slot and
// a bit for each token that is read. A shorter list ends in entries of no token.
//   tokens_at(g, token, n_blocks)  SELECTIVE: bits of the tokens that are read of the block
//   quad_at(g, token, n_blocks)    SELECTIVE: of four tokens, from a multiple of 4 on
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
fn tokens_at(g: u32, token: u32, n_blocks: u32) -> u32 {
    return table[2u * (g * n_blocks + token / BLOCK_TOKENS) + 1u];
}

fn quad_at(g: u32, token: u32, n_blocks: u32) -> u32 {
    return (tokens_at(g, token, n_blocks) >> (token % BLOCK_TOKENS)) & 15u;
}

fn are_set(quad: u32) -> vec4<bool> {
    return (vec4<u32>(quad) & vec4<u32>(1u, 2u, 4u, 8u)) != vec4<u32>(0u);
}
#endif

fn slot_at(g: u32, token: u32, n_blocks: u32) -> u32 {
#ifdef SELECTIVE
    return table[2u * (g * n_blocks + token / BLOCK_TOKENS)];
#else
    return table[g * n_blocks + token / BLOCK_TOKENS];
#endif
}

#ifdef KV_QUANTISED
#import common/kv_quantised
#else
#import common/kv_float
#endif
