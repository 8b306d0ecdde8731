//! Executor: the model, the KV cache and the policy of a loaded model, and the bind groups of attention over the cache.
//!
//! ```text
//! GpuModel ─┐
//! VramCache ┼─► bind groups by segment, tail and staging buffer ─► passes (forward.rs), selection (selection/)
//! Selector ─┘
//! ```
//! Owner: the engine thread.

use std::cell::Cell;

use crate::base::limits::KV_PAGE_TOKENS;
use crate::engine::error::EngineError;
use crate::engine::runner::device_parts::{DeviceParts, SplitBuffers};
use crate::engine::runner::fused_ops::HiddenForm;
use crate::engine::runner::gpu_model::{AttentionOps, GpuModel};
use crate::engine::runner::in_place_ops::InPlaceOps;
use crate::engine::selection::Selector;
use crate::engine::selection::page_attention_meter::PageAttentionMeter;
use crate::gpu::kernels::attention_prefill::PrefillBindings;
use crate::gpu::kernels::linear::ConvertedSlices;
use crate::gpu::{Binding, Gpu, Slice};
use crate::kv::policy::PolicySpec;
use crate::kv::{PagedBuffer, VramCache};
use crate::telemetry::Hub;

/// Bind groups for attention over one run of pages: a segment or tail of a layer, or a staging buffer.
#[derive(Clone)]
pub(in crate::engine) struct RunOps {
    pub(in crate::engine) prefill: PrefillBindings,
    pub(in crate::engine) decode: Binding,
}

/// Bind groups of one layer's tail.
pub(in crate::engine) struct TailOps {
    pub(in crate::engine) rope_append: Binding,
    pub(in crate::engine) run: RunOps,
    /// quantizes complete pages
    pub(in crate::engine) seal: Option<Binding>,
}

/// A loaded model with its context on the device.
pub struct Executor {
    /// weights, activations and ops
    pub(in crate::engine) model: GpuModel,
    /// the KV cache
    pub kv: VramCache,
    /// selective attention; None if attention always reads everything
    pub(in crate::engine) selector: Option<Selector>,
    /// attention mass per page, measured in a few steps
    pub(in crate::engine) attention_meter: PageAttentionMeter,
    /// `[segment][layer]`
    pub(in crate::engine) segments: Vec<Vec<RunOps>>,
    /// `[layer]`
    pub(in crate::engine) tails: Vec<TailOps>,
    /// by staging buffer
    pub(in crate::engine) slots: Vec<RunOps>,
    pub(in crate::engine) splits: Option<SplitBuffers>,
    /// attention over everything in RAM, where it is
    pub(in crate::engine) in_place: InPlaceOps,
    /// transfers and compute wait for each other
    pub(in crate::engine) synchronous: bool,
    /// form of x after the last pass
    pub(in crate::engine) hidden: Cell<HiddenForm>,
}

impl Executor {
    /// An executor without bind groups or a policy.
    pub(in crate::engine) fn new(model: GpuModel, kv: VramCache, synchronous: bool) -> Executor {
        Executor {
            model,
            kv,
            selector: None,
            attention_meter: PageAttentionMeter::default(),
            segments: Vec::new(),
            tails: Vec::new(),
            slots: Vec::new(),
            splits: None,
            in_place: InPlaceOps::default(),
            synchronous,
            hidden: Cell::default(),
        }
    }

    /// Sets the policy that selects the tokens of decode steps, except in exact answers. None: always read everything.
    ///
    /// # Errors
    /// Invalid parameters of the policy, a kernel that does not compile, out of VRAM, a lost device.
    pub(in crate::engine) fn set_policy(&mut self, gpu: &Gpu, spec: Option<PolicySpec>, hub: &Hub) -> Result<(), EngineError> {
        self.selector = spec.map(|spec| Selector::new(gpu, self.parts(), spec, hub)).transpose()?;
        Ok(())
    }

