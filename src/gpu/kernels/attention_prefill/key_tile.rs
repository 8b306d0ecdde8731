//! Keys of one dispatch of prefill attention, and the tokens that attend to them.

/// One run of keys (a tile if the scores are in a buffer).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyTile {
    /// new tokens T
    pub n_tokens: usize,
    /// first key, counted from the first token of the segment; a multiple of 8, or of 64 (whole pages) if keys are
    /// quantized
    pub first_key: usize,
    /// number of keys in the tile
    pub n_keys: usize,
    /// logical blocks of the segment (row stride of its table)
    pub n_blocks: usize,
    /// keys of this segment that token 0 of the chunk attends to (may be less than `first_key`, or 0); token t attends
    /// to t more
    pub mask_from: usize,
    /// true for the first tile
    pub is_first: bool,
    /// true for the last tile
    pub is_last: bool,
}
