//! Page-aligned anonymous memory, lent out in slabs under a byte budget: the RAM tier, the target of direct reads, and the
//! source of uploads.
//!
//! ```text
//! SlabPool (budget) ─► regions, 4 MiB or more, mapped when needed ─► slabs of one size each ─► back when dropped
//! ```
//! 1. The bytes of all mapped regions never pass the budget.
//! 2. A range of a region belongs to one [`Slab`] at a time, and goes back only when that slab is dropped.
//! 3. A slab keeps its region mapped, also after its pool is gone.
//! 4. A region serves one size; when nothing of it is lent it may serve another, so sizes cannot starve each other.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use memmap2::MmapMut;

use crate::base::Bytes;
use crate::kv::store::error::StoreError;
use crate::kv::store::format::ALIGN_BYTES;

/// Least size of a region, unless the budget is smaller.
const REGION_BYTES: u64 = 4 << 20;
/// Regions that a pool has at most, or nearly: looking for a free slab passes them one by one.
const MAX_REGIONS: u64 = 256;
/// Of a huge page. A disk reads half as fast again into regions that are huge pages throughout as into others.
pub(in crate::kv) const HUGE_BYTES: u64 = 2 << 20;
/// A region of huge pages may have one part in so many at its end that no slab fits in.
const LEAST_REST: usize = 16;
const ALIGN: usize = ALIGN_BYTES as usize;
const HUGE: usize = HUGE_BYTES as usize;

/// Memory that the system gave in one piece. A ring registers whole regions.
#[derive(Debug)]
pub struct Region {
    /// Unmapped when the last slab and the pool are gone. Never touched through this field.
    _map: MmapMut,
    base: *mut u8,
    len: usize,
    id: u64,
}

// SAFETY: `base` points into `_map`, which the region owns; no method of Region reads or writes the memory, and slabs do so
// only within ranges that are theirs alone.
unsafe impl Send for Region {}
// SAFETY: as above; a shared Region gives out only its address.
unsafe impl Sync for Region {}

impl Region {
    fn map(len: usize) -> std::io::Result<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        // Huge pages begin at multiples of their size; what is passed over for that is never touched, and takes no memory.
        let slack = if len < HUGE { 0 } else { HUGE };
        let mut map = MmapMut::map_anon(len + slack)?;
        let start = if slack == 0 { 0 } else { map.as_ptr().align_offset(HUGE).min(slack) };
        // Fewer pieces for the disk and fewer page faults; a system that refuses gives small pages.
        #[cfg(target_os = "linux")]
        let _ = map.advise_range(memmap2::Advice::HugePage, start, len);
        let base = map.as_mut_ptr().wrapping_add(start);
        Ok(Region { _map: map, base, len, id: NEXT_ID.fetch_add(1, Ordering::Relaxed) })
    }

    /// Unique in this process, never used again.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// First byte and length.
    pub fn span(&self) -> (*mut u8, usize) {
        (self.base, self.len)
    }
}

#[derive(Debug)]
struct Free {
    region: Arc<Region>,
    slab_bytes: usize,
    free: Vec<usize>,
    n_lent: usize,
}

impl Free {
    /// Divides the region into slabs of this size. Nothing of it may be lent.
    fn divide(&mut self, slab_bytes: usize) {
        self.slab_bytes = slab_bytes;
        let n = self.region.len / slab_bytes;
        self.free = (0..n).rev().map(|i| i * slab_bytes).collect();
    }
}

#[derive(Debug, Default)]
struct InUse {
    lendings: Vec<Free>,
    budget_bytes: u64,
    mapped_bytes: u64,
    peak_bytes: u64,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<InUse>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, InUse> {
        // The state is whole between statements, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lends slabs. Clones share one budget.
#[derive(Debug, Clone)]
pub struct SlabPool {
    shared: Arc<Shared>,
}

/// How much of the budget is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolUse {
    /// the cap
    pub budget: Bytes,
    /// mapped now
    pub mapped: Bytes,
    /// most ever mapped at once
    pub peak: Bytes,
    /// lent now
    pub lent: Bytes,
}

impl SlabPool {
    /// A pool that maps at most `budget`.
    pub fn new(budget: Bytes) -> Self {
        let state = InUse { budget_bytes: budget.0, ..InUse::default() };
        SlabPool { shared: Arc::new(Shared { state: Mutex::new(state) }) }
    }

    /// A slab of `len` bytes, rounded up to 4096. Its contents are whatever was there.
    ///
    /// # Errors
    /// [`StoreError::OverBudget`] where the budget is used up or the system has no memory.
    pub fn take(&self, len: usize) -> Result<Slab, StoreError> {
        let slab_bytes = len.max(1).next_multiple_of(ALIGN);
        let mut lent = self.shared.lock();
        let found = lent.with_free(slab_bytes).or_else(|| lent.with_none_lent(slab_bytes));
        let index = match found {
            Some(index) => index,
            None => lent.map(slab_bytes)?,
        };
        let over = StoreError::OverBudget { wanted: Bytes(slab_bytes as u64), budget: Bytes(lent.budget_bytes) };
        let Some(lending) = lent.lendings.get_mut(index) else { return Err(over) };
        let Some(offset) = lending.free.pop() else { return Err(over) };
        lending.n_lent += 1;
        let region = Arc::clone(&lending.region);
        Ok(Slab { region, offset, len: slab_bytes, pool: Arc::downgrade(&self.shared) })
    }

