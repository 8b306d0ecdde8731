//! Attention in place: a decode step reads everything, and kernels read pages in RAM over the link.
//!
//! ```text
//! pages in frames ─► splits │ pages in RAM, region by region ─► splits, at the speed of the link │ tail ─► splits ─► merge
//! ```
//! 1. No page is copied, and the CPU waits for none. 2. Several rows would read each page several times over the link: their pages
//!    are transferred instead, as in prefill.
//!
//! Owner: the engine thread.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::engine::error::EngineError;
use crate::engine::runner::executor::Executor;
use crate::engine::runner::pass::Splits;
use crate::engine::runner::submit_pacer::SubmitPacer;
use crate::gpu::Gpu;
use crate::kv::{BLOCKS_PER_PAGE, RamRun};

impl Executor {
    /// Prepares a pass of one row over everything, after `n_context` tokens in complete pages. True if it reads in place.
    ///
    /// # Errors
    /// An error of the offload tiers, out of VRAM, a lost device.
    pub(in crate::engine) fn begin_in_place(&mut self, gpu: &Gpu, n_context: usize) -> Result<bool, EngineError> {
        let may = !self.synchronous && self.model.page_attention.decode.reads_once();
        self.in_place.is_active = may && self.kv.prepare_ram_runs(gpu, n_context / KV_PAGE_TOKENS)?;
        if !self.in_place.is_active {
            return Ok(false);
        }
        let (layers, version) = self.kv.ram_runs();
        let n_runs = layers.iter().map(Vec::len).max().unwrap_or(0);
        self.reserve_splits(gpu, self.n_splits(n_context) + n_runs)?;
        self.bind_missing(gpu)?;
        if self.in_place.of != Some(version) {
            let (acc, state) = self.parts().split_slices()?;
            let (layers, segments) = (self.kv.ram_runs().0, self.kv.ram_segments().0);
            let mut of_layers = Vec::new();
            for runs in layers {
                let bind = |run: &RamRun| {
                    let pages = &segments[run.segment].pages;
                    self.model.page_attention.decode.bind_split(gpu, [&self.model.act.q, pages, &run.table, acc, state])
                };
                of_layers.push(runs.iter().map(bind).collect::<Result<Vec<_>, _>>()?);
            }
            (self.in_place.decode, self.in_place.of) = (of_layers, Some(version));
        }
        Ok(true)
    }

    /// Keys of each run of a layer that this pass reads in place.
    pub(in crate::engine) fn keys_in_place(&self, layer: usize) -> Vec<usize> {
        let runs = self.kv.ram_runs().0.get(layer).filter(|_| self.in_place.is_active);
        runs.into_iter().flatten().map(|run| run.n_pages * KV_PAGE_TOKENS).collect()
    }

    /// Records attention over the runs of a layer that this pass reads in place.
    pub(in crate::engine) fn attend_in_place(&mut self, pacer: &mut SubmitPacer, layer: usize, splits: &mut Splits) {
        let mut n_pages = 0;
        for (n_keys, binding) in self.keys_in_place(layer).into_iter().zip(self.in_place.decode.get(layer).into_iter().flatten())
        {
            let (keys, rows) = splits.next(n_keys, n_keys / KV_PAGE_TOKENS * BLOCKS_PER_PAGE);
            self.model.page_attention.decode.record_rows(&mut pacer.recorder, binding, keys, rows);
            n_pages += n_keys / KV_PAGE_TOKENS;
        }
        self.kv.count_pages_in_place(layer, n_pages);
    }
}
