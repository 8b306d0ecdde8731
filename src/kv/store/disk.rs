//! Real files in a real folder: 0600 in 0700, direct where the file system can, one writer.
//!
//! ```text
//! Disk(path) ─ lock ─► `lock`, held until the store is closed;   open ─► DiskFile: page cache │ direct (a second handle)
//! ```
//! 1. Nothing is created outside the folder, and the folder is made only by `lock`: a folder that was deleted while it was
//!    open is not made anew behind the user's back.
//! 2. A file is used either through its direct handle or through the page cache at one time, never both: `stop_direct`
//!    changes over for good.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::kv::store::error::StoreError;
use crate::kv::store::storage::{Folder, LockGuard, OpenHow, Storage};

/// Name of the lock file.
pub const LOCK_NAME: &str = "lock";

/// Makes a folder and those above it, readable by its owner alone.
///
/// # Errors
/// What the system said.
pub fn make_private_folder(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)?;
    // Also where it was there before, with wider rights.
    #[cfg(unix)]
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    Ok(())
}

fn private_options(create: bool) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// A number that stays with a folder or file, and that another in its place does not have.
#[cfg(unix)]
fn identity(metadata: &fs::Metadata) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    Some((metadata.dev(), metadata.ino()))
}
#[cfg(not(unix))]
fn identity(_metadata: &fs::Metadata) -> Option<(u64, u64)> {
    None
}

/// Bytes that a file takes on the disk.
pub fn disk_bytes(metadata: &fs::Metadata) -> u64 {
    #[cfg(unix)]
    {
        std::os::unix::fs::MetadataExt::blocks(metadata) * 512
    }
    #[cfg(not(unix))]
    {
        metadata.len()
    }
}

/// A folder on a disk.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
    allow_direct: bool,
    locked: Mutex<Option<(u64, u64)>>,
}

impl Disk {
    /// The folder at `path`, which need not be there yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Disk { path: path.into(), allow_direct: true, locked: Mutex::default() }
    }

    /// The same, but never direct.
    pub fn buffered(path: impl Into<PathBuf>) -> Self {
        Disk { allow_direct: false, ..Disk::new(path) }
    }

    fn try_lock(&self) -> Result<Option<File>, StoreError> {
        let path = self.path.join(LOCK_NAME);
        let said = |e| StoreError::from_io("lock", &path.display().to_string(), 0, e);
        let file = private_options(true).open(&path).map_err(said)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let _ = (&file).take(20).read_to_string(&mut pid);
                let own = pid.trim() == std::process::id().to_string();
                let holder = if own { "another chat".into() } else { format!("another Strata (process {})", pid.trim()) };
                return Err(StoreError::Locked { folder: self.describe(), holder });
            }
            Err(TryLockError::Error(e)) => return Err(said(e)),
        }
        // Whoever removed the store meanwhile has unlinked this file: a lock on it protects nothing.
        let same = match (file.metadata(), fs::metadata(&path)) {
            (Ok(ours), Ok(there)) => identity(&ours) == identity(&there),
            _ => false,
        };
        Ok(same.then_some(file))
    }
}

#[derive(Debug)]
struct DiskLock(#[expect(dead_code, reason = "closing it is what releases the lock")] File);

impl LockGuard for DiskLock {}

impl Folder for Disk {
    fn open(&self, name: &str, how: OpenHow) -> io::Result<Arc<dyn Storage>> {
        let path = self.path.join(name);
        let plain = private_options(how.create).open(&path)?;
        let direct = if how.direct && self.allow_direct { open_direct(&path).ok() } else { None };
        let use_direct = AtomicBool::new(direct.is_some());
        Ok(Arc::new(DiskFile { plain, direct, use_direct }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut names = Vec::new();
        for entry in entries {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn sync(&self) -> io::Result<()> {
        // Elsewhere a folder cannot be opened, and names are safe once the file is.
        if cfg!(unix) { File::open(&self.path)?.sync_all() } else { Ok(()) }
    }

    fn is_there(&self) -> bool {
        let locked = *self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        // The lock file, because the folder may also have been emptied, or another put in its place.
        match fs::metadata(self.path.join(LOCK_NAME)) {
            Ok(now) => locked.is_none() || identity(&now) == locked,
            Err(_) => false,
        }
    }

    fn lock(&self, create: bool) -> Result<Box<dyn LockGuard>, StoreError> {
        let said = |e| StoreError::from_io("open", &self.describe(), 0, e);
        for _ in 0..8 {
            if create {
                make_private_folder(&self.path).map_err(said)?;
            } else if !self.path.is_dir() {
                return Err(StoreError::Absent { folder: self.describe() });
            }
            let Some(file) = self.try_lock()? else { continue };
            // For the sentence of whoever comes second; the lock itself is what counts.
            let _ = file.set_len(0).and_then(|()| (&file).write_all(std::process::id().to_string().as_bytes()));
            let ours = file.metadata().map_err(said)?;
            *self.locked.lock().unwrap_or_else(PoisonError::into_inner) = identity(&ours);
            return Ok(Box::new(DiskLock(file)));
        }
        Err(StoreError::Locked { folder: self.describe(), holder: "another Strata that is removing it".into() })
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }
}

#[cfg(target_os = "linux")]
use crate::kv::store::linux::{allocate, open_direct};

#[cfg(not(target_os = "linux"))]
fn open_direct(_path: &Path) -> io::Result<File> {
    Err(ErrorKind::Unsupported.into())
}
#[cfg(not(target_os = "linux"))]
fn allocate(file: &File, len: u64) -> io::Result<()> {
    file.set_len(len)
}

#[derive(Debug)]
struct DiskFile {
    plain: File,
    direct: Option<File>,
    use_direct: AtomicBool,
}

impl DiskFile {
    fn file(&self) -> &File {
        match &self.direct {
            Some(direct) if self.use_direct.load(Ordering::Acquire) => direct,
            _ => &self.plain,
        }
    }

    /// Runs `f` on the file in use, and once more through the page cache where the file system refuses direct access.
    fn with<T>(&self, mut f: impl FnMut(&File) -> io::Result<T>) -> io::Result<T> {
        match f(self.file()) {
            Err(e) if e.kind() == ErrorKind::InvalidInput && self.is_direct() => {
                self.stop_direct();
                f(&self.plain)
            }
            other => other,
        }
    }
}

impl Storage for DiskFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.plain.metadata()?.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        #[cfg(unix)]
        return self.with(|file| std::os::unix::fs::FileExt::read_at(file, buf, offset));
        #[cfg(windows)]
        return self.with(|file| std::os::windows::fs::FileExt::seek_read(file, buf, offset));
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        #[cfg(unix)]
        return self.with(|file| std::os::unix::fs::FileExt::write_at(file, buf, offset));
        #[cfg(windows)]
        return self.with(|file| std::os::windows::fs::FileExt::seek_write(file, buf, offset));
    }

    fn sync(&self) -> io::Result<()> {
        self.plain.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.plain.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        if self.len()? >= len { Ok(()) } else { allocate(&self.plain, len) }
    }

    fn is_direct(&self) -> bool {
        self.direct.is_some() && self.use_direct.load(Ordering::Acquire)
    }

    fn ring_file(&self) -> Option<&File> {
        Some(self.file())
    }

    fn stop_direct(&self) {
        self.use_direct.store(false, Ordering::Release);
    }
}
