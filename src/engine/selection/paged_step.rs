//! Paged step: selection by the GPU while pages on disk alone are fetched into RAM, layer by layer.
//!
//! ```text
//! page bounds ─► candidates ─ readback ─► those on disk ─ read ─► RAM ─► frames ─► scores, list, attention of the layer
//! ```
//! 1. A layer waits for the GPU once, and for the disk only if a candidate is not in RAM. 2. Candidates do not depend on the tier of
//!    a page. 3. RAM keeps the often-selected pages; the others leave it after those that were paged in earlier.
//!
//! Owner: the engine thread.
//!
//! Source: LeoAM §4.2, LeoAM §4.3.

use std::time::Instant;

use crate::engine::error::EngineError;
use crate::engine::runner::executor::Executor;
use crate::engine::selection::Selector;
use crate::engine::selection::step::Device;
use crate::gpu::Gpu;
use crate::gpu::kernels::selection::{SelectionPlace, SelectionSizes};
use crate::kv::VramCache;
use crate::kv::policy::access_frequency::FrequencyTable;
use crate::kv::policy::unique;
use crate::telemetry::EventKind;

/// Regions of the RAM tier that may be mapped during a step.
pub(super) const NEW_REGIONS: usize = 2;

impl Executor {
    /// Begins a step that pages in the first `n_pages` of each layer. False if RAM has no room for a layer, or the device cannot
    /// read it.
    ///
    /// # Errors
    /// An error of the offload tiers, a lost device.
    pub(super) fn begin_paging(&mut self, gpu: &Gpu, n_pages: usize) -> Result<bool, EngineError> {
        let can_page_in = n_pages > 0 && !self.synchronous && self.kv.can_page_in(gpu, n_pages);
        if can_page_in {
            self.kv.begin_paging(gpu)?;
        }
        Ok(can_page_in)
    }

    /// Records the candidate pages of a layer. In a paged step, also fetches them into RAM: that waits. False if RAM has no room for
    /// them.
    ///
    /// # Errors
    /// A page that must be recomputed, a lost device.
    pub(super) fn list_candidates(
        &mut self,
        s: &mut Selector,
        device: &mut Device,
        layer: usize,
        n_rows: usize,
        sizes: SelectionSizes,
    ) -> Result<bool, EngineError> {
        let (gpu, is_paged) = (device.gpu, s.device.is_paged);
        if is_paged {
            s.device.write_frames(gpu, layer, self.kv.paged_frames(layer, sizes.n_pages, false));
        }
        let (Some(buffers), Some(bindings)) = (&s.device.buffers, &s.device.bindings) else { return Ok(false) };
        let first_in_ram = self.kv.first_frame_in_ram(is_paged);
        let place = SelectionPlace { layer, n_rows, n_splits: 0, n_tail: 0, first_in_ram };
        s.score_pages.record(&mut device.pacer.recorder, &bindings.page_bounds[layer], sizes.n_pages, n_rows);
        s.device.kernels.record_candidates(&mut device.pacer.recorder, &bindings.selection, buffers, place, sizes);
        if !is_paged {
            return Ok(true);
        }
        let began = Instant::now();
        let pages = self.read_candidates(s, device, n_rows, sizes)?;
        device.pacer.did(EventKind::Select { layer: layer as u32 }, began);
        if !self.kv.page_in(gpu, layer, &pages)? {
            return Ok(false);
        }
        s.device.write_frames(gpu, layer, self.kv.paged_frames(layer, sizes.n_pages, true));
        s.device.bind_ram(gpu, self.parts(), &s.decode)?;
        Ok(true)
    }

    /// The listed pages of all KV heads and rows, ascending. Waits for the GPU.
    fn read_candidates(
        &self,
        s: &mut Selector,
        device: &mut Device,
        n_rows: usize,
        sizes: SelectionSizes,
    ) -> Result<Vec<u32>, EngineError> {
        let Some(buffers) = &s.device.buffers else { return Ok(Vec::new()) };
        let listed = buffers.listed_pages();
        let readback = match s.device.listed.take().filter(|readback| readback.size() >= listed.size) {
            Some(readback) => readback,
            None => device.gpu.readback_buffer("listed pages", listed.size)?,
        };
        let stride = 1 + sizes.n_listed();
        let n_bytes = (size_of::<u32>() * n_rows * self.model.dims.n_kv_head * stride) as u64;
        device.pacer.recorder.copy(&listed.buffer.slice(listed.offset, n_bytes), &readback.slice(0, n_bytes));
        let submitted = device.pacer.submit(device.gpu)?;
        let lists: Vec<u32> = device
            .pacer
            .read_after(device.gpu, &submitted, &readback, |bytes| bytemuck::pod_collect_to_vec(&bytes[..n_bytes as usize]))?;
        s.device.listed = Some(readback);
        let of_list = |list: &[u32]| -> Vec<u32> {
            let n_here = list.first().map_or(0, |n| *n as usize);
            list.iter().skip(1).take(n_here).copied().filter(|page| (*page as usize) < sizes.n_pages).collect()
        };
        Ok(unique(lists.chunks_exact(stride).flat_map(of_list).collect()))
    }
}

/// Pins the most used pages in RAM, but leaves room for a layer of `n_pages` that is paged in.
pub(super) fn pin_used_pages(kv: &mut VramCache, frequency: &FrequencyTable, n_pages: usize, clock: u64) {
    let n_room = kv.n_ram_pages().saturating_sub(n_pages);
    let used = frequency.keep_off_disk(clock, n_pages, 0, n_room, |page| kv.is_in_vram_alone(page));
    kv.pin(&used);
}
