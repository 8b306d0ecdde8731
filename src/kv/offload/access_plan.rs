//! Access plan: the order in which pages will be fetched, with a fetch cursor and a read cursor. Pure.
//!
//! ```text
//! pages: p0 p1 p2 p3 p4 p5 (p0 p1 ... if cyclic)
//!              ▲ fetch cursor: fetched next      ▲ read cursor: read next, at most one lap past the fetch cursor
//! ```
//! Positions are unbounded; position `i` is page `i % n`.

use crate::kv::store::PageId;

/// When the pages of a plan are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ReadMode {
    /// before they are fetched
    Ahead,
    /// at once, because all of them were requested
    Immediate,
    /// each when it is fetched
    #[default]
    OnDemand,
}

#[derive(Debug, Default)]
pub(super) struct AccessPlan {
    pages: Vec<PageId>,
    is_cyclic: bool,
    read_mode: ReadMode,
    fetch_cursor: usize,
    read_cursor: usize,
}

impl AccessPlan {
    pub fn new(pages: &[PageId], is_cyclic: bool, read_mode: ReadMode) -> AccessPlan {
        AccessPlan { pages: pages.to_vec(), is_cyclic, read_mode, fetch_cursor: 0, read_cursor: 0 }
    }

    pub fn pages(&self) -> &[PageId] {
        &self.pages
    }

    /// True if the same pages will be fetched again, so a copy is worth caching.
    pub fn is_reused(&self) -> bool {
        self.is_cyclic || self.read_mode == ReadMode::Immediate
    }

    /// When the pages are read.
    pub fn read_mode(&self) -> ReadMode {
        self.read_mode
    }

    /// One past the last position that may be read now.
    fn end(&self) -> usize {
        if self.is_cyclic { self.fetch_cursor + self.pages.len() } else { self.pages.len() }
    }

    fn at(&self, position: usize) -> Option<PageId> {
        let n = self.pages.len();
        if position >= self.end() || n == 0 { None } else { self.pages.get(position % n).copied() }
    }

    /// Moves the read cursor to the first page for which `needs_read` is true, and returns that page.
    pub fn next_to_read(&mut self, mut needs_read: impl FnMut(PageId) -> bool) -> Option<PageId> {
        loop {
            let page = self.at(self.read_cursor)?;
            if needs_read(page) {
                return Some(page);
            }
            self.read_cursor += 1;
        }
    }

    /// The page `i` positions after the read cursor.
    pub fn peek_to_read(&self, i: usize) -> Option<PageId> {
        self.at(self.read_cursor + i)
    }

    /// Moves the read cursor past `n_pages` pages whose reads were submitted.
    pub fn advance_reads(&mut self, n_pages: usize) {
        self.read_cursor += n_pages;
    }

    /// Moves the fetch cursor to the next position of `page`, and returns the skipped pages. None, without a move, if
    /// the page does not occur again.
    pub fn seek(&mut self, page: PageId) -> Option<Vec<PageId>> {
        let found = (self.fetch_cursor..self.end()).find(|i| self.at(*i) == Some(page))?;
        // Only pages up to the read cursor may have been read.
        let skipped = (self.fetch_cursor..found.min(self.read_cursor)).filter_map(|i| self.at(i)).collect();
        self.fetch_cursor = found;
        self.read_cursor = self.read_cursor.max(found);
        Some(skipped)
    }

    /// Moves the fetch cursor past the page just fetched.
    pub fn advance(&mut self) {
        self.fetch_cursor += 1;
        self.read_cursor = self.read_cursor.max(self.fetch_cursor);
        let n = self.pages.len();
        if self.is_cyclic && self.fetch_cursor >= n {
            (self.fetch_cursor, self.read_cursor) = (self.fetch_cursor - n, self.read_cursor - n);
        }
    }

    /// Moves the read cursor back to the last page read ahead, and returns it. That page will be read again.
    pub fn step_back(&mut self) -> Option<PageId> {
        if self.read_cursor <= self.fetch_cursor {
            return None;
        }
        self.read_cursor -= 1;
        self.at(self.read_cursor)
    }

    /// Removes the pages of group `n_groups` and later ones.
    pub fn truncate(&mut self, n_groups: u32) {
        let keeps = |p: &PageId| p.group < n_groups;
        self.fetch_cursor = self.pages.iter().take(self.fetch_cursor).filter(|p| keeps(p)).count();
        self.pages.retain(keeps);
        self.read_cursor = self.fetch_cursor;
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
        let mut plan = AccessPlan::new(&pages(4), true, ReadMode::Ahead);
        for lap in 0..3 {
            for group in 0..4 {
                let mut read = Vec::new();
                while let Some(page) = plan.next_to_read(|_| true) {
                    read.push(page.group);
                    plan.advance_reads(1);
                }
                let expected = if lap + group == 0 { vec![0, 1, 2, 3] } else { vec![(group + 3) % 4] };
                assert_eq!(read, expected, "lap {lap}, group {group}");
                assert_eq!(plan.seek(PageId::kv(0, group)), Some(Vec::new()));
                plan.advance();
            }
        }
    }

    #[test]
    fn page_out_of_order_moves_the_cursor_and_returns_the_skipped_pages() {
        let mut plan = AccessPlan::new(&pages(6), false, ReadMode::Ahead);
        plan.advance_reads(3);
        assert_eq!(plan.seek(PageId::kv(0, 4)).unwrap(), pages(3));
        plan.advance();
        assert_eq!(plan.next_to_read(|_| true), Some(PageId::kv(0, 5)));
        assert_eq!(plan.seek(PageId::kv(0, 1)), None, "it does not occur again");
        assert_eq!(plan.seek(PageId::kv(9, 1)), None);
        assert_eq!(plan.step_back(), None);
    }

    #[test]
    fn truncated_plan_keeps_its_position() {
        let mut plan = AccessPlan::new(&pages(6), true, ReadMode::Ahead);
        (0..4).for_each(|_| plan.advance());
        plan.truncate(5);
        assert_eq!(plan.next_to_read(|_| true), Some(PageId::kv(0, 4)));
        plan.truncate(0);
        assert_eq!(plan.next_to_read(|_| true), None);
        assert_eq!(plan.seek(PageId::kv(0, 0)), None);
        plan.advance();
    }
}
