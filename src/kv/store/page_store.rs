//! Page store: the open store of one document, with its page table, reads and writes.
//!
//! ```text
//! put / begin_write ─► Writing ─ finish_write ─► Written ─ commit ─► Committed ─ get / finish_read ─► verified payload
//!      ▲                  └ failed ─► Missing ◄──── checksum mismatch, file too short, EIO ──────┘
//!      └───────── the caller recomputes the page ◄──┘
//! ```
//! 1. A payload is returned only after its checksum, seeded with its identity, has matched.
//! 2. A page is written once. Only a page that was found missing may be written again.
//! 3. A group is visible after a crash if and only if its commit completed. A crash at the very end of a commit may
//!    also leave the commit complete.
//! 4. The lock is taken on opening and released on drop.
//!
//! Owner thread: any single one, in practice the engine. No method waits for another thread. `begin_*` and `finish_*`
//! bracket work that [`Io`](crate::kv::store::Io) does; `put` and `get` do the same synchronously.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::base::Bytes;
use crate::kv::store::backend::{Cancel, IoBuffer, IoDone, IoRequest, is_cancelled};
use crate::kv::store::error::StoreError;
use crate::kv::store::format::{ENTRIES_OFFSET, HEADER_BLOCK_BYTES, PageId, PageKind, page_sum};
use crate::kv::store::geometry::{Geometry, StoreSpec, arena_name};
use crate::kv::store::slab::{Slab, SlabPool};
use crate::kv::store::storage::{Folder, LockGuard, OpenMode, Storage, retry_interrupted};
use crate::kv::store::token_log::TokenLog;

/// State of a page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PageState {
    /// not in the store, or corrupt
    #[default]
    Missing,
    /// write in progress
    Writing,
    /// in the file, but not durable
    Written,
    /// durable
    Committed,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PageSlot {
    pub(super) state: PageState,
    pub(super) sum: u64,
}

impl PageSlot {
    pub(super) fn is_present(self) -> bool {
        matches!(self.state, PageState::Written | PageState::Committed)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) pages: Box<[PageSlot]>,
    pub(super) abstract_sum: u64,
    /// changed since its entry was written
    pub(super) is_dirty: bool,
    /// has an entry that the last commit made visible
    pub(super) has_entry: bool,
}

impl Group {
    pub(super) fn new(n_pages: usize) -> Self {
        let pages = vec![PageSlot::default(); n_pages].into_boxed_slice();
        Group { pages, abstract_sum: 0, is_dirty: false, has_entry: false }
    }

    /// True if every layer has its keys and values, or the activations to compute them from.
    pub(super) fn is_complete(&self, n_layer: usize) -> bool {
        (0..n_layer).all(|l| self.pages.iter().skip(l).step_by(n_layer).any(|p| p.is_present()))
    }
}

#[derive(Debug)]
pub(super) struct Arena {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) len: u64,
    pub(super) is_dirty: bool,
}

/// Adjacent pages of one kind and layer, so that one read fetches all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRun {
    /// kind of payload
    pub kind: PageKind,
    /// layer
    pub layer: u32,
    /// first group
    pub first_group: u32,
    /// pages
    pub n_pages: u32,
}

impl PageRun {
    /// The pages in order.
    pub fn pages(self) -> impl Iterator<Item = PageId> {
        (0..self.n_pages).map(move |i| PageId { kind: self.kind, layer: self.layer, group: self.first_group + i })
    }
}

/// Result of a read.
#[derive(Debug, Default)]
pub struct ReadOutcome {
    /// pages that are corrupt, must not be used and are now missing; or all pages of a cancelled read
    pub bad: Vec<PageId>,
    /// error of the disk; none if only a checksum mismatched
    pub error: Option<StoreError>,
}

/// The open store of one document.
#[derive(Debug)]
pub struct PageStore {
    pub(super) folder: Arc<dyn Folder>,
    pub(super) _lock: Box<dyn LockGuard>,
    pub(super) spec: StoreSpec,
    pub(super) geometry: Geometry,
    pub(super) store_id: u64,
    pub(super) header: Arc<dyn Storage>,
    pub(super) index: Arc<dyn Storage>,
    pub(super) abstracts: Option<Arc<dyn Storage>>,
    pub(super) arenas: BTreeMap<(PageKind, u32), Arena>,
    pub(super) tokens: TokenLog,
    /// number of token ids in the header file
    pub(super) n_tokens_written: usize,
    pub(super) n_document_tokens: usize,
    pub(super) groups: Vec<Group>,
    /// sequence number of the last commit
    pub(super) seq: u64,
    /// the next commit has changes other than groups
    pub(super) is_dirty: bool,
    pub(super) has_new_files: bool,
    pub(super) is_committing: bool,
    /// tokens unchanged since the commit in progress began
    pub(super) n_unchanged_tokens: usize,
    pub(super) latched: Option<String>,
    pub(super) scratch: SlabPool,
}