    /// Changes the cap. Regions of which nothing is lent are given back to the system until it holds, or none is left.
    pub fn set_budget(&self, budget: Bytes) {
        let mut lent = self.shared.lock();
        lent.budget_bytes = budget.0;
        lent.shrink_to(budget.0);
    }

    /// Gives back every region of which nothing is lent.
    pub fn trim(&self) {
        self.shared.lock().shrink_to(0);
    }

    /// What is used.
    pub fn usage(&self) -> PoolUse {
        let lent = self.shared.lock();
        let in_use: usize = lent.lendings.iter().map(|l| l.n_lent * l.slab_bytes).sum();
        PoolUse {
            budget: Bytes(lent.budget_bytes),
            mapped: Bytes(lent.mapped_bytes),
            peak: Bytes(lent.peak_bytes),
            lent: Bytes(in_use as u64),
        }
    }
}

impl InUse {
    fn with_free(&self, slab_bytes: usize) -> Option<usize> {
        self.lendings.iter().position(|l| l.slab_bytes == slab_bytes && !l.free.is_empty())
    }

    fn with_none_lent(&mut self, slab_bytes: usize) -> Option<usize> {
        let index = self.lendings.iter().position(|l| l.n_lent == 0 && l.region.len >= slab_bytes)?;
        self.lendings.get_mut(index)?.divide(slab_bytes);
        Some(index)
    }

    fn map(&mut self, slab_bytes: usize) -> Result<usize, StoreError> {
        let over = StoreError::OverBudget { wanted: Bytes(slab_bytes as u64), budget: Bytes(self.budget_bytes) };
        if self.mapped_bytes + slab_bytes as u64 > self.budget_bytes {
            // Free regions that are too small for this size are in the way.
            self.shrink_to(self.budget_bytes.saturating_sub(slab_bytes as u64));
        }
        let room = usize::try_from(self.budget_bytes.saturating_sub(self.mapped_bytes)).unwrap_or(usize::MAX);
        if slab_bytes > room {
            return Err(over);
        }
        let len = region_len(slab_bytes, self.budget_bytes, room);
        let region = Region::map(len).map_err(|_| over)?;
        self.mapped_bytes += len as u64;
        self.peak_bytes = self.peak_bytes.max(self.mapped_bytes);
        let mut lending = Free { region: Arc::new(region), slab_bytes, free: Vec::new(), n_lent: 0 };
        lending.divide(slab_bytes);
        self.lendings.push(lending);
        Ok(self.lendings.len() - 1)
    }

    fn shrink_to(&mut self, most_bytes: u64) {
        let mut mapped = self.mapped_bytes;
        self.lendings.retain(|l| {
            let keep = l.n_lent > 0 || mapped <= most_bytes;
            if !keep {
                mapped -= l.region.len as u64;
            }
            keep
        });
        self.mapped_bytes = mapped;
    }
}

/// Bytes of a new region for slabs of this size, of which at least one has room: huge pages where they hold slabs well.
fn region_len(slab_bytes: usize, budget_bytes: u64, room: usize) -> usize {
    let wanted = usize::try_from(REGION_BYTES.max(budget_bytes / MAX_REGIONS)).unwrap_or(slab_bytes);
    let huge = wanted.next_multiple_of(HUGE).min(room / HUGE * HUGE);
    if huge >= slab_bytes && huge % slab_bytes <= huge / LEAST_REST {
        return huge;
    }
    let whole = (wanted / slab_bytes).max(1) * slab_bytes;
    whole.min(room / slab_bytes * slab_bytes)
}

/// Memory of one owner, aligned to 4096. Goes back to its pool when dropped.
#[derive(Debug)]
pub struct Slab {
    region: Arc<Region>,
    offset: usize,
    len: usize,
    pool: Weak<Shared>,
}

impl Slab {
    /// The region it is part of.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }
}

impl Deref for Slab {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies within the mapped region, every byte of anonymous memory is initialized, and invariant 2
        // gives it to this slab alone; the system writes to it only while an I/O thread owns the slab.
        unsafe { std::slice::from_raw_parts(self.region.base.add(self.offset), self.len) }
    }
}

impl DerefMut for Slab {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.region.base.add(self.offset), self.len) }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        let mut lent = pool.lock();
        if let Some(lending) = lent.lendings.iter_mut().find(|l| l.region.id == self.region.id) {
            lending.n_lent = lending.n_lent.saturating_sub(1);
            lending.free.push(self.offset);
        }
        if lent.mapped_bytes > lent.budget_bytes {
            let budget = lent.budget_bytes;
            lent.shrink_to(budget);
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
        assert_eq!(pool.usage().lent, Bytes(0));
        assert!(pool.usage().peak <= Bytes(1 << 20));
    }

    #[test]
    fn region_with_nothing_lent_serves_another_size() {
        let pool = SlabPool::new(Bytes(1 << 20));
        let small: Vec<Slab> = std::iter::from_fn(|| pool.take(4096).ok()).collect();
        assert!(pool.take(1 << 20).is_err());
        drop(small);
        let big = pool.take(1 << 20).unwrap();
        assert_eq!((big.len(), pool.usage().mapped), (1 << 20, Bytes(1 << 20)));
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
