//! Read-ahead: reads pages from disk to RAM along the access plan, and returns them to the caller.
//!
//! ```text
//! plan ─► runs of adjacent pages ─► read-ahead slabs ─ verified ─► prefetched ─ fetch ─► caller, and a cached copy
//! ```
//! 1. Runs are read only into slabs of the read-ahead pool, which bounds the read-ahead.
//! 2. A page that is no longer needed when its read completes is not verified.

use std::sync::Arc;
use std::time::Instant;

use crate::kv::offload::access_plan::{AccessPlan, ReadMode};
use crate::kv::offload::io_queue::{IoWork, PendingIo, TIMEOUT};
use crate::kv::offload::{OffloadError, OffloadTiers, PageBytes};
use crate::kv::store::{Cancel, IoBuffer, IoDone, PageId, PageRun, Slab};
use crate::telemetry::{Cause, FaultKind, Link, WaitCause};

impl OffloadTiers {
    /// Replaces the plan: the order in which pages will be fetched. If `is_cyclic`, the order repeats, and copies of
    /// the first groups are cached. Starts reading ahead.
    pub fn plan(&mut self, pages: &[PageId], is_cyclic: bool) {
        let read_mode = if self.config.read_ahead { ReadMode::Ahead } else { ReadMode::OnDemand };
        self.set_plan(AccessPlan::new(pages, is_cyclic, read_mode));
    }

    /// Requests pages that will be fetched now, in this order. Starts reading even if read-ahead is off. Caches copies
    /// as for a cyclic plan.
    pub fn request(&mut self, pages: &[PageId]) {
        self.set_plan(AccessPlan::new(pages, false, ReadMode::Immediate));
    }

    fn set_plan(&mut self, plan: AccessPlan) {
        self.ram.reclaim_read_ahead_memory();
        self.reads.set_plan(plan);
        self.poll_completions();
    }

    /// The payload of a page. Waits until it is in RAM.
    ///
    /// # Errors
    /// [`OffloadError::Missing`] if no tier has the page intact; [`OffloadError::BuffersInUse`] if the caller still
    /// holds all pages returned before; [`OffloadError::Timeout`].
    pub fn fetch(&mut self, page: PageId) -> Result<PageBytes, OffloadError> {
        let is_planned = self.reads.seek(page);
        self.poll_completions();
        let mut waiting = None;
        let result = loop {
            if let Some(bytes) = self.take_from_ram(page, is_planned) {
                break Ok(bytes);
            }
            if !self.reads.reading.contains_key(&page) {
                if !self.is_on_disk(page) {
                    break Err(OffloadError::Missing(page));
                }
                if let Err(error) = self.start_read_now(page) {
                    break Err(error);
                }
                continue;
            }
            let since = waiting.map_or_else(Instant::now, |(since, _)| since);
            waiting = Some((since, self.cause_of_wait(page)));
            if !self.wait_for_completion() {
                break Err(OffloadError::Timeout(page, TIMEOUT.as_secs()));
            }
        };
        if let Some((since, cause)) = waiting {
            self.record_wait(cause, since);
            self.counts.n_fetched_after_wait += u64::from(result.is_ok());
        } else {
            self.counts.n_fetched_at_once += u64::from(result.is_ok());
        }
        if is_planned {
            self.reads.plan.advance();
        }
        self.read_ahead();
        result
    }

    /// Slabs of all of these pages in RAM, for kernels that read them where they are. Reads those on disk; other copies make room
    /// for them. None if RAM cannot hold all of them at once. Waits.
    ///
    /// # Errors
    /// As of [`OffloadTiers::fetch`].
    pub fn page_in(&mut self, pages: &[PageId]) -> Result<Option<Vec<PageBytes>>, OffloadError> {
        self.ram.page_in(pages);
        let on_disk: Vec<PageId> = pages.iter().copied().filter(|page| !self.ram.pages.contains_key(page)).collect();
        if !on_disk.is_empty() {
            self.request(&on_disk);
        }
        for page in on_disk {
            self.fetch(page)?;
        }
        Ok(pages.iter().map(|page| self.take_from_ram(*page, false).filter(|_| self.ram.pages.contains_key(page))).collect())
    }

    /// The bandwidth limit if the disk has completed the read, otherwise the disk.
    fn cause_of_wait(&self, page: PageId) -> WaitCause {
        let is_done = self.reads.reading.get(&page).is_some_and(|tag| self.queue.is_delayed(*tag));
        if is_done { WaitCause::LinkLimit } else { WaitCause::Disk }
    }

    /// The payload, if it is in RAM.
    fn take_from_ram(&mut self, page: PageId, is_planned: bool) -> Option<PageBytes> {
        let len = usize::try_from(self.config.page_bytes).ok()?;
        if let Some(resident) = self.ram.pages.get(&page) {
            return Some(PageBytes { slab: Arc::clone(&resident.slab), offset: 0, len });
        }
        let bytes = self.reads.prefetched.remove(&page)?;
        if is_planned && self.reads.plan.is_reused() {
            self.ram.cache_copy(page, &bytes);
        }
        Some(bytes)
    }

    /// Starts reads along the plan while there is room.
    pub(super) fn read_ahead(&mut self) {
        while self.reads.plan.read_mode() != ReadMode::OnDemand {
            let Some(run) = self.next_run() else { break };
            let Some(slab) = self.ram.run_slab() else { break };
            self.reads.plan.advance_reads(run.n_pages as usize);
            let cause = match (self.reads.plan.read_mode(), self.reads.plan.is_reused()) {
                (ReadMode::Ahead, true) => Cause::Prefetch,
                (ReadMode::Ahead, false) => Cause::Restore,
                (ReadMode::Immediate | ReadMode::OnDemand, _) => Cause::Attention,
            };
            self.start_read(run, slab, cause);
        }
    }

