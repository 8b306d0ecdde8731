//! Slab pool: page-aligned anonymous memory under a byte budget, for the RAM tier, direct reads and uploads.
//!
//! ```text
//! SlabPool (budget) ─► regions, 4 MiB or more, mapped on demand ─► slabs of one size each ─► back when dropped
//! ```
//! 1. The total size of the mapped regions never exceeds the budget.
//! 2. A range of a region belongs to one [`Slab`] at a time, and returns to the pool only when that slab is dropped.
//! 3. A slab keeps its region mapped, even after its pool is dropped.
//! 4. A region serves one slab size. An unused region may change its size, so that sizes cannot starve each other.
//! 5. A pool whose regions a device reads has few of them: each is as large as all before it, within limits.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use memmap2::MmapMut;

use crate::base::Bytes;
use crate::gpu::{HostRegion, HostSource};
use crate::kv::store::error::StoreError;
use crate::kv::store::format::ALIGN_BYTES;

/// Minimum size of a region, unless the budget is smaller.
const REGION_BYTES: u64 = 4 << 20;
/// Approximate maximum of regions per pool; the search for a free slab is linear.
const MAX_REGIONS: u64 = 256;
/// Maximum size of a region that is as large as all before it: what devices bind as one buffer.
const MAX_DOUBLED_BYTES: u64 = 1 << 30;
/// Size of a huge page. Disk reads into regions of huge pages only are half again as fast.
pub(in crate::kv) const HUGE_BYTES: u64 = 2 << 20;
/// A region of huge pages may waste at most one part in this many at its end.
const LEAST_REST: usize = 16;
const ALIGN: usize = ALIGN_BYTES as usize;
const HUGE: usize = HUGE_BYTES as usize;

/// Memory from one `mmap`. A ring registers whole regions.
#[derive(Debug)]
pub struct Region {
    /// Unmapped when the last slab and the pool are dropped. Never accessed through this field.
    _map: MmapMut,
    base: *mut u8,
    len: usize,
    id: u64,
}

// SAFETY: `base` points into `_map`, which the region owns. No method of Region reads or writes the memory, and slabs
// access only their own ranges.
unsafe impl Send for Region {}
// SAFETY: as above; a shared Region exposes only its address.
unsafe impl Sync for Region {}

impl Region {
    fn map(len: usize) -> std::io::Result<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        // Huge pages begin at multiples of their size. The skipped bytes are never touched, so they take no memory.
        let slack = if len < HUGE { 0 } else { HUGE };
        let mut map = MmapMut::map_anon(len + slack)?;
        let start = if slack == 0 { 0 } else { map.as_ptr().align_offset(HUGE).min(slack) };
        // Huge pages mean fewer I/O segments and fewer page faults. If the kernel refuses, it uses small pages.
        #[cfg(target_os = "linux")]
        let _ = map.advise_range(memmap2::Advice::HugePage, start, len);
        let base = map.as_mut_ptr().wrapping_add(start);
        Ok(Region { _map: map, base, len, id: NEXT_ID.fetch_add(1, Ordering::Relaxed) })
    }

    /// Unique in this process, never reused.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Base address and length.
    pub fn span(&self) -> (*mut u8, usize) {
        (self.base, self.len)
    }
}

#[derive(Debug)]
struct RegionSlabs {
    region: Arc<Region>,
    slab_bytes: usize,
    free: Vec<usize>,
    n_in_use: usize,
}

impl RegionSlabs {
    /// Divides the region into slabs of this size. None of its slabs may be in use.
    fn divide(&mut self, slab_bytes: usize) {
        self.slab_bytes = slab_bytes;
        let n = self.region.len / slab_bytes;
        self.free = (0..n).rev().map(|i| i * slab_bytes).collect();
    }
}

#[derive(Debug, Default)]
struct PoolState {
    regions: Vec<RegionSlabs>,
    budget_bytes: u64,
    mapped_bytes: u64,
    peak_bytes: u64,
    /// a new region is as large as all before it
    doubles: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<PoolState>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        // The state is consistent between statements, so a panic elsewhere does not corrupt it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Allocates slabs. Clones share one budget.
#[derive(Debug, Clone)]
pub struct SlabPool {
    shared: Arc<Shared>,
}

/// Usage of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolUse {
    /// maximum
    pub budget: Bytes,
    /// bytes mapped now
    pub mapped: Bytes,
    /// most bytes ever mapped at once
    pub peak: Bytes,
    /// bytes of slabs in use
    pub in_use: Bytes,
}

impl SlabPool {
    /// A pool that maps at most `budget` bytes.
    pub fn new(budget: Bytes) -> Self {
        SlabPool::of(PoolState { budget_bytes: budget.0, ..PoolState::default() })
    }