impl PageStore {
    /// Identity of the store.
    pub fn spec(&self) -> &StoreSpec {
        &self.spec
    }

    /// Sizes and offsets.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// All token ids: those of the document, then those appended.
    pub fn tokens(&self) -> &[u32] {
        self.tokens.ids()
    }

    /// Number of token ids of the document.
    pub fn n_document_tokens(&self) -> usize {
        self.n_document_tokens
    }

    /// Complete page groups of the tokens, on disk or not.
    pub fn n_groups(&self) -> u32 {
        self.groups.len() as u32
    }

    /// State of a page.
    pub fn state(&self, page: PageId) -> PageState {
        self.slot(page).map_or(PageState::Missing, |s| s.state)
    }

    /// True if the page can be read.
    pub fn is_present(&self, page: PageId) -> bool {
        self.slot(page).is_some_and(PageSlot::is_present)
    }

    /// True if every layer of the group can be read.
    pub fn is_group_complete(&self, group: u32) -> bool {
        self.groups.get(group as usize).is_some_and(|g| g.is_complete(self.geometry.n_layer as usize))
    }

    /// Number of complete groups at the beginning: an interrupted prefill resumes there.
    pub fn n_complete_prefix(&self) -> u32 {
        (0..self.n_groups()).take_while(|g| self.is_group_complete(*g)).count() as u32
    }

    /// Number of groups that survive a crash.
    pub fn n_committed(&self) -> u32 {
        self.groups.iter().filter(|g| g.has_entry).count() as u32
    }

    /// True if page I/O bypasses the page cache. None before the first page.
    pub fn is_direct(&self) -> Option<bool> {
        self.arenas.values().next().map(|a| a.storage.is_direct())
    }

    /// Bytes of the store on disk.
    pub fn disk_bytes(&self) -> Bytes {
        let small = [Some(&self.header), Some(&self.index), self.abstracts.as_ref()];
        let small: u64 = small.into_iter().flatten().filter_map(|s| s.len().ok()).sum();
        Bytes(small + self.arenas.values().map(|a| a.len).sum::<u64>())
    }

    /// Bytes by which the store grows when `page` is written. 0 if its extent exists.
    pub fn growth_for(&self, page: PageId) -> Bytes {
        let place = self.geometry.place(page);
        let len = self.arenas.get(&place.arena).map_or(0, |a| a.len);
        Bytes(place.arena_len.saturating_sub(len))
    }

    /// Upper bound of the store size once all of its present groups are committed; a disk budget needs at least this.
    pub fn disk_bytes_at_commit(&self) -> Bytes {
        let per_group = self.geometry.entry_bytes + self.geometry.abstract_row_bytes;
        let small = HEADER_BLOCK_BYTES + ENTRIES_OFFSET + 4 * self.tokens.ids().len() as u64;
        let arenas: u64 = self.arenas.values().map(|a| a.len).sum();
        Bytes(small + self.groups.len() as u64 * per_group + arenas)
    }

    /// Same as [`PageStore::disk_bytes_at_commit`], including `page`.
    pub fn disk_bytes_with(&self, page: PageId) -> Bytes {
        Bytes(self.disk_bytes_at_commit().0 + self.growth_for(page).0)
    }

    /// Appends tokens. The next commit writes them to disk.
    pub fn append_tokens(&mut self, ids: &[u32]) {
        self.tokens.extend(ids);
        let n_pages = self.geometry.pages_per_group();
        self.groups.resize_with(self.tokens.n_groups(), || Group::new(n_pages));
        self.is_dirty |= !ids.is_empty();
    }

