//! Disk benchmark: read and write bandwidth, with the I/O path of the store.
//!
//! ```text
//! file of some hundred MiB in a temporary folder ─► Io: 1 MiB at a time, 8 at once, in order ─► bytes per second
//! ```
//! Invariant: the temporary folder is removed afterwards, even after an error. Units: bytes per second.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::{Bytes, Rng};
use crate::kv::store::disk::Disk;
use crate::kv::store::error::StoreError;
use crate::kv::store::io::{Cancel, Io, IoBuffer, IoConfig, IoInfo, IoRequest};
use crate::kv::store::slab::{Slab, SlabPool};
use crate::kv::store::storage::{Folder, OpenMode, Storage, write_all};

const FILE_NAME: &str = "probe";
const BLOCK_BYTES: usize = 1 << 20;
/// Default size of the file.
const FILE_BYTES: Bytes = Bytes(256 << 20);
/// Blocks in flight.
const DEPTH: usize = 8;
/// Timeout of one read.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Bandwidth of a disk.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskBandwidth {
    /// sequential reads, bytes per second
    pub read_bytes_per_s: f64,
    /// writes until they are durable, bytes per second
    pub write_bytes_per_s: f64,
    /// true if the page cache was bypassed; otherwise the figures are those of RAM
    pub direct: bool,
}

/// A folder that is removed on drop.
struct TemporaryFolder(PathBuf);

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // If removal fails, the folder remains like any temporary file.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The I/O backend that would be used, and the reason.
///
/// # Errors
/// Not even threads could be started.
pub fn backend() -> Result<IoInfo, StoreError> {
    Ok(start()?.info())
}

/// Measures the disk of `folder`, which must exist.
///
/// # Errors
/// The folder is not writable, or the disk is full or fails.
pub fn measure(folder: &Path) -> Result<DiskBandwidth, StoreError> {
    measure_with(folder, FILE_BYTES)
}

/// Same as [`measure`], with a file of `size`.
///
/// # Errors
/// Those of [`measure`].
pub fn measure_with(folder: &Path, size: Bytes) -> Result<DiskBandwidth, StoreError> {
    let n_blocks = size.0.div_ceil(BLOCK_BYTES as u64);
    let n_bytes = n_blocks * BLOCK_BYTES as u64;
    let temporary = TemporaryFolder(folder.join(format!("strata-probe-{}", std::process::id())));
    let disk = Disk::new(&temporary.0);
    let _lock = disk.lock(true)?;
    let io_error = |op, e| StoreError::from_io(op, FILE_NAME, n_bytes, e);
    let mode = OpenMode { create: true, direct: true };
    let storage = disk.open(FILE_NAME, mode).map_err(|e| io_error("open", e))?;
    let pool = SlabPool::new(Bytes((DEPTH * BLOCK_BYTES) as u64));
    storage.allocate(n_bytes).map_err(|e| io_error("write", e))?;
    let mut block = pool.take(BLOCK_BYTES)?;
    let mut rng = Rng::new(1);
    block.as_chunks_mut::<4>().0.iter_mut().for_each(|word| *word = rng.next_u32().to_le_bytes());
    let began = Instant::now();
    for number in 0..n_blocks {
        write_all(&*storage, &block, number * BLOCK_BYTES as u64).map_err(|e| io_error("write", e))?;
    }
    storage.sync().map_err(|e| io_error("sync", e))?;
    let write_secs = began.elapsed().as_secs_f64();
    drop(block);
    let secs = read_all(&start()?, &storage, &pool, n_blocks)?;
    let per_s = |secs: f64| n_bytes as f64 / secs.max(1e-9);
    Ok(DiskBandwidth { read_bytes_per_s: per_s(secs), write_bytes_per_s: per_s(write_secs), direct: storage.is_direct() })
}

fn start() -> Result<Io, StoreError> {
    Io::start(&IoConfig::from_env()).map_err(|e| StoreError::from_io("start", "the I/O threads", 0, e))
}

/// Seconds to read every block once.
fn read_all(io: &Io, storage: &Arc<dyn Storage>, pool: &SlabPool, n_blocks: u64) -> Result<f64, StoreError> {
    let failed = |e| StoreError::from_io("read", FILE_NAME, BLOCK_BYTES as u64, e);
    let submit = |number: u64, slab: Slab| {
        let (storage, buffer, cancel) = (Arc::clone(storage), IoBuffer::Read(slab), Cancel::default());
        let offset = number * BLOCK_BYTES as u64;
        io.submit(IoRequest { tag: number, storage, offset, len: BLOCK_BYTES, buffer, cancel })
            .map_err(|_| failed(std::io::ErrorKind::WouldBlock.into()))
    };
    let slabs = (0..DEPTH).map(|_| pool.take(BLOCK_BYTES)).collect::<Result<Vec<_>, _>>()?;
    let began = Instant::now();
    let mut next = 0..n_blocks;
    // The slabs come first in the zip: otherwise the iterator would consume one number too many.
    for (slab, number) in slabs.into_iter().zip(next.by_ref()) {
        submit(number, slab)?;
    }
    for _ in 0..n_blocks {
        let done = io.next(TIMEOUT).ok_or_else(|| failed(std::io::ErrorKind::TimedOut.into()))?;
        done.result.map_err(failed)?;
        if let (Some(slab), Some(number)) = (done.buffer.and_then(IoBuffer::into_read), next.next()) {
            submit(number, slab)?;
        }
    }
    Ok(began.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measure_returns_a_bandwidth_and_removes_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let measured = measure_with(dir.path(), Bytes(20 << 20)).unwrap();
        assert!(measured.read_bytes_per_s > 0.0 && measured.write_bytes_per_s > 0.0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(!backend().unwrap().reason.is_empty());
    }
}
