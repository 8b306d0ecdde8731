//! Offload tiers of the VRAM cache: open, close, flush, and the tokens they store.
//!
//! Owner: the engine thread.

use crate::gpu::Gpu;
use crate::kv::error::KvError;
use crate::kv::offload::OffloadTiers;
use crate::kv::store::Io;
use crate::kv::transfer::OffloadReport;
use crate::kv::vram::VramCache;
use crate::kv::vram::ram_places::RamPlaces;
use crate::kv::vram::staging::StagingPool;
use crate::kv::vram::stream::TIMEOUT;

impl VramCache {
    /// Opens the offload tiers for the current context, of which they already have `n_tokens`. Afterwards the staging
    /// buffers exist; bind groups must be created.
    ///
    /// # Errors
    /// Out of VRAM, or a lost GPU.
    pub fn open_offload(&mut self, gpu: &Gpu, offload: OffloadTiers, n_tokens: usize) -> Result<(), KvError> {
        self.allocate_staging(gpu)?;
        self.offload.open(offload, n_tokens);
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
        self.offload.begin_document(n_tokens);
        for layer in 0..self.spec.n_layer {
            (0..n_present).for_each(|group| self.residency.set_offloaded(layer, group));
        }
        self.upload_abstracts(gpu, n_present, rows, is_intact)
    }

    /// True if offload tiers are open.
    pub fn has_offload(&self) -> bool {
        self.offload.is_open()
    }

    /// Drops the context and closes its offload tiers. Returns the I/O for reuse.
    pub fn close_offload(&mut self, gpu: &Gpu) -> Option<Io> {
        let mut io = None;
        if self.has_offload() {
            // Pages that a lost GPU cannot return are recomputed.
            let _ = self.drain_readbacks(gpu);
            let _ = self.release_places(gpu);
            // Versions of other tiers may be the same.
            self.offload.ram_places = RamPlaces::none_after(&self.offload.ram_places);
            io = self.offload.close();
        }
        self.offload.clear();
        self.n_sealed = 0;
        self.residency.truncate(0);
        self.cancel_stream();
        io
    }

    /// Recent state of the offload tiers.
    pub fn report(&self) -> OffloadReport {
        if self.has_offload() { self.offload.transfer.report() } else { OffloadReport::default() }
    }

    /// Updates the report to the current state.
    pub fn refresh_report(&self) {
        if self.has_offload() {
            self.offload.transfer.refresh_report();
        }
    }

    /// Waits until all offloaded pages are saved. False if some could not be.
    ///
    /// # Errors
    /// An error of the offload tiers, or a lost GPU.
    pub fn flush_offload(&mut self, gpu: &Gpu) -> Result<bool, KvError> {
        if !self.has_offload() {
            return Ok(true);
        }
        self.drain_readbacks(gpu)?;
        let flushed = self.offload.transfer.flush();
        // Its notices have arrived.
        self.receive(gpu, TIMEOUT)?;
        Ok(flushed)
    }

    pub(super) fn drain_readbacks(&mut self, gpu: &Gpu) -> Result<(), KvError> {
        while self.staging.as_ref().is_some_and(|s| s.free_readbacks.len() < s.readbacks.len()) {
            self.receive(gpu, TIMEOUT)?;
        }
        Ok(())
    }

    /// Appends `chunk` at `pos` to the store, before pages of it are put.
    pub fn append_tokens(&mut self, pos: usize, chunk: &[u32]) {
        self.offload.append_tokens(pos, chunk);
    }

    /// Creates the staging and readback buffers, once.
    fn allocate_staging(&mut self, gpu: &Gpu) -> Result<(), KvError> {
        if self.staging.is_some() {
            return Ok(());
        }
        let mut staging = StagingPool::new(gpu, &self.spec, &self.plan, self.is_selective())?;
        for (i, slot) in staging.slots.iter().enumerate() {
            self.offload.transfer.map_slot(i, &slot.upload);
        }
        let uploads = staging.slots.iter().map(|s| s.upload.clone()).collect();
        self.offload.transfer.buffers(uploads, staging.readbacks.clone(), staging.queue.take());
        gpu.poll()?;
        self.staging = Some(staging);
        self.peak_bytes = self.peak_bytes.max(self.bytes());
        Ok(())
    }
}