    /// Drops the tokens after the first `n_tokens`, and every group that is then incomplete. The tokens of the document
    /// stay. Writes of the dropped groups must have finished.
    pub fn rewind(&mut self, n_tokens: usize) {
        let n = n_tokens.max(self.n_document_tokens);
        if n >= self.tokens.ids().len() {
            return;
        }
        self.tokens.truncate(n);
        self.groups.truncate(self.tokens.n_groups());
        self.n_tokens_written = self.n_tokens_written.min(n);
        self.n_unchanged_tokens = self.n_unchanged_tokens.min(n);
        self.is_dirty = true;
    }

    /// The run of present pages that begins at `group`, at most `max_pages`. None if the first page is missing.
    pub fn run_at(&self, kind: PageKind, layer: u32, group: u32, max_pages: u32) -> Option<PageRun> {
        let end = self.geometry.run_end(group).min(group.saturating_add(max_pages));
        let is_present = |g: u32| self.is_present(PageId { kind, layer, group: g });
        let n_pages = (group..end).take_while(|g| is_present(*g)).count() as u32;
        (n_pages > 0).then_some(PageRun { kind, layer, first_group: group, n_pages })
    }

    /// Slab bytes needed for a run.
    pub fn run_bytes(&self, run: PageRun) -> usize {
        run.n_pages as usize * self.geometry.slot_of(run.kind) as usize
    }

    /// Creates a request that reads a run into the beginning of `slab`.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if a page is not present, [`StoreError::WrongSize`] if the slab is too small.
    pub fn begin_read(&self, run: PageRun, slab: Slab, tag: u64, cancel: &Cancel) -> Result<IoRequest, StoreError> {
        let len = self.run_bytes(run);
        if slab.len() < len {
            return Err(StoreError::WrongSize { got: Bytes(slab.len() as u64), expected: Bytes(len as u64) });
        }
        let first = PageId { kind: run.kind, layer: run.layer, group: run.first_group };
        if let Some(page) = run.pages().find(|p| !self.is_present(*p)) {
            return Err(StoreError::Missing { page });
        }
        let place = self.geometry.place(first);
        let storage = Arc::clone(&self.arenas.get(&place.arena).ok_or(StoreError::Missing { page: first })?.storage);
        Ok(IoRequest { tag, storage, offset: place.offset, len, buffer: IoBuffer::Read(slab), cancel: cancel.clone() })
    }

    /// Verifies a completed read. The payload of page `i` of the run is at `i * slot` in the slab.
    pub fn finish_read(&mut self, run: PageRun, done: &IoDone) -> ReadOutcome {
        match (&done.result, &done.buffer) {
            (Ok(()), Some(buffer)) => {
                let bad = run.pages().zip(0..).filter(|(p, i)| !self.is_intact(*p, buffer.slab(), *i)).map(|(p, _)| p).collect();
                self.mark_missing(ReadOutcome { bad, error: None })
            }
            // The state of the pages is unknown, so it does not change.
            (Err(e), _) if is_cancelled(e) => {
                let page = PageId { kind: run.kind, layer: run.layer, group: run.first_group };
                ReadOutcome { bad: run.pages().collect(), error: Some(StoreError::Cancelled { page }) }
            }
            (result, _) => {
                let io_error = result.as_ref().err().map_or_else(|| "no buffer".to_owned(), ToString::to_string);
                let kind = result.as_ref().err().map_or(io::ErrorKind::Other, io::Error::kind);
                let first = PageId { kind: run.kind, layer: run.layer, group: run.first_group };
                let error = StoreError::from_io("read", &self.file_of(first), 0, io::Error::new(kind, io_error));
                self.mark_missing(ReadOutcome { bad: run.pages().collect(), error: Some(error) })
            }
        }
    }

    /// True if the payload at position `i` of `slab` matches the checksum of the page.
    fn is_intact(&self, page: PageId, slab: &Slab, i: usize) -> bool {
        let (slot, len) = (self.geometry.slot_of(page.kind) as usize, self.geometry.payload_of(page.kind) as usize);
        let payload = slab.get(i * slot..).and_then(|rest| rest.get(..len));
        let sum = self.slot(page).filter(|s| s.is_present()).map(|s| s.sum);
        match (payload, sum, self.tokens.group_hash(page.group)) {
            (Some(payload), Some(sum), Some(hash)) => page_sum(self.store_id, page, hash, payload) == sum,
            _ => false,
        }
    }

