//! Disk interface: positioned reads and writes of the files in one folder, so that tests can inject every disk failure.
//!
//! ```text
//! PageStore, Io ─► Folder: open, remove, names, sync, lock ─► Storage: len, read_at, write_at, sync, set_len
//!                │ Disk (real files)  │ MemoryFolder (with crashes)  │ FaultInjectingFolder (any folder, with faults)
//! ```
//! Contract of `read_at` and `write_at`: like `pread` and `pwrite`, they may transfer less than requested, or be
//! interrupted; [`read_exact`] and [`write_all`] complete the transfer. On direct storage, address, offset and length
//! are multiples of 4096.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use crate::kv::store::error::StoreError;

/// Attempts without progress before an interruption is a failure.
pub const MAX_RETRIES: u32 = 64;

/// Direction of an I/O operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IoOp {
    /// disk to memory
    Read,
    /// memory to disk
    Write,
}

/// An open file.
pub trait Storage: Send + Sync + Debug {
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Reads at `offset`. Returns 0 at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes at `offset`.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize>;
    /// Returns when all written data is durable.
    fn sync(&self) -> io::Result<()>;
    /// Sets the length of the file, with zeros or a hole at its end.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Extends the file to at least this length, and reserves the blocks if the file system can.
    fn allocate(&self, len: u64) -> io::Result<()> {
        if self.len()? < len { self.set_len(len) } else { Ok(()) }
    }
    /// True if the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// True if reads and writes bypass the page cache.
    fn is_direct(&self) -> bool {
        false
    }
    /// The file for a ring. None if only `read_at` and `write_at` may be used.
    fn ring_file(&self) -> Option<&File> {
        None
    }
    /// Called when the file system refuses direct access. Later accesses use the page cache.
    fn stop_direct(&self) {}
    /// Lets test storage change the result of a ring operation. Real files return it unchanged.
    fn adjust(&self, _op: IoOp, _offset: u64, _buf: &mut [u8], result: io::Result<usize>) -> io::Result<usize> {
        result
    }
}

/// Mode for opening a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// create it if it does not exist
    pub create: bool,
    /// bypass the page cache if the file system can
    pub direct: bool,
}

/// A lock on a folder. Dropping it releases the lock.
pub trait LockGuard: Send + Sync + Debug {}

/// The folder of one store. It is created with its first file, or when it is locked.
pub trait Folder: Send + Sync + Debug {
    /// Opens a file by name.
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn Storage>>;
    /// Deletes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Sorted names of the files in it. Empty if the folder does not exist.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Returns when the file names are durable.
    fn sync(&self) -> io::Result<()>;
    /// False if the opened folder has been deleted or replaced.
    fn exists(&self) -> bool;
    /// Locks the folder for this process and this store. Creates the folder if `create`.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if another owner has it; [`StoreError::Absent`] if it does not exist and `create` is
    /// false.
    fn lock(&self, create: bool) -> Result<Box<dyn LockGuard>, StoreError>;
    /// Name of the folder for messages.
    fn describe(&self) -> String;
}

/// True if the operation should be retried.
pub fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock)
}

/// Sleeps before a retry: not at all at first, then a little longer with every attempt.
pub fn back_off(attempt: u32) {
    if attempt > 4 {
        std::thread::sleep(Duration::from_micros(u64::from(attempt) * 20));
    }
}

/// Calls `step(done)` until `len` bytes are done. A partial step is rounded down to `align`.
fn complete(len: usize, align: usize, mut step: impl FnMut(usize) -> io::Result<usize>) -> io::Result<()> {
    let (mut done, mut idle) = (0, 0);
    while done < len {
        let before = done;
        match step(done) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) if done + n >= len => return Ok(()),
            Ok(n) => done += n / align * align,
            Err(e) if is_transient(&e) && idle < MAX_RETRIES => {}
            Err(e) => return Err(e),
        }
        idle = if done > before { 0 } else { idle + 1 };
        if idle > MAX_RETRIES {
            // A direct read shorter than a block has reached the end of the file.
            return Err(ErrorKind::UnexpectedEof.into());
        }
        back_off(idle);
    }
    Ok(())
}

/// Alignment for rounding a partial step.
pub fn step_align(storage: &dyn Storage) -> usize {
    if storage.is_direct() { crate::kv::store::format::ALIGN_BYTES as usize } else { 1 }
}

/// Fills `buf`.
///
/// # Errors
/// `UnexpectedEof` if the file ends early; otherwise the error of the disk.
pub fn read_exact(storage: &dyn Storage, buf: &mut [u8], offset: u64) -> io::Result<()> {
    let align = step_align(storage);
    complete(buf.len(), align, |done| match buf.get_mut(done..) {
        Some(rest) => storage.read_at(rest, offset + done as u64),
        None => Ok(0),
    })
}

/// Writes all of `buf`.
///
/// # Errors
/// The error of the disk.
pub fn write_all(storage: &dyn Storage, buf: &[u8], offset: u64) -> io::Result<()> {
    let align = step_align(storage);
    let written = complete(buf.len(), align, |done| storage.write_at(buf.get(done..).unwrap_or_default(), offset + done as u64));
    written.map_err(|e| if e.kind() == ErrorKind::UnexpectedEof { ErrorKind::WriteZero.into() } else { e })
}

/// Calls `f` again while it is interrupted.
///
/// # Errors
/// The last error of `f`.
pub fn retry_interrupted<T>(mut f: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut attempt = 0;
    loop {
        match f() {
            Err(e) if is_transient(&e) && attempt < MAX_RETRIES => attempt += 1,
            other => return other,
        }
        back_off(attempt);
    }
}
