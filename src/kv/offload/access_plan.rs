//! The order in which pages will be asked for, where the asking is, and how far reading is ahead of it. Pure.
//!
//! ```text
//! pages: p0 p1 p2 p3 p4 p5 (p0 p1 ... where it is cyclic)
//!              ▲ cursor: asked for next      ▲ ahead: read next, at most one lap from the cursor
//! ```
//! Positions grow without end; position `i` is page `i % n`.

use crate::kv::store::PageId;

/// When the pages of a plan are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Reads {
    /// before they are asked for
    Ahead,
    /// they have all been asked for
    Now,
    /// each when it is asked for
    #[default]
    WhenAsked,
}

#[derive(Debug, Default)]
pub(super) struct AccessPlan {
    pages: Vec<PageId>,
    is_cyclic: bool,
    reads: Reads,
    cursor: usize,
    ahead: usize,
}

impl AccessPlan {
    pub fn new(pages: &[PageId], is_cyclic: bool, reads: Reads) -> AccessPlan {
        AccessPlan { pages: pages.to_vec(), is_cyclic, reads, cursor: 0, ahead: 0 }
    }

    pub fn pages(&self) -> &[PageId] {
        &self.pages
    }

    /// The same pages will be asked for again, so a copy is worth keeping.
    pub fn comes_again(&self) -> bool {
        self.is_cyclic || self.reads == Reads::Now
    }

    /// When its pages are read.
    pub fn reads(&self) -> Reads {
        self.reads
    }

    /// One past the last position that may be read now.
    fn end(&self) -> usize {
        if self.is_cyclic { self.cursor + self.pages.len() } else { self.pages.len() }
    }

    fn at(&self, position: usize) -> Option<PageId> {
        let n = self.pages.len();
        if position >= self.end() || n == 0 { None } else { self.pages.get(position % n).copied() }
    }

    /// The page to be read next, which `ahead` now points at: the first from there for which `wanted` holds.
    pub fn next_ahead(&mut self, mut wanted: impl FnMut(PageId) -> bool) -> Option<PageId> {
        loop {
            let page = self.at(self.ahead)?;
            if wanted(page) {
                return Some(page);
            }
            self.ahead += 1;
        }
    }

    /// The page `i` after the one to be read next.
    pub fn peek_ahead(&self, i: usize) -> Option<PageId> {
        self.at(self.ahead + i)
    }

    /// Reading of so many pages has begun.
    pub fn advance_ahead(&mut self, n_pages: usize) {
        self.ahead += n_pages;
    }

    /// Moves the cursor to `page`, the nearest from where it is; returns the pages that were passed over. None, and nothing
    /// moves, where it does not come any more.
    pub fn seek(&mut self, page: PageId) -> Option<Vec<PageId>> {
        let found = (self.cursor..self.end()).find(|i| self.at(*i) == Some(page))?;
        // Only what was read, or could have been, is anybody's concern.
        let passed = (self.cursor..found.min(self.ahead)).filter_map(|i| self.at(i)).collect();
        self.cursor = found;
        self.ahead = self.ahead.max(found);
        Some(passed)
    }

    /// The page at the cursor was asked for and handed out.
    pub fn advance(&mut self) {
        self.cursor += 1;
        self.ahead = self.ahead.max(self.cursor);
        let n = self.pages.len();
        if self.is_cyclic && self.cursor >= n {
            (self.cursor, self.ahead) = (self.cursor - n, self.ahead - n);
        }
    }

    /// The page that is needed last among those read ahead; reading will come back to it.
    pub fn retreat(&mut self) -> Option<PageId> {
        if self.ahead <= self.cursor {
            return None;
        }
        self.ahead -= 1;
        self.at(self.ahead)
    }

    /// Forgets the pages of `n_groups` and later groups.
    pub fn truncate(&mut self, n_groups: u32) {
        let keeps = |p: &PageId| p.group < n_groups;
        self.cursor = self.pages.iter().take(self.cursor).filter(|p| keeps(p)).count();
        self.pages.retain(keeps);
        self.ahead = self.cursor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(n: u32) -> Vec<PageId> {
        (0..n).map(|g| PageId::kv(0, g)).collect()
    }

    #[test]
    fn plan_reads_ahead_one_lap_and_no_further() {
        let mut plan = AccessPlan::new(&pages(4), true, Reads::Ahead);
        for lap in 0..3 {
            for group in 0..4 {
                let mut seen = Vec::new();
                while let Some(page) = plan.next_ahead(|_| true) {
                    seen.push(page.group);
                    plan.advance_ahead(1);
                }
                let expected = if lap + group == 0 { vec![0, 1, 2, 3] } else { vec![(group + 3) % 4] };
                assert_eq!(seen, expected, "lap {lap}, group {group}");
                assert_eq!(plan.seek(PageId::kv(0, group)), Some(Vec::new()));
                plan.advance();
            }
        }
    }

    #[test]
    fn page_out_of_turn_moves_the_cursor_and_names_what_was_passed_over() {
        let mut plan = AccessPlan::new(&pages(6), false, Reads::Ahead);
        plan.advance_ahead(3);
        assert_eq!(plan.seek(PageId::kv(0, 4)).unwrap(), pages(3));
        plan.advance();
        assert_eq!(plan.next_ahead(|_| true), Some(PageId::kv(0, 5)));
        assert_eq!(plan.seek(PageId::kv(0, 1)), None, "it does not come again");
        assert_eq!(plan.seek(PageId::kv(9, 1)), None);
        assert_eq!(plan.retreat(), None);
    }

    #[test]
    fn truncated_plan_keeps_its_place() {
        let mut plan = AccessPlan::new(&pages(6), true, Reads::Ahead);
        (0..4).for_each(|_| plan.advance());
        plan.truncate(5);
        assert_eq!(plan.next_ahead(|_| true), Some(PageId::kv(0, 4)));
        plan.truncate(0);
        assert_eq!(plan.next_ahead(|_| true), None);
        assert_eq!(plan.seek(PageId::kv(0, 0)), None);
        plan.advance();
    }
}
