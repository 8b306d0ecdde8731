//! Tier occupancy: the tiers of every complete page of a context, and the bytes of each tier. Plain data.
//!
//! ```text
//! residency: frames    ─┐
//! offload: RAM, disk   ─┴─► TierOccupancy: copies of every page [L, P], bytes of every tier ─► KV map
//! ```
//! 1. A page may have a copy in each tier. 2. Page bytes plus spare bytes of a tier are the bytes its allocator has
//!    given out.
//!
//! Shapes: L layers, P complete pages, row-major. Units: bytes; pages of 64 tokens of one layer.

use crate::base::Tiers;
use crate::kv::policy::Tier;
use crate::kv::store::PageId;

/// Set of tiers with a copy of a page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageCopies(u8);

/// Use of one tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierUsage {
    /// pages with a copy in the tier
    pub n_pages: u64,
    /// bytes of those pages
    pub page_bytes: u64,
    /// other allocated bytes: buffers, tables, free page slots
    pub spare_bytes: u64,
}

/// Occupancy of all tiers by one context.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TierOccupancy {
    /// L
    pub n_layer: usize,
    /// P
    pub n_pages: usize,
    /// `[L, P]`
    pub copies: Vec<PageCopies>,
    /// `[L, P]`: decode steps since a page was last read, [`NEVER_READ`] if never; empty if every step reads every page
    pub steps_since_read: Vec<u32>,
    /// use of each tier
    pub tiers: Tiers<TierUsage>,
}

/// Stands for a page that no step has read.
pub const NEVER_READ: u32 = u32::MAX;

impl PageCopies {
    const fn bit(tier: Tier) -> u8 {
        match tier {
            Tier::Vram => 1,
            Tier::Ram => 2,
            Tier::Disk => 4,
        }
    }

    /// Adds `tier` to the set.
    pub const fn with(self, tier: Tier) -> PageCopies {
        PageCopies(self.0 | PageCopies::bit(tier))
    }

    /// True if `tier` has a copy.
    pub const fn has(self, tier: Tier) -> bool {
        self.0 & PageCopies::bit(tier) != 0
    }

    /// The fastest tier with a copy, which attention would read. None if there is no copy.
    pub fn nearest(self) -> Option<Tier> {
        [Tier::Vram, Tier::Ram, Tier::Disk].into_iter().find(|tier| self.has(*tier))
    }
}

impl TierUsage {
    /// All allocated bytes.
    pub fn bytes(&self) -> u64 {
        self.page_bytes + self.spare_bytes
    }
}

impl TierOccupancy {
    /// `n_pages` pages in each of `n_layer` layers, without copies.
    pub fn new(n_layer: usize, n_pages: usize) -> TierOccupancy {
        TierOccupancy { n_layer, n_pages, copies: vec![PageCopies::default(); n_layer * n_pages], ..TierOccupancy::default() }
    }

    /// Index of a page in `[L, P]`. None if there is no such page.
    pub fn index(&self, layer: usize, page: usize) -> Option<usize> {
        (layer < self.n_layer && page < self.n_pages).then(|| layer * self.n_pages + page)
    }

    /// Copies of a page.
    pub fn at(&self, layer: usize, page: usize) -> PageCopies {
        self.index(layer, page).and_then(|i| self.copies.get(i)).copied().unwrap_or_default()
    }

    /// Records a copy of a page in `tier`. False if there is no such page.
    pub fn add(&mut self, page: PageId, tier: Tier) -> bool {
        let index = self.index(page.layer as usize, page.group as usize);
        let Some(copies) = index.and_then(|i| self.copies.get_mut(i)) else { return false };
        *copies = copies.with(tier);
        true
    }

    /// Number of pages with a copy in `tier`.
    pub fn count(&self, tier: Tier) -> u64 {
        self.copies.iter().filter(|copies| copies.has(tier)).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_copy_is_in_the_fastest_tier_that_has_one() {
        let no_copies = PageCopies::default();
        assert_eq!(no_copies.nearest(), None);
        assert_eq!(no_copies.with(Tier::Disk).nearest(), Some(Tier::Disk));
        assert_eq!(no_copies.with(Tier::Disk).with(Tier::Ram).nearest(), Some(Tier::Ram));
        let all = no_copies.with(Tier::Disk).with(Tier::Vram).with(Tier::Ram);
        assert_eq!(all.nearest(), Some(Tier::Vram));
        assert!(all.has(Tier::Disk) && !no_copies.has(Tier::Vram));
    }

    #[test]
    fn page_outside_of_the_context_has_no_copy() {
        let mut occupancy = TierOccupancy::new(2, 3);
        assert!(occupancy.add(PageId::kv(1, 2), Tier::Ram));
        assert!(!occupancy.add(PageId::kv(2, 0), Tier::Ram) && !occupancy.add(PageId::kv(0, 3), Tier::Ram));
        assert_eq!(
            (occupancy.at(1, 2).nearest(), occupancy.at(0, 3), occupancy.count(Tier::Ram)),
            (Some(Tier::Ram), PageCopies::default(), 1)
        );
    }
}
