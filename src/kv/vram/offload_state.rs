//! Offload state: the transfer thread of the cache, and the part of the context in the offload tiers.
//!
//! Owner: the engine thread.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::kv::offload::{OffloadTiers, RamPagesView};
use crate::kv::store::Io;
use crate::kv::transfer::Transfer;
use crate::kv::vram::ram_places::RamPlaces;

/// The offload tiers, as the engine thread sees them.
pub(super) struct OffloadState {
    pub transfer: Transfer,
    pub ram_places: RamPlaces,
    is_open: bool,
    /// view of the RAM-resident pages
    ram_pages: RamPagesView,
    /// tokens appended to the store
    n_tokens: usize,
    /// tokens of the saved document
    n_document_tokens: usize,
    /// groups of the document, which are saved in its store
    durable_groups: u32,
}

impl OffloadState {
    /// No tiers are open.
    pub fn new(transfer: Transfer) -> OffloadState {
        let (is_open, ram_pages, ram_places) = (false, RamPagesView::default(), RamPlaces::default());
        OffloadState { transfer, ram_places, is_open, ram_pages, n_tokens: 0, n_document_tokens: 0, durable_groups: 0 }
    }

    /// True if tiers are open.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Opens tiers, which already have `n_tokens` of the context.
    pub fn open(&mut self, tiers: OffloadTiers, n_tokens: usize) {
        self.ram_pages = tiers.ram_pages_view();
        self.transfer.open(tiers);
        self.is_open = true;
        self.n_tokens = n_tokens;
    }

    /// Closes the tiers. Returns the I/O for reuse.
    pub fn close(&mut self) -> Option<Io> {
        let io = self.transfer.close();
        self.is_open = false;
        self.ram_pages = RamPagesView::default();
        io
    }

    /// Starts a context with a document of `n_tokens`.
    pub fn begin_document(&mut self, n_tokens: usize) {
        self.n_document_tokens = n_tokens;
        self.durable_groups = (n_tokens / KV_PAGE_TOKENS) as u32;
    }

    /// Drops the context.
    pub fn clear(&mut self) {
        (self.durable_groups, self.n_document_tokens, self.n_tokens) = (0, 0, 0);
    }

    /// True if a group belongs to the document.
    pub fn is_durable(&self, group: u32) -> bool {
        group < self.durable_groups
    }

    /// RAM-resident pages; none if no tiers are open.
    pub fn ram_pages(&self) -> Option<&RamPagesView> {
        self.is_open.then_some(&self.ram_pages)
    }

    /// Appends `chunk` at `pos` to the store.
    pub fn append_tokens(&mut self, pos: usize, chunk: &[u32]) {
        let new = chunk.get(self.n_tokens.saturating_sub(pos)..).unwrap_or_default();
        if self.is_open && !new.is_empty() {
            self.transfer.append_tokens(new);
            self.n_tokens += new.len();
        }
    }

    /// Drops all tokens from `n_tokens` on. The tokens of a document stay in its store.
    pub fn truncate(&mut self, n_tokens: usize) {
        if self.is_open && n_tokens < self.n_tokens {
            self.transfer.truncate(n_tokens);
            self.n_tokens = n_tokens.max(self.n_document_tokens);
        }
    }
}
