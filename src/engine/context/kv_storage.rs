//! What lies below VRAM for the context at hand: budgets, the library, the document's store or a scratch store.
//!
//! ```text
//! document's tokens ─► id ─► store in the library: groups that are there are not read again; others are written behind
//! no document, and too much for VRAM ─► RAM alone where it holds the rest of the window, else a scratch store as well
//! ```
//! 1. A store is named by what makes its pages: model, settings and the document's tokens.
//! 2. Whatever keeps a document from being saved is a notice, never a failed answer.
//! 3. The disk budget holds for the whole library: other documents leave it, least recently used first, never one that is
//!    open.
//!
//! Owner thread: the engine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use crate::base::limits::KV_PAGE_TOKENS;
use crate::base::{Bytes, LinkLimits};
use crate::document::catalog::{Catalog, CatalogEntry, ReadState};
use crate::engine::api::{DocumentRef, KvDtype, KvSetup, LoadOptions, SavedDocument};
use crate::engine::context::saved_documents;
use crate::engine::error::EngineError;
use crate::engine::memory_fit;
use crate::gpu::Gpu;
use crate::kv::offload::{DiskBacking, OffloadConfig, OffloadTiers, remove_stale_scratch, scratch};
use crate::kv::policy::PolicySpec;
use crate::kv::policy::leoam::abstracts;
use crate::kv::store::{Folder, Io, IoConfig, PageStore, StoreError, StoreRoot, StoreSpec};
use crate::kv::{KvError, KvSpec, VramCache, budget};
use crate::model::ModelFile;
use crate::telemetry::Hub;

/// Documents shorter than this are read faster than they are found.
const LEAST_SAVED_TOKENS: usize = 2 * KV_PAGE_TOKENS;

/// Puts something between a store and its folder; tests inject faults so.
pub type FolderHook = Arc<dyn Fn(Arc<dyn Folder>) -> Arc<dyn Folder> + Send + Sync>;

/// Budgets, folders and hashes of a loaded model, and what is open.
pub(in crate::engine) struct KvStorage {
    pub(in crate::engine) setup: KvSetup,
    limits: LinkLimits,
    read_ahead: bool,
    spec: StoreSpec,
    model: String,
    dtype: KvDtype,
    places: Option<(StoreRoot, Catalog)>,
    io: Option<Io>,
    hub: Arc<Hub>,
    hook: Option<FolderHook>,
    open: Option<OpenDocument>,
    notices: Vec<String>,
}

struct OpenDocument {
    entry: CatalogEntry,
    tokens: Vec<u32>,
    /// its store was made for it, and nobody was told yet
    is_new: bool,
    /// its folder was deleted, and that was told
    is_gone: bool,
}

impl KvStorage {
    /// Looks at the machine and opens the library. A library that cannot be opened is a notice.
    pub(in crate::engine) fn new(
        gpu: &Gpu,
        hub: &Arc<Hub>,
        file: &ModelFile,
        kv: &KvSpec,
        options: &LoadOptions,
        weight_bytes: u64,
        hook: Option<FolderHook>,
    ) -> Result<KvStorage, EngineError> {
        let root = saved_documents::library_root(options.kv_dir.as_deref()).ok();
        let mut notices = Vec::new();
        let places = root.and_then(|root| match open_places(root, &mut notices) {
            Ok(places) => Some(places),
            Err(sentence) => {
                notices.push(format!("documents cannot be saved: {sentence}"));
                None
            }
        });
        let root = places.as_ref().map(|(library, _)| library.root().to_owned());
        let budgets = memory_fit::budgets(&budget::Machine::look(gpu, root.as_deref()), weight_bytes, options);
        let io = Io::start(&IoConfig::from_env()).map_err(|e| KvError::NoThread(e.to_string()))?;
        let info = io.info();
        Ok(KvStorage {
            setup: KvSetup { budgets, io_backend: info.kind.to_string(), io_reason: info.reason, kv_dir: root },
            limits: options.limits,
            read_ahead: !options.synchronous,
            spec: store_spec(file, kv, options.kv_dtype)?,
            model: file.info().name.clone(),
            dtype: options.kv_dtype,
            places,
            io: Some(io),
            hub: hub.clone(),
            hook,
            open: None,
            notices,
        })
    }

    /// Uses the disk no more, until the model is loaded again.
    pub(in crate::engine) fn disable_disk_tier(&mut self) {
        self.places = None;
        self.notices.push(
            "pages that were just written to the disk cannot be read again; the context is read into memory alone, and nothing \
             is saved until the model is loaded again; check the disk"
                .to_owned(),
        );
    }

