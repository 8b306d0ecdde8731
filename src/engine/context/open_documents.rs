//! Open documents: the chain of stores of the documents that the context begins with, and their catalog entries.
//!
//! ```text
//! DocumentTokens ─► parts ─► a store each ─► StoreChain ─► offload tiers        flush ─► catalog entry of each part
//! ```
//! 1. A part that is saved is not prefilled again if every part before it is complete.
//! 2. Later stores are opened first, so that eviction removes them before the stores that they continue.
//! 3. If a store cannot be opened, the documents before it are used all the same.
//! 4. Parts with KV reused from another position have no store: their pages go to VRAM, RAM and a scratch store.
//!
//! Owner thread: the engine.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::document::catalog::{CatalogEntry, PrecedingDocument, ReadState};
use crate::engine::api::DocumentRef;
use crate::engine::context::document_parts::{DocumentPart, DocumentTokens};
use crate::engine::context::kv_storage::{KvStorage, hexadecimal};
use crate::engine::context::open_part::{OpenDocuments, OpenPart, now_secs};
use crate::engine::context::reused_part::ReusedParts;
use crate::engine::error::EngineError;
use crate::gpu::Gpu;
use crate::kv::VramCache;
use crate::kv::offload::{DiskBacking, scratch};
use crate::kv::store::{OpenReport, PageStore, StoreChain, StoreError};

impl KvStorage {
    /// Opens the stores of documents, for a new context that begins with them. Returns the number of tokens that need no
    /// prefill. None if the context does not change: the same documents are open already, or none must be saved.
    ///
    /// # Errors
    /// A lost device, or offload tiers that cannot be created.
    pub(in crate::engine) fn open_documents(
        &mut self,
        gpu: &Gpu,
        kv: &mut VramCache,
        begins: &DocumentTokens,
    ) -> Result<Option<usize>, EngineError> {
        let Some(library) = self.places.as_ref().map(|(library, _)| library.clone()) else { return Ok(None) };
        let mut parts = begins.parts(&self.spec);
        let joined = begins.joined_part(&self.spec);
        let is_joined = parts.len() > 1 && library.info(&joined.id).is_some();
        if is_joined {
            parts = vec![joined];
        }
        let n_savable = match begins.documents.iter().all(|(document, _)| document.save) {
            true => parts.len(),
            false => parts.iter().take_while(|part| library.info(&part.id).is_some()).count(),
        };
        let may_reuse = !is_joined && self.may_reuse(begins);
        if !may_reuse {
            parts.truncate(n_savable);
        }
        let is_unchanged = |open: &OpenDocuments| open.is_of(&parts) && (may_reuse || open.reused.parts.is_empty());
        if parts.is_empty() || self.open.as_ref().is_some_and(is_unchanged) {
            return Ok(None);
        }
        self.close(gpu, kv);
        // Opened first, so that eviction does not remove what they read.
        let mut reused = if may_reuse { self.find_reusable(begins, &parts, n_savable) } else { ReusedParts::default() };
        parts.truncate(parts.len() - reused.parts.len());
        if parts.is_empty() {
            self.open = Some(OpenDocuments { parts: Vec::new(), reused, tokens: begins.tokens.clone(), is_gone: false });
            return Ok(Some(0));
        }
        let Some((parts, stores, is_new)) = self.open_stores(begins, parts) else { return Ok(Some(0)) };
        let room: u64 = parts.iter().zip(&stores).map(|(part, store)| growth(part, store)).sum();
        let room = room + if reused.parts.is_empty() { 0 } else { unsaved_bytes(kv, begins, &parts) };
        let ids: Vec<&str> = parts.iter().map(|part| part.id.as_str()).collect();
        let allowed = self.make_disk_room(room, &ids);
        let n_last = stores.last().map_or(0, PageStore::n_complete_prefix);
        let Some(chain) = StoreChain::of(stores) else { return Ok(Some(0)) };
        let n_present = chain.n_complete_prefix();
        let parts: Vec<OpenPart> = parts
            .into_iter()
            .zip(is_new)
            .map(|(part, is_new)| OpenPart { entry: self.entry(begins, &part, is_joined), part, is_new })
            .collect();
        self.explain(&parts, n_present, n_last, is_joined);
        // Written at once, so that saved pages are found after a crash of this process.
        parts.iter().for_each(|open| self.write_entry(&open.entry));
        let abstracts = if kv.is_selective() { chain.read_abstracts() } else { Default::default() };
        let n_tokens = parts.last().map_or(0, |open| open.part.tokens.end);
        let backing = self.backing(begins, chain, n_tokens, &mut reused);
        let tiers = self.new_tiers(kv, allowed, backing)?;
        kv.open_offload(gpu, tiers, n_tokens)?;
        kv.begin_document(gpu, n_present, n_tokens, &abstracts)?;
        let n_open = if reused.parts.is_empty() { n_tokens } else { begins.tokens.len() };
        let tokens = begins.tokens.get(..n_open).unwrap_or_default().to_vec();
        self.open = Some(OpenDocuments { parts, reused, tokens, is_gone: false });
        Ok(Some(n_present as usize * KV_PAGE_TOKENS))
    }

