//! Open parts: documents whose stores are open, and the catalog entry of each.

use std::time::SystemTime;

use crate::base::limits::KV_PAGE_TOKENS;
use crate::document::catalog::{CatalogEntry, ReadState};
use crate::engine::context::document_parts::DocumentPart;
use crate::engine::context::reused_part::ReusedParts;

/// Documents whose stores are open, and those after them with reused KV.
pub(super) struct OpenDocuments {
    pub(super) parts: Vec<OpenPart>,
    /// parts that are not saved, after the others
    pub(super) reused: ReusedParts,
    /// tokens of all parts
    pub(super) tokens: Vec<u32>,
    /// a folder is missing, and a notice was emitted
    pub(super) is_gone: bool,
}

impl OpenDocuments {
    /// True if it has exactly these parts.
    pub(super) fn is_of(&self, parts: &[DocumentPart]) -> bool {
        let saved = self.parts.iter().map(|open| &open.part);
        saved.chain(self.reused.parts.iter().map(|reused| &reused.part)).eq(parts)
    }
}

pub(super) struct OpenPart {
    pub(super) part: DocumentPart,
    pub(super) entry: CatalogEntry,
    /// the store is new, and no notice was emitted
    pub(super) is_new: bool,
}

impl OpenPart {
    /// Records that the first `n_saved` groups of the context are saved, and the bytes of the store.
    pub(super) fn update(&mut self, n_saved: u32, kv_bytes: u64) {
        let groups = self.part.groups();
        self.entry.last_used = now_secs();
        self.entry.kv_bytes = kv_bytes;
        // Groups after a gap stay saved.
        if n_saved < groups.start {
            return;
        }
        let n_own = n_saved.min(groups.end) - groups.start;
        self.entry.saved_tokens = (n_own as usize * KV_PAGE_TOKENS).min(self.part.n_new);
        self.entry.state = if n_saved >= groups.end { ReadState::Read } else { ReadState::Partial };
    }
}

pub(super) fn now_secs() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.ok().and_then(|d| i64::try_from(d.as_secs()).ok()).unwrap_or(0)
}