    /// Marks the bad pages of an outcome as missing.
    fn mark_missing(&mut self, outcome: ReadOutcome) -> ReadOutcome {
        for page in &outcome.bad {
            if let Some(slot) = self.slot_mut(*page).filter(|s| s.is_present()) {
                slot.state = PageState::Missing;
            }
        }
        outcome
    }

    /// Marks all pages of a group as missing, intact or not, so that they are written again. Returns those that were
    /// present.
    pub fn invalidate_group(&mut self, group: u32) -> Vec<PageId> {
        let pages = (0..self.geometry.n_layer).flat_map(|layer| PageKind::ALL.map(|kind| PageId { kind, layer, group }));
        let bad = pages.filter(|page| self.is_present(*page)).collect();
        self.mark_missing(ReadOutcome { bad, error: None }).bad
    }

    /// Creates a request that writes the payload at the beginning of `slab`. If zeros follow the payload, no copy is
    /// made.
    ///
    /// # Errors
    /// [`StoreError::AlreadyWritten`], [`StoreError::OutOfRange`], [`StoreError::WrongSize`], or the error of growing
    /// the file. The page stays missing, and the caller keeps the slab.
    pub fn begin_write(&mut self, page: PageId, slab: &Arc<Slab>, tag: u64, cancel: &Cancel) -> Result<IoRequest, StoreError> {
        self.check_open()?;
        let (slot, len) = (self.geometry.slot_of(page.kind) as usize, self.geometry.payload_of(page.kind) as usize);
        match self.slot(page).map(|s| s.state) {
            None => return Err(self.out_of_range(page)),
            Some(PageState::Missing) => {}
            Some(_) => return Err(StoreError::AlreadyWritten { page }),
        }
        let wrong_size = || StoreError::WrongSize { got: Bytes(slab.len() as u64), expected: Bytes(slot as u64) };
        let (payload, rest) = slab.get(..slot).and_then(|s| s.split_at_checked(len)).ok_or_else(wrong_size)?;
        let Some(hash) = self.tokens.group_hash(page.group) else { return Err(self.out_of_range(page)) };
        let sum = page_sum(self.store_id, page, hash, payload);
        let storage = self.arena_for_write(page)?;
        let slab = if rest.iter().all(|b| *b == 0) {
            Arc::clone(slab)
        } else {
            // Stale bytes of an earlier owner of the slab must not reach the file.
            let mut clean = self.scratch.take(slot)?;
            clean.iter_mut().zip(payload).for_each(|(c, p)| *c = *p);
            clean.get_mut(len..).unwrap_or_default().fill(0);
            Arc::new(clean)
        };
        if let Some(place) = self.slot_mut(page) {
            *place = PageSlot { state: PageState::Writing, sum };
        }
        let offset = self.geometry.place(page).offset;
        Ok(IoRequest { tag, storage, offset, len: slot, buffer: IoBuffer::Write(slab), cancel: cancel.clone() })
    }

    /// Records the result of a write.
    ///
    /// # Errors
    /// The error of the disk; the page is missing.
    pub fn finish_write(&mut self, page: PageId, result: io::Result<()>) -> Result<(), StoreError> {
        let (file, slot_bytes) = (self.file_of(page), self.geometry.slot_of(page.kind));
        let state = if result.is_ok() { PageState::Written } else { PageState::Missing };
        if let Some(slot) = self.slot_mut(page).filter(|s| s.state == PageState::Writing) {
            slot.state = state;
        }
        result.map_err(|e| match is_cancelled(&e) {
            true => StoreError::Cancelled { page },
            false => StoreError::from_io("write", &file, slot_bytes, e),
        })?;
        if let Some(group) = self.groups.get_mut(page.group as usize) {
            group.is_dirty = true;
        }
        if let Some(arena) = self.arenas.get_mut(&self.geometry.place(page).arena) {
            arena.is_dirty = true;
        }
        Ok(())
    }

    /// Writes a page synchronously.
    ///
    /// # Errors
    /// As [`PageStore::begin_write`] and [`PageStore::finish_write`].
    pub fn put(&mut self, page: PageId, payload: &[u8]) -> Result<(), StoreError> {
        let expected = self.geometry.payload_of(page.kind);
        if payload.len() as u64 != expected {
            return Err(StoreError::WrongSize { got: Bytes(payload.len() as u64), expected: Bytes(expected) });
        }
        let mut slab = self.scratch.take(self.geometry.slot_of(page.kind) as usize)?;
        let (head, tail) = slab.split_at_mut_checked(payload.len()).ok_or_else(|| self.out_of_range(page))?;
        head.copy_from_slice(payload);
        tail.fill(0);
        let mut request = self.begin_write(page, &Arc::new(slab), 0, &Cancel::default())?;
        let result = crate::kv::store::backend::perform(&mut request);
        self.finish_write(page, result)
    }

