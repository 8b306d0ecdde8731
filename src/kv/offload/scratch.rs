//! Scratch stores: the disk tier of a context that is not a saved document.
//!
//! 1. The folder is removed when its store is closed.
//! 2. The next process removes the folders of a dead process: the lock of a dead process is free, that of a live one is
//!    not.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::kv::offload::error::OffloadError;
use crate::kv::store::{PageStore, StoreRoot, StoreSpec};

/// Prefix of the names of scratch folders.
pub const SCRATCH_PREFIX: &str = "scratch-";

/// A store that is removed when it is dropped.
#[derive(Debug)]
pub struct Scratch {
    /// dropped first: it has the lock
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
        // If removal fails, the next start removes the folder.
        let _ = self.library.remove(&self.name);
    }
}

/// Creates a scratch store in `library` for the context `tokens`.
///
/// # Errors
/// The store cannot be created there.
pub fn scratch(library: &StoreRoot, spec: &StoreSpec, tokens: &[u32]) -> Result<Scratch, OffloadError> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("{SCRATCH_PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let (store, _) = PageStore::open_or_create(library.folder(&name)?, spec, tokens)?;
    Ok(Scratch { store, folder: ScratchFolder { library: library.clone(), name } })
}

/// Removes the scratch stores of dead processes. Returns their number.
///
/// # Errors
/// The library folder cannot be read.
pub fn remove_stale_scratch(library: &StoreRoot) -> Result<usize, OffloadError> {
    let stores = library.stores()?;
    let is_scratch = |name: &str| name.starts_with(SCRATCH_PREFIX);
    Ok(stores.iter().filter(|s| is_scratch(&s.name) && library.remove(&s.name).is_ok()).count())
}
