//! Promotion: uses of pages, read back from the GPU now and then without a wait, decide which pages are worth a frame.
//!
//! ```text
//! selected tokens of each page, on the GPU ─► copy, mapped when done ─► access frequency ─► PageSwap ─► next steps read VRAM
//! ```
//! The steps between two readbacks do not depend on them, except for the place from which a page is read.
//!
//! Owner: the engine thread.
//!
//! Source: LeoAM §4.3 (access frequency decides the tier).

use crossbeam_channel::Receiver;

use crate::engine::error::EngineError;
use crate::gpu::kernels::selection::SelectionBuffers;
use crate::gpu::{Gpu, Recorder, StagingBuffer};
use crate::kv::policy::access_frequency::{FrequencyTable, LayerPage};
use crate::kv::{PageSwap, StagedBatch, VramCache};

/// Steps between two readbacks.
const EVERY_STEPS: u32 = 8;
/// A page must be selected as often as this, in terms of the page whose frame it takes.
const LEAST_GAIN: f64 = 1.25;
/// One in this many frames of a layer changes its page at a time.
const MAX_SHARE: usize = 8;

/// Readback of the uses, and pages on their way.
#[derive(Default)]
pub(in crate::engine::selection) struct Promotion {
    readback: Option<StagingBuffer>,
    state: Readback,
    /// uses of the last readback
    last: Vec<u32>,
    /// the readback in progress has uses from before the last reset
    is_stale: bool,
    n_steps: u32,
    /// staging buffers whose copies into frames were recorded in this step
    recorded: Vec<StagedBatch>,
}

/// State of the readback.
#[derive(Default)]
enum Readback {
    #[default]
    Idle,
    /// the copy is recorded
    Recorded,
    /// it is being mapped
    Mapping(Receiver<bool>),
}

impl Promotion {
    /// Forgets the uses so far: the counters begin at zero.
    pub fn reset(&mut self) {
        self.last.clear();
        self.n_steps = 0;
        self.is_stale = !matches!(self.state, Readback::Idle);
    }

    /// Returns the staging buffers of the last step, which was submitted.
    pub fn return_submitted(&mut self, kv: &VramCache) {
        for filled in self.recorded.drain(..) {
            kv.slot_submitted(&filled);
        }
    }

    /// Begins a step over the first `n_pages`, after everything before it was submitted and returned: moves arrived pages to their
    /// frames, and starts the transfer of pages that `frequency` favors. True if it has new counts.
    ///
    /// # Errors
    /// An error of the offload tiers, out of memory, a lost device.
    pub fn begin_step(
        &mut self,
        gpu: &Gpu,
        (recorder, kv): (&mut Recorder, &mut VramCache),
        buffers: &SelectionBuffers,
        (frequency, clock): (&mut FrequencyTable, u64),
        n_pages: usize,
    ) -> Result<bool, EngineError> {
        self.recorded = kv.record_promoted(gpu, recorder)?;
        self.n_steps += 1;
        let uses = self.poll(gpu)?;
        let is_counted = uses.is_some();
        if let Some(uses) = uses {
            self.count(&uses, buffers.capacity.n_pages, frequency, clock);
            let swaps = swaps(kv, frequency, clock, n_pages);
            if !swaps.is_empty() && !kv.is_promoting() {
                kv.begin_promotion(&swaps);
            }
        }
        let is_due = matches!(self.state, Readback::Idle) && self.n_steps >= EVERY_STEPS && !kv.is_promoting();
        if is_due {
            let uses = buffers.uses();
            let readback = match self.readback.take().filter(|readback| readback.size() == uses.size) {
                Some(readback) => readback,
                None => gpu.host_readback_buffer(uses.size)?,
            };
            recorder.copy(&uses, &readback.slice(0, uses.size));
            self.readback = Some(readback);
            self.state = Readback::Recorded;
            self.n_steps = 0;
        }
        Ok(is_counted)
    }

