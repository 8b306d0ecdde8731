//! Disk folder: real files with modes 0600 in 0700, direct I/O if the file system supports it, one writer.
//!
//! ```text
//! Disk(path) ─ lock ─► `lock`, locked until the store is closed;   open ─► DiskFile: page cache │ direct (a second handle)
//! ```
//! 1. Nothing is created outside the folder. Only `lock` creates the folder, so a folder deleted while open is not
//!    silently created again.
//! 2. At any time a file is accessed either through its direct handle or through the page cache. `stop_direct` switches
//!    to the page cache permanently.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::kv::store::error::StoreError;
use crate::kv::store::storage::{Folder, LockGuard, OpenMode, Storage};

/// Name of the lock file.
pub const LOCK_NAME: &str = "lock";

/// Creates a folder and its parents, with access for its owner only.
///
/// # Errors
/// The error of the operating system.
pub fn make_private_folder(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)?;
    // Also if it existed before, with wider permissions.
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

/// Device and inode: distinguish a folder or file from a later one with the same path.
#[cfg(unix)]
fn identity(metadata: &fs::Metadata) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    Some((metadata.dev(), metadata.ino()))
}
#[cfg(not(unix))]
fn identity(_metadata: &fs::Metadata) -> Option<(u64, u64)> {
    None
}

/// Bytes that a file occupies on disk.
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
    /// The folder at `path`, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Disk { path: path.into(), allow_direct: true, locked: Mutex::default() }
    }

    /// Same as [`Disk::new`], but never direct.
    pub fn buffered(path: impl Into<PathBuf>) -> Self {
        Disk { allow_direct: false, ..Disk::new(path) }
    }

    fn try_lock(&self) -> Result<Option<File>, StoreError> {
        let path = self.path.join(LOCK_NAME);
        let io_error = |e| StoreError::from_io("lock", &path.display().to_string(), 0, e);
        let file = private_options(true).open(&path).map_err(io_error)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let _ = (&file).take(20).read_to_string(&mut pid);
                let own = pid.trim() == std::process::id().to_string();
                let holder = if own { "another chat".into() } else { format!("another Strata (process {})", pid.trim()) };
                return Err(StoreError::Locked { folder: self.describe(), holder });
            }
            Err(TryLockError::Error(e)) => return Err(io_error(e)),
        }
        // Another process may have removed the store meanwhile and unlinked this file. A lock on it protects nothing.
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
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn Storage>> {
        let path = self.path.join(name);
        let buffered = private_options(mode.create).open(&path)?;
        let direct = if mode.direct && self.allow_direct { open_direct(&path).ok() } else { None };
        let use_direct = AtomicBool::new(direct.is_some());
        Ok(Arc::new(DiskFile { buffered, direct, use_direct }))
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
        // Other systems cannot open a folder; there, names are durable once the file is.
        if cfg!(unix) { File::open(&self.path)?.sync_all() } else { Ok(()) }
    }

    fn exists(&self) -> bool {
        let locked = *self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        // Checks the lock file, because the folder may have been emptied or replaced.
        match fs::metadata(self.path.join(LOCK_NAME)) {
            Ok(now) => locked.is_none() || identity(&now) == locked,
            Err(_) => false,
        }
    }

    fn lock(&self, create: bool) -> Result<Box<dyn LockGuard>, StoreError> {
        let io_error = |e| StoreError::from_io("open", &self.describe(), 0, e);
        for _ in 0..8 {
            if create {
                make_private_folder(&self.path).map_err(io_error)?;
            } else if !self.path.is_dir() {
                return Err(StoreError::Absent { folder: self.describe() });
            }
            let Some(file) = self.try_lock()? else { continue };
            // The process id is only for the error message of the next process.
            let _ = file.set_len(0).and_then(|()| (&file).write_all(std::process::id().to_string().as_bytes()));
            let ours = file.metadata().map_err(io_error)?;
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
    buffered: File,
    direct: Option<File>,
    use_direct: AtomicBool,
}

impl DiskFile {
    fn file(&self) -> &File {
        match &self.direct {
            Some(direct) if self.use_direct.load(Ordering::Acquire) => direct,
            _ => &self.buffered,
        }
    }

    /// Runs `f` on the file in use. If the file system refuses direct access, retries through the page cache.
    fn with<T>(&self, mut f: impl FnMut(&File) -> io::Result<T>) -> io::Result<T> {
        match f(self.file()) {
            Err(e) if e.kind() == ErrorKind::InvalidInput && self.is_direct() => {
                self.stop_direct();
                f(&self.buffered)
            }
            other => other,
        }
    }
}

impl Storage for DiskFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.buffered.metadata()?.len())
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
        self.buffered.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.buffered.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        if self.len()? >= len { Ok(()) } else { allocate(&self.buffered, len) }
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
