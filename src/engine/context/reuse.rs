//! Reuse at another position: finds saved KV of documents, and imports it into the context instead of a prefill.
//!
//! ```text
//! part without saved KV ─► catalog: same document, model, KV type ─► store ─► equal tokens ─► groups ─► imported in order
//! ```
//! 1. Off by default. The result is approximate: summaries count its tokens.
//! 2. From the first reused part on, nothing is written to saved stores or to the catalog.
//! 3. The old position of a store is verified with the hash of all tokens before it.
//! 4. Whatever cannot be opened or read is prefilled, with one notice.
//!
//! Owner thread: the engine.
//!
//! Limits: not from a store that the context itself has open, as for a document that is twice in a prompt.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::document::catalog::{CatalogEntry, ReadState};
use crate::engine::api::ReusedDocument;
use crate::engine::context::document_parts::{DocumentPart, DocumentTokens, settings_after};
use crate::engine::context::kv_storage::{KvStorage, hexadecimal};
use crate::engine::context::reused_part::{RepositionMode, ReusedPart, ReusedParts, Source};
use crate::engine::error::EngineError;
use crate::engine::runner::ModelRunner;
use crate::engine::runner::executor::Executor;
use crate::engine::runner::submit_pacer::SubmitPacer;
use crate::gpu::Gpu;
use crate::kv::store::{PageStore, StoreError, StoreSpec};
use crate::kv::{KvSpec, ReusableGroups, reusable_groups};

impl KvStorage {
    /// True if saved KV may be reused at another position.
    pub(in crate::engine) fn reuses_anywhere(&self) -> bool {
        matches!(self.reposition, RepositionMode::On(_))
    }

    /// True if parts of these documents may be reused. A notice follows once if the model has no rotary positions.
    pub(super) fn may_reuse(&mut self, begins: &DocumentTokens) -> bool {
        if let RepositionMode::Impossible { has_notified: has_notified @ false } = &mut self.reposition {
            *has_notified = true;
            self.notices.push(
                "this model has learned positions, so that saved KV cannot be reused at another position; documents are prefilled"
                    .to_owned(),
            );
        }
        self.reuses_anywhere() && !begins.is_exact
    }

    /// Of `parts`, those from the first one on that is not to have a store: it reuses KV, or is not among the first
    /// `n_savable`.
    pub(super) fn find_reusable(&mut self, begins: &DocumentTokens, parts: &[DocumentPart], n_savable: usize) -> ReusedParts {
        let RepositionMode::On(rope) = &self.reposition else { return ReusedParts::default() };
        let (rope, mut reused) = (rope.clone(), Vec::new());
        let listed = self.places.as_ref().and_then(|(_, catalog)| catalog.list().ok()).unwrap_or_default();
        let entries: Vec<CatalogEntry> = listed.into_iter().filter(|entry| self.is_usable(entry)).collect();
        for (i, part) in parts.iter().enumerate() {
            if reused.is_empty() && i < n_savable && self.has_saved(part) {
                continue;
            }
            let found = self.find_source(&entries, begins, part, parts);
            if let Some((document, _)) = begins.documents.get(part.document)
                && (found.is_some() || !reused.is_empty() || i >= n_savable)
            {
                reused.push(ReusedPart::new(part.clone(), document.clone(), found));
            }
        }
        ReusedParts::new(reused, rope)
    }

    /// True if something of the part is saved at its own position.
    fn has_saved(&self, part: &DocumentPart) -> bool {
        let Some((library, catalog)) = &self.places else { return false };
        match catalog.get(&part.id) {
            Ok(Some(entry)) => entry.saved_tokens > 0,
            _ => library.info(&part.id).is_some(),
        }
    }