    /// Buffers that bind groups refer to.
    pub(in crate::engine) fn parts(&self) -> DeviceParts<'_> {
        DeviceParts { model: &self.model, kv: &self.kv, splits: self.splits.as_ref() }
    }

    /// Reserves VRAM for `n_tokens` in total, within the budget, with bind groups and split buffers.
    ///
    /// # Errors
    /// More tokens than the context, out of VRAM, a lost device.
    pub fn reserve(&mut self, gpu: &Gpu, n_tokens: usize) -> Result<(), EngineError> {
        self.kv.reserve(gpu, n_tokens)?;
        self.reserve_splits(gpu, self.n_splits(n_tokens))?;
        self.bind_missing(gpu)
    }

    /// Releases the frames of a dropped context.
    pub(in crate::engine) fn drop_pool(&mut self) {
        self.kv.drop_pool();
        self.segments.clear();
        self.selector.iter_mut().for_each(Selector::unbind);
    }

    /// Reserves buffers for `wanted` splits. Larger buffers drop all bind groups.
    pub(in crate::engine) fn reserve_splits(&mut self, gpu: &Gpu, wanted: usize) -> Result<(), EngineError> {
        if self.splits.as_ref().is_none_or(|b| b.capacity < wanted) {
            let capacity = wanted.max(self.splits.as_ref().map_or(0, |b| 2 * b.capacity));
            let decode = &self.model.page_attention.decode;
            let acc = gpu.buffer("attention splits", decode.acc_bytes(capacity))?.all();
            let state = gpu.buffer("attention split state", decode.state_bytes(capacity))?.all();
            let a = &self.model.act;
            let converted = ConvertedSlices { values: &a.x_values, scales: &a.x_scales };
            let merge = decode.bind_merge(gpu, [&acc, &state, &a.attn], Some(converted))?;
            self.splits = Some(SplitBuffers { capacity, acc, state, merge });
            self.segments.clear();
            self.tails.clear();
            self.slots.clear();
            self.in_place.unbind();
            self.selector.iter_mut().for_each(Selector::unbind);
        }
        Ok(())
    }

    /// Creates the missing bind groups.
    pub(in crate::engine) fn bind_missing(&mut self, gpu: &Gpu) -> Result<(), EngineError> {
        for i in self.segments.len()..self.kv.shapes().len() {
            let bind = |layer| {
                let PagedBuffer { pages, table, .. } = self.kv.segment(i, layer);
                self.bind_run(gpu, &self.model.page_attention, pages, table)
            };
            let ops = (0..self.model.dims.n_layer).map(bind).collect::<Result<Vec<_>, _>>()?;
            self.segments.push(ops);
        }
        for layer_idx in self.tails.len()..self.model.dims.n_layer {
            let (kv, table) = self.kv.tail(layer_idx);
            let ops = self.bind_tail(gpu, layer_idx, [kv, table], self.kv.scratch())?;
            self.tails.push(ops);
        }
        while let Some((pages, table)) = self.kv.slot(self.slots.len()) {
            let ops = self.bind_run(gpu, &self.model.page_attention, pages, table)?;
            self.slots.push(ops);
        }
        if let Some(mut selector) = self.selector.take() {
            let bound = selector.bind(gpu, self.parts());
            self.selector = Some(selector);
            bound?;
        }
        Ok(())
    }

    /// Reserves buffers for `n_rows` tokens of one pass, over `n_shared` tokens in complete pages and tails of up to `n_own`.
    ///
    /// # Errors
    /// Out of VRAM, a lost device.
    pub(in crate::engine) fn reserve_rows(
        &mut self,
        gpu: &Gpu,
        n_rows: usize,
        n_shared: usize,
        n_own: usize,
    ) -> Result<(), EngineError> {
        self.reserve_splits(gpu, n_rows * (self.n_splits(n_shared) + self.model.page_attention.decode.max_splits(n_own)))?;
        if let Some(mut selector) = self.selector.take() {
            let reserved = selector.reserve_rows(gpu, self.parts(), n_rows, n_own);
            self.selector = Some(selector);
            reserved?;
        }
        self.bind_missing(gpu)
    }

    /// Frees the buffers of a batch.
    ///
    /// # Errors
    /// Out of VRAM, a lost device.
    pub(in crate::engine) fn release_rows(&mut self, gpu: &Gpu) -> Result<(), EngineError> {
        if let Some(mut selector) = self.selector.take() {
            let released = selector.reserve_rows(gpu, self.parts(), 1, KV_PAGE_TOKENS);
            self.selector = Some(selector);
            released?;
        }
        self.bind_missing(gpu)
    }

    /// Maximum number of splits of decode attention over `n_tokens`. Every run begins a new split, and every segment reads the
    /// whole list of a selection.
    pub(in crate::engine) fn n_splits(&self, n_tokens: usize) -> usize {
        let n_pages = n_tokens.div_ceil(KV_PAGE_TOKENS);
        let plan = self.kv.plan();
        let n_runs = self.kv.shapes().len() + n_pages.div_ceil(plan.slot_pages) + 1;
        let n_lists = if self.selector.is_some() { self.kv.shapes().len().max(1) } else { 1 };
        n_lists * self.model.page_attention.decode.max_splits((n_pages + plan.tail_pages) * KV_PAGE_TOKENS) + n_runs
    }

    fn bind_run(&self, gpu: &Gpu, ops: &AttentionOps, kv: &Slice, table: &Slice) -> Result<RunOps, EngineError> {
        let a = &self.model.act;
        let (acc, state) = self.parts().split_slices()?;
        Ok(RunOps {
            prefill: ops.prefill.bind(gpu, [&a.q, kv, table, &a.scores, &a.prefill_state, &a.attn])?,
            decode: ops.decode.bind_split(gpu, [&a.q, kv, table, acc, state])?,
        })
    }

    /// Bind groups of a tail: its pages, its block table, and the output of its quantized pages.
    pub(in crate::engine) fn bind_tail(
        &self,
        gpu: &Gpu,
        layer_idx: usize,
        [kv, table]: [&Slice; 2],
        scratch: Option<&Slice>,
    ) -> Result<TailOps, EngineError> {
        let a = &self.model.act;
        let seal = match (&self.model.seal, scratch) {
            (Some(seal), Some(scratch)) => Some(seal.bind(gpu, [kv, scratch])?),
            _ => None,
        };
        Ok(TailOps {
            rope_append: self.model.bind_rope(gpu, layer_idx, table, kv, &a.q)?,
            run: self.bind_run(gpu, &self.model.tail_attention, kv, table)?,
            seal,
        })
    }
}
