//! From the disk to RAM: reading ahead along the plan, and handing pages out.
//!
//! ```text
//! plan ─► runs of neighboring pages ─► transit slabs ─ checked ─► ready ─ take ─► caller, and a copy where one is kept
//! ```
//! 1. A run is read only into a slab of the transit pool, so what is read ahead is bounded by that pool.
//! 2. A page that nobody wants any more when its read ends is not looked at.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use crate::kv::offload::access_plan::{AccessPlan, Reads};
use crate::kv::offload::{IoWork, OffloadError, OffloadTiers, PATIENCE, PageBytes, PendingIo, Retention};
use crate::kv::store::{Cancel, IoBuffer, IoDone, PageId, PageRun, Slab};
use crate::telemetry::{Cause, FaultKind, Link, WaitCause};

impl OffloadTiers {
    /// The order in which pages will be taken, in place of the last one; from the first again after the last where
    /// `is_cyclic`, and then copies are kept of the first groups. Reading ahead begins.
    pub fn plan(&mut self, pages: &[PageId], is_cyclic: bool) {
        let reads = if self.config.read_ahead { Reads::Ahead } else { Reads::WhenAsked };
        self.follow(AccessPlan::new(pages, is_cyclic, reads));
    }

    /// Asks for pages now, to be taken in this order: reading begins, also where nothing may be read ahead. PageCopies are kept as
    /// for a cyclic plan.
    pub fn request(&mut self, pages: &[PageId]) {
        self.follow(AccessPlan::new(pages, false, Reads::Now));
    }

    fn follow(&mut self, plan: AccessPlan) {
        self.return_read_ahead();
        self.plan = plan;
        if !self.ready.is_empty() || !self.reading.is_empty() {
            let wanted = self.plan.pages().iter().filter(|p| self.ready.contains_key(p) || self.reading.contains_key(p));
            let wanted: HashSet<PageId> = wanted.copied().collect();
            self.ready.retain(|p, _| wanted.contains(p));
            self.reading.retain(|p, _| wanted.contains(p));
        }
        self.poll_completions();
    }

    /// The payload of a page, waiting until it is in RAM.
    ///
    /// # Errors
    /// [`OffloadError::Missing`] where no tier has it whole; [`OffloadError::Held`] where all pages handed out before are still
    /// held; [`OffloadError::Stuck`].
    pub fn take(&mut self, page: PageId) -> Result<PageBytes, OffloadError> {
        let is_planned = match self.plan.seek(page) {
            Some(passed) => {
                for page in passed {
                    self.ready.remove(&page);
                    self.reading.remove(&page);
                }
                true
            }
            None => false,
        };
        self.poll_completions();
        let mut waiting = None;
        let result = loop {
            if let Some(bytes) = self.at_hand(page, is_planned) {
                break Ok(bytes);
            }
            if !self.reading.contains_key(&page) {
                if !self.is_on_disk(page) {
                    break Err(OffloadError::Missing(page));
                }
                if let Err(error) = self.read_now(page) {
                    break Err(error);
                }
                continue;
            }
            let since = waiting.map_or_else(Instant::now, |(since, _)| since);
            waiting = Some((since, self.cause_of_wait(page)));
            if !self.wait_for_end() {
                break Err(OffloadError::Stuck(page, PATIENCE.as_secs()));
            }
        };
        if let Some((since, cause)) = waiting {
            self.waited(cause, since);
            self.counts.n_taken_late += u64::from(result.is_ok());
        } else {
            self.counts.n_taken_at_once += u64::from(result.is_ok());
        }
        if is_planned {
            self.plan.advance();
        }
        self.read_ahead();
        result
    }

    /// The disk has done its part, and the link has not carried it yet.
    fn cause_of_wait(&self, page: PageId) -> WaitCause {
        let tag = self.reading.get(&page);
        let is_done = self.delayed.iter().any(|done| Some(&done.tag) == tag);
        if is_done { WaitCause::LinkLimit } else { WaitCause::Disk }
    }

