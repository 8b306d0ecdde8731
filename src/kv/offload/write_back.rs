//! From VRAM to RAM to the disk: taking pages in, writing them behind, committing groups, and what happens when that fails.
//!
//! ```text
//! put ─► held, to_write ─ start_writes ─► Io ─ finish_write ─► copy kept or dropped ─ group complete ─► commit
//! ```
//! 1. A page stays held until its write has ended well.
//! 2. WriteBackState that stopped leaves the queue as it is: [`OffloadTiers::resume`] goes on where it stopped.

use std::sync::Arc;
use std::time::Instant;

use crate::base::Bytes;
use crate::kv::offload::read_ahead::filled;
use crate::kv::offload::{IoWork, OffloadError, OffloadTiers, PATIENCE, PendingIo, Retention};
use crate::kv::store::{Cancel, CommitResult, IoDone, PageId, PageKind, PageRun, PageState, Slab, StoreError};
use crate::telemetry::{Cause, FaultKind, Link, WaitCause};

/// Writes under way at once: enough for any disk, and reads are not kept waiting behind more.
const MAX_WRITES: usize = 32;

/// Whether pages are written, and what is to be committed.
#[derive(Debug)]
pub(super) struct WriteBackState {
    is_on: bool,
    /// may go on when something has changed: not after a sync that failed
    may_resume: bool,
    /// bytes that were missing
    needs: Option<Bytes>,
    /// groups that have become complete since the last commit began
    n_ready_groups: usize,
}

impl WriteBackState {
    pub fn new(has_store: bool) -> Self {
        WriteBackState { is_on: has_store, may_resume: has_store, needs: None, n_ready_groups: 0 }
    }
}

impl OffloadTiers {
    /// Takes the copy of a page that leaves VRAM, or that is to be saved while it stays there. A page that is here already is
    /// only kept as `keep` says. Tokens of its group must have been appended before it can be written.
    ///
    /// # Errors
    /// [`OffloadError::NoRoom`], never for [`Retention::OnDiskOnly`]: there [`OffloadTiers::has`] says whether it was taken;
    /// [`OffloadError::WrongPage`]; [`OffloadError::Stuck`]. The page was not taken then.
    pub fn put(&mut self, page: PageId, payload: &[u8], keep: Retention) -> Result<(), OffloadError> {
        let (got, expected) = (Bytes(payload.len() as u64), Bytes(self.config.page_bytes));
        let n_layer = self.config.n_layer;
        if got != expected || page.layer >= n_layer || page.kind != PageKind::Kv {
            return Err(OffloadError::WrongPage { page, got, expected, n_layer });
        }
        self.poll_completions();
        if self.ram_pages.contains_key(&page) {
            self.keep(page, keep);
            return Ok(());
        }
        if self.is_on_disk(page) {
            if keep == Retention::InRam {
                self.keep_copy(page, payload);
            }
            return Ok(());
        }
        self.forget_reads_of(page);
        let Some(slab) = self.room_for(page, keep)? else { return Ok(()) };
        self.ram_pages.insert(page, filled(slab, payload), keep);
        if self.store.is_some() {
            self.to_write.push_back(page);
            self.start_writes();
        }
        Ok(())
    }

    /// Changes what becomes of the RAM copy of a page: [`Retention::OnDiskOnly`] once it is in VRAM, [`Retention::InRam`] once it is not.
    pub fn keep(&mut self, page: PageId, keep: Retention) {
        if !self.ram_pages.set_keep(page, keep) {
            return;
        }
        if self.copies.remove(&(self.rank(page), page)) {
            self.settle(page);
        }
    }

    /// Pages are being written. False where there is no store, or a fault or a budget has ended it.
    pub fn is_writing_back(&self) -> bool {
        self.saving.is_on
    }

    /// Pages that are in RAM alone.
    pub fn n_unsaved(&self) -> usize {
        self.ram_pages.len() - self.copies.len()
    }

    /// Bytes that the disk or its budget lacked when saving stopped; [`OffloadTiers::resume`] once there is room.
    pub fn needs_room(&self) -> Option<Bytes> {
        self.saving.needs
    }

    /// Goes on saving, under this budget, after room was made. Nothing happens where a sync has failed: then only opening the
    /// store again helps.
    pub fn resume(&mut self, disk_budget: Bytes) {
        self.config.disk_budget = disk_budget;
        self.notices.forget(&[FaultKind::NoSpace, FaultKind::Write]);
        self.restart_write_back();
        self.poll_completions();
    }

    fn restart_write_back(&mut self) -> bool {
        let restarts = self.saving.may_resume && !self.saving.is_on;
        if restarts {
            (self.saving.is_on, self.saving.needs) = (true, None);
        }
        restarts
    }

