//! Measures how fast a disk reads, the way the store reads it.
//!
//! ```text
//! file of some hundred MiB in a folder of its own ─► Io: 1 MiB at a time, 8 at once, in order ─► bytes per second
//! ```
//! Invariant: the folder is gone afterwards, whatever happened. Units: bytes per second.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::{Bytes, Rng};
use crate::kv::store::disk::Disk;
use crate::kv::store::error::StoreError;
use crate::kv::store::io::{Cancel, Io, IoBuffer, IoConfig, IoInfo, IoRequest};
use crate::kv::store::slab::{Slab, SlabPool};
use crate::kv::store::storage::{Folder, OpenHow, Storage, write_all};

const FILE_NAME: &str = "probe";
const BLOCK_BYTES: usize = 1 << 20;
/// The file, where nobody says how large.
const FILE_BYTES: Bytes = Bytes(256 << 20);
/// Blocks on their way at once.
const DEPTH: usize = 8;
/// A disk that does not answer for so long will not.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a disk reads.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// bytes per second, one after the other
    pub read_bytes_per_s: f64,
    /// bytes per second, until they are safe
    pub write_bytes_per_s: f64,
    /// past the page cache; otherwise the figure is that of memory
    pub direct: bool,
}

/// A folder that goes when this does.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // What cannot be removed is left to the person, as any temporary file.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The backend that would be used, and why.
///
/// # Errors
/// Where not even threads can be started.
pub fn backend() -> Result<IoInfo, StoreError> {
    Ok(start()?.info())
}

/// Measures the disk of `folder`, which must be there.
///
/// # Errors
/// The folder cannot be written, or the disk is full or fails.
pub fn measure(folder: &Path) -> Result<Measured, StoreError> {
    measure_with(folder, FILE_BYTES)
}

/// The same with a file of `size`.
///
/// # Errors
/// Those of [`measure`].
pub fn measure_with(folder: &Path, size: Bytes) -> Result<Measured, StoreError> {
    let n_blocks = size.0.div_ceil(BLOCK_BYTES as u64);
    let n_bytes = n_blocks * BLOCK_BYTES as u64;
    let temporary = Temporary(folder.join(format!("strata-probe-{}", std::process::id())));
    let disk = Disk::new(&temporary.0);
    let _lock = disk.lock(true)?;
    let said = |op, e| StoreError::from_io(op, FILE_NAME, n_bytes, e);
    let how = OpenHow { create: true, direct: true };
    let storage = disk.open(FILE_NAME, how).map_err(|e| said("open", e))?;
    let pool = SlabPool::new(Bytes((DEPTH * BLOCK_BYTES) as u64));
    storage.allocate(n_bytes).map_err(|e| said("write", e))?;
    let mut block = pool.take(BLOCK_BYTES)?;
    let mut rng = Rng::new(1);
    block.as_chunks_mut::<4>().0.iter_mut().for_each(|word| *word = rng.next_u32().to_le_bytes());
    let began = Instant::now();
    for number in 0..n_blocks {
        write_all(&*storage, &block, number * BLOCK_BYTES as u64).map_err(|e| said("write", e))?;
    }
    storage.sync().map_err(|e| said("sync", e))?;
    let write_secs = began.elapsed().as_secs_f64();
    drop(block);
    let secs = read_all(&start()?, &storage, &pool, n_blocks)?;
    let per_s = |secs: f64| n_bytes as f64 / secs.max(1e-9);
    Ok(Measured { read_bytes_per_s: per_s(secs), write_bytes_per_s: per_s(write_secs), direct: storage.is_direct() })
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
    // The slabs first: a pair that lacks its second half would cost a number.
    for (slab, number) in slabs.into_iter().zip(next.by_ref()) {
        submit(number, slab)?;
    }
    for _ in 0..n_blocks {
        let done = io.next(PATIENCE).ok_or_else(|| failed(std::io::ErrorKind::TimedOut.into()))?;
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
    fn measure_gives_a_speed_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let measured = measure_with(dir.path(), Bytes(20 << 20)).unwrap();
        assert!(measured.read_bytes_per_s > 0.0 && measured.write_bytes_per_s > 0.0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(!backend().unwrap().reason.is_empty());
    }
}