    /// The payload, where it is in RAM.
    fn at_hand(&mut self, page: PageId, is_planned: bool) -> Option<PageBytes> {
        let len = usize::try_from(self.config.page_bytes).ok()?;
        if let Some(held) = self.ram_pages.get(&page) {
            return Some(PageBytes { slab: Arc::clone(&held.slab), offset: 0, len });
        }
        let bytes = self.ready.remove(&page)?;
        if is_planned && self.plan.comes_again() {
            self.keep_copy(page, &bytes);
        }
        Some(bytes)
    }

    /// Keeps a copy of a page that the disk has, where it is among the first groups that fit.
    pub(super) fn keep_copy(&mut self, page: PageId, payload: &[u8]) {
        if !self.has_room_for_copy(page) {
            return;
        }
        let Some(slab) = self.page_slab() else { return };
        self.ram_pages.insert(page, filled(slab, payload), Retention::InRam);
        self.copies.insert((self.rank(page), page));
    }

    /// True where one more copy may be kept; drops one of a later rank for it.
    pub(super) fn has_room_for_copy(&mut self, page: PageId) -> bool {
        if self.copies.len() < self.split.n_resident {
            return true;
        }
        match self.copies.last() {
            Some((last, _)) if *last > self.rank(page) => self.drop_copy(),
            _ => false,
        }
    }

    /// Drops the copy of the last rank; the disk has it. False where there is none.
    pub(super) fn drop_copy(&mut self) -> bool {
        match self.copies.pop_last() {
            Some((_, page)) => {
                self.ram_pages.remove(page);
                true
            }
            None => false,
        }
    }

    /// Begins as many reads along the plan as have room.
    pub(super) fn read_ahead(&mut self) {
        while self.plan.reads() != Reads::WhenAsked {
            let Some(run) = self.next_run() else { break };
            let Some(slab) = self.run_slab() else { break };
            self.plan.advance_ahead(run.n_pages as usize);
            let cause = match (self.plan.reads(), self.plan.comes_again()) {
                (Reads::Ahead, true) => Cause::Prefetch,
                (Reads::Ahead, false) => Cause::Restore,
                (Reads::Now | Reads::WhenAsked, _) => Cause::Attention,
            };
            self.begin_read(run, slab, cause);
        }
    }

    /// The next pages of the plan that one read can bring.
    fn next_run(&mut self) -> Option<PageRun> {
        let mut plan = std::mem::take(&mut self.plan);
        let run = plan.next_ahead(|p| self.must_be_read(p)).and_then(|first| {
            let most = self.store.as_ref()?.run_at(first.kind, first.layer, first.group, self.split.run_pages)?.n_pages;
            let follows = |i: &u32| {
                let next = PageId { group: first.group + i, ..first };
                plan.peek_ahead(*i as usize) == Some(next) && self.must_be_read(next)
            };
            let n_pages = 1 + (1..most).take_while(follows).count() as u32;
            Some(PageRun { kind: first.kind, layer: first.layer, first_group: first.group, n_pages })
        });
        self.plan = plan;
        run
    }

    fn must_be_read(&self, page: PageId) -> bool {
        let is_here = self.ram_pages.contains_key(&page) || self.ready.contains_key(&page) || self.reading.contains_key(&page);
        !is_here && self.is_on_disk(page) && !self.alone.contains(&page)
    }

    /// Begins to read a page that was not read ahead.
    fn read_now(&mut self, page: PageId) -> Result<(), OffloadError> {
        let slab = loop {
            if let Some(slab) = self.run_slab() {
                break slab;
            }
            if !self.cancel_read_ahead() && !self.wait_for_end() {
                return Err(OffloadError::Held(page));
            }
        };
        let run = PageRun { kind: page.kind, layer: page.layer, first_group: page.group, n_pages: 1 };
        if self.begin_read(run, slab, Cause::Attention) { Ok(()) } else { Err(OffloadError::Missing(page)) }
    }

