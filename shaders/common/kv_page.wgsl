// Layout of a quantized page (KV_Q8, KV_Q4), in words of 32 bits. A page is 64 tokens of all KV heads:
//   page:  4G blocks, block b of head g at slot 4 G page + b G + g; then scales of the keys [G, D]
//   block: 16 rows of D key codes, 16 rows of D value codes; then scales of the values [16, ceil(D / 32)]
//   scale: two f16, (step, low); a number is low + step * code
const BLOCK_TOKENS: u32 = 16u;
const HEAD_DIM: u32 = #{D}u;
const KV_HEADS: u32 = #{KV_HEADS}u;
const PAGE_SLOTS: u32 = 4u * KV_HEADS;
#ifdef KV_Q8
const ROW_WORDS: u32 = HEAD_DIM / 4u;
#else
const ROW_WORDS: u32 = HEAD_DIM / 8u;
#endif
// Channels of a value that share a scale.
const GROUP_CHANNELS: u32 = 32u;
const N_GROUPS: u32 = (HEAD_DIM + GROUP_CHANNELS - 1u) / GROUP_CHANNELS;
const VALUES_AT: u32 = BLOCK_TOKENS * ROW_WORDS;
const VALUE_SCALES_AT: u32 = 2u * BLOCK_TOKENS * ROW_WORDS;
const BLOCK_WORDS: u32 = VALUE_SCALES_AT + BLOCK_TOKENS * N_GROUPS;
const KEY_SCALES_AT: u32 = PAGE_SLOTS * BLOCK_WORDS;
const PAGE_WORDS: u32 = KEY_SCALES_AT + KV_HEADS * HEAD_DIM;