    /// Writes and commits everything that can be; true where all of it is safe on the disk now.
    pub fn flush(&mut self) -> bool {
        loop {
            self.poll_completions();
            let began = Instant::now();
            if self.n_writing > 0 {
                let ended = self.wait_for_end();
                self.waited(WaitCause::Disk, began);
                if !ended {
                    return false;
                }
            } else if self.committer.is_busy() {
                let result = self.committer.next(PATIENCE);
                self.waited(WaitCause::Commit, began);
                match result {
                    Some(result) => self.finish_commit(result),
                    None => return false,
                }
            } else if !self.start_commit(true) {
                return self.saving.is_on && self.to_write.is_empty();
            }
        }
    }

    /// A read of the page's place must not be taken for a read of what is put there now.
    pub(super) fn forget_reads_of(&mut self, page: PageId) {
        if let Some(tag) = self.reading.get(&page).copied() {
            self.reading.retain(|_, t| *t != tag);
        }
        self.ready.remove(&page);
        self.alone.remove(&page);
    }

    /// A slab for a page that is not on the disk; none where the caller keeps the page anyway.
    fn room_for(&mut self, page: PageId, keep: Retention) -> Result<Option<Slab>, OffloadError> {
        let mut waiting_since = None;
        let mut may_retry = true;
        let found = loop {
            if let Some(slab) = self.page_slab() {
                break Ok(Some(slab));
            }
            self.start_writes();
            if self.n_writing > 0 {
                waiting_since.get_or_insert_with(Instant::now);
                if self.wait_for_end() {
                    continue;
                }
                break Err(OffloadError::Stuck(page, PATIENCE.as_secs()));
            }
            let is_only_copy = keep == Retention::InRam;
            let made_room = (is_only_copy || self.saving.is_on) && self.drop_copy()
                || is_only_copy && (self.drop_replica() || self.lend_read_ahead())
                || std::mem::take(&mut may_retry) && self.restart_write_back();
            if !made_room {
                break if is_only_copy { Err(self.no_room(page)) } else { Ok(None) };
            }
        };
        if let Some(since) = waiting_since {
            self.waited(WaitCause::RamFull, since);
        }
        found
    }

    /// Gives memory for reading ahead to pages that the disk does not take; false where there is no more of it.
    fn lend_read_ahead(&mut self) -> bool {
        while self.cancel_read_ahead() {}
        let least = self.split.least_transit_budget();
        self.read_ahead_pool.set_budget(least);
        let transit = self.read_ahead_pool.usage().mapped.max(least);
        let pages = Bytes(self.config.ram_budget.0.saturating_sub(transit.0));
        let has_more = pages.0 >= self.resident_pool.usage().budget.0 + self.split.slot_bytes as u64;
        if has_more {
            self.resident_pool.set_budget(pages);
        }
        has_more
    }

    /// Takes that memory back, once the pages fit their own again.
    pub(super) fn return_read_ahead(&mut self) {
        let own = self.split.resident_budget();
        if self.resident_pool.usage().budget > own && self.n_unsaved() == 0 {
            self.resident_pool.set_budget(own);
        }
        let pages = self.resident_pool.usage();
        if pages.budget.max(pages.mapped) <= own {
            self.read_ahead_pool.set_budget(self.split.read_ahead_budget());
        }
    }

    fn no_room(&self, page: PageId) -> OffloadError {
        let usage = self.usage();
        OffloadError::NoRoom {
            page,
            wanted: Bytes(self.split.slot_bytes as u64),
            ram: usage.ram.now,
            ram_budget: usage.ram.budget,
            disk: usage.disk.now,
            disk_budget: if self.store.is_some() { usage.disk.budget } else { Bytes(0) },
        }
    }

    /// Drops a page that cannot be written and is in VRAM as well; false where there is none.
    fn drop_replica(&mut self) -> bool {
        let found = self.ram_pages.iter().find(|(_, held)| held.keep == Retention::OnDiskOnly).map(|(page, _)| *page);
        found.is_some_and(|page| self.ram_pages.remove(page))
    }

    /// The disk has a held page now: it stays as a copy, or goes.
    fn settle(&mut self, page: PageId) {
        let Some(keep) = self.ram_pages.get(&page).map(|held| held.keep) else { return };
        if keep == Retention::InRam && self.has_room_for_copy(page) {
            self.copies.insert((self.rank(page), page));
        } else {
            self.ram_pages.remove(page);
        }
    }

