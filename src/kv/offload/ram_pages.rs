//! Pages in slabs of their own, and a view of them for whoever wants their keys while another thread moves them.
//!
//! ```text
//! OffloadTiers (transfer thread) ─ insert, remove ─► pages ═► near ◄─ pages that are in RAM now ─ engine
//! ```
//! 1. What is near is what is held: every change is made to both before the next.
//! 2. A page that was handed out stays as it is, and keeps its slab from being used again: not to be held for long.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::kv::offload::{OffloadTiers, PageBytes, Retention};
use crate::kv::store::{PageId, Slab};

/// A page in a slab of its own.
#[derive(Debug)]
pub(super) struct RamPage {
    pub slab: Arc<Slab>,
    pub keep: Retention,
}

/// PageCopies, and what is not written yet.
#[derive(Debug, Default)]
pub(super) struct RamPages {
    pages: HashMap<PageId, RamPage>,
    near: RamPagesView,
}

/// The pages that RAM holds in slabs of their own, as of now.
#[derive(Debug, Clone, Default)]
pub struct RamPagesView {
    slabs: Arc<Mutex<HashMap<PageId, Arc<Slab>>>>,
}

impl RamPages {
    /// Holds a page, in place of an older copy.
    pub fn insert(&mut self, page: PageId, slab: Slab, keep: Retention) {
        let slab = Arc::new(slab);
        self.near.lock().insert(page, Arc::clone(&slab));
        self.pages.insert(page, RamPage { slab, keep });
    }

    /// Holds it no longer; false where it did not.
    pub fn remove(&mut self, page: PageId) -> bool {
        self.near.lock().remove(&page);
        self.pages.remove(&page).is_some()
    }

    /// Changes what becomes of a copy; false where there is none.
    pub fn set_keep(&mut self, page: PageId, keep: Retention) -> bool {
        self.pages.get_mut(&page).map(|held| held.keep = keep).is_some()
    }

    /// Holds only those of which `stays` is true.
    pub fn retain(&mut self, stays: impl Fn(&PageId) -> bool) {
        self.near.lock().retain(|page, _| stays(page));
        self.pages.retain(|page, _| stays(page));
    }
}

impl OffloadTiers {
    /// The pages that RAM holds, for whoever wants their keys where they are.
    pub fn near(&self) -> RamPagesView {
        self.ram_pages.near.clone()
    }
}

impl Deref for RamPages {
    type Target = HashMap<PageId, RamPage>;

    fn deref(&self) -> &HashMap<PageId, RamPage> {
        &self.pages
    }
}

impl RamPagesView {
    fn lock(&self) -> MutexGuard<'_, HashMap<PageId, Arc<Slab>>> {
        self.slabs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of `pages` that are there, `page_bytes` each, in their order.
    pub fn of(&self, pages: impl Iterator<Item = PageId>, page_bytes: usize) -> Vec<(PageId, PageBytes)> {
        let slabs = self.lock();
        let bytes = |slab: &Arc<Slab>| PageBytes { slab: Arc::clone(slab), offset: 0, len: page_bytes };
        pages.filter_map(|page| Some((page, bytes(slabs.get(&page)?)))).collect()
    }
}