    /// A store that has the document of a part at another position, and the groups that it has.
    fn find_source(
        &mut self,
        entries: &[CatalogEntry],
        begins: &DocumentTokens,
        part: &DocumentPart,
        parts: &[DocumentPart],
    ) -> Option<(ReusableGroups, Source)> {
        let (document, _) = begins.documents.get(part.document)?;
        let before = part.document.checked_sub(1).and_then(|i| begins.documents.get(i));
        let start = before.map_or(begins.n_head, |(_, end)| *end).max(part.tokens.end - part.n_new).min(part.tokens.end);
        let content_hash = hexadecimal(document.content_hash);
        let is_same = |e: &&CatalogEntry| e.content_hash == content_hash && e.state == ReadState::Read;
        let mut candidates: Vec<_> = entries.iter().filter(is_same).filter(|e| parts.iter().all(|p| p.id != e.id)).collect();
        candidates.sort_by_key(|entry| entry.after.len());
        let mut problem = None;
        for entry in candidates {
            match self.open_source(entries, entry) {
                Ok(Some(source)) => {
                    let found = reusable_groups(&begins.tokens, start..part.tokens.end, source.store.tokens());
                    if let Some(groups) = found {
                        return Some((groups, source));
                    }
                }
                Ok(None) => {}
                Err(error) => problem = Some(error),
            }
        }
        if let Some(error) = problem {
            let name = &document.name;
            self.notices.push(format!("the saved KV of {name} cannot be reused at another position ({error}); it is prefilled"));
        }
        None
    }

    /// True if the entry is of this model and KV type.
    fn is_usable(&self, entry: &CatalogEntry) -> bool {
        entry.model_fingerprint == hexadecimal(self.spec.model_hash) && entry.kv_dtype == self.dtype.name()
    }

    /// Opens the store of an entry. None if its KV is of another kind, or its position is unknown.
    fn open_source(&self, entries: &[CatalogEntry], entry: &CatalogEntry) -> Result<Option<Source>, StoreError> {
        let Some((library, _)) = &self.places else { return Ok(None) };
        let folder = library.folder(&entry.id)?;
        let folder = self.hook.as_ref().map_or_else(|| folder.clone(), |hook| hook(folder.clone()));
        let (store, _) = PageStore::open_existing(folder)?;
        let is_same_kind = StoreSpec { settings_hash: self.spec.settings_hash, ..store.spec().clone() } == self.spec;
        let first_pos = self.first_pos(entries, entry, &store).filter(|_| is_same_kind);
        Ok(first_pos.map(|first_pos| Source::new(store, first_pos)))
    }

    /// Position of the first token of a store in the prompt that it was saved from. None if it cannot be verified.
    fn first_pos(&self, entries: &[CatalogEntry], entry: &CatalogEntry, store: &PageStore) -> Option<usize> {
        if store.spec().settings_hash == self.spec.settings_hash {
            return Some(0);
        }
        let (library, _) = self.places.as_ref()?;
        let hashes = |entry: &CatalogEntry| entry.after.iter().map(|d| d.content_hash.clone()).collect::<Vec<_>>();
        let mut before: Vec<u32> = Vec::new();
        for (i, preceding) in entry.after.iter().enumerate() {
            let is_it = |e: &&CatalogEntry| e.content_hash == preceding.content_hash && hashes(e) == hashes(entry)[..i];
            // A short document has no store of its own: its tokens are in the next one.
            let Some(earlier) = entries.iter().find(is_it) else { continue };
            before.truncate(before.len() / KV_PAGE_TOKENS * KV_PAGE_TOKENS);
            before.extend(PageStore::document_tokens(&library.folder(&earlier.id).ok()?).ok()?);
        }
        before.truncate(before.len() / KV_PAGE_TOKENS * KV_PAGE_TOKENS);
        (settings_after(&self.spec, &before) == store.spec().settings_hash).then_some(before.len())
    }

