//! Sealing: complete pages move from the tail to a frame of the pool, and to the offload tiers via readback buffers.
//!
//! Owner: the engine thread. A page without a frame stays in RAM. A page with a frame is offloaded only to be saved.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::gpu::kernels::quantize_pages::QuantizePages;
use crate::gpu::{Binding, Gpu, Recorder};
use crate::kv::error::KvError;
use crate::kv::offload::Retention;
use crate::kv::store::PageId;
use crate::kv::transfer::PageReadback;
use crate::kv::vram::VramCache;
use crate::kv::vram::stream::TIMEOUT;

impl VramCache {
    /// Records the sealing of the pages of a layer that tokens up to `end` complete. The returned readbacks must be
    /// passed to [`VramCache::readback_submitted`] after the next submit.
    ///
    /// # Errors
    /// An error of the offload tiers, or a lost GPU.
    pub fn record_seal(
        &mut self,
        gpu: &Gpu,
        recorder: &mut Recorder,
        layer: usize,
        end: usize,
        sealer: Option<(&QuantizePages, &Binding)>,
    ) -> Result<Option<(usize, Vec<PageReadback>)>, KvError> {
        let end_group = (end / KV_PAGE_TOKENS) as u32;
        let mut out: Option<(usize, Vec<PageReadback>)> = None;
        for group in self.tail.first_group..end_group {
            let physical = self.tail.order[(group - self.tail.first_group) as usize];
            let page = self.spec.page_bytes();
            let offset = physical as u64 * page;
            let source = match (sealer, &self.scratch) {
                (Some((seal, binding)), Some(scratch)) => {
                    seal.record(recorder, binding, physical, physical, 1);
                    scratch.buffer.slice(offset, page)
                }
                _ => self.tail.layers[layer].buffer.slice(offset, page),
            };
            let frame = self.residency.allocate(layer, group);
            if let Some(frame) = frame {
                let to = self.pool.frame(&self.spec, layer, frame as usize);
                recorder.copy(&source, &to);
            }
            // A page that may be evicted from its frame is offloaded from the start.
            let may_leave = self.has_offload() && self.is_selective();
            if frame.is_none() || may_leave || self.offload.is_durable(group) {
                if !self.has_offload() {
                    return Err(KvError::NoOffloadTier);
                }
                let retention = if frame.is_some() && !may_leave { Retention::OnDiskOnly } else { Retention::InRam };
                self.residency.set_offloaded(layer, group);
                let readback = match &out {
                    Some((readback, _)) => *readback,
                    None => self.free_readback(gpu)?,
                };
                let pages = &mut out.get_or_insert((readback, Vec::new())).1;
                let offset = pages.len() as u64 * page;
                pages.push(PageReadback { page: PageId::kv(layer as u32, group), offset, retention });
                if let Some(staging) = &self.staging {
                    recorder.copy(&source, &staging.readbacks[readback].slice(offset, page));
                }
                self.moved.vram_to_ram += page;
            }
        }
        Ok(out)
    }

    /// Tail pages that tokens up to `end` complete: physical index and group.
    pub fn to_seal(&self, end: usize) -> impl Iterator<Item = (usize, u32)> + '_ {
        let groups = self.tail.first_group..(end / KV_PAGE_TOKENS) as u32;
        groups.map(|group| (self.tail.order[(group - self.tail.first_group) as usize], group))
    }

    fn free_readback(&mut self, gpu: &Gpu) -> Result<usize, KvError> {
        loop {
            if let Some(i) = self.staging.as_mut().and_then(|s| s.free_readbacks.pop_front()) {
                return Ok(i);
            }
            self.receive(gpu, TIMEOUT)?;
        }
    }

    /// Must be called after the copies into a readback buffer were submitted.
    pub fn readback_submitted(&self, readback: usize, pages: Vec<PageReadback>) {
        if let Some(staging) = &self.staging {
            self.offload.transfer.map_readback(readback, &staging.readbacks[readback], pages);
        }
    }

    /// Must be called after every layer has sealed the pages that tokens up to `end` complete.
    pub fn end_pass(&mut self, end: usize) {
        self.n_sealed = self.n_sealed.max((end / KV_PAGE_TOKENS) as u32);
    }
}
