//! Write-back: pages from VRAM to RAM to disk, group commits, and the handling of write failures.
//!
//! ```text
//! put ─► RAM, write queue ─ start_writes ─► Io ─ finish_write ─► copy cached or dropped ─ group complete ─► commit
//! ```
//! 1. A page stays in RAM until its write succeeds.
//! 2. Stopping keeps the write queue, so [`OffloadTiers::resume`] continues from there.

use std::sync::Arc;
use std::time::Instant;

use crate::base::Bytes;
use crate::kv::offload::io_queue::{IoWork, PendingIo, TIMEOUT};
use crate::kv::offload::{OffloadError, OffloadTiers, Retention};
use crate::kv::store::{Cancel, CommitResult, IoDone, PageId, PageKind, PageRun, PageState, Slab, StoreChain, StoreError};
use crate::telemetry::{Cause, FaultKind, Link, WaitCause};

/// Maximum writes in flight: enough for any disk, without delaying reads.
const MAX_WRITES: usize = 32;

impl OffloadTiers {
    /// Stores a page that leaves VRAM, or that is saved while it stays in VRAM. If RAM already has the page, only its
    /// retention changes. The page is written only after the tokens of its group were appended.
    ///
    /// [`OffloadError::NoRoom`], but never for [`Retention::OnDiskOnly`] (check [`OffloadTiers::location`] instead);
    /// [`OffloadError::WrongPage`]; [`OffloadError::Timeout`]. After an error the page was not stored.
    pub fn put(&mut self, page: PageId, payload: &[u8], retention: Retention) -> Result<(), OffloadError> {
        let (got, expected) = (Bytes(payload.len() as u64), Bytes(self.config.page_bytes));
        let n_layer = self.config.n_layer;
        if got != expected || page.layer >= n_layer || page.kind != PageKind::Kv {
            return Err(OffloadError::WrongPage { page, got, expected, n_layer });
        }
        self.poll_completions();
        if self.ram.pages.contains_key(&page) {
            self.set_retention(page, retention);
            return Ok(());
        }
        if self.is_on_disk(page) {
            if retention == Retention::InRam {
                self.ram.cache_copy(page, payload);
            }
            return Ok(());
        }
        self.reads.discard(page);
        let Some(slab) = self.allocate_page(page, retention)? else { return Ok(()) };
        self.ram.insert(page, slab, payload, retention);
        if self.store.is_some() {
            self.writes.queue.push_back(page);
            self.start_writes();
        }
        Ok(())
    }

    /// Changes the retention of a page: [`Retention::OnDiskOnly`] once it is in VRAM, [`Retention::InRam`] once it is
    /// not.
    pub fn set_retention(&mut self, page: PageId, retention: Retention) {
        self.ram.set_retention(page, retention);
    }

    /// True while pages are written. False if there is no store, or a fault or a budget has stopped it.
    pub fn is_writing_back(&self) -> bool {
        self.writes.is_enabled
    }

    /// Number of pages that are only in RAM.
    pub fn n_unsaved(&self) -> usize {
        self.ram.n_unsaved()
    }

    /// Missing disk space in bytes when saving stopped. Free some, then call [`OffloadTiers::resume`].
    pub fn needs_room(&self) -> Option<Bytes> {
        self.writes.missing_bytes
    }

    /// Resumes saving with this budget, after space was freed. Does nothing after a failed sync; then the store has to
    /// be opened again.
    pub fn resume(&mut self, disk_budget: Bytes) {
        self.config.disk_budget = disk_budget;
        self.notices.reset(&[FaultKind::NoSpace, FaultKind::Write]);
        self.writes.restart();
        self.poll_completions();
    }