    /// The uses, if a readback has ended.
    fn poll(&mut self, gpu: &Gpu) -> Result<Option<Vec<u32>>, EngineError> {
        let Some(readback) = &self.readback else { return Ok(None) };
        if let Readback::Recorded = self.state {
            let (done, mapped) = crossbeam_channel::bounded(1);
            readback.map(move |is_mapped| {
                let _ = done.send(is_mapped);
            });
            self.state = Readback::Mapping(mapped);
        }
        let Readback::Mapping(mapped) = &self.state else { return Ok(None) };
        gpu.poll()?;
        let Ok(is_mapped) = mapped.try_recv() else { return Ok(None) };
        let uses = if is_mapped { Some(readback.read(0, readback.size(), bytemuck::pod_collect_to_vec)?) } else { None };
        readback.close();
        self.state = Readback::Idle;
        Ok(uses.filter(|_| !std::mem::take(&mut self.is_stale)))
    }

    /// Counts the uses u32 `[L, stride]` since the last readback.
    fn count(&mut self, uses: &[u32], stride: usize, frequency: &mut FrequencyTable, clock: u64) {
        self.last.resize(uses.len(), 0);
        for (i, (now, last)) in uses.iter().zip(&mut self.last).enumerate() {
            let new = now.wrapping_sub(std::mem::replace(last, *now));
            if new > 0 {
                frequency.record(i / stride, clock, &[(i % stride) as u32], f64::from(new));
            }
        }
    }
}

/// Pages that should change places: the most frequent in RAM against the least frequent in VRAM.
fn swaps(kv: &VramCache, frequency: &FrequencyTable, clock: u64, n_pages: usize) -> Vec<PageSwap> {
    let of_layer = |layer: usize| {
        let (in_vram, in_ram) = kv.movable_pages(layer, n_pages);
        let counted = |pages: Vec<u32>| -> Vec<(f64, u32)> {
            let count = |page: u32| frequency.count(LayerPage { layer: layer as u32, page }, clock);
            pages.into_iter().map(|page| (count(page), page)).collect()
        };
        let most = kv.plan().max_frames.div_ceil(MAX_SHARE);
        swap(layer, counted(in_vram), counted(in_ram), kv.n_free_frames(layer), most)
    };
    (0..kv.spec().n_layer).filter_map(of_layer).collect()
}

/// The swap of a layer with `n_free` frames, of at most `most` pages. None if nothing should move.
fn swap(layer: usize, mut in_vram: Vec<(f64, u32)>, mut in_ram: Vec<(f64, u32)>, n_free: usize, most: usize) -> Option<PageSwap> {
    in_vram.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
    in_ram.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut swap = PageSwap { layer, ..PageSwap::default() };
    let mut victims = in_vram.into_iter();
    for (count, page) in in_ram.into_iter().take(most) {
        if count <= 0.0 {
            break;
        }
        if swap.promoted.len() >= n_free {
            let Some((_, victim)) = victims.next().filter(|(other, _)| count > LEAST_GAIN * other) else { break };
            swap.evicted.push(victim);
        }
        swap.promoted.push(page);
    }
    swap.promoted.sort_unstable();
    (!swap.promoted.is_empty()).then_some(swap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_pages_take_free_frames_and_those_of_rare_pages() {
        let in_vram = || vec![(5.0, 0), (1.0, 1), (2.0, 2)];
        let in_ram = || vec![(4.0, 7), (0.0, 8), (9.0, 6), (1.2, 9)];
        let moved = |n_free, most| swap(3, in_vram(), in_ram(), n_free, most).unwrap();
        assert_eq!(moved(0, 9), PageSwap { layer: 3, evicted: vec![1, 2], promoted: vec![6, 7] }, "9 is too rare");
        assert_eq!(moved(1, 9), PageSwap { layer: 3, evicted: vec![1], promoted: vec![6, 7] });
        assert_eq!(moved(4, 9).promoted, [6, 7, 9], "never selected: 8");
        assert_eq!(moved(0, 1), PageSwap { layer: 3, evicted: vec![1], promoted: vec![6] });
        assert_eq!(swap(0, in_vram(), vec![(1.0, 4)], 0, 9), None);
    }
}
