//! What lies below VRAM for one context: opening, closing and emptying it, and which tokens it knows of.
//!
//! Owner: the engine thread.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::gpu::{Gpu, StagingBuffer};
use crate::kv::error::KvError;
use crate::kv::layout::{BINDING_ALIGN_BYTES, BLOCKS_PER_PAGE};
use crate::kv::offload::{OffloadTiers, RamPagesView};
use crate::kv::store::Io;
use crate::kv::transfer::OffloadReport;
use crate::kv::vram::int4_transfer::PageDequantizer;
use crate::kv::vram::stream::TIMEOUT;
use crate::kv::vram::{N_READBACKS, Slot, StagingPool, VramCache};

impl VramCache {
    /// Puts RAM, and a store where there is one, below the context as it is, which knows of `n_tokens` already. Slots exist
    /// afterwards, whose bind groups must follow.
    ///
    /// # Errors
    /// Out of VRAM, a lost device.
    pub fn open_offload(&mut self, gpu: &Gpu, offload: OffloadTiers, n_tokens: usize) -> Result<(), KvError> {
        self.make_stage(gpu)?;
        self.ram_pages = offload.ram_pages_view();
        self.transfer.open(offload);
        self.has_offload = true;
        self.n_offloaded_tokens = n_tokens;
        Ok(())
    }

    /// Begins the context anew with a document, of which `n_present` groups are in the store already, with the rows of
    /// abstracts that are whole; the others of its `n_tokens` are written to it.
    ///
    /// # Errors
    /// A lost device.
    pub fn begin_document(
        &mut self,
        gpu: &Gpu,
        n_present: u32,
        n_tokens: usize,
        (rows, is_whole): &(Vec<u8>, Vec<bool>),
    ) -> Result<(), KvError> {
        self.n_sealed = n_present;
        self.n_document_tokens = n_tokens;
        self.durable_groups = (n_tokens / KV_PAGE_TOKENS) as u32;
        for layer in 0..self.spec.n_layer {
            (0..n_present).for_each(|group| self.residency.set_backed(layer, group));
        }
        self.upload_abstracts(gpu, n_present, rows, is_whole)
    }

    /// There are tiers below.
    pub fn has_offload(&self) -> bool {
        self.has_offload
    }

    /// Forgets the context and closes what is below it; the I/O, for the next.
    pub fn close_offload(&mut self, gpu: &Gpu) -> Option<Io> {
        let mut io = None;
        if self.has_offload {
            // What a lost device cannot hand over any more will be computed again.
            let _ = self.empty_readbacks(gpu);
            io = self.transfer.close();
            self.has_offload = false;
            self.ram_pages = RamPagesView::default();
        }
        (self.durable_groups, self.n_document_tokens, self.n_offloaded_tokens, self.n_sealed) = (0, 0, 0, 0);
        self.residency.truncate(0);
        self.cancel_stream();
        io
    }

    /// What is below, as of a moment ago.
    pub fn report(&self) -> OffloadReport {
        if self.has_offload { self.transfer.report() } else { OffloadReport::default() }
    }

    /// The report counts everything up to now.
    pub fn refresh_report(&self) {
        if self.has_offload {
            self.transfer.look();
        }
    }

    /// Waits until everything below is written; false where something could not be.
    ///
    /// # Errors
    /// What the tiers below failed with, or a lost device.
    pub fn flush_offload(&mut self, gpu: &Gpu) -> Result<bool, KvError> {
        if !self.has_offload {
            return Ok(true);
        }
        self.empty_readbacks(gpu)?;
        let flushed = self.transfer.flush();
        // What it has to say is there now.
        self.receive(gpu, TIMEOUT)?;
        Ok(flushed)
    }

    fn empty_readbacks(&mut self, gpu: &Gpu) -> Result<(), KvError> {
        while self.stage.as_ref().is_some_and(|s| s.free_readbacks.len() < s.readbacks.len()) {
            self.receive(gpu, TIMEOUT)?;
        }
        Ok(())
    }

    /// `chunk` at `pos` is part of the context now: the store's header names its tokens before pages of them come.
    pub fn append_tokens(&mut self, pos: usize, chunk: &[u32]) {
        let new = chunk.get(self.n_offloaded_tokens.saturating_sub(pos)..).unwrap_or_default();
        if self.has_offload && !new.is_empty() {
            self.transfer.append_tokens(new);
            self.n_offloaded_tokens += new.len();
        }
    }

    /// Makes slots and readback buffers, once.
    fn make_stage(&mut self, gpu: &Gpu) -> Result<(), KvError> {
        if self.stage.is_some() {
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
        self.stage = Some(StagingPool {
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