    /// Writes and commits all pages that can be. True if all of them are durable.
    pub fn flush(&mut self) -> bool {
        loop {
            self.poll_completions();
            let began = Instant::now();
            if self.writes.n_writing > 0 {
                let ended = self.wait_for_completion();
                self.record_wait(WaitCause::Disk, began);
                if !ended {
                    return false;
                }
            } else if self.committer.is_busy() {
                let result = self.committer.next(TIMEOUT);
                self.record_wait(WaitCause::Commit, began);
                match result {
                    Some(result) => self.finish_commit(result),
                    None => return false,
                }
            } else if !self.start_commit(true) {
                return self.writes.is_enabled && self.writes.queue.is_empty();
            }
        }
    }

    /// A slab for a page that is not on disk. None if the page is also in VRAM and RAM is full.
    fn allocate_page(&mut self, page: PageId, retention: Retention) -> Result<Option<Slab>, OffloadError> {
        let mut waiting_since = None;
        let mut may_retry = true;
        let found = loop {
            if let Some(slab) = self.ram.page_slab() {
                break Ok(Some(slab));
            }
            self.start_writes();
            if self.writes.n_writing > 0 {
                waiting_since.get_or_insert_with(Instant::now);
                if self.wait_for_completion() {
                    continue;
                }
                break Err(OffloadError::Timeout(page, TIMEOUT.as_secs()));
            }
            let is_only_copy = retention == Retention::InRam;
            let made_room = (is_only_copy || self.writes.is_enabled) && self.ram.drop_copy()
                || is_only_copy && (self.ram.drop_replica() || self.lend_read_ahead_memory())
                || std::mem::take(&mut may_retry) && self.writes.restart();
            if !made_room {
                break if is_only_copy { Err(self.no_room_error(page)) } else { Ok(None) };
            }
        };
        if let Some(since) = waiting_since {
            self.record_wait(WaitCause::RamFull, since);
        }
        found
    }

    /// Lends read-ahead memory to pages that the disk does not accept. False if there is no more of it.
    fn lend_read_ahead_memory(&mut self) -> bool {
        while self.reads.cancel_read_ahead() {}
        self.ram.lend_read_ahead_memory(self.config.ram_budget)
    }

    fn no_room_error(&self, page: PageId) -> OffloadError {
        let usage = self.usage();
        OffloadError::NoRoom {
            page,
            wanted: Bytes(self.ram.split.slot_bytes as u64),
            ram: usage.ram.now,
            ram_budget: usage.ram.budget,
            disk: usage.disk.now,
            disk_budget: if self.store.is_some() { usage.disk.budget } else { Bytes(0) },
        }
    }

    /// Starts queued writes.
    pub(super) fn start_writes(&mut self) {
        while self.writes.is_enabled && self.writes.n_writing < MAX_WRITES {
            let Some(page) = self.writes.queue.front().copied() else { return };
            let Some(store) = &mut self.store else { return };
            let Some(resident) = self.ram.pages.get(&page) else {
                self.writes.queue.pop_front();
                continue;
            };
            match store.state(page) {
                PageState::Missing => {}
                PageState::Writing => {
                    self.writes.queue.pop_front();
                    continue;
                }
                PageState::Written | PageState::Committed => {
                    self.writes.queue.pop_front();
                    self.ram.retain_or_drop(page);
                    continue;
                }
            }
            // The tokens of the page were not appended yet.
            if page.group >= store.n_groups() {
                return;
            }
            let new_size = store.disk_bytes_with(page);
            if new_size > self.config.disk_budget {
                return self.stop_for_budget(new_size);
            }
            let slab = Arc::clone(&resident.slab);
            let tag = self.queue.tag();
            let Some(store) = &mut self.store else { return };
            match store.begin_write(page, &slab, tag, &Cancel::default()) {
                Ok(request) => {
                    self.disk_peak_bytes = self.disk_peak_bytes.max(new_size.0);
                    self.writes.queue.pop_front();
                    self.writes.n_writing += 1;
                    self.queue.submit(request, IoWork::Write(page), Cause::WriteBack);
                }
                Err(error) => return self.stop_write_back(&error),
            }
        }
    }

