//! Store root: the folder of all stores, with their sizes and LRU eviction.
//!
//! ```text
//! library/  ─ one folder per store, named by the caller ─► size, last use, open? ─► evict, least recently used first
//! ```
//! 1. An open store is never removed: removal takes its lock first.
//! 2. Eviction removes whole stores.
//!
//! The last use of a store is the time it was last opened, because opening writes its lock file.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::base::Bytes;
use crate::kv::store::disk::{Disk, LOCK_NAME, disk_bytes, make_private_folder};
use crate::kv::store::error::StoreError;
use crate::kv::store::storage::Folder;

/// Name, size and last use of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreInfo {
    /// name of its folder
    pub name: String,
    /// bytes on disk
    pub bytes: Bytes,
    /// when it was last opened
    pub last_used: SystemTime,
}

/// Result of an eviction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Eviction {
    /// removed stores, in this order
    pub removed: Vec<StoreInfo>,
    /// open stores, which could not be removed
    pub in_use: Vec<String>,
    /// total bytes of all stores afterwards
    pub total: Bytes,
}

impl Eviction {
    /// True if the total is within `budget`.
    pub fn is_within(&self, budget: Bytes) -> bool {
        self.total <= budget
    }
}

/// The folder of all stores.
#[derive(Debug, Clone)]
pub struct StoreRoot {
    root: PathBuf,
}

impl StoreRoot {
    /// Opens `root`, and creates it if it does not exist.
    ///
    /// # Errors
    /// The folder cannot be created or made private.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let root = root.into();
        make_private_folder(&root).map_err(|e| StoreError::from_io("make", &root.display().to_string(), 0, e))?;
        Ok(StoreRoot { root })
    }

    /// Opens `root` for reading: creates nothing. A missing folder has no stores.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        StoreRoot { root: root.into() }
    }

    /// Its folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of a store, to open or create the store in.
    ///
    /// # Errors
    /// [`StoreError::BadName`] if the name might not be a single folder in the root.
    pub fn folder(&self, name: &str) -> Result<Arc<dyn Folder>, StoreError> {
        Ok(Arc::new(Disk::new(self.path(name)?)))
    }

    fn path(&self, name: &str) -> Result<PathBuf, StoreError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > 128 || !name.chars().all(is_plain) {
            return Err(StoreError::BadName { name: name.to_owned() });
        }
        Ok(self.root.join(name))
    }

    /// All stores, least recently used first. Skips unreadable ones.
    ///
    /// # Errors
    /// The root folder cannot be read. A missing root has no stores.
    pub fn stores(&self) -> Result<Vec<StoreInfo>, StoreError> {
        let entries = match fs::read_dir(&self.root) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|e| StoreError::from_io("read", &self.root.display().to_string(), 0, e))?,
        };
        let names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
        let mut stores: Vec<StoreInfo> = names.filter_map(|name| self.info(&name)).collect();
        stores.sort_by(|a, b| (a.last_used, &a.name).cmp(&(b.last_used, &b.name)));
        Ok(stores)
    }

    /// Name, size and last use of one store. None if it does not exist.
    pub fn info(&self, name: &str) -> Option<StoreInfo> {
        let path = self.path(name).ok()?;
        let files = fs::read_dir(&path).ok()?;
        let bytes = files.filter_map(|f| f.ok()?.metadata().ok()).map(|m| disk_bytes(&m)).sum();
        let used = fs::metadata(path.join(LOCK_NAME)).or_else(|_| fs::metadata(&path)).ok()?;
        Some(StoreInfo { name: name.to_owned(), bytes: Bytes(bytes), last_used: used.modified().ok()? })
    }

    /// Total bytes of all stores.
    ///
    /// # Errors
    /// As [`StoreRoot::stores`].
    pub fn total(&self) -> Result<Bytes, StoreError> {
        Ok(Bytes(self.stores()?.iter().map(|s| s.bytes.0).sum()))
    }

    /// Removes stores, least recently used first, until the total plus `room` bytes fits `budget`. Stores in `keep` and
    /// open stores stay.
    ///
    /// # Errors
    /// As [`StoreRoot::stores`]. A store that cannot be removed is skipped.
    pub fn evict(&self, budget: Bytes, room: Bytes, keep: &[&str]) -> Result<Eviction, StoreError> {
        let stores = self.stores()?;
        let mut eviction = Eviction { total: Bytes(stores.iter().map(|s| s.bytes.0).sum()), ..Eviction::default() };
        for store in stores {
            if eviction.total.0.saturating_add(room.0) <= budget.0 {
                break;
            }
            if keep.contains(&store.name.as_str()) {
                continue;
            }
            match self.remove(&store.name) {
                Ok(()) => {
                    eviction.total.0 = eviction.total.0.saturating_sub(store.bytes.0);
                    eviction.removed.push(store);
                }
                Err(StoreError::Locked { .. }) => eviction.in_use.push(store.name),
                Err(_) => {}
            }
        }
        Ok(eviction)
    }

    /// Removes one store.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if it is open, [`StoreError::Absent`] if it does not exist, or an error of the disk.
    pub fn remove(&self, name: &str) -> Result<(), StoreError> {
        let path = self.path(name)?;
        let folder = Disk::new(&path);
        let io_error = |e| StoreError::from_io("remove", &path.display().to_string(), 0, e);
        let lock = folder.lock(false)?;
        // The lock file goes last, so that no other process creates a store in a partly removed folder.
        for file in folder.names().map_err(io_error)?.iter().filter(|n| *n != LOCK_NAME) {
            folder.remove(file).map_err(io_error)?;
        }
        folder.remove(LOCK_NAME).map_err(io_error)?;
        let removed = fs::remove_dir(&path);
        drop(lock);
        // A process waiting for the lock may have created a new store in it.
        match removed {
            Err(e) if e.kind() != ErrorKind::DirectoryNotEmpty => Err(io_error(e)),
            _ => Ok(()),
        }
    }
}
