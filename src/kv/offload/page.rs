//! A page in the offload tiers: its location, its payload, and how long RAM retains it.

use std::ops::Deref;
use std::sync::Arc;

use crate::gpu::HostSource;
use crate::kv::store::Slab;

/// Retention of the RAM copy of a page, once the disk has the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// the page is not in VRAM: the copy stays if its group is among the first that fit
    InRam,
    /// the page is also in VRAM: the copy is dropped. If nothing can be written, it stays only while RAM has room
    OnDiskOnly,
}

/// Location of the nearest offloaded copy of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageLocation {
    /// in RAM: `fetch` does not wait
    Ram,
    /// being read from disk
    InFlight,
    /// on disk
    Disk,
    /// in no tier
    Missing,
}

/// Payload of a page. It keeps its slab in use, so drop it soon.
#[derive(Debug, Clone)]
pub struct PageBytes {
    pub(super) slab: Arc<Slab>,
    pub(super) offset: usize,
    pub(super) len: usize,
}

impl PageBytes {
    /// The payload, for a device that reads it in place. Only while this value exists.
    pub fn source(&self) -> HostSource {
        self.slab.source(self.offset, self.len)
    }
}

impl Deref for PageBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.slab.get(self.offset..).and_then(|rest| rest.get(..self.len)).unwrap_or_default()
    }
}
