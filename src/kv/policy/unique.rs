//! Lists of pages: ascending, each once.

/// Sorts and deduplicates.
pub fn unique(mut items: Vec<u32>) -> Vec<u32> {
    items.sort_unstable();
    items.dedup();
    items
}