    /// Begins to write what waits for it.
    pub(super) fn start_writes(&mut self) {
        while self.saving.is_on && self.n_writing < MAX_WRITES {
            let Some(page) = self.to_write.front().copied() else { return };
            let Some(store) = &mut self.store else { return };
            let Some(held) = self.ram_pages.get(&page) else {
                self.to_write.pop_front();
                continue;
            };
            match store.state(page) {
                PageState::Missing => {}
                PageState::Writing => {
                    self.to_write.pop_front();
                    continue;
                }
                PageState::Written | PageState::Committed => {
                    self.to_write.pop_front();
                    self.settle(page);
                    continue;
                }
            }
            // Its tokens have not been appended yet.
            if page.group >= store.n_groups() {
                return;
            }
            let will_be = store.disk_bytes_with(page);
            if will_be > self.config.disk_budget {
                return self.stop_for_budget(will_be);
            }
            let slab = Arc::clone(&held.slab);
            let tag = self.tag();
            let Some(store) = &mut self.store else { return };
            match store.begin_write(page, &slab, tag, &Cancel::default()) {
                Ok(request) => {
                    self.disk_peak_bytes = self.disk_peak_bytes.max(will_be.0);
                    self.to_write.pop_front();
                    self.n_writing += 1;
                    self.submit(request, IoWork::Write(page), Cause::WriteBack);
                }
                Err(error) => return self.stop_write_back(&error),
            }
        }
    }

    /// A write has ended.
    pub(super) fn finish_write(&mut self, page: PageId, op: &PendingIo, done: IoDone) {
        self.n_writing -= 1;
        let IoDone { result, buffer, len, .. } = done;
        drop(buffer);
        if result.is_ok() {
            let run = PageRun { kind: page.kind, layer: page.layer, first_group: page.group, n_pages: 1 };
            self.moved(Link::RamToDisk, run, len as u64, op.began, op.cause);
        }
        let Some(store) = &mut self.store else { return };
        match store.finish_write(page, result) {
            Ok(()) => {
                self.saving.n_ready_groups += usize::from(store.is_group_complete(page.group));
                self.settle(page);
            }
            Err(error) => {
                self.to_write.push_front(page);
                self.stop_write_back(&error);
            }
        }
    }

    /// For good: what a write that never ended may still do is not known.
    pub(super) fn disable_write_back(&mut self) {
        (self.saving.is_on, self.saving.may_resume) = (false, false);
        let seconds = PATIENCE.as_secs();
        self.fault(FaultKind::Write, || format!("the disk has not answered for {seconds} seconds; nothing more is saved"));
    }

    fn stop_for_budget(&mut self, will_be: Bytes) {
        let budget = self.config.disk_budget;
        self.saving.is_on = false;
        self.saving.needs = Some(Bytes(will_be.0.saturating_sub(budget.0)));
        self.fault(FaultKind::NoSpace, || {
            format!("the disk budget of {budget} is used up, {will_be} are needed; nothing more is saved; raise --disk-budget")
        });
    }

    fn stop_write_back(&mut self, error: &StoreError) {
        self.saving.is_on = false;
        let kind = match error {
            StoreError::NoSpace { needed, .. } => {
                self.saving.needs = Some(*needed);
                FaultKind::NoSpace
            }
            StoreError::Latched { .. } | StoreError::Gone { .. } => {
                self.saving.may_resume = false;
                FaultKind::Write
            }
            _ => FaultKind::Write,
        };
        self.fault(kind, || format!("{error}; the answer goes on, but nothing more is saved"));
    }

    /// Begins a commit where there is something new, or, where `all`, whatever there is to commit. True where one was begun.
    pub(super) fn start_commit(&mut self, all: bool) -> bool {
        let is_wanted = self.saving.is_on && self.scratch.is_none() && (all || self.saving.n_ready_groups > 0);
        if !is_wanted || self.committer.is_busy() {
            return false;
        }
        self.write_rows();
        let Some(store) = &mut self.store else { return false };
        self.saving.n_ready_groups = 0;
        let will_be = store.disk_bytes_at_commit();
        if will_be > self.config.disk_budget {
            self.stop_for_budget(will_be);
            return false;
        }
        match store.begin_commit() {
            Ok(Some(job)) => {
                self.committer.begin(job);
                true
            }
            Ok(None) => false,
            Err(error) => {
                self.stop_write_back(&error);
                false
            }
        }
    }

    pub(super) fn finish_commit(&mut self, result: CommitResult) {
        let Some(store) = &mut self.store else { return };
        match store.finish_commit(result) {
            Ok(()) => {
                self.counts.n_commits += 1;
                self.disk_peak_bytes = self.disk_peak_bytes.max(store.disk_bytes().0);
            }
            Err(error) => {
                self.saving.n_ready_groups += 1;
                self.stop_write_back(&error);
            }
        }
    }
}