    /// Reads a page synchronously. None if it is missing or corrupt.
    ///
    /// # Errors
    /// The error of the disk. The page is then missing, and may be recomputed and written again.
    pub fn get(&mut self, page: PageId) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(run) = self.run_at(page.kind, page.layer, page.group, 1) else { return Ok(None) };
        let slab = self.scratch.take(self.run_bytes(run))?;
        let mut request = self.begin_read(run, slab, 0, &Cancel::default())?;
        let result = crate::kv::store::backend::perform(&mut request);
        let IoRequest { len, buffer, .. } = request;
        let op = buffer.op();
        let zero = std::time::Duration::ZERO;
        let done = IoDone { tag: 0, op, result, buffer: Some(buffer), len, wait: zero, service: zero };
        let outcome = self.finish_read(run, &done);
        match (outcome.error, outcome.bad.is_empty(), &done.buffer) {
            // A truncated file means a missing page, not a failing disk.
            (Some(StoreError::Io { source, .. }), ..) if source.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            (Some(error), ..) => Err(error),
            (None, true, Some(buffer)) => {
                let len = self.geometry.payload_of(page.kind) as usize;
                Ok(buffer.slab().get(..len).map(<[u8]>::to_vec))
            }
            _ => Ok(None),
        }
    }

    fn slot(&self, page: PageId) -> Option<PageSlot> {
        self.groups.get(page.group as usize)?.pages.get(self.geometry.page_index(page)?).copied()
    }

    fn slot_mut(&mut self, page: PageId) -> Option<&mut PageSlot> {
        self.groups.get_mut(page.group as usize)?.pages.get_mut(self.geometry.page_index(page)?)
    }

    pub(super) fn out_of_range(&self, page: PageId) -> StoreError {
        StoreError::OutOfRange { page, n_layer: self.geometry.n_layer, n_groups: self.groups.len() as u64 }
    }

    fn file_of(&self, page: PageId) -> String {
        let (kind, number) = self.geometry.place(page).arena;
        format!("{}/{}", self.folder.describe(), arena_name(kind, number))
    }

    /// Refuses to write after a failed sync, or if the folder is gone.
    pub(super) fn check_open(&self) -> Result<(), StoreError> {
        match &self.latched {
            Some(reason) => Err(StoreError::Latched { folder: self.folder.describe(), reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// The arena of a page, created and grown on demand.
    fn arena_for_write(&mut self, page: PageId) -> Result<Arc<dyn Storage>, StoreError> {
        let place = self.geometry.place(page);
        let (file, extent) = (self.file_of(page), self.geometry.extent_bytes(page.kind));
        if !self.arenas.contains_key(&place.arena) {
            let name = arena_name(place.arena.0, place.arena.1);
            let mode = OpenMode { create: true, direct: true };
            let storage = retry_interrupted(|| self.folder.open(&name, mode)).map_err(|e| match self.folder.exists() {
                true => StoreError::from_io("open", &file, 0, e),
                false => StoreError::Gone { folder: self.folder.describe() },
            })?;
            let len = storage.len().map_err(|e| StoreError::from_io("open", &file, 0, e))?;
            self.has_new_files = true;
            self.arenas.insert(place.arena, Arena { storage, len, is_dirty: true });
        }
        let Some(arena) = self.arenas.get_mut(&place.arena) else { return Err(StoreError::Missing { page }) };
        if arena.len < place.arena_len {
            retry_interrupted(|| arena.storage.allocate(place.arena_len))
                .map_err(|e| StoreError::from_io("grow", &file, extent, e))?;
            (arena.len, arena.is_dirty) = (place.arena_len, true);
        }
        Ok(Arc::clone(&arena.storage))
    }
}

/// File with the header and the token ids.
pub(super) const HEADER_NAME: &str = "header";
/// File with the superblock and the group entries.
pub(super) const INDEX_NAME: &str = "index";
/// File with the abstracts.
pub(super) const ABSTRACTS_NAME: &str = "abstracts";
