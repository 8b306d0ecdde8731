//! The folder that holds all stores: how much it takes, and which stores go first.
//!
//! ```text
//! library/  ─ one folder per store, named by the caller ─► sizes, last use, in use?  ─► evict, least recently used first
//! ```
//! 1. A store that is open anywhere is never removed: removing takes its lock first.
//! 2. Whole stores go, never parts of one.
//!
//! A store is last used when it was last opened: opening writes its lock file.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::base::Bytes;
use crate::kv::store::disk::{Disk, LOCK_NAME, disk_bytes, make_private_folder};
use crate::kv::store::error::StoreError;
use crate::kv::store::storage::Folder;

/// A store as the library sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreInfo {
    /// name of its folder
    pub name: String,
    /// bytes that it takes on the disk
    pub bytes: Bytes,
    /// when it was last opened
    pub last_used: SystemTime,
}

/// What an eviction did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Eviction {
    /// stores removed, in this order
    pub removed: Vec<StoreInfo>,
    /// stores that were to go but are open
    pub in_use: Vec<String>,
    /// bytes of the library now
    pub total: Bytes,
}

impl Eviction {
    /// True where the library is within `budget` now.
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
    /// The library in `root`, which is made where it is not there.
    ///
    /// # Errors
    /// Where the folder cannot be made or made private.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let root = root.into();
        make_private_folder(&root).map_err(|e| StoreError::from_io("make", &root.display().to_string(), 0, e))?;
        Ok(StoreRoot { root })
    }

    /// The library in `root` to look at: nothing is made, and one that is not there has no stores.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        StoreRoot { root: root.into() }
    }

    /// Its folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of a store, to open or make it with.
    ///
    /// # Errors
    /// [`StoreError::BadName`] for a name that could be anything but one folder in the library.
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

    /// All stores, least recently used first. What cannot be read is left out.
    ///
    /// # Errors
    /// Where the library's folder itself cannot be read; one that is not there has no stores.
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

    /// Size and last use of one store; none where it is not there.
    pub fn info(&self, name: &str) -> Option<StoreInfo> {
        let path = self.path(name).ok()?;
        let files = fs::read_dir(&path).ok()?;
        let bytes = files.filter_map(|f| f.ok()?.metadata().ok()).map(|m| disk_bytes(&m)).sum();
        let used = fs::metadata(path.join(LOCK_NAME)).or_else(|_| fs::metadata(&path)).ok()?;
        Some(StoreInfo { name: name.to_owned(), bytes: Bytes(bytes), last_used: used.modified().ok()? })
    }

    /// Bytes of all stores.
    ///
    /// # Errors
    /// As [`StoreRoot::stores`].
    pub fn total(&self) -> Result<Bytes, StoreError> {
        Ok(Bytes(self.stores()?.iter().map(|s| s.bytes.0).sum()))
    }

    /// Removes stores, least recently used first, until the library and `room` more bytes fit `budget`. Stores named in
    /// `keep` stay, and so does every store that is open.
    ///
    /// # Errors
    /// As [`StoreRoot::stores`]; a store that cannot be removed is passed over.
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
    /// [`StoreError::Locked`] where it is open, [`StoreError::Absent`] where it is not there, or what the disk said.
    pub fn remove(&self, name: &str) -> Result<(), StoreError> {
        let path = self.path(name)?;
        let folder = Disk::new(&path);
        let said = |e| StoreError::from_io("remove", &path.display().to_string(), 0, e);
        let lock = folder.lock(false)?;
        // The lock file goes last but one, so that nobody else begins while there is something left.
        for file in folder.names().map_err(said)?.iter().filter(|n| *n != LOCK_NAME) {
            folder.remove(file).map_err(said)?;
        }
        folder.remove(LOCK_NAME).map_err(said)?;
        let removed = fs::remove_dir(&path);
        drop(lock);
        // Somebody who was waiting may have begun a new store in it.
        match removed {
            Err(e) if e.kind() != ErrorKind::DirectoryNotEmpty => Err(said(e)),
            _ => Ok(()),
        }
    }
}