    /// The next pages of the plan that one read can fetch.
    fn next_run(&mut self) -> Option<PageRun> {
        let mut plan = std::mem::take(&mut self.reads.plan);
        let run = plan.next_to_read(|p| self.needs_read(p)).and_then(|first| {
            let most = self.store.as_ref()?.run_at(first.kind, first.layer, first.group, self.ram.split.run_pages)?.n_pages;
            let follows = |i: &u32| {
                let next = PageId { group: first.group + i, ..first };
                plan.peek_to_read(*i as usize) == Some(next) && self.needs_read(next)
            };
            let n_pages = 1 + (1..most).take_while(follows).count() as u32;
            Some(PageRun { kind: first.kind, layer: first.layer, first_group: first.group, n_pages })
        });
        self.reads.plan = plan;
        run
    }

    fn needs_read(&self, page: PageId) -> bool {
        let is_here = self.ram.pages.contains_key(&page)
            || self.reads.prefetched.contains_key(&page)
            || self.reads.reading.contains_key(&page);
        !is_here && self.is_on_disk(page) && !self.reads.read_singly.contains(&page)
    }

    /// Starts the read of a page that was not read ahead.
    fn start_read_now(&mut self, page: PageId) -> Result<(), OffloadError> {
        let slab = loop {
            if let Some(slab) = self.ram.run_slab() {
                break slab;
            }
            if !self.reads.cancel_read_ahead() && !self.wait_for_completion() {
                return Err(OffloadError::BuffersInUse(page));
            }
        };
        let run = PageRun { kind: page.kind, layer: page.layer, first_group: page.group, n_pages: 1 };
        if self.start_read(run, slab, Cause::Attention) { Ok(()) } else { Err(OffloadError::Missing(page)) }
    }

    /// Starts a read. False if the store does not have the run.
    fn start_read(&mut self, run: PageRun, slab: Slab, cause: Cause) -> bool {
        let tag = self.queue.tag();
        let Some(store) = &self.store else { return false };
        match store.begin_read(run, slab, tag, &Cancel::default()) {
            Ok(request) => {
                self.reads.reading.extend(run.pages().map(|p| (p, tag)));
                self.reads.clock.begin(Instant::now());
                self.queue.submit(request, IoWork::Read(run), cause);
                true
            }
            Err(error) => {
                self.fault(FaultKind::Read, || error.to_string());
                false
            }
        }
    }

    /// Records a completed read.
    pub(super) fn finish_read(&mut self, run: PageRun, op: &PendingIo, done: IoDone) {
        self.reads.clock.end(Instant::now());
        let is_needed = |p: &PageId| self.reads.reading.get(p) == Some(&done.tag);
        let still_needed: Vec<PageId> = run.pages().filter(is_needed).collect();
        for page in &still_needed {
            self.reads.reading.remove(page);
        }
        if done.result.is_ok() {
            self.record_move(Link::DiskToRam, run, done.len as u64, op.began, op.cause);
        } else if run.n_pages > 1 {
            self.reads.read_singly.extend(still_needed);
            return;
        }
        let Some(store) = self.store.as_mut().filter(|_| !still_needed.is_empty()) else { return };
        let outcome = store.finish_read(run, &done);
        self.report_bad_pages(&outcome.bad, outcome.error.map(|e| e.to_string()));
        let Some(slab) = done.buffer.and_then(IoBuffer::into_read).map(Arc::new) else { return };
        let len = usize::try_from(self.config.page_bytes).unwrap_or(0);
        for (page, i) in run.pages().zip(0..) {
            self.reads.read_singly.remove(&page);
            if still_needed.contains(&page) && !outcome.bad.contains(&page) {
                let offset = i * self.ram.split.slot_bytes;
                self.reads.prefetched.insert(page, PageBytes { slab: Arc::clone(&slab), offset, len });
            }
        }
    }

    /// Reports pages that are corrupt or unreadable on disk.
    fn report_bad_pages(&mut self, bad: &[PageId], error_text: Option<String>) {
        let Some(first) = bad.first() else { return };
        self.counts.n_bad_pages += bad.len() as u64;
        let kind = if error_text.is_some() { FaultKind::Read } else { FaultKind::Checksum };
        let what = error_text.unwrap_or_else(|| format!("{first} is corrupt on disk"));
        self.fault(kind, || format!("{what}; pages that cannot be read are computed again"));
        self.forget_disk_copies(bad);
    }

    /// Forgets the disk copies of these pages.
    fn forget_disk_copies(&mut self, pages: &[PageId]) {
        for page in pages {
            self.reads.read_singly.remove(page);
            // The RAM copy is now the only one.
            if self.ram.forget_copy(*page) {
                self.writes.queue.push_back(*page);
            }
        }
    }

    /// Forgets all disk copies of a group with a corrupt page. The caller recomputes the group, and it is written
    /// again. Its other pages may be corrupt too, and would be found only one by one.
    pub fn invalidate_group(&mut self, group: u32) {
        let pages = self.store.as_mut().map(|store| store.invalidate_group(group)).unwrap_or_default();
        for page in &pages {
            self.reads.discard(*page);
        }
        self.forget_disk_copies(&pages);
    }
}
