//! Commits: make page groups visible all at once.
//!
//! ```text
//! begin_commit ─► CommitJob ─ run, on any thread ─► finish_commit
//!   run: token ids, entries ─► sync arenas, header, abstracts, folder ─► superblock slot seq % 2 ─► sync index
//! ```
//! 1. The superblock of commit `seq` is written only after all payloads that it makes visible are durable.
//! 2. An entry of commit `seq` is valid only with a superblock of `seq` or later. Until then its group does not change.
//! 3. Entries and superblock need no order between them: without its entry, a group is missing.
//! 4. After a failed sync nothing more is committed. The operating system may have dropped the data it could not write,
//!    and would report success for the next sync.

use std::sync::Arc;

use crate::kv::store::error::StoreError;
use crate::kv::store::format::{GroupEntry, HEADER_BLOCK_BYTES, PAGE_TOKENS, SuperFields, Superblock};
use crate::kv::store::geometry::arena_name;
use crate::kv::store::page_store::{ABSTRACTS_NAME, HEADER_NAME, INDEX_NAME, PageStore};
use crate::kv::store::storage::{Folder, Storage, retry_interrupted, write_all};
use crate::kv::store::token_log::bytes_of;

/// Input of a commit: plain data and open files, so that another thread can run it.
#[derive(Debug)]
pub struct CommitJob {
    folder: Arc<dyn Folder>,
    sync_folder: bool,
    header: Arc<dyn Storage>,
    index: Arc<dyn Storage>,
    to_sync: Vec<(String, Arc<dyn Storage>)>,
    token_bytes: Vec<u8>,
    token_offset: u64,
    entries: Vec<(u64, Vec<u8>)>,
    superblock: Superblock,
    seq: u64,
    groups: Vec<u32>,
    n_tokens: usize,
}

/// Result of a [`CommitJob`], for [`PageStore::finish_commit`].
#[derive(Debug)]
pub struct CommitResult {
    job: CommitJob,
    failed: Option<(StoreError, bool)>,
}

impl CommitJob {
    /// Number of groups that it makes visible.
    pub fn n_groups(&self) -> usize {
        self.groups.len()
    }

    /// Runs the commit. Blocks while the disk syncs.
    pub fn run(self) -> CommitResult {
        let failed = self.work().err();
        // If the folder was deleted meanwhile, that is the reason.
        let failed = failed.map(|error| if self.folder.exists() { error } else { self.gone() });
        CommitResult { job: self, failed }
    }

    fn gone(&self) -> (StoreError, bool) {
        (StoreError::Gone { folder: self.folder.describe() }, true)
    }

    /// Writes and syncs. The flag is true if a sync failed, or the folder is gone.
    fn work(&self) -> Result<(), (StoreError, bool)> {
        if !self.folder.exists() {
            return Err(self.gone());
        }
        let write = |file: &str, storage: &Arc<dyn Storage>, bytes: &[u8], offset| {
            let io_error = |e| (StoreError::from_io("write", file, bytes.len() as u64, e), false);
            write_all(&**storage, bytes, offset).map_err(io_error)
        };
        let sync = |file: &str, storage: &Arc<dyn Storage>| {
            retry_interrupted(|| storage.sync()).map_err(|e| (StoreError::from_io("sync", file, 0, e), true))
        };
        if !self.token_bytes.is_empty() {
            write(HEADER_NAME, &self.header, &self.token_bytes, self.token_offset)?;
            sync(HEADER_NAME, &self.header)?;
        }
        for (offset, entry) in &self.entries {
            write(INDEX_NAME, &self.index, entry, *offset)?;
        }
        for (name, storage) in &self.to_sync {
            sync(name, storage)?;
        }
        if self.sync_folder {
            retry_interrupted(|| self.folder.sync()).map_err(|e| (StoreError::from_io("sync", "the folder", 0, e), true))?;
        }
        write(INDEX_NAME, &self.index, &self.superblock.encode(), Superblock::slot_offset(self.seq))?;
        sync(INDEX_NAME, &self.index)
    }
}

