//! Stores that nobody wants to keep: the disk tier of a context that is not a saved document.
//!
//! 1. The folder goes when its store is closed.
//! 2. What a process that died has left goes when the next one begins: its lock is free, and that of a living one is not.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::kv::offload::error::OffloadError;
use crate::kv::store::{PageStore, StoreRoot, StoreSpec};

/// Names of scratch folders begin so.
pub const SCRATCH_PREFIX: &str = "scratch-";

/// A store whose folder goes with it.
#[derive(Debug)]
pub struct Scratch {
    /// dropped first: it holds the lock
    pub(super) store: PageStore,
    pub(super) folder: ScratchFolder,
}

/// Removes the folder when dropped.
#[derive(Debug)]
pub(super) struct ScratchFolder {
    library: StoreRoot,
    name: String,
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next start.
        let _ = self.library.remove(&self.name);
    }
}

/// A new scratch store in the library's folder, for the context `tokens`.
///
/// # Errors
/// What keeps a store from being made there.
pub fn scratch(library: &StoreRoot, spec: &StoreSpec, tokens: &[u32]) -> Result<Scratch, OffloadError> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("{SCRATCH_PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let (store, _) = PageStore::open_or_create(library.folder(&name)?, spec, tokens)?;
    Ok(Scratch { store, folder: ScratchFolder { library: library.clone(), name } })
}

/// Removes the scratch stores of processes that are gone; how many there were.
///
/// # Errors
/// Where the library's folder cannot be read.
pub fn remove_stale_scratch(library: &StoreRoot) -> Result<usize, OffloadError> {
    let stores = library.stores()?;
    let is_scratch = |name: &str| name.starts_with(SCRATCH_PREFIX);
    Ok(stores.iter().filter(|s| is_scratch(&s.name) && library.remove(&s.name).is_ok()).count())
}