    /// What the user should know, once.
    pub(in crate::engine) fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Tokens of the document that is open; none where there is none.
    pub(in crate::engine) fn document_tokens(&self) -> Option<&[u32]> {
        self.open.as_ref().map(|o| o.tokens.as_slice())
    }

    /// Elements of pages.
    pub(in crate::engine) fn dtype(&self) -> KvDtype {
        self.dtype
    }

    /// The context reads a backend's disk.
    pub(in crate::engine) fn io_backend(&self) -> String {
        self.setup.io_backend.clone()
    }

    fn take_io(&mut self) -> Result<Io, KvError> {
        match self.io.take() {
            Some(io) => Ok(io),
            None => Io::start(&IoConfig::from_env()).map_err(|e| KvError::NoThread(e.to_string())),
        }
    }

    fn lower(&mut self, kv: &VramCache, disk_budget: u64, backing: DiskBacking) -> Result<OffloadTiers, KvError> {
        let config = OffloadConfig {
            ram_budget: Bytes(self.setup.budgets.ram.saturating_sub(kv.readback_bytes())),
            disk_budget: Bytes(disk_budget),
            nvme_limit: self.limits.nvme,
            page_bytes: self.spec.kv_page_bytes,
            n_layer: self.spec.n_layer,
            read_ahead: self.read_ahead,
        };
        let io = self.take_io()?;
        Ok(OffloadTiers::new(config, io, backing, self.hub.lane("disk"))?)
    }

    /// Layers that a policy keeps off the disk must fit VRAM and RAM.
    ///
    /// # Errors
    /// [`KvError::FirstLayers`].
    pub(in crate::engine) fn check_first_layers(
        &self,
        kv: &VramCache,
        spec: &PolicySpec,
        n_tokens: usize,
    ) -> Result<(), KvError> {
        if !spec.kind.reads_abstracts() {
            return Ok(());
        }
        let n_layers = spec.n_first_layers.min(kv.spec().n_layer);
        let layer_bytes = n_layers as u64 * kv.spec().page_bytes();
        let n_pages = (n_tokens / KV_PAGE_TOKENS) as u64;
        let needed = Bytes(n_pages * layer_bytes);
        let vram = Bytes((n_pages - kv.offloaded_groups(n_tokens)) * layer_bytes);
        let ram = Bytes(self.setup.budgets.ram.saturating_sub(kv.readback_bytes()));
        if needed.0 > vram.0.saturating_add(ram.0) {
            let policy = spec.kind.name();
            return Err(KvError::FirstLayers { policy, n_layers, tokens: n_tokens, needed, vram, ram });
        }
        Ok(())
    }

    /// Makes sure that a context of `n_tokens`, of which `tokens` are read, has somewhere to go.
    ///
    /// # Errors
    /// [`KvError::OverBudget`] where all tiers together are too small.
    pub(in crate::engine) fn make_room(
        &mut self,
        gpu: &Gpu,
        kv: &mut VramCache,
        tokens: &[u32],
        n_tokens: usize,
    ) -> Result<(), KvError> {
        let group_bytes = kv.spec().group_bytes();
        let below = kv.offloaded_groups(n_tokens) * group_bytes;
        if below == 0 {
            return Ok(());
        }
        let b = self.setup.budgets;
        let ram = b.ram.saturating_sub(kv.readback_bytes());
        let disk = if self.places.is_some() { b.disk } else { 0 };
        if below > ram.saturating_add(disk) {
            let needed = Bytes(kv.spec().token_bytes() * n_tokens as u64);
            let (vram, ram, disk) = (Bytes(b.vram), Bytes(ram), Bytes(disk));
            return Err(KvError::OverBudget { tokens: n_tokens, needed, vram, ram, disk });
        }
        if kv.has_offload() {
            return Ok(());
        }
        // With all of the window's rest in RAM the disk has nothing to do.
        let most = kv.offloaded_groups(kv.limit()) * group_bytes;
        let library = self.places.as_ref().map(|(library, _)| library.clone()).filter(|_| most > ram);
        let backing = match library {
            Some(library) => {
                self.make_disk_room(below, "");
                DiskBacking::Scratch(scratch(&library, &self.spec, tokens)?)
            }
            None => DiskBacking::None,
        };
        let lower = self.lower(kv, disk, backing)?;
        kv.open_offload(gpu, lower, tokens.len())
    }