    /// Pages of the group of `tokens` at `pos` by layer, for the tail. None if it has to be prefilled.
    fn reused_pages(&mut self, spec: &KvSpec, tokens: &[u32], pos: usize) -> Option<Vec<Vec<u8>>> {
        let open = self.open.as_mut().filter(|open| open.tokens.get(pos..pos + tokens.len()) == Some(tokens))?;
        match open.reused.pages_at(spec, pos)? {
            Ok(pages) => Some(pages),
            Err(notice) => {
                self.notices.push(notice);
                None
            }
        }
    }

    /// Forgets imported groups from token `n_tokens` on.
    pub(in crate::engine) fn truncate_imported(&mut self, n_tokens: usize) {
        let end = (n_tokens / KV_PAGE_TOKENS) as u32;
        self.open.iter_mut().for_each(|open| open.reused.retain(|group| group < end));
    }

    /// Forgets an imported group that was computed again.
    pub(in crate::engine) fn forget_imported(&mut self, group: u32) {
        self.open.iter_mut().for_each(|open| open.reused.retain(|imported| imported != group));
    }

    /// Documents with reused KV among the first `n_tokens` of the context.
    pub(in crate::engine) fn reused_documents(&self, n_tokens: usize) -> Vec<ReusedDocument> {
        self.open.as_ref().map(|open| open.reused.documents(n_tokens)).unwrap_or_default()
    }

    /// Tokens among the first `n_tokens` of the context whose KV was saved at another position.
    pub(in crate::engine) fn n_approximate_tokens(&self, n_tokens: usize) -> usize {
        self.reused_documents(n_tokens).iter().map(|document| document.tokens).sum()
    }
}

impl ModelRunner {
    /// Imports the next group of `target`, if its KV is saved at another position. False if it has to be prefilled. The last
    /// token of `target` is always prefilled.
    ///
    /// # Errors
    /// All tiers full, an error of the offload tiers, a lost device.
    pub(in crate::engine) fn import_group(&mut self, gpu: &Gpu, target: &[u32]) -> Result<bool, EngineError> {
        let pos = self.tokens.len();
        let end = pos + KV_PAGE_TOKENS;
        let Some(chunk) = target.get(pos..end).filter(|_| end < target.len()) else { return Ok(false) };
        let Some(pages) = self.storage.reused_pages(self.exec.kv.spec(), chunk, pos) else { return Ok(false) };
        self.exec.kv.append_tokens(pos, chunk);
        self.exec.import_pages(gpu, &mut self.pacer, &pages, pos)?;
        self.tokens.extend_from_slice(chunk);
        if let Some(open) = &mut self.storage.open {
            open.reused.record_imported(pos);
        }
        Ok(true)
    }

    /// Tokens of the next prefill chunk at `pos` when `left` remain: up to the next group that is imported.
    pub(in crate::engine) fn chunk_before_import(&self, pos: usize, left: usize) -> usize {
        let before = self.storage.open.as_ref().and_then(|open| open.reused.tokens_before_import(pos));
        self.next_chunk(pos, before.filter(|n| *n > 0).map_or(left, |n| n.min(left)))
    }
}

impl Executor {
    /// Writes the pages of the group at `first_pos` to the tail of each layer, and seals them.
    fn import_pages(
        &mut self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        pages: &[Vec<u8>],
        first_pos: usize,
    ) -> Result<(), EngineError> {
        // Pages of the tail are overwritten below: commands that read them must have been submitted.
        pacer.flush(gpu)?;
        self.kv.begin_pass(gpu, first_pos, false);
        let end = first_pos + KV_PAGE_TOKENS;
        for (layer, page) in pages.iter().enumerate() {
            if let Some((physical, _)) = self.kv.to_seal(end).next() {
                let tail = self.kv.tail(layer).0;
                gpu.write(&tail.buffer.slice(tail.offset + (physical * page.len()) as u64, page.len() as u64), page);
            }
            self.seal(gpu, pacer, layer, end)?;
        }
        self.kv.end_pass(end);
        Ok(())
    }
}

#[cfg(test)]
#[path = "reuse_tests.rs"]
mod tests;
