//! KV storage: the offload tiers of the current context, with their budgets, the library, and scratch stores.
//!
//! ```text
//! documents ─► a store in the library for each: saved groups are not prefilled again, others are written back
//! no document, larger than VRAM ─► RAM, if it holds the rest of the window; else a scratch store too
//! ```
//! 1. If something prevents saving, that is a notice, never a failed answer.
//! 2. The disk budget is for the whole library: documents are evicted, least recently used first, but never open ones.
//!
//! Owner thread: the engine.

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::limits::KV_PAGE_TOKENS;
use crate::base::{Bytes, LinkLimits};
use crate::document::catalog::Catalog;
use crate::engine::api::{KvDtype, KvSetup, LoadOptions, SavedDocument};
use crate::engine::context::open_part::OpenDocuments;
use crate::engine::context::reused_part::RepositionMode;
use crate::engine::context::saved_documents;
use crate::engine::error::EngineError;
use crate::engine::memory_fit;
use crate::gpu::Gpu;
use crate::kv::offload::{DiskBacking, OffloadConfig, OffloadTiers, remove_stale_scratch, scratch};
use crate::kv::policy::PolicySpec;
use crate::kv::policy::leoam::abstracts;
use crate::kv::store::{Folder, Io, IoConfig, StoreRoot, StoreSpec};
use crate::kv::{KvError, KvSpec, VramCache, budget};
use crate::model::ModelFile;
use crate::model::arch::plan::PositionPlan;
use crate::telemetry::Hub;

/// Wraps the folder of a store; tests inject faults with it.
pub type FolderHook = Arc<dyn Fn(Arc<dyn Folder>) -> Arc<dyn Folder> + Send + Sync>;

/// Budgets, folders and hashes of a loaded model, and its open documents.
pub(in crate::engine) struct KvStorage {
    pub(in crate::engine) setup: KvSetup,
    limits: LinkLimits,
    read_ahead: bool,
    pub(super) spec: StoreSpec,
    pub(super) model: String,
    pub(super) dtype: KvDtype,
    pub(super) places: Option<(StoreRoot, Catalog)>,
    io: Option<Io>,
    hub: Arc<Hub>,
    pub(super) hook: Option<FolderHook>,
    pub(super) open: Option<OpenDocuments>,
    pub(super) reposition: RepositionMode,
    pub(super) notices: Vec<String>,
}