    /// Opens the store of a document, which begins the context anew: the tokens that need not be read again. None where it
    /// stays as it is, because the document is open already or is not to be saved.
    ///
    /// # Errors
    /// A lost device, or tiers that cannot be set up.
    pub(in crate::engine) fn open_document(
        &mut self,
        gpu: &Gpu,
        kv: &mut VramCache,
        document: &DocumentRef,
        tokens: &[u32],
    ) -> Result<Option<usize>, EngineError> {
        let id = self.document_id(tokens);
        if tokens.len() < LEAST_SAVED_TOKENS || self.open.as_ref().is_some_and(|o| o.entry.id == id) {
            return Ok(None);
        }
        let Some((library, catalog)) = &self.places else { return Ok(None) };
        if !document.save && library.info(&id).is_none() {
            return Ok(None);
        }
        let known = catalog.get(&id).ok().flatten();
        let library = library.clone();
        self.close(gpu, kv);
        let folder = match (library.folder(&id), &self.hook) {
            (Ok(folder), Some(hook)) => hook(folder),
            (Ok(folder), None) => folder,
            (Err(error), _) => return Ok(self.not_saved(&document.name, &error)),
        };
        let (mut store, report) = match PageStore::open_or_create(folder, &self.spec, tokens) {
            Ok(opened) => opened,
            Err(error) => return Ok(self.not_saved(&document.name, &error)),
        };
        // What an earlier conversation added after the document is not this one's.
        store.rewind(tokens.len());
        if let Some(why) = &report.replaced {
            self.notices.push(format!("the saved KV of {} was of no use ({why}); it is read again", document.name));
        }
        let growth = store.geometry().store_bytes(u64::from(store.n_groups()), tokens.len() as u64);
        let allowed = self.make_disk_room(growth.saturating_sub(store.disk_bytes().0), &id);
        let n_present = store.n_complete_prefix();
        let entry = self.entry(id, document, tokens.len(), known);
        // Known from now on: what is read survives whatever happens to this process.
        if let Some(Err(error)) = self.places.as_ref().map(|(_, catalog)| catalog.upsert(&entry)) {
            self.notices.push(format!("the library does not know of {}: {error}", entry.name));
        }
        // What cannot be read of the abstracts is read of the pages instead.
        let abstracts = if kv.is_selective() { store.read_abstracts().unwrap_or_default() } else { Default::default() };
        let lower = self.lower(kv, allowed, DiskBacking::Saved(store))?;
        kv.open_offload(gpu, lower, tokens.len())?;
        kv.begin_document(gpu, n_present, tokens.len(), &abstracts)?;
        self.open = Some(OpenDocument { entry, tokens: tokens.to_vec(), is_new: report.is_new, is_gone: false });
        Ok(Some(n_present as usize * KV_PAGE_TOKENS))
    }

    fn not_saved(&mut self, name: &str, why: &StoreError) -> Option<usize> {
        self.notices.push(format!("{name} is read without being saved: {why}"));
        None
    }

    fn document_id(&self, tokens: &[u32]) -> String {
        let mut hash = blake3::Hasher::new();
        for part in [&self.spec.model_hash, &self.spec.tokenizer_hash, &self.spec.settings_hash] {
            hash.update(part);
        }
        hash.update(bytemuck::cast_slice(tokens));
        hash.finalize().to_hex()[..32].to_owned()
    }

    fn entry(&self, id: String, document: &DocumentRef, tokens: usize, known: Option<CatalogEntry>) -> CatalogEntry {
        let now = now_secs();
        CatalogEntry {
            id,
            content_hash: blake3::Hash::from_bytes(document.content_hash).to_hex().to_string(),
            name: document.name.clone(),
            bytes: document.bytes,
            pages: document.pages,
            model: self.model.clone(),
            model_fingerprint: blake3::Hash::from_bytes(self.spec.model_hash).to_hex().to_string(),
            kv_dtype: saved_documents::dtype_name(self.dtype).to_owned(),
            tokens,
            saved_tokens: known.as_ref().map_or(0, |k| k.saved_tokens),
            kv_bytes: known.as_ref().map_or(0, |k| k.kv_bytes),
            state: known.as_ref().map_or(ReadState::Partial, |k| k.state),
            prefill_seconds: known.as_ref().map_or(0.0, |k| k.prefill_seconds),
            created: known.as_ref().map_or(now, |k| k.created),
            last_used: now,
        }
    }

    /// Makes room for `room` more bytes in the library by removing documents that were not used for longest; what the store
    /// named `keep` may have in all.
    fn make_disk_room(&mut self, room: u64, keep: &str) -> u64 {
        let Some((library, catalog)) = &self.places else { return 0 };
        let budget = self.setup.budgets.disk;
        let own = library.info(keep).map_or(0, |s| s.bytes.0);
        let Ok(eviction) = library.evict(Bytes(budget), Bytes(room), &[keep]) else {
            return own.saturating_add(room).min(budget);
        };
        for gone in &eviction.removed {
            let name = catalog.get(&gone.name).ok().flatten().map_or_else(|| "an unknown document".to_owned(), |e| e.name);
            // A name without files is shown as missing: not worth failing for.
            let _ = catalog.remove(&gone.name);
            self.notices.push(format!(
                "{name} left the library, where it took {}: the disk budget of {} was needed for another document",
                gone.bytes,
                Bytes(budget)
            ));
        }
        budget.saturating_sub(eviction.total.0.saturating_sub(own))
    }

