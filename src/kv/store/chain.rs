//! Store chain: the stores that together hold the page groups of one context, one store per document.
//!
//! ```text
//! tokens  │ document 1 ..........│ document 2 .......│ document 3 ....│ appended
//! groups  │ 0 ............. n1-1 │ n1 .......... n2-1 │ n2 .............
//! stores  │ document 1           │ 2 after 1          │ 3 after 1 and 2, and appended tokens
//!           its groups 0, 1, ...   its groups 0, 1, ..  its groups 0, 1, ...
//! ```
//! So every context that begins with document 1 uses the same store for it, and its pages are on disk once.
//!
//! 1. Groups are numbered within the context here, and within its store in each [`PageStore`]; errors name the latter.
//! 2. Every store has the same geometry. Its identity includes all tokens before its own.
//! 3. Tokens are appended to the last store only.
//! 4. One commit is in progress at a time. Earlier stores are committed first.
//! 5. The last store may be a scratch store, which is never committed: the stores before it get nothing of its tokens.

use std::io;
use std::sync::Arc;

use crate::base::Bytes;
use crate::kv::store::backend::{Cancel, IoDone, IoRequest};
use crate::kv::store::commit::{CommitJob, CommitResult};
use crate::kv::store::error::StoreError;
use crate::kv::store::format::{PAGE_TOKENS, PageId, PageKind};
use crate::kv::store::geometry::Geometry;
use crate::kv::store::page_store::{PageRun, PageState, PageStore, ReadOutcome};
use crate::kv::store::slab::Slab;

/// The stores of one context.
#[derive(Debug)]
pub struct StoreChain {
    /// every store but the last
    earlier: Vec<Link>,
    last: Link,
    /// position of the store whose commit is in progress
    committing: usize,
}

/// A store and the first of its groups in the context.
#[derive(Debug)]
struct Link {
    store: PageStore,
    first_group: u32,
    is_scratch: bool,
}

impl Link {
    fn local(&self, page: PageId) -> PageId {
        PageId { group: page.group - self.first_group, ..page }
    }

    fn local_run(&self, run: PageRun) -> PageRun {
        PageRun { first_group: run.first_group - self.first_group, ..run }
    }

    fn global(&self, page: PageId) -> PageId {
        PageId { group: page.group + self.first_group, ..page }
    }

    fn end(&self) -> u32 {
        self.first_group + self.store.n_groups()
    }
}

impl From<PageStore> for StoreChain {
    fn from(store: PageStore) -> StoreChain {
        StoreChain { earlier: Vec::new(), last: Link { store, first_group: 0, is_scratch: false }, committing: 0 }
    }
}

impl StoreChain {
    /// The chain of these stores, the first one first. None without a store.
    pub fn of(stores: impl IntoIterator<Item = PageStore>) -> Option<StoreChain> {
        let mut stores = stores.into_iter();
        let first = StoreChain::from(stores.next()?);
        Some(stores.fold(first, StoreChain::then))
    }

    /// Adds the store of the next document, whose tokens begin with those after the last complete group so far. Tokens
    /// that were appended after the earlier documents are dropped.
    #[must_use]
    pub fn then(mut self, store: PageStore) -> StoreChain {
        self.rewind(0);
        let first_group = self.n_groups();
        let before = std::mem::replace(&mut self.last, Link { store, first_group, is_scratch: false });
        self.earlier.push(before);
        self
    }

    /// A chain of one scratch store, for a context without saved documents.
    pub fn of_scratch(store: PageStore) -> StoreChain {
        let mut chain = StoreChain::from(store);
        chain.last.is_scratch = true;
        chain
    }

    /// Adds a scratch store for all later tokens, as [`StoreChain::then`].
    #[must_use]
    pub fn then_scratch(self, store: PageStore) -> StoreChain {
        let mut chain = self.then(store);
        chain.last.is_scratch = true;
        chain
    }