    /// The disk tier of a context that begins with the `n_tokens` of `chain`. Without a scratch store, nothing is reused.
    fn backing(&mut self, begins: &DocumentTokens, chain: StoreChain, n_tokens: usize, reused: &mut ReusedParts) -> DiskBacking {
        let library = self.places.as_ref().map(|(library, _)| library).filter(|_| !reused.parts.is_empty());
        let Some(library) = library else { return DiskBacking::Saved(chain) };
        let rest = chain.n_groups() as usize * KV_PAGE_TOKENS..n_tokens;
        match scratch(library, &self.spec, begins.tokens.get(rest).unwrap_or_default()) {
            Ok(scratch) => DiskBacking::SavedThenScratch(chain, Box::new(scratch)),
            Err(error) => {
                self.notices.push(format!("saved KV is not reused at another position: {error}; documents are prefilled"));
                *reused = ReusedParts::default();
                DiskBacking::Saved(chain)
            }
        }
    }

    /// Opens the store of each part, up to the first that cannot be opened. Also returns which of them are new.
    fn open_stores(
        &mut self,
        begins: &DocumentTokens,
        mut parts: Vec<DocumentPart>,
    ) -> Option<(Vec<DocumentPart>, Vec<PageStore>, Vec<bool>)> {
        let mut results: Vec<Result<(PageStore, OpenReport), StoreError>> =
            parts.iter().rev().map(|part| self.open_store(begins, part)).collect();
        results.reverse();
        let (mut stores, mut is_new) = (Vec::new(), Vec::new());
        for (part, result) in parts.iter().zip(results) {
            let name = name_of(begins, part);
            match result {
                Ok((mut store, report)) => {
                    // Tokens that an earlier conversation appended.
                    store.rewind(0);
                    if let Some(reason) = &report.replaced {
                        self.notices.push(format!("the saved KV of {name} cannot be used ({reason}); it is prefilled again"));
                    }
                    is_new.push(report.is_new);
                    stores.push(store);
                }
                Err(error) => {
                    self.notices.push(format!("{name} is prefilled without being saved: {error}"));
                    break;
                }
            }
        }
        parts.truncate(stores.len());
        (!stores.is_empty()).then_some((parts, stores, is_new))
    }

    fn open_store(&self, begins: &DocumentTokens, part: &DocumentPart) -> Result<(PageStore, OpenReport), StoreError> {
        let tokens = begins.tokens.get(part.tokens.clone()).unwrap_or_default();
        let Some((library, _)) = &self.places else { return Err(StoreError::Absent { folder: part.id.clone() }) };
        let folder = library.folder(&part.id)?;
        let folder = self.hook.as_ref().map_or_else(|| folder.clone(), |hook| hook(folder.clone()));
        PageStore::open_or_create(folder, &part.spec, tokens)
    }

    /// Notices about saved KV that is used in an unexpected way, or not at all.
    fn explain(&mut self, parts: &[OpenPart], n_present: u32, n_last: u32, is_joined: bool) {
        let Some(last) = parts.last() else { return };
        if is_joined {
            self.notices.push(format!(
                "{} was saved as one text, which is used for these documents in this order; remove it from the library to save \
                 each document by itself",
                last.entry.name
            ));
        }
        let is_partial = |open: &&OpenPart| n_present < open.part.groups().end;
        let partial = parts.iter().find(is_partial).filter(|open| open.part != last.part);
        if let Some(partial) = partial.filter(|_| n_last > 0) {
            let (before, after) = (&partial.entry.name, &last.entry.name);
            self.notices.push(format!(
                "the saved KV of {before} is incomplete, so that the KV of {after}, which was saved after it, cannot be used; \
                 both are prefilled again"
            ));
        }
    }

    fn entry(&self, begins: &DocumentTokens, part: &DocumentPart, is_joined: bool) -> CatalogEntry {
        let now = now_secs();
        let known = self.places.as_ref().and_then(|(_, catalog)| catalog.get(&part.id).ok().flatten());
        let preceding = |document: &DocumentRef| PrecedingDocument {
            name: document.name.clone(),
            content_hash: hexadecimal(document.content_hash),
        };
        let before = begins.documents.get(..part.document).unwrap_or_default();
        let own = begins.documents.get(part.document).map(|(document, _)| document);
        let new = CatalogEntry {
            id: part.id.clone(),
            content_hash: own.map_or_else(String::new, |document| hexadecimal(document.content_hash)),
            name: own.map_or_else(String::new, |document| document.name.clone()),
            after: before.iter().map(|(document, _)| preceding(document)).collect(),
            bytes: own.map_or(0, |document| document.bytes),
            pages: own.map_or(0, |document| document.pages),
            model: self.model.clone(),
            model_fingerprint: hexadecimal(self.spec.model_hash),
            kv_dtype: self.dtype.name().to_owned(),
            tokens: part.n_new,
            saved_tokens: 0,
            kv_bytes: 0,
            state: ReadState::Partial,
            prefill_seconds: 0.0,
            created: now,
            last_used: now,
        };
        match known {
            // Names and hashes of a joined text are those with which it was saved.
            Some(known) if is_joined => CatalogEntry { last_used: now, ..known },
            Some(known) => CatalogEntry {
                saved_tokens: known.saved_tokens,
                kv_bytes: known.kv_bytes,
                state: known.state,
                prefill_seconds: known.prefill_seconds,
                created: known.created,
                ..new
            },
            None => new,
        }
    }

