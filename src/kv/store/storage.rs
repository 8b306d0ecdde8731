//! What the store asks of a disk: positioned reads and writes of files in one folder, so that every failure of a disk is an
//! input that a test can give.
//!
//! ```text
//! PageStore, Io ─► Folder: open, remove, names, sync, lock ─► Storage: len, read_at, write_at, sync, set_len
//!                │ Disk (real files)  │ MemoryFolder (with crashes)  │ FaultInjectingFolder (any folder, with faults)
//! ```
//! Contract of `read_at` and `write_at`: as `pread` and `pwrite`, so they may do less than was asked, or be interrupted;
//! [`read_exact`] and [`write_all`] finish the job. On storage that is direct, address, offset and length are multiples
//! of 4096.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use crate::kv::store::error::StoreError;

/// Attempts without any progress before an interruption counts as a failure.
pub const MAX_RETRIES: u32 = 64;

/// Reading or writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IoOp {
    /// from the disk to memory
    Read,
    /// from memory to the disk
    Write,
}

/// An open file.
pub trait Storage: Send + Sync + Debug {
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Reads at `offset`; 0 is the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes at `offset`.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize>;
    /// Returns when everything written is safe from a power cut.
    fn sync(&self) -> io::Result<()>;
    /// Makes the file this long, with zeros or a hole at its end.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes the file at least this long, and reserves the blocks where the file system can.
    fn allocate(&self, len: u64) -> io::Result<()> {
        if self.len()? < len { self.set_len(len) } else { Ok(()) }
    }
    /// Where there is nothing in it.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// True where reads and writes bypass the page cache.
    fn is_direct(&self) -> bool {
        false
    }
    /// The file for a ring to use; none where only `read_at` and `write_at` may.
    fn ring_file(&self) -> Option<&File> {
        None
    }
    /// Called when the file system refuses a direct access; later ones go through the page cache.
    fn stop_direct(&self) {}
    /// Lets storage in a test change what a ring's operation came to; real files leave it alone.
    fn adjust(&self, _op: IoOp, _offset: u64, _buf: &mut [u8], result: io::Result<usize>) -> io::Result<usize> {
        result
    }
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenHow {
    /// make it where it is not there
    pub create: bool,
    /// bypass the page cache where the file system can
    pub direct: bool,
}

/// Released when dropped.
pub trait LockGuard: Send + Sync + Debug {}

/// The folder of one store. The folder itself is made when the first file is created in it, or it is locked.
pub trait Folder: Send + Sync + Debug {
    /// Opens a file by its name.
    fn open(&self, name: &str, how: OpenHow) -> io::Result<Arc<dyn Storage>>;
    /// Deletes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Names of the files in it, sorted; none where the folder is not there.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Returns when the names are safe from a power cut.
    fn sync(&self) -> io::Result<()>;
    /// False once the folder that was opened has been deleted or replaced.
    fn is_there(&self) -> bool;
    /// Takes the folder for this process and this store; makes the folder where `create`.
    ///
    /// # Errors
    /// [`StoreError::Locked`] where it is taken, [`StoreError::Absent`] where it is not there and may not be made.
    fn lock(&self, create: bool) -> Result<Box<dyn LockGuard>, StoreError>;
    /// For messages.
    fn describe(&self) -> String;
}

/// True where trying again is the answer.
pub fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock)
}

/// Waits a little longer with every attempt, from not at all.
pub fn back_off(attempt: u32) {
    if attempt > 4 {
        std::thread::sleep(Duration::from_micros(u64::from(attempt) * 20));
    }
}

/// Runs `step(done)` until `len` bytes are done. `align` is what a partial step is rounded down to.
fn finish(len: usize, align: usize, mut step: impl FnMut(usize) -> io::Result<usize>) -> io::Result<()> {
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
            // A direct read that stops short of a block has met the end of the file.
            return Err(ErrorKind::UnexpectedEof.into());
        }
        back_off(idle);
    }
    Ok(())
}

/// The rounding of a partial step.
pub fn step_align(storage: &dyn Storage) -> usize {
    if storage.is_direct() { crate::kv::store::format::ALIGN_BYTES as usize } else { 1 }
}

/// Reads all of `buf`.
///
/// # Errors
/// `UnexpectedEof` where the file ends before, or what the disk said.
pub fn read_exact(storage: &dyn Storage, buf: &mut [u8], offset: u64) -> io::Result<()> {
    let align = step_align(storage);
    finish(buf.len(), align, |done| match buf.get_mut(done..) {
        Some(rest) => storage.read_at(rest, offset + done as u64),
        None => Ok(0),
    })
}

/// Writes all of `buf`.
///
/// # Errors
/// What the disk said.
pub fn write_all(storage: &dyn Storage, buf: &[u8], offset: u64) -> io::Result<()> {
    let align = step_align(storage);
    let written = finish(buf.len(), align, |done| storage.write_at(buf.get(done..).unwrap_or_default(), offset + done as u64));
    written.map_err(|e| if e.kind() == ErrorKind::UnexpectedEof { ErrorKind::WriteZero.into() } else { e })
}

/// Calls `f` again while it is interrupted.
///
/// # Errors
/// What `f` said last.
pub fn retried<T>(mut f: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut attempt = 0;
    loop {
        match f() {
            Err(e) if is_transient(&e) && attempt < MAX_RETRIES => attempt += 1,
            other => return other,
        }
        back_off(attempt);
    }
}