    /// The chain without its scratch store. None if nothing remains.
    pub fn into_saved(mut self) -> Option<StoreChain> {
        if self.last.is_scratch {
            self.last = self.earlier.pop()?;
        }
        Some(self)
    }

    /// True if the store of a group is saved.
    pub fn is_saved(&self, group: u32) -> bool {
        !self.link(group).is_scratch
    }

    fn links(&self) -> impl Iterator<Item = &Link> {
        self.earlier.iter().chain(std::iter::once(&self.last))
    }

    fn links_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        self.earlier.iter_mut().chain(std::iter::once(&mut self.last))
    }

    fn link(&self, group: u32) -> &Link {
        self.earlier.iter().find(|link| group < link.end()).unwrap_or(&self.last)
    }

    fn link_mut(&mut self, group: u32) -> &mut Link {
        self.earlier.iter_mut().find(|link| group < link.end()).unwrap_or(&mut self.last)
    }

    /// Sizes and offsets, the same for every store.
    pub fn geometry(&self) -> &Geometry {
        self.last.store.geometry()
    }

    /// Number of token ids: those of the documents, then those appended.
    pub fn n_tokens(&self) -> usize {
        (self.last.first_group * PAGE_TOKENS) as usize + self.last.store.tokens().len()
    }

    /// Complete page groups of the tokens, on disk or not.
    pub fn n_groups(&self) -> u32 {
        self.last.end()
    }

    /// State of a page.
    pub fn state(&self, page: PageId) -> PageState {
        let link = self.link(page.group);
        link.store.state(link.local(page))
    }

    /// True if the page can be read.
    pub fn is_present(&self, page: PageId) -> bool {
        let link = self.link(page.group);
        link.store.is_present(link.local(page))
    }

    /// True if every layer of the group can be read.
    pub fn is_group_complete(&self, group: u32) -> bool {
        let link = self.link(group);
        link.store.is_group_complete(group - link.first_group)
    }

    /// Number of complete groups at the beginning: an interrupted prefill resumes there.
    pub fn n_complete_prefix(&self) -> u32 {
        let mut n_complete = 0;
        for link in self.links() {
            n_complete = link.first_group + link.store.n_complete_prefix();
            if n_complete < link.end() {
                break;
            }
        }
        n_complete
    }

    /// True if page I/O bypasses the page cache. None before the first page.
    pub fn is_direct(&self) -> Option<bool> {
        self.links().filter_map(|link| link.store.is_direct()).reduce(|a, b| a && b)
    }

    /// Bytes of all stores on disk.
    pub fn disk_bytes(&self) -> Bytes {
        Bytes(self.links().map(|link| link.store.disk_bytes().0).sum())
    }

    /// Upper bound of all stores once their present groups are committed; a disk budget needs at least this.
    pub fn disk_bytes_at_commit(&self) -> Bytes {
        Bytes(self.links().map(|link| link.store.disk_bytes_at_commit().0).sum())
    }

    /// Same as [`StoreChain::disk_bytes_at_commit`], including `page`.
    pub fn disk_bytes_with(&self, page: PageId) -> Bytes {
        let link = self.link(page.group);
        Bytes(self.disk_bytes_at_commit().0 + link.store.growth_for(link.local(page)).0)
    }

    /// Appends tokens to the last store.
    pub fn append_tokens(&mut self, ids: &[u32]) {
        self.last.store.append_tokens(ids);
    }

    /// Drops the tokens after the first `n_tokens`, as [`PageStore::rewind`]: the tokens of documents stay.
    pub fn rewind(&mut self, n_tokens: usize) {
        for link in self.links_mut() {
            link.store.rewind(n_tokens.saturating_sub((link.first_group * PAGE_TOKENS) as usize));
        }
    }

    /// The run of present pages that begins at `group`, at most `max_pages`. It ends with the pages of its store. None
    /// if the first page is missing.
    pub fn run_at(&self, kind: PageKind, layer: u32, group: u32, max_pages: u32) -> Option<PageRun> {
        let link = self.link(group);
        let run = link.store.run_at(kind, layer, group - link.first_group, max_pages)?;
        Some(PageRun { first_group: group, ..run })
    }

    /// As [`PageStore::begin_read`].
    ///
    /// # Errors
    /// As [`PageStore::begin_read`].
    pub fn begin_read(&self, run: PageRun, slab: Slab, tag: u64, cancel: &Cancel) -> Result<IoRequest, StoreError> {
        let link = self.link(run.first_group);
        link.store.begin_read(link.local_run(run), slab, tag, cancel)
    }

    /// As [`PageStore::finish_read`].
    pub fn finish_read(&mut self, run: PageRun, done: &IoDone) -> ReadOutcome {
        let link = self.link_mut(run.first_group);
        let outcome = link.store.finish_read(link.local_run(run), done);
        ReadOutcome { bad: outcome.bad.into_iter().map(|page| link.global(page)).collect(), ..outcome }
    }

    /// As [`PageStore::invalidate_group`].
    pub fn invalidate_group(&mut self, group: u32) -> Vec<PageId> {
        let link = self.link_mut(group);
        let bad = link.store.invalidate_group(group - link.first_group);
        bad.into_iter().map(|page| link.global(page)).collect()
    }

    /// As [`PageStore::begin_write`].
    ///
    /// # Errors
    /// As [`PageStore::begin_write`].
    pub fn begin_write(&mut self, page: PageId, slab: &Arc<Slab>, tag: u64, cancel: &Cancel) -> Result<IoRequest, StoreError> {
        let link = self.link_mut(page.group);
        link.store.begin_write(link.local(page), slab, tag, cancel)
    }

    /// As [`PageStore::finish_write`].
    ///
    /// # Errors
    /// The error of the disk; the page is missing.
    pub fn finish_write(&mut self, page: PageId, result: io::Result<()>) -> Result<(), StoreError> {
        let link = self.link_mut(page.group);
        link.store.finish_write(link.local(page), result)
    }

    /// As [`PageStore::put_abstracts`].
    ///
    /// # Errors
    /// As [`PageStore::put_abstracts`].
    pub fn put_abstracts(&mut self, group: u32, row: &[u8]) -> Result<(), StoreError> {
        let link = self.link_mut(group);
        link.store.put_abstracts(group - link.first_group, row)
    }

    /// The abstracts of all groups, row by row, and which rows are intact. Rows that cannot be read are not.
    pub fn read_abstracts(&self) -> (Vec<u8>, Vec<bool>) {
        let (mut rows, mut intact) = (Vec::new(), Vec::new());
        for link in self.links() {
            let n_groups = link.store.n_groups() as usize;
            let n_bytes = n_groups * self.geometry().abstract_row_bytes as usize;
            let (own_rows, own_intact) =
                link.store.read_abstracts().unwrap_or_else(|_| (vec![0; n_bytes], vec![false; n_groups]));
            rows.extend(own_rows);
            intact.extend(own_intact);
        }
        (rows, intact)
    }

    /// Prepares the commit of the first store with something to commit. None if there is none, or a commit is in
    /// progress.
    ///
    /// # Errors
    /// [`StoreError::Latched`] after a failed sync.
    pub fn begin_commit(&mut self) -> Result<Option<CommitJob>, StoreError> {
        if self.links().any(|link| link.store.is_committing) {
            return Ok(None);
        }
        let mut begun = None;
        for (i, link) in self.links_mut().enumerate().filter(|(_, link)| !link.is_scratch) {
            if let Some(job) = link.store.begin_commit()? {
                begun = Some((i, job));
                break;
            }
        }
        Ok(begun.map(|(i, job)| {
            self.committing = i;
            job
        }))
    }

    /// Records the result of the commit in progress.
    ///
    /// # Errors
    /// As [`PageStore::finish_commit`].
    pub fn finish_commit(&mut self, result: CommitResult) -> Result<(), StoreError> {
        let committing = self.committing;
        match self.links_mut().nth(committing) {
            Some(link) => link.store.finish_commit(result),
            None => Ok(()),
        }
    }
}
