//! Registered files and buffers of the ring, registered on first use.
//!
//! 1. The tables hold weak references. The next sweep unregisters a closed file or a dropped pool.
//! 2. Files and memory that cannot be registered are used unregistered: same bytes, slightly slower.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::{Arc, Weak};

use io_uring::IoUring;

use crate::kv::store::backend::{Counters, count};
use crate::kv::store::slab::Region;
use crate::kv::store::storage::Storage;

/// Maximum registered files.
const N_FILES: u32 = 256;
/// Maximum registered regions.
const N_BUFFERS: u32 = 4096;

/// Table of registered files.
pub struct Files {
    slots: Vec<Option<(Weak<dyn Storage>, RawFd)>>,
    by_address: HashMap<usize, u32>,
}

fn address(storage: &Weak<dyn Storage>) -> usize {
    storage.as_ptr().cast::<()>() as usize
}

impl Files {
    pub fn new(ring: &IoUring) -> Self {
        let n = ring.submitter().register_files_sparse(N_FILES).map_or(0, |()| N_FILES);
        Files { slots: (0..n).map(|_| None).collect(), by_address: HashMap::new() }
    }

    /// True if no file is registered.
    pub fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }

    /// The slot of a file. Registers the file if a slot is free.
    pub fn find(&mut self, ring: &IoUring, storage: &Arc<dyn Storage>, fd: RawFd) -> Option<u32> {
        let weak = Arc::downgrade(storage);
        let key = address(&weak);
        if let Some(slot) = self.by_address.get(&key).copied()
            && let Some(Some((known, known_fd))) = self.slots.get(slot as usize)
            && known.ptr_eq(&weak)
            && *known_fd == fd
        {
            return Some(slot);
        }
        // New file, or another descriptor since direct access stopped; sweeping also drops that one.
        let taken = self.by_address.get(&key).copied();
        let slot = match taken {
            Some(slot) => slot,
            None => {
                if self.slots.iter().all(Option::is_some) {
                    self.sweep(ring);
                }
                u32::try_from(self.slots.iter().position(Option::is_none)?).ok()?
            }
        };
        ring.submitter().register_files_update(slot, &[fd]).ok()?;
        *self.slots.get_mut(slot as usize)? = Some((weak, fd));
        self.by_address.insert(key, slot);
        Some(slot)
    }

    /// Unregisters files that are no longer open.
    pub fn sweep(&mut self, ring: &IoUring) {
        for (slot, place) in (0u32..).zip(&mut self.slots) {
            if let Some((weak, _)) = place
                && weak.strong_count() == 0
                && ring.submitter().register_files_update(slot, &[-1]).is_ok()
            {
                self.by_address.remove(&address(weak));
                *place = None;
            }
        }
    }
}

/// Table of registered regions.
pub struct Buffers {
    slots: Vec<Option<Weak<Region>>>,
    by_id: HashMap<u64, Option<u16>>,
}

impl Buffers {
    pub fn new(ring: &IoUring, register: bool) -> Self {
        let n = if register { ring.submitter().register_buffers_sparse(N_BUFFERS).map_or(0, |()| N_BUFFERS) } else { 0 };
        Buffers { slots: (0..n).map(|_| None).collect(), by_id: HashMap::new() }
    }

    /// The index of a region. Registers the region if the limit on locked memory allows.
    pub fn find(&mut self, ring: &IoUring, region: &Arc<Region>, counters: &Counters) -> Option<u16> {
        if let Some(known) = self.by_id.get(&region.id()) {
            return *known;
        }
        self.sweep(ring);
        let index = self.slots.iter().position(Option::is_none).and_then(|i| u16::try_from(i).ok());
        let registered = index.filter(|index| {
            let (base, len) = region.span();
            let span = libc::iovec { iov_base: base.cast(), iov_len: len };
            // SAFETY: the region is mapped now, and the kernel holds on to its pages. Operations use the index only
            // with slabs of this region, each of which keeps it mapped.
            unsafe { ring.submitter().register_buffers_update(u32::from(*index), &[span], None) }.is_ok()
        });
        match registered.and_then(|index| self.slots.get_mut(usize::from(index))) {
            Some(place) => *place = Some(Arc::downgrade(region)),
            None => count(&counters.n_unregistered),
        }
        self.by_id.insert(region.id(), registered);
        registered
    }

    /// Unregisters regions that were unmapped.
    pub fn sweep(&mut self, ring: &IoUring) {
        let is_unmapped = |place: &Option<Weak<Region>>| place.as_ref().is_some_and(|w| w.strong_count() == 0);
        for (index, place) in (0u32..).zip(&mut self.slots).filter(|(_, place)| is_unmapped(place)) {
            let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
            // SAFETY: an empty span removes the old entry from the table and adds none.
            if unsafe { ring.submitter().register_buffers_update(index, &[empty], None) }.is_ok() {
                *place = None;
            }
        }
        let slots = &self.slots;
        self.by_id.retain(|_, index| index.is_none_or(|i| slots.get(usize::from(i)).is_some_and(Option::is_some)));
    }
}
