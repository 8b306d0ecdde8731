// common/kv_block for q8 and q4: pages in the layout of common/kv_page.
// Source: KIVI §3 (keys by channel, values by token).
#import common/kv_page
#import common/kv_int_codes

// In words.
fn block_of_slot(slot: u32) -> u32 {
    return slot * BLOCK_WORDS + slot / PAGE_SLOTS * (KV_HEADS * HEAD_DIM);
}

fn scales_of_slot(slot: u32, g: u32) -> u32 {
    return slot / PAGE_SLOTS * PAGE_WORDS + KEY_SCALES_AT + g % KV_HEADS * HEAD_DIM;
}
