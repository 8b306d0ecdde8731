//! Offload tiers of the VRAM cache: open, close, flush, and the tokens they store.
//!
//! Owner: the engine thread.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::gpu::{Gpu, StagingBuffer};
use crate::kv::error::KvError;
use crate::kv::layout::BINDING_ALIGN_BYTES;
use crate::kv::offload::{OffloadTiers, RamPagesView};
use crate::kv::spec::BLOCKS_PER_PAGE;
use crate::kv::store::Io;
use crate::kv::transfer::OffloadReport;
use crate::kv::vram::int4_transfer::PageDequantizer;
use crate::kv::vram::stream::TIMEOUT;
use crate::kv::vram::{N_READBACKS, Slot, StagingPool, VramCache};

impl VramCache {
    /// Opens the offload tiers for the current context, of which they already have `n_tokens`. Afterwards the staging
    /// buffers exist; bind groups must be created.
    ///
    /// # Errors
    /// Out of VRAM, or a lost GPU.
    pub fn open_offload(&mut self, gpu: &Gpu, offload: OffloadTiers, n_tokens: usize) -> Result<(), KvError> {
        self.allocate_staging(gpu)?;
        self.ram_pages = offload.ram_pages_view();
        self.transfer.open(offload);
        self.has_offload = true;
        self.n_offloaded_tokens = n_tokens;
        Ok(())
    }

    /// Starts a context with a document of `n_tokens`. Its store already has `n_present` groups, and the intact rows of
    /// abstracts. The remaining groups will be saved.
    ///
    /// # Errors
    /// A lost GPU.
    pub fn begin_document(
        &mut self,
        gpu: &Gpu,
        n_present: u32,
        n_tokens: usize,
        (rows, is_intact): &(Vec<u8>, Vec<bool>),
    ) -> Result<(), KvError> {
        self.n_sealed = n_present;
        self.n_document_tokens = n_tokens;
        self.durable_groups = (n_tokens / KV_PAGE_TOKENS) as u32;
        for layer in 0..self.spec.n_layer {
            (0..n_present).for_each(|group| self.residency.set_offloaded(layer, group));
        }
        self.upload_abstracts(gpu, n_present, rows, is_intact)
    }

    /// True if offload tiers are open.
    pub fn has_offload(&self) -> bool {
        self.has_offload
    }

    /// Drops the context and closes its offload tiers. Returns the I/O for reuse.
    pub fn close_offload(&mut self, gpu: &Gpu) -> Option<Io> {
        let mut io = None;
        if self.has_offload {
            // Pages that a lost GPU cannot return are recomputed.
            let _ = self.drain_readbacks(gpu);
            io = self.transfer.close();
            self.has_offload = false;
            self.ram_pages = RamPagesView::default();
        }
        (self.durable_groups, self.n_document_tokens, self.n_offloaded_tokens, self.n_sealed) = (0, 0, 0, 0);
        self.residency.truncate(0);
        self.cancel_stream();
        io
    }

    /// Recent state of the offload tiers.
    pub fn report(&self) -> OffloadReport {
        if self.has_offload { self.transfer.report() } else { OffloadReport::default() }
    }

    /// Updates the report to the current state.
    pub fn refresh_report(&self) {
        if self.has_offload {
            self.transfer.refresh_report();
        }
    }

    /// Waits until all offloaded pages are saved. False if some could not be.
    ///
    /// # Errors
    /// An error of the offload tiers, or a lost GPU.
    pub fn flush_offload(&mut self, gpu: &Gpu) -> Result<bool, KvError> {
        if !self.has_offload {
            return Ok(true);
        }
        self.drain_readbacks(gpu)?;
        let flushed = self.transfer.flush();
        // Its notices have arrived.
        self.receive(gpu, TIMEOUT)?;
        Ok(flushed)
    }

    fn drain_readbacks(&mut self, gpu: &Gpu) -> Result<(), KvError> {
        while self.staging.as_ref().is_some_and(|s| s.free_readbacks.len() < s.readbacks.len()) {
            self.receive(gpu, TIMEOUT)?;
        }
        Ok(())
    }

    /// Appends `chunk` at `pos` to the store, before pages of it are put.
    pub fn append_tokens(&mut self, pos: usize, chunk: &[u32]) {
        let new = chunk.get(self.n_offloaded_tokens.saturating_sub(pos)..).unwrap_or_default();
        if self.has_offload && !new.is_empty() {
            self.transfer.append_tokens(new);
            self.n_offloaded_tokens += new.len();
        }
    }

    /// Creates the staging and readback buffers, once.
    fn allocate_staging(&mut self, gpu: &Gpu) -> Result<(), KvError> {
        if self.staging.is_some() {
            return Ok(());
        }
        let bytes = self.plan.slot_pages as u64 * self.spec.page_bytes();
        let stride = bytes.next_multiple_of(BINDING_ALIGN_BYTES);
        let area = gpu.buffer("KV slots", self.plan.n_slots as u64 * stride)?;
        let mut slots = Vec::new();
        for i in 0..self.plan.n_slots {
            let slot = Slot { upload: gpu.upload_buffer(bytes)?, pages: area.slice(i as u64 * stride, bytes) };
            self.transfer.map_slot(i, &slot.upload);
            slots.push(slot);
        }
        let dequantizer = match self.is_selective() {
            true => PageDequantizer::new(gpu, &self.spec, self.plan.slot_pages, &area.all())?,
            false => None,
        };
        let table = gpu.buffer("KV slot table", self.spec.table_bytes(self.plan.slot_pages))?.all();
        let identity: Vec<usize> = (0..self.plan.slot_pages).collect();
        gpu.upload(&table, bytemuck::cast_slice(&self.spec.table(&identity, self.plan.slot_pages * BLOCKS_PER_PAGE)))?;
        let readback = self.plan.tail_pages as u64 * self.spec.page_bytes();
        let readbacks: Vec<StagingBuffer> =
            (0..N_READBACKS).map(|_| gpu.host_readback_buffer(readback)).collect::<Result<_, _>>()?;
        self.transfer.buffers(slots.iter().map(|s| s.upload.clone()).collect(), readbacks.clone());
        gpu.poll()?;
        self.staging = Some(StagingPool {
            slots,
            area: area.all(),
            dequantizer,
            table,
            readbacks,
            free_readbacks: (0..N_READBACKS).collect(),
        });
        self.peak_bytes = self.peak_bytes.max(self.bytes());
        Ok(())
    }
}