    /// The same with few regions, for a device that reads them in place.
    pub fn with_few_regions(budget: Bytes) -> Self {
        SlabPool::of(PoolState { budget_bytes: budget.0, doubles: true, ..PoolState::default() })
    }

    fn of(state: PoolState) -> Self {
        SlabPool { shared: Arc::new(Shared { state: Mutex::new(state) }) }
    }

    /// A slab of `len` bytes, rounded up to 4096. Its contents are not cleared.
    ///
    /// # Errors
    /// [`StoreError::OverBudget`] if the budget is used up or the system is out of memory.
    pub fn take(&self, len: usize) -> Result<Slab, StoreError> {
        let slab_bytes = len.max(1).next_multiple_of(ALIGN);
        let mut state = self.shared.lock();
        let found = state.region_with_free_slab(slab_bytes).or_else(|| state.unused_region(slab_bytes));
        let index = match found {
            Some(index) => index,
            None => state.map(slab_bytes)?,
        };
        let over_budget = StoreError::OverBudget { wanted: Bytes(slab_bytes as u64), budget: Bytes(state.budget_bytes) };
        let Some(region_slabs) = state.regions.get_mut(index) else { return Err(over_budget) };
        let Some(offset) = region_slabs.free.pop() else { return Err(over_budget) };
        region_slabs.n_in_use += 1;
        let region = Arc::clone(&region_slabs.region);
        Ok(Slab { region, offset, len: slab_bytes, pool: Arc::downgrade(&self.shared) })
    }

    /// Changes the budget. Unmaps unused regions until the budget holds or none is left.
    pub fn set_budget(&self, budget: Bytes) {
        let mut state = self.shared.lock();
        state.budget_bytes = budget.0;
        state.shrink_to(budget.0);
    }

    /// Unmaps every unused region.
    pub fn trim(&self) {
        self.shared.lock().shrink_to(0);
    }

    /// Current usage.
    pub fn usage(&self) -> PoolUse {
        let state = self.shared.lock();
        let in_use: usize = state.regions.iter().map(|l| l.n_in_use * l.slab_bytes).sum();
        PoolUse {
            budget: Bytes(state.budget_bytes),
            mapped: Bytes(state.mapped_bytes),
            peak: Bytes(state.peak_bytes),
            in_use: Bytes(in_use as u64),
        }
    }
}

impl PoolState {
    fn region_with_free_slab(&self, slab_bytes: usize) -> Option<usize> {
        self.regions.iter().position(|l| l.slab_bytes == slab_bytes && !l.free.is_empty())
    }

    fn unused_region(&mut self, slab_bytes: usize) -> Option<usize> {
        let index = self.regions.iter().position(|l| l.n_in_use == 0 && l.region.len >= slab_bytes)?;
        self.regions.get_mut(index)?.divide(slab_bytes);
        Some(index)
    }

    fn map(&mut self, slab_bytes: usize) -> Result<usize, StoreError> {
        let over_budget = StoreError::OverBudget { wanted: Bytes(slab_bytes as u64), budget: Bytes(self.budget_bytes) };
        if self.mapped_bytes + slab_bytes as u64 > self.budget_bytes {
            // Unused regions that are too small for this size take up the budget.
            self.shrink_to(self.budget_bytes.saturating_sub(slab_bytes as u64));
        }
        let room = usize::try_from(self.budget_bytes.saturating_sub(self.mapped_bytes)).unwrap_or(usize::MAX);
        if slab_bytes > room {
            return Err(over_budget);
        }
        let doubled = if self.doubles { self.mapped_bytes.min(MAX_DOUBLED_BYTES) } else { 0 };
        let target = REGION_BYTES.max(self.budget_bytes / MAX_REGIONS).max(doubled);
        let len = region_len(slab_bytes, usize::try_from(target).unwrap_or(slab_bytes), room);
        let region = Region::map(len).map_err(|_| over_budget)?;
        self.mapped_bytes += len as u64;
        self.peak_bytes = self.peak_bytes.max(self.mapped_bytes);
        let mut region_slabs = RegionSlabs { region: Arc::new(region), slab_bytes, free: Vec::new(), n_in_use: 0 };
        region_slabs.divide(slab_bytes);
        self.regions.push(region_slabs);
        Ok(self.regions.len() - 1)
    }

    fn shrink_to(&mut self, most_bytes: u64) {
        let mut mapped = self.mapped_bytes;
        self.regions.retain(|l| {
            let keep = l.n_in_use > 0 || mapped <= most_bytes;
            if !keep {
                mapped -= l.region.len as u64;
            }
            keep
        });
        self.mapped_bytes = mapped;
    }
}

