//! In-memory folder that can lose unsynced data: for property tests, and for machines without a disk.
//!
//! ```text
//! write ─► live bytes + pending list ──sync──► durable bytes;   crash(seed): durable + some pending, some of them torn
//! ```
//! A crash behaves as in the test storage of TigerBeetle and redb. Any subset of the unsynced writes survives, in any
//! order. A write may be torn at any 512-byte sector. A file may be gone if its folder was not synced.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::Rng;
use crate::kv::store::error::StoreError;
use crate::kv::store::storage::{Folder, LockGuard, OpenMode, Storage};

const SECTOR_BYTES: usize = 512;

#[derive(Debug, Clone)]
enum Pending {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
}

impl Pending {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Pending::SetLen(len) => bytes.resize(*len, 0),
            Pending::Write { offset, bytes: new } => {
                let end = offset + new.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                if let Some(place) = bytes.get_mut(*offset..end) {
                    place.copy_from_slice(new);
                }
            }
        }
    }

    /// The part that survives a crash: all, nothing, or the first sectors.
    fn after_crash(&self, rng: &mut Rng) -> Option<Pending> {
        match (rng.uniform(3), self) {
            (0, _) => None,
            (1, Pending::Write { offset, bytes }) => {
                let n_sectors = bytes.len().div_ceil(SECTOR_BYTES) as u32;
                let n_bytes = (rng.uniform(n_sectors.max(1)) as usize * SECTOR_BYTES).min(bytes.len());
                Some(Pending::Write { offset: *offset, bytes: bytes.get(..n_bytes)?.to_vec() })
            }
            _ => Some(self.clone()),
        }
    }
}

#[derive(Debug, Default)]
struct Contents {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
}

/// A file in memory.
#[derive(Debug, Default)]
struct MemoryFile {
    contents: Mutex<Contents>,
}

impl MemoryFile {
    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, pending: Pending) {
        let mut contents = self.lock();
        pending.apply(&mut contents.live);
        contents.pending.push(pending);
    }
}

fn position(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(|_| ErrorKind::FileTooLarge.into())
}

impl Storage for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().live.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let contents = self.lock();
        let from = contents.live.get(position(offset)?..).unwrap_or_default();
        let n = from.len().min(buf.len());
        for (place, byte) in buf.iter_mut().zip(from) {
            *place = *byte;
        }
        Ok(n)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.change(Pending::Write { offset: position(offset)?, bytes: buf.to_vec() });
        Ok(buf.len())
    }

    fn sync(&self) -> io::Result<()> {
        let mut contents = self.lock();
        let Contents { durable, pending, .. } = &mut *contents;
        for change in pending.drain(..) {
            change.apply(durable);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(Pending::SetLen(position(len)?));
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Names {
    live: BTreeMap<String, Arc<MemoryFile>>,
    durable: BTreeSet<String>,
}

#[derive(Debug)]
struct MemoryLock(Arc<AtomicBool>);

impl LockGuard for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A folder in memory. Clones share its files.
#[derive(Debug, Clone, Default)]
pub struct MemoryFolder {
    names: Arc<Mutex<Names>>,
    is_locked: Arc<AtomicBool>,
    is_deleted: Arc<AtomicBool>,
}

impl MemoryFolder {
    /// An empty folder.
    pub fn new() -> Self {
        MemoryFolder::default()
    }

    fn lock_names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder as found after a power failure. Open handles keep the old folder.
    pub fn crashed(&self, seed: u64) -> MemoryFolder {
        let mut rng = Rng::new(seed);
        let names = self.lock_names();
        let mut after = Names::default();
        for (name, file) in &names.live {
            if !names.durable.contains(name) && rng.uniform(2) == 0 {
                continue;
            }
            let contents = file.lock();
            let mut bytes = contents.durable.clone();
            for change in &contents.pending {
                if let Some(survivor) = change.after_crash(&mut rng) {
                    survivor.apply(&mut bytes);
                }
            }
            let whole = Contents { live: bytes.clone(), durable: bytes, pending: Vec::new() };
            after.live.insert(name.clone(), Arc::new(MemoryFile { contents: Mutex::new(whole) }));
            after.durable.insert(name.clone());
        }
        MemoryFolder { names: Arc::new(Mutex::new(after)), ..MemoryFolder::default() }
    }

    /// A copy of the current folder, as another process would see it.
    pub fn copied(&self) -> MemoryFolder {
        let copy = MemoryFolder::new();
        for (name, file) in &self.lock_names().live {
            let live = file.lock().live.clone();
            let whole = Contents { live: live.clone(), durable: live, pending: Vec::new() };
            copy.lock_names().live.insert(name.clone(), Arc::new(MemoryFile { contents: Mutex::new(whole) }));
            copy.lock_names().durable.insert(name.clone());
        }
        copy
    }

    /// The bytes of a file.
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        self.lock_names().live.get(name).map(|f| f.lock().live.clone())
    }

    /// Replaces the bytes of a file, or creates it.
    pub fn set_bytes(&self, name: &str, bytes: Vec<u8>) {
        let mut names = self.lock_names();
        let file = names.live.entry(name.to_owned()).or_default();
        let mut contents = file.lock();
        *contents = Contents { live: bytes.clone(), durable: bytes, pending: Vec::new() };
        drop(contents);
        names.durable.insert(name.to_owned());
    }

    /// Deletes the folder while it is in use: open files stay usable, and no file can be opened.
    pub fn delete(&self) {
        self.is_deleted.store(true, Ordering::Release);
    }
}

impl Folder for MemoryFolder {
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn Storage>> {
        if !self.exists() {
            return Err(ErrorKind::NotFound.into());
        }
        let mut names = self.lock_names();
        if !mode.create && !names.live.contains_key(name) {
            return Err(ErrorKind::NotFound.into());
        }
        let file = names.live.entry(name.to_owned()).or_default();
        Ok(Arc::<MemoryFile>::clone(file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut names = self.lock_names();
        names.durable.remove(name);
        names.live.remove(name).map(drop).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.lock_names().live.keys().cloned().collect())
    }

    fn sync(&self) -> io::Result<()> {
        let mut names = self.lock_names();
        names.durable = names.live.keys().cloned().collect();
        Ok(())
    }

    fn exists(&self) -> bool {
        !self.is_deleted.load(Ordering::Acquire)
    }

    fn lock(&self, create: bool) -> Result<Box<dyn LockGuard>, StoreError> {
        if !create && self.lock_names().live.is_empty() {
            return Err(StoreError::Absent { folder: self.describe() });
        }
        if self.is_locked.swap(true, Ordering::AcqRel) {
            return Err(StoreError::Locked { folder: self.describe(), holder: "another chat".into() });
        }
        Ok(Box::new(MemoryLock(Arc::clone(&self.is_locked))))
    }

    fn describe(&self) -> String {
        "a folder in memory".into()
    }
}
