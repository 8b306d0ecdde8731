//! GPU buffers with counted bytes, and their slices.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A GPU buffer; cheap to clone, freed with its last clone.
#[derive(Clone)]
pub struct Buffer {
    pub(super) raw: wgpu::Buffer,
    pub(super) size: u64,
    _counted: Arc<Counted>,
}

struct Counted {
    size: u64,
    total: Arc<AtomicU64>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.total.fetch_sub(self.size, Ordering::Relaxed);
    }
}

/// Bytes `offset .. offset + size` of a buffer, as one binding.
#[derive(Clone)]
pub struct Slice {
    /// the buffer
    pub buffer: Buffer,
    /// byte offset; a multiple of the arena alignment if bound
    pub offset: u64,
    /// size in bytes
    pub size: u64,
}

impl Buffer {
    /// Wraps a new buffer of `size` bytes, and adds them to `total` until its last clone is dropped.
    pub(super) fn counted(raw: wgpu::Buffer, size: u64, total: Arc<AtomicU64>) -> Buffer {
        total.fetch_add(size, Ordering::Relaxed);
        Buffer { raw, size, _counted: Arc::new(Counted { size, total }) }
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// True if both are the same buffer.
    pub fn is(&self, other: &Buffer) -> bool {
        self.raw == other.raw
    }

    /// The whole buffer as a slice.
    pub fn all(&self) -> Slice {
        Slice { buffer: self.clone(), offset: 0, size: self.size }
    }

    /// A range of the buffer.
    pub fn slice(&self, offset: u64, size: u64) -> Slice {
        Slice { buffer: self.clone(), offset, size }
    }
}