    /// After a turn or at its beginning: what was read is written, and the catalog knows. True when the list changed.
    ///
    /// # Errors
    /// What the tiers below failed with, or a lost device.
    pub(in crate::engine) fn settle(&mut self, gpu: &Gpu, kv: &mut VramCache, prefill_seconds: f64) -> Result<bool, EngineError> {
        if !kv.has_offload() || self.open.is_none() {
            return Ok(false);
        }
        kv.flush_offload(gpu)?;
        let report = kv.report();
        let root = self.setup.kv_dir.clone().unwrap_or_default();
        let (Some(open), Some((library, catalog))) = (&mut self.open, &self.places) else { return Ok(false) };
        if library.info(&open.entry.id).is_none() {
            // Commits may have ended before, so nobody else would say so.
            if !std::mem::replace(&mut open.is_gone, true) {
                let (name, folder) = (&open.entry.name, root.join(&open.entry.id));
                self.notices.push(format!("{} is gone, so that {name} is not saved and will be read again", folder.display()));
            }
            return Ok(true);
        }
        let whole = open.tokens.len() / KV_PAGE_TOKENS;
        let saved = (report.n_saved_groups as usize).min(whole);
        let before = open.entry.clone();
        open.entry.saved_tokens = saved * KV_PAGE_TOKENS;
        open.entry.kv_bytes = report.store_bytes;
        open.entry.state = if saved == whole { ReadState::Read } else { ReadState::Partial };
        open.entry.last_used = now_secs();
        if open.entry.saved_tokens > before.saved_tokens {
            open.entry.prefill_seconds += prefill_seconds;
        }
        if let Err(error) = catalog.upsert(&open.entry) {
            self.notices.push(format!("the library does not know of {}: {error}", open.entry.name));
        }
        if std::mem::take(&mut open.is_new) && saved > 0 {
            self.notices.push(format!(
                "{} is saved in {}, so that it need not be read again; its text can be recovered from there until it is \
                 removed from the library",
                open.entry.name,
                root.display()
            ));
        }
        Ok(true)
    }

    /// Closes what is below the context, which is empty afterwards.
    pub(in crate::engine) fn close(&mut self, gpu: &Gpu, kv: &mut VramCache) {
        self.open = None;
        if let Some(io) = kv.close_offload(gpu) {
            self.io = Some(io);
        }
    }

    /// The context died with its device: what is open is only forgotten.
    pub(in crate::engine) fn forget(&mut self) {
        self.open = None;
    }

    /// All saved documents.
    pub(in crate::engine) fn list(&self) -> Option<Vec<SavedDocument>> {
        let (library, catalog) = self.places.as_ref()?;
        saved_documents::list(catalog, library).ok()
    }
}

fn open_places(root: PathBuf, notices: &mut Vec<String>) -> Result<(StoreRoot, Catalog), String> {
    let library = StoreRoot::open(root.clone()).map_err(|e| e.to_string())?;
    let (catalog, note) = Catalog::open(&root).map_err(|e| e.to_string())?;
    notices.extend(note);
    // What a process that died has left is room again; what cannot be removed now is tried again next time.
    let _ = remove_stale_scratch(&library);
    Ok((library, catalog))
}

fn now_secs() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.ok().and_then(|d| i64::try_from(d.as_secs()).ok()).unwrap_or(0)
}

/// Whose pages these are: everything that changes a byte of them is in one of the hashes.
fn store_spec(file: &ModelFile, kv: &KvSpec, dtype: KvDtype) -> Result<StoreSpec, EngineError> {
    let settings = blake3::Hasher::new()
        .update(&file.plan().settings_fingerprint())
        .update(saved_documents::dtype_name(dtype).as_bytes())
        .finalize();
    Ok(StoreSpec {
        model_hash: file.fingerprint()?,
        tokenizer_hash: file.tokenizer_fingerprint()?,
        settings_hash: *settings.as_bytes(),
        layout: format!("{}/page{KV_PAGE_TOKENS}", saved_documents::dtype_name(dtype)),
        n_layer: u32::try_from(kv.n_layer).unwrap_or(u32::MAX),
        kv_page_bytes: kv.page_bytes(),
        activation_page_bytes: 0,
        abstract_bytes: u32::try_from(abstracts::abstract_bytes(kv)).unwrap_or(0),
    })
}