/// Size of a new region of about `target` bytes for at least one slab of this size. A multiple of a huge page if that wastes little.
fn region_len(slab_bytes: usize, target: usize, room: usize) -> usize {
    let huge = target.next_multiple_of(HUGE).min(room / HUGE * HUGE);
    if huge >= slab_bytes && huge % slab_bytes <= huge / LEAST_REST {
        return huge;
    }
    let whole = (target / slab_bytes).max(1) * slab_bytes;
    whole.min(room / slab_bytes * slab_bytes)
}

/// Memory with one owner, aligned to 4096. Returns to its pool when dropped.
#[derive(Debug)]
pub struct Slab {
    region: Arc<Region>,
    offset: usize,
    len: usize,
    pool: Weak<Shared>,
}

// SAFETY: `base` and `len` never change, and `_map` stays mapped as long as the value exists.
unsafe impl HostRegion for Region {
    fn id(&self) -> u64 {
        self.id
    }

    fn span(&self) -> (*mut u8, usize) {
        (self.base, self.len)
    }
}

impl Slab {
    /// The region that contains it.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Bytes `offset .. offset + len` of it, for a device that reads them in place.
    pub fn source(&self, offset: usize, len: usize) -> HostSource {
        HostSource { region: Arc::clone(&self.region) as Arc<dyn HostRegion>, offset: self.offset + offset, len }
    }
}

impl Deref for Slab {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range is within the mapped region, and anonymous memory is initialized. By invariant 2 the range
        // belongs to this slab alone. The kernel writes to it only while an I/O thread owns the slab.
        unsafe { std::slice::from_raw_parts(self.region.base.add(self.offset), self.len) }
    }
}

impl DerefMut for Slab {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.region.base.add(self.offset), self.len) }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        let mut state = pool.lock();
        if let Some(region_slabs) = state.regions.iter_mut().find(|l| l.region.id == self.region.id) {
            region_slabs.n_in_use = region_slabs.n_in_use.saturating_sub(1);
            region_slabs.free.push(self.offset);
        }
        if state.mapped_bytes > state.budget_bytes {
            let budget = state.budget_bytes;
            state.shrink_to(budget);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_are_aligned_apart_and_within_the_budget() {
        let pool = SlabPool::new(Bytes(1 << 20));
        let mut slabs: Vec<Slab> = std::iter::from_fn(|| pool.take(5000).ok()).collect();
        assert_eq!(slabs.len(), 128, "8 KiB each");
        for (i, slab) in slabs.iter_mut().enumerate() {
            assert!((slab.as_ptr() as usize).is_multiple_of(ALIGN));
            slab.fill(i as u8);
        }
        for (i, slab) in slabs.iter().enumerate() {
            assert!(slab.iter().all(|b| *b == i as u8), "slab {i} is shared");
        }
        assert!(pool.take(1).unwrap_err().to_string().contains("--ram-budget"));
        drop(slabs);
        assert_eq!(pool.usage().in_use, Bytes(0));
        assert!(pool.usage().peak <= Bytes(1 << 20));
    }

    #[test]
    fn unused_region_serves_another_size() {
        let pool = SlabPool::new(Bytes(1 << 20));
        let small: Vec<Slab> = std::iter::from_fn(|| pool.take(4096).ok()).collect();
        assert!(pool.take(1 << 20).is_err());
        drop(small);
        let big = pool.take(1 << 20).unwrap();
        assert_eq!((big.len(), pool.usage().mapped), (1 << 20, Bytes(1 << 20)));
    }

    #[test]
    fn pool_with_few_regions_doubles_within_its_budget() {
        let n_regions = |pool: SlabPool| {
            let slabs: Vec<Slab> = std::iter::from_fn(|| pool.take(32 << 10).ok()).collect();
            assert_eq!(slabs.len(), (100 << 20) / (32 << 10), "the budget is used up");
            let ids: std::collections::BTreeSet<u64> = slabs.iter().map(|slab| slab.region().id()).collect();
            assert!(pool.usage().peak <= Bytes(100 << 20));
            ids.len()
        };
        assert_eq!(n_regions(SlabPool::new(Bytes(100 << 20))), 25);
        assert_eq!(n_regions(SlabPool::with_few_regions(Bytes(100 << 20))), 6, "4, 4, 8, 16, 32 and 36 MiB");
    }

    #[test]
    fn slab_outlives_its_pool_and_a_smaller_budget_takes_effect() {
        let pool = SlabPool::new(Bytes(16 << 20));
        let mut slab = pool.take(4096).unwrap();
        let other = pool.take(8 << 20).unwrap();
        drop(other);
        pool.set_budget(Bytes(4 << 20));
        assert_eq!(pool.usage().mapped, Bytes(4 << 20));
        drop(pool);
        slab.fill(7);
        assert!(slab.iter().all(|b| *b == 7));
    }
}
