//! RAM-resident pages with their own slab, and a shared view of them for the engine thread.
//!
//! ```text
//! OffloadTiers (transfer thread) ─ insert, remove ─► pages ═► view ◄─ pages resident now ─ engine
//! ```
//! 1. The view equals the resident pages: every change updates both before the next change.
//! 2. A page returned by the view does not change. It keeps its slab in use, so drop it soon.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
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
    /// changes after every change of the pages
    version: Arc<AtomicU64>,
    /// room for pages
    n_slots: u64,
}

impl RamPages {
    /// No pages, with room for `n_slots`.
    pub fn new(n_slots: u64) -> RamPages {
        RamPages { view: RamPagesView { n_slots, ..RamPagesView::default() }, ..RamPages::default() }
    }

    /// The shared view.
    pub fn view(&self) -> RamPagesView {
        self.view.clone()
    }

    /// Adds a page, or replaces its copy.
    pub fn insert(&mut self, page: PageId, slab: Slab, retention: Retention) {
        let slab = Arc::new(slab);
        self.view.change(|slabs| slabs.insert(page, Arc::clone(&slab)));
        self.pages.insert(page, RamPage { slab, retention });
    }

    /// Removes a page. False if it was not resident.
    pub fn remove(&mut self, page: PageId) -> bool {
        self.view.change(|slabs| slabs.remove(&page));
        self.pages.remove(&page).is_some()
    }

    /// Changes the retention of a page. False if it is not resident.
    pub fn set_retention(&mut self, page: PageId, retention: Retention) -> bool {
        self.pages.get_mut(&page).map(|resident| resident.retention = retention).is_some()
    }

    /// Removes all pages for which `stays` is false.
    pub fn retain(&mut self, stays: impl Fn(&PageId) -> bool) {
        self.view.change(|slabs| slabs.retain(|page, _| stays(page)));
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

    fn change<T>(&self, change: impl FnOnce(&mut HashMap<PageId, Arc<Slab>>) -> T) {
        change(&mut self.lock());
        self.version.fetch_add(1, Ordering::Release);
    }

    /// A number that changes after every change of the resident pages.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Number of pages for which there is still room.
    pub fn n_free(&self) -> u64 {
        self.n_slots.saturating_sub(self.lock().len() as u64)
    }

    /// True if all of these pages are resident.
    pub fn has_all(&self, mut pages: impl Iterator<Item = PageId>) -> bool {
        let slabs = self.lock();
        pages.all(|page| slabs.contains_key(&page))
    }

    /// Each of the first `n_pages` of a layer with `page_bytes` bytes, if it is resident.
    pub fn of_layer(&self, layer: u32, n_pages: u32, page_bytes: usize) -> Vec<Option<PageBytes>> {
        let slabs = self.lock();
        let bytes = |slab: &Arc<Slab>| PageBytes { slab: Arc::clone(slab), offset: 0, len: page_bytes };
        (0..n_pages).map(|group| slabs.get(&PageId::kv(layer, group)).map(bytes)).collect()
    }

    /// Those of `pages` that are resident, in order, with `page_bytes` bytes each.
    pub fn of(&self, pages: impl Iterator<Item = PageId>, page_bytes: usize) -> Vec<(PageId, PageBytes)> {
        let slabs = self.lock();
        let bytes = |slab: &Arc<Slab>| PageBytes { slab: Arc::clone(slab), offset: 0, len: page_bytes };
        pages.filter_map(|page| Some((page, bytes(slabs.get(&page)?)))).collect()
    }
}
