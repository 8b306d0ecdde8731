// Reads K and V out of a KV buffer, so that an attention kernel need not know the element type.
// `table[g * n_blocks + b]` is the slot of logical block b (16 tokens) of KV head g.
//   block_at(g, token, n_blocks)   the block that holds a token, counted from the segment's first
//   value8(block, t, d)            elements d .. d + 8 of the value of the block's token t
//   key_row(block, t)              its key
//   key8(row, j, d)                elements d .. d + 8 of the j-th key from there, as codes: key = low + step * code
//   scales_at, key_scale8          low and step of these 8 channels, the same for the 64 tokens of a page
//   whole_key(codes, scale)        the key itself
//   scaled_query, query_low        or the query made ready for codes: q · key = scaled_query · code + query_low
// For f16 and f32 the code is the key, and the scale is nothing.
#import common/eight
#ifdef KV_QUANTISED
#import common/kv_quantised
#else
#import common/kv_float
#endif