    /// Records a completed write.
    pub(super) fn finish_write(&mut self, page: PageId, op: &PendingIo, done: IoDone) {
        self.writes.n_writing -= 1;
        let IoDone { result, buffer, len, .. } = done;
        drop(buffer);
        if result.is_ok() {
            let run = PageRun { kind: page.kind, layer: page.layer, first_group: page.group, n_pages: 1 };
            self.record_move(Link::RamToDisk, run, len as u64, op.began, op.cause);
        }
        let Some(store) = &mut self.store else { return };
        match store.finish_write(page, result) {
            Ok(()) => {
                self.writes.n_groups_to_commit += usize::from(store.is_group_complete(page.group));
                self.ram.retain_or_drop(page);
            }
            Err(error) => {
                self.writes.queue.push_front(page);
                self.stop_write_back(&error);
            }
        }
    }

    /// Disables write-back permanently, because a write that never completed may still change the file.
    pub(super) fn disable_write_back(&mut self) {
        (self.writes.is_enabled, self.writes.may_resume) = (false, false);
        let seconds = TIMEOUT.as_secs();
        self.fault(FaultKind::Write, || format!("the disk has not responded for {seconds} seconds; nothing more is saved"));
    }

    fn stop_for_budget(&mut self, new_size: Bytes) {
        let budget = self.config.disk_budget;
        self.writes.is_enabled = false;
        self.writes.missing_bytes = Some(Bytes(new_size.0.saturating_sub(budget.0)));
        self.fault(FaultKind::NoSpace, || {
            format!("the disk budget of {budget} is used up, {new_size} are needed; nothing more is saved; raise --disk-budget")
        });
    }

    fn stop_write_back(&mut self, error: &StoreError) {
        self.writes.is_enabled = false;
        let kind = match error {
            StoreError::NoSpace { needed, .. } => {
                self.writes.missing_bytes = Some(*needed);
                FaultKind::NoSpace
            }
            StoreError::Latched { .. } | StoreError::Gone { .. } => {
                self.writes.may_resume = false;
                FaultKind::Write
            }
            _ => FaultKind::Write,
        };
        self.fault(kind, || format!("{error}; the answer goes on, but nothing more is saved"));
    }

    /// Starts a commit if groups have completed, or, with `all`, if anything changed. True if one was started.
    pub(super) fn start_commit(&mut self, all: bool) -> bool {
        let is_needed = self.writes.is_enabled && self.has_saved_store() && (all || self.writes.n_groups_to_commit > 0);
        if !is_needed || self.committer.is_busy() {
            return false;
        }
        self.write_rows();
        let Some(store) = &mut self.store else { return false };
        self.writes.n_groups_to_commit = 0;
        let new_size = store.disk_bytes_at_commit();
        if new_size > self.config.disk_budget {
            self.stop_for_budget(new_size);
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
                self.writes.n_groups_to_commit += 1;
                self.stop_write_back(&error);
            }
        }
    }

    /// Adds the abstract of a page that was put; it is saved with its group.
    pub fn put_abstract(&mut self, page: PageId, bytes: &[u8]) {
        if self.saves_abstracts() {
            self.rows.add(page, bytes, self.config.n_layer as usize);
        }
    }

    /// True if abstracts are saved: the context belongs to a saved document whose store has abstracts.
    pub fn saves_abstracts(&self) -> bool {
        self.has_saved_store() && self.store.as_ref().is_some_and(|s| s.geometry().abstract_row_bytes > 0)
    }

    /// Writes every complete row to the store.
    pub(super) fn write_rows(&mut self) {
        let n_groups = self.store.as_ref().map_or(0, StoreChain::n_groups);
        for (group, row) in self.rows.take_complete(n_groups) {
            let Some(store) = &mut self.store else { return };
            if let Err(error) = store.put_abstracts(group, &row) {
                self.fault(FaultKind::Write, || format!("{error}; its pages will always be read"));
            }
        }
    }
}