impl PageStore {
    /// Prepares a commit. None if nothing has changed, or another commit is in progress. Pages being written and
    /// incomplete groups are left for a later commit.
    ///
    /// # Errors
    /// [`StoreError::Latched`] after a failed sync.
    pub fn begin_commit(&mut self) -> Result<Option<CommitJob>, StoreError> {
        self.check_open()?;
        let n_layer = self.geometry.n_layer as usize;
        let ready = |(_, g): &(u32, &crate::kv::store::page_store::Group)| g.is_dirty && g.is_complete(n_layer);
        let groups: Vec<u32> = (0..).zip(&self.groups).filter(ready).map(|(i, _)| i).collect();
        if self.is_committing || (groups.is_empty() && !self.is_dirty) {
            return Ok(None);
        }
        let seq = self.seq + 1;
        let entries = groups.iter().filter_map(|g| self.entry(*g, seq)).collect();
        let new_ids = self.tokens.ids().get(self.n_tokens_written..).unwrap_or_default();
        let mut to_sync = Vec::new();
        for ((kind, number), arena) in self.arenas.iter_mut().filter(|(_, a)| a.is_dirty) {
            // Later writes belong to the next commit.
            arena.is_dirty = false;
            to_sync.push((arena_name(*kind, *number), Arc::clone(&arena.storage)));
        }
        to_sync.extend(self.abstracts.as_ref().map(|a| (ABSTRACTS_NAME.to_owned(), Arc::clone(a))));
        self.is_committing = true;
        self.n_unchanged_tokens = usize::MAX;
        Ok(Some(CommitJob {
            folder: Arc::clone(&self.folder),
            sync_folder: std::mem::take(&mut self.has_new_files),
            header: Arc::clone(&self.header),
            index: Arc::clone(&self.index),
            to_sync,
            token_bytes: bytes_of(new_ids),
            token_offset: HEADER_BLOCK_BYTES + 4 * self.n_tokens_written as u64,
            entries,
            superblock: self.superblock(seq, &groups),
            seq,
            n_tokens: self.tokens.ids().len(),
            groups,
        }))
    }

    /// Records the result of a commit.
    ///
    /// # Errors
    /// The reason why nothing was committed. After a failed sync, or if the folder is gone, no later commit is tried.
    pub fn finish_commit(&mut self, result: CommitResult) -> Result<(), StoreError> {
        let CommitResult { job, failed } = result;
        self.is_committing = false;
        if let Some((error, is_final)) = failed {
            // The next attempt syncs all files again.
            self.has_new_files |= job.sync_folder;
            self.arenas.values_mut().for_each(|a| a.is_dirty = true);
            if is_final {
                self.latched = Some(error.to_string());
            }
            return Err(error);
        }
        self.seq = job.seq;
        // Tokens truncated meanwhile, and their groups, belong to the next commit.
        self.n_tokens_written = job.n_tokens.min(self.n_unchanged_tokens);
        self.is_dirty = self.n_unchanged_tokens < job.n_tokens || self.tokens.ids().len() != job.n_tokens;
        let n_unchanged = self.n_unchanged_tokens / PAGE_TOKENS as usize;
        for group in job.groups.into_iter().filter(|g| (*g as usize) < n_unchanged) {
            let Some(group) = self.groups.get_mut(group as usize) else { continue };
            (group.is_dirty, group.has_entry) = (false, true);
            for page in group.pages.iter_mut().filter(|p| p.state == crate::kv::store::page_store::PageState::Written) {
                page.state = crate::kv::store::page_store::PageState::Committed;
            }
        }
        Ok(())
    }

    /// Commits synchronously: on return, every complete group is durable.
    ///
    /// # Errors
    /// As [`PageStore::begin_commit`] and [`PageStore::finish_commit`].
    pub fn commit(&mut self) -> Result<(), StoreError> {
        match self.begin_commit()? {
            Some(job) => self.finish_commit(job.run()),
            None => Ok(()),
        }
    }

    fn entry(&self, group: u32, seq: u64) -> Option<(u64, Vec<u8>)> {
        let state = self.groups.get(group as usize)?;
        let entry = GroupEntry {
            group,
            seq,
            store_id: self.store_id,
            token_hash: *self.tokens.group_hash(group)?,
            abstract_sum: state.abstract_sum,
            page_sums: state.pages.iter().map(|p| if p.is_present() { p.sum } else { 0 }).collect(),
        };
        Some((self.geometry.entry_offset(group), entry.encode(self.geometry.entry_bytes as usize)))
    }

    pub(super) fn superblock(&self, seq: u64, new: &[u32]) -> Superblock {
        let visible = |(i, g): &(u32, &crate::kv::store::page_store::Group)| g.has_entry || new.binary_search(i).is_ok();
        let visible: Vec<u32> = (0..).zip(&self.groups).filter(visible).map(|(i, _)| i).collect();
        Superblock::new(SuperFields {
            store_id: self.store_id,
            seq,
            n_groups: visible.last().map_or(0, |last| u64::from(*last) + 1),
            n_committed: visible.len() as u64,
            n_tokens: self.tokens.ids().len() as u64,
            token_hash: self.tokens.hash(),
            arena_bytes: self.arenas.values().map(|a| a.len).sum(),
        })
    }
}