    fn write_entry(&mut self, entry: &CatalogEntry) {
        if let Some(Err(error)) = self.places.as_ref().map(|(_, catalog)| catalog.upsert(entry)) {
            self.notices.push(format!("the library has no entry for {}: {error}", entry.name));
        }
    }

    /// Flushes the offload tiers and updates the catalog. True if the list of saved documents has changed.
    ///
    /// # Errors
    /// An error of the offload tiers, or a lost device.
    pub(in crate::engine) fn flush_documents(
        &mut self,
        gpu: &Gpu,
        kv: &mut VramCache,
        prefill_seconds: f64,
    ) -> Result<bool, EngineError> {
        if !kv.has_offload() || self.open.as_ref().is_none_or(|open| open.parts.is_empty()) {
            return Ok(false);
        }
        kv.flush_offload(gpu)?;
        let n_saved = kv.report().n_saved_groups;
        let root = self.setup.kv_dir.clone().unwrap_or_default();
        let (Some(open), Some((library, _))) = (&mut self.open, &self.places) else { return Ok(false) };
        let sizes: Vec<_> = open.parts.iter().map(|open| library.info(&open.part.id)).collect();
        if let Some((gone, _)) = open.parts.iter().zip(&sizes).find(|(_, size)| size.is_none()) {
            // Earlier commits may have succeeded, so no error reports it.
            if !std::mem::replace(&mut open.is_gone, true) {
                let (name, folder) = (&gone.entry.name, root.join(&gone.entry.id));
                self.notices.push(format!("{} is gone, so that {name} is not saved and will be read again", folder.display()));
            }
            return Ok(true);
        }
        let n_before: usize = open.parts.iter().map(|open| open.entry.saved_tokens).sum();
        for (open, size) in open.parts.iter_mut().zip(sizes) {
            open.update(n_saved, size.map_or(0, |size| size.bytes.0));
        }
        // Prefill time is divided by new tokens.
        let n_new = open.parts.iter().map(|open| open.entry.saved_tokens).sum::<usize>().saturating_sub(n_before);
        let mut left = n_new;
        for part in open.parts.iter_mut().rev() {
            let n = part.entry.saved_tokens.min(left);
            left -= n;
            part.entry.prefill_seconds += prefill_seconds * n as f64 / n_new.max(1) as f64;
        }
        let entries: Vec<CatalogEntry> = open.parts.iter().map(|open| open.entry.clone()).collect();
        let mut new = Vec::new();
        for open in open.parts.iter_mut().filter(|open| n_saved > open.part.groups().start) {
            if std::mem::take(&mut open.is_new) {
                new.push(open.entry.name.clone());
            }
        }
        entries.iter().for_each(|entry| self.write_entry(entry));
        let root = root.display();
        self.notices.extend(match new.split_last() {
            None => None,
            Some((name, [])) => Some(format!(
                "{name} is saved in {root}, so that it need not be read again; its text can be recovered from there until it is \
                 removed from the library"
            )),
            Some((last, others)) => Some(format!(
                "{} and {last} are saved in {root}, so that they need not be read again; their texts can be recovered from there \
                 until they are removed from the library",
                others.join(", ")
            )),
        });
        Ok(true)
    }
}

/// Bytes by which the store grows until its part is complete.
fn growth(part: &DocumentPart, store: &PageStore) -> u64 {
    let complete = store.geometry().store_bytes(u64::from(store.n_groups()), part.tokens.len() as u64);
    complete.saturating_sub(store.disk_bytes().0)
}

/// Maximum bytes of pages on disk of the tokens after these parts.
fn unsaved_bytes(kv: &VramCache, begins: &DocumentTokens, parts: &[DocumentPart]) -> u64 {
    let n_tokens = begins.tokens.len();
    let n_groups = (n_tokens / KV_PAGE_TOKENS) as u64 - parts.last().map_or(0, |part| u64::from(part.groups().end));
    let n_offloaded = if kv.is_selective() { n_groups } else { n_groups.min(kv.offloaded_groups(n_tokens)) };
    n_offloaded * kv.spec().group_bytes()
}

fn name_of<'a>(begins: &'a DocumentTokens, part: &DocumentPart) -> &'a str {
    begins.documents.get(part.document).map_or("the document", |(document, _)| document.name.as_str())
}