impl KvStorage {
    /// Sets the budgets from the free memory, and opens the library. If the library cannot be opened, that is a notice.
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
            reposition: match &file.plan().position {
                _ if !options.reuse_anywhere => RepositionMode::Off,
                PositionPlan::Rope(rope) => RepositionMode::On(rope.clone()),
                PositionPlan::Learned { .. } => RepositionMode::Impossible { has_notified: false },
            },
            notices,
        })
    }

    /// Disables the disk tier until the model is loaded again.
    pub(in crate::engine) fn disable_disk_tier(&mut self) {
        self.places = None;
        self.notices.push(
            "pages that were just written to the disk cannot be read again; the context is read into memory alone, and nothing \
             is saved until the model is loaded again; check the disk"
                .to_owned(),
        );
    }

    /// Takes the notices for the user.
    pub(in crate::engine) fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Tokens of the open documents. None if none is open.
    pub(in crate::engine) fn document_tokens(&self) -> Option<&[u32]> {
        self.open.as_ref().map(|o| o.tokens.as_slice())
    }

    /// Element type of pages.
    pub(in crate::engine) fn dtype(&self) -> KvDtype {
        self.dtype
    }

    /// Name of the I/O backend.
    pub(in crate::engine) fn io_backend(&self) -> String {
        self.setup.io_backend.clone()
    }

    fn take_io(&mut self) -> Result<Io, KvError> {
        match self.io.take() {
            Some(io) => Ok(io),
            None => Io::start(&IoConfig::from_env()).map_err(|e| KvError::NoThread(e.to_string())),
        }
    }

    fn tiers_config(&self, kv: &VramCache, disk_budget: u64) -> OffloadConfig {
        OffloadConfig {
            ram_budget: Bytes(self.setup.budgets.ram.saturating_sub(kv.ram_buffer_bytes())),
            disk_budget: Bytes(disk_budget),
            nvme_limit: self.limits.nvme,
            page_bytes: self.spec.kv_page_bytes,
            n_layer: self.spec.n_layer,
            read_ahead: self.read_ahead,
        }
    }

    /// New offload tiers for the context.
    pub(super) fn new_tiers(&mut self, kv: &VramCache, disk_budget: u64, backing: DiskBacking) -> Result<OffloadTiers, KvError> {
        let config = self.tiers_config(kv, disk_budget);
        let io = self.take_io()?;
        Ok(OffloadTiers::new(config, io, backing, self.hub.lane("disk"))?)
    }

    /// Checks that the layers that a policy keeps off the disk fit into VRAM and RAM. If the GPU `pages_in`, a layer in RAM is enough.
    ///
    /// # Errors
    /// [`KvError::FirstLayers`].
    pub(in crate::engine) fn check_first_layers(
        &self,
        kv: &VramCache,
        spec: &PolicySpec,
        n_tokens: usize,
        pages_in: bool,
    ) -> Result<(), KvError> {
        if !spec.kind.reads_abstracts() {
            return Ok(());
        }
        let n_layers = spec.n_first_layers.min(kv.spec().n_layer);
        let layer_bytes = n_layers as u64 * kv.spec().page_bytes();
        let n_pages = (n_tokens / KV_PAGE_TOKENS) as u64;
        if pages_in && self.tiers_config(kv, 0).has_room_for(n_pages) {
            return Ok(());
        }
        let needed = Bytes(n_pages * layer_bytes);
        let vram = Bytes((n_pages - kv.offloaded_groups(n_tokens)) * layer_bytes);
        let ram = Bytes(self.setup.budgets.ram.saturating_sub(kv.ram_buffer_bytes()));
        if needed.0 > vram.0.saturating_add(ram.0) {
            let policy = spec.kind.name();
            return Err(KvError::FirstLayers { policy, n_layers, tokens: n_tokens, needed, vram, ram });
        }
        Ok(())
    }

    /// Opens offload tiers if a context of `n_tokens` exceeds VRAM. `tokens` are in the cache already.
    ///
    /// # Errors
    /// [`KvError::OverBudget`] if all tiers together are too small.
    pub(in crate::engine) fn make_room(
        &mut self,
        gpu: &Gpu,
        kv: &mut VramCache,
        tokens: &[u32],
        n_tokens: usize,
    ) -> Result<(), KvError> {
        let group_bytes = kv.spec().group_bytes();
        let offloaded = kv.offloaded_groups(n_tokens) * group_bytes;
        if offloaded == 0 {
            return Ok(());
        }
        let b = self.setup.budgets;
        let ram = b.ram.saturating_sub(kv.ram_buffer_bytes());
        let disk = if self.places.is_some() { b.disk } else { 0 };
        if offloaded > ram.saturating_add(disk) {
            let needed = Bytes(kv.spec().token_bytes() * n_tokens as u64);
            let (vram, ram, disk) = (Bytes(b.vram), Bytes(ram), Bytes(disk));
            return Err(KvError::OverBudget { tokens: n_tokens, needed, vram, ram, disk });
        }
        if kv.has_offload() {
            return Ok(());
        }
        // The disk is not needed if RAM holds the rest of the window.
        let most = kv.offloaded_groups(kv.limit()) * group_bytes;
        let library = self.places.as_ref().map(|(library, _)| library.clone()).filter(|_| most > ram);
        let backing = match library {
            Some(library) => {
                self.make_disk_room(offloaded, &[]);
                DiskBacking::Scratch(scratch(&library, &self.spec, tokens)?)
            }
            None => DiskBacking::None,
        };
        let new_tiers = self.new_tiers(kv, disk, backing)?;
        kv.open_offload(gpu, new_tiers, tokens.len())
    }

    /// Evicts the least recently used documents until the library has room for `room` more bytes. Returns the bytes that
    /// the stores in `keep` may have in all.
    pub(super) fn make_disk_room(&mut self, room: u64, keep: &[&str]) -> u64 {
        let Some((library, catalog)) = &self.places else { return 0 };
        let budget = self.setup.budgets.disk;
        let own: u64 = keep.iter().filter_map(|id| library.info(id)).map(|store| store.bytes.0).sum();
        let Ok(eviction) = library.evict(Bytes(budget), Bytes(room), keep) else {
            return own.saturating_add(room).min(budget);
        };
        for gone in &eviction.removed {
            let name = catalog.get(&gone.name).ok().flatten().map_or_else(|| "an unknown document".to_owned(), |e| e.name);
            // If this fails, the document is listed as missing.
            let _ = catalog.remove(&gone.name);
            self.notices.push(format!(
                "{name} left the library, where it took {}: the disk budget of {} was needed for another document",
                gone.bytes,
                Bytes(budget)
            ));
        }
        budget.saturating_sub(eviction.total.0.saturating_sub(own))
    }

    /// Closes the offload tiers of the context, which is empty afterwards.
    pub(in crate::engine) fn close(&mut self, gpu: &Gpu, kv: &mut VramCache) {
        self.open = None;
        if let Some(io) = kv.close_offload(gpu) {
            self.io = Some(io);
        }
    }

    /// Forgets the open documents after the device was lost, without a flush.
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
    // Scratch stores of processes that died are removed. If one cannot be removed now, the next start tries again.
    let _ = remove_stale_scratch(&library);
    Ok((library, catalog))
}

/// A hash as text, as in the catalog.
pub(super) fn hexadecimal(hash: [u8; 32]) -> String {
    blake3::Hash::from_bytes(hash).to_hex().to_string()
}

/// Identity of the pages: the hashes cover everything that changes a byte of them.
fn store_spec(file: &ModelFile, kv: &KvSpec, dtype: KvDtype) -> Result<StoreSpec, EngineError> {
    let settings = blake3::Hasher::new().update(&file.plan().settings_fingerprint()).update(dtype.name().as_bytes()).finalize();
    Ok(StoreSpec {
        model_hash: file.fingerprint()?,
        tokenizer_hash: file.tokenizer_fingerprint()?,
        settings_hash: *settings.as_bytes(),
        layout: format!("{}/page{KV_PAGE_TOKENS}", dtype.name()),
        n_layer: u32::try_from(kv.n_layer).unwrap_or(u32::MAX),
        kv_page_bytes: kv.page_bytes(),
        activation_page_bytes: 0,
        abstract_bytes: u32::try_from(abstracts::abstract_bytes(kv)).unwrap_or(0),
    })
}
