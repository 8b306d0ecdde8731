//! Open documents: the chain of stores of the documents that the context begins with, and their catalog entries.
//!
//! ```text
//! DocumentTokens ─► parts ─► a store each ─► StoreChain ─► offload tiers        flush ─► catalog entry of each part
//! ```
//! 1. A part that is saved is not prefilled again if every part before it is complete.
//! 2. Later stores are opened first, so that eviction removes them before the stores that they continue.
//! 3. If a store cannot be opened, the documents before it are used all the same.
//!
//! Owner thread: the engine.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::document::catalog::{CatalogEntry, PrecedingDocument, ReadState};
use crate::engine::api::DocumentRef;
use crate::engine::context::document_parts::{DocumentPart, DocumentTokens};
use crate::engine::context::kv_storage::KvStorage;
use crate::engine::context::open_part::{OpenDocuments, OpenPart, now_secs};
use crate::engine::error::EngineError;
use crate::gpu::Gpu;
use crate::kv::VramCache;
use crate::kv::offload::DiskBacking;
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
        let Some((library, _)) = &self.places else { return Ok(None) };
        let mut parts = begins.parts(&self.spec);
        let joined = begins.joined_part(&self.spec);
        let is_joined = parts.len() > 1 && library.info(&joined.id).is_some();
        if is_joined {
            parts = vec![joined];
        }
        if !begins.documents.iter().all(|(document, _)| document.save) {
            let n_saved = parts.iter().take_while(|part| library.info(&part.id).is_some()).count();
            parts.truncate(n_saved);
        }
        let is_open = self.open.as_ref().is_some_and(|open| open.parts.iter().map(|open| &open.part).eq(&parts));
        if parts.is_empty() || is_open {
            return Ok(None);
        }
        self.close(gpu, kv);
        let Some((parts, stores, is_new)) = self.open_stores(begins, parts) else { return Ok(Some(0)) };
        let room = parts.iter().zip(&stores).map(|(part, store)| growth(part, store)).sum();
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
        let tiers = self.new_tiers(kv, allowed, DiskBacking::Saved(chain))?;
        let n_tokens = parts.last().map_or(0, |open| open.part.tokens.end);
        kv.open_offload(gpu, tiers, n_tokens)?;
        kv.begin_document(gpu, n_present, n_tokens, &abstracts)?;
        let tokens = begins.tokens.get(..n_tokens).unwrap_or_default().to_vec();
        self.open = Some(OpenDocuments { parts, tokens, is_gone: false });
        Ok(Some(n_present as usize * KV_PAGE_TOKENS))
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
        if !kv.has_offload() || self.open.is_none() {
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

fn name_of<'a>(begins: &'a DocumentTokens, part: &DocumentPart) -> &'a str {
    begins.documents.get(part.document).map_or("the document", |(document, _)| document.name.as_str())
}

fn hexadecimal(hash: [u8; 32]) -> String {
    blake3::Hash::from_bytes(hash).to_hex().to_string()
}
