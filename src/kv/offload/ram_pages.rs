//! RAM-resident pages with their own slab, and a shared view of them for the engine thread.
//!
//! ```text
//! OffloadTiers (transfer thread) ─ insert, remove ─► pages ═► view ◄─ pages resident now ─ engine
//! ```
//! 1. The view equals the resident pages: every change updates both before the next change.
//! 2. A page returned by the view does not change. It keeps its slab in use, so drop it soon.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::kv::offload::page::{PageBytes, Retention};
use crate::kv::store::{PageId, Slab};

/// A page with its own slab.
#[derive(Debug)]
pub(super) struct RamPage {
    pub slab: Arc<Slab>,
    pub retention: Retention,
}

/// Cached copies, and unwritten pages.
#[derive(Debug, Default)]
pub(super) struct RamPages {
    pages: HashMap<PageId, RamPage>,
    view: RamPagesView,
}

/// The pages currently in RAM with their own slab.
#[derive(Debug, Clone, Default)]
pub struct RamPagesView {
    slabs: Arc<Mutex<HashMap<PageId, Arc<Slab>>>>,
}

impl RamPages {
    /// The shared view.
    pub fn view(&self) -> RamPagesView {
        self.view.clone()
    }

    /// Adds a page, or replaces its copy.
    pub fn insert(&mut self, page: PageId, slab: Slab, retention: Retention) {
        let slab = Arc::new(slab);
        self.view.lock().insert(page, Arc::clone(&slab));
        self.pages.insert(page, RamPage { slab, retention });
    }

    /// Removes a page. False if it was not resident.
    pub fn remove(&mut self, page: PageId) -> bool {
        self.view.lock().remove(&page);
        self.pages.remove(&page).is_some()
    }

    /// Changes the retention of a page. False if it is not resident.
    pub fn set_retention(&mut self, page: PageId, retention: Retention) -> bool {
        self.pages.get_mut(&page).map(|resident| resident.retention = retention).is_some()
    }

    /// Removes all pages for which `stays` is false.
    pub fn retain(&mut self, stays: impl Fn(&PageId) -> bool) {
        self.view.lock().retain(|page, _| stays(page));
        self.pages.retain(|page, _| stays(page));
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

    /// Those of `pages` that are resident, in order, with `page_bytes` bytes each.
    pub fn of(&self, pages: impl Iterator<Item = PageId>, page_bytes: usize) -> Vec<(PageId, PageBytes)> {
        let slabs = self.lock();
        let bytes = |slab: &Arc<Slab>| PageBytes { slab: Arc::clone(slab), offset: 0, len: page_bytes };
        pages.filter_map(|page| Some((page, bytes(slabs.get(&page)?)))).collect()
    }
}
