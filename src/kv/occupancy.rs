//! Where every complete page of a context is at one moment, and what that takes of each tier. Plain data.
//!
//! ```text
//! residency: frames ─┐
//! lower: RAM, disk  ─┴─► TierOccupancy: copies of every page [L, P], bytes of every tier ─► KV map
//! ```
//! 1. A page may have a copy in each tier. 2. Pages and spare bytes of a tier together are what its allocator has given out.
//!
//! Shapes: L layers, P complete pages, row by row. Units: bytes, pages of 64 tokens of one layer.

use crate::base::Tiers;
use crate::kv::policy::Tier;
use crate::kv::store::PageId;

/// In which tiers a page has a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageCopies(u8);

/// What a tier holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierUsage {
    /// pages that have a copy there
    pub n_pages: u64,
    /// bytes of those
    pub page_bytes: u64,
    /// bytes that are taken and hold no such page: buffers, tables, room for pages to come
    pub spare_bytes: u64,
}

/// All pages of a context.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TierOccupancy {
    /// L
    pub n_layer: usize,
    /// P
    pub n_pages: usize,
    /// `[L, P]`
    pub copies: Vec<PageCopies>,
    /// `[L, P]`: decode steps since a page was last read, [`NEVER_READ`] for none; empty where every step reads every page
    pub steps_since_read: Vec<u32>,
    /// what the tiers hold
    pub tiers: Tiers<TierUsage>,
}

/// In place of a number of steps.
pub const NEVER_READ: u32 = u32::MAX;

impl PageCopies {
    const fn bit(tier: Tier) -> u8 {
        match tier {
            Tier::Vram => 1,
            Tier::Ram => 2,
            Tier::Disk => 4,
        }
    }

    /// The same, and one in `tier`.
    pub const fn and(self, tier: Tier) -> PageCopies {
        PageCopies(self.0 | PageCopies::bit(tier))
    }

    /// There is one in `tier`.
    pub const fn has(self, tier: Tier) -> bool {
        self.0 & PageCopies::bit(tier) != 0
    }

    /// The tier of the one that attention would read; none where there is none.
    pub fn nearest(self) -> Option<Tier> {
        [Tier::Vram, Tier::Ram, Tier::Disk].into_iter().find(|tier| self.has(*tier))
    }
}

impl TierUsage {
    /// Everything that is taken.
    pub fn bytes(&self) -> u64 {
        self.page_bytes + self.spare_bytes
    }
}

impl TierOccupancy {
    /// `n_pages` pages in each of `n_layer` layers, with no copy of any.
    pub fn new(n_layer: usize, n_pages: usize) -> TierOccupancy {
        TierOccupancy { n_layer, n_pages, copies: vec![PageCopies::default(); n_layer * n_pages], ..TierOccupancy::default() }
    }

    /// Position of a page in what has one entry for each; none where there is no such page.
    pub fn index(&self, layer: usize, page: usize) -> Option<usize> {
        (layer < self.n_layer && page < self.n_pages).then(|| layer * self.n_pages + page)
    }

    /// PageCopies of a page.
    pub fn at(&self, layer: usize, page: usize) -> PageCopies {
        self.index(layer, page).and_then(|i| self.copies.get(i)).copied().unwrap_or_default()
    }

    /// A page has a copy in `tier`. False where there is no such page.
    pub fn add(&mut self, page: PageId, tier: Tier) -> bool {
        let index = self.index(page.layer as usize, page.group as usize);
        let Some(copies) = index.and_then(|i| self.copies.get_mut(i)) else { return false };
        *copies = copies.and(tier);
        true
    }

    /// Pages that have a copy in `tier`.
    pub fn count(&self, tier: Tier) -> u64 {
        self.copies.iter().filter(|copies| copies.has(tier)).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_copy_is_in_the_fastest_tier_that_has_one() {
        let none = PageCopies::default();
        assert_eq!(none.nearest(), None);
        assert_eq!(none.and(Tier::Disk).nearest(), Some(Tier::Disk));
        assert_eq!(none.and(Tier::Disk).and(Tier::Ram).nearest(), Some(Tier::Ram));
        let all = none.and(Tier::Disk).and(Tier::Vram).and(Tier::Ram);
        assert_eq!(all.nearest(), Some(Tier::Vram));
        assert!(all.has(Tier::Disk) && !none.has(Tier::Vram));
    }

    #[test]
    fn page_outside_of_the_context_is_nowhere() {
        let mut census = TierOccupancy::new(2, 3);
        assert!(census.add(PageId::kv(1, 2), Tier::Ram));
        assert!(!census.add(PageId::kv(2, 0), Tier::Ram) && !census.add(PageId::kv(0, 3), Tier::Ram));
        assert_eq!(
            (census.at(1, 2).nearest(), census.at(0, 3), census.count(Tier::Ram)),
            (Some(Tier::Ram), PageCopies::default(), 1)
        );
    }
}