    /// Forgets a page that was read ahead, the last one needed; false where there is none.
    pub(super) fn cancel_read_ahead(&mut self) -> bool {
        while let Some(page) = self.plan.retreat() {
            if self.ready.remove(&page).is_some() {
                return true;
            }
        }
        let had_any = !self.ready.is_empty();
        self.ready.clear();
        had_any
    }

    /// False where the store does not have the run after all.
    fn begin_read(&mut self, run: PageRun, slab: Slab, cause: Cause) -> bool {
        let tag = self.tag();
        let Some(store) = &self.store else { return false };
        match store.begin_read(run, slab, tag, &Cancel::default()) {
            Ok(request) => {
                self.reading.extend(run.pages().map(|p| (p, tag)));
                self.reading_clock.begin(Instant::now());
                self.submit(request, IoWork::Read(run), cause);
                true
            }
            Err(error) => {
                self.fault(FaultKind::Read, || error.to_string());
                false
            }
        }
    }

    /// A read has ended.
    pub(super) fn finish_read(&mut self, run: PageRun, op: &PendingIo, done: IoDone) {
        self.reading_clock.end(Instant::now());
        let is_wanted = |p: &PageId| self.reading.get(p) == Some(&done.tag);
        let wanted: Vec<PageId> = run.pages().filter(is_wanted).collect();
        for page in &wanted {
            self.reading.remove(page);
        }
        if done.result.is_ok() {
            self.moved(Link::DiskToRam, run, done.len as u64, op.began, op.cause);
        } else if run.n_pages > 1 {
            self.alone.extend(wanted);
            return;
        }
        let Some(store) = self.store.as_mut().filter(|_| !wanted.is_empty()) else { return };
        let outcome = store.finish_read(run, &done);
        self.lose(&outcome.bad, outcome.error.map(|e| e.to_string()));
        let Some(slab) = done.buffer.and_then(IoBuffer::into_read).map(Arc::new) else { return };
        let len = usize::try_from(self.config.page_bytes).unwrap_or(0);
        for (page, i) in run.pages().zip(0..) {
            self.alone.remove(&page);
            if wanted.contains(&page) && !outcome.bad.contains(&page) {
                let offset = i * self.split.slot_bytes;
                self.ready.insert(page, PageBytes { slab: Arc::clone(&slab), offset, len });
            }
        }
    }

    /// Pages that the disk does not have whole after all.
    fn lose(&mut self, bad: &[PageId], said: Option<String>) {
        let Some(first) = bad.first() else { return };
        self.counts.n_bad_pages += bad.len() as u64;
        let kind = if said.is_some() { FaultKind::Read } else { FaultKind::Checksum };
        let what = said.unwrap_or_else(|| format!("{first} was damaged on the disk"));
        self.fault(kind, || format!("{what}; what cannot be read back is computed again"));
        self.miss(bad);
    }

    /// The disk does not have these pages any more.
    fn miss(&mut self, pages: &[PageId]) {
        for page in pages {
            self.alone.remove(page);
            // A copy is now all there is.
            if self.copies.remove(&(self.rank(*page), *page)) {
                self.to_write.push_back(*page);
            }
        }
    }

    /// Forgets what the disk has of a group, of which a page was found damaged: the caller computes all of it again, so all
    /// of it is written again. Other pages of it may be as bad, and each would be found one by one.
    pub fn invalidate_group(&mut self, group: u32) {
        let pages = self.store.as_mut().map(|store| store.invalidate_group(group)).unwrap_or_default();
        for page in &pages {
            self.forget_reads_of(*page);
        }
        self.miss(&pages);
    }
}

/// The slab with this payload, and zeros after it.
pub(super) fn filled(mut slab: Slab, payload: &[u8]) -> Slab {
    if let Some((head, tail)) = slab.split_at_mut_checked(payload.len()) {
        head.copy_from_slice(payload);
        tail.fill(0);
    }
    slab
}
