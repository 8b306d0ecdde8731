//! Forward pass: records the layers for a chunk of new tokens, or for one token per sequence.
//!
//! 1. A chunk has at most `max_chunk` tokens and fits the tail; complete pages hold the tokens before it.
//! 2. Recording waits only for pages that are not in VRAM. After every op, [`SubmitPacer`] decides whether to submit.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::gpu::Gpu;
use crate::gpu::kernels::attention_prefill::KeyTile;
use crate::gpu::kernels::linear::ActivationForm;

use crate::engine::error::EngineError;
use crate::engine::runner::bindings::LinearOp;
use crate::engine::runner::executor::{Executor, RunOps};
use crate::engine::runner::fused_ops::HiddenForm;
use crate::engine::runner::gpu_model::AttentionOps;
use crate::engine::runner::pass::{KeyRun, Pass, Row, Splits};
use crate::engine::runner::submit_pacer::SubmitPacer;
use crate::engine::selection::step::Device;
use crate::kv::{BLOCKS_PER_PAGE, StagedBatch};
use crate::telemetry::{KernelFamily, NO_LAYER};

/// Most keys of one attention dispatch, so that a submit of a slow GPU stays short.
const MAX_RUN_KEYS: usize = 8192;

impl Executor {
    /// Checks ids and writes the small per-chunk inputs: ids unless the device has them, positions, cos and sin.
    fn write_inputs(&self, gpu: &Gpu, ids: Option<&[u32]>, positions: &[usize]) -> Result<(), EngineError> {
        let vocab_size = self.model.dims.vocab_size;
        if let Some(&id) = ids.unwrap_or_default().iter().find(|&&t| t as usize >= vocab_size) {
            return Err(EngineError::BadToken { id, vocab_size });
        }
        if let Some(ids) = ids {
            gpu.write(&self.model.act.ids, bytemuck::cast_slice(ids));
        }
        if self.model.position_embed.is_some() {
            let positions: Vec<u32> = positions.iter().map(|p| *p as u32).collect();
            gpu.write(&self.model.act.positions, bytemuck::cast_slice(&positions));
        }
        if let Some(rope) = &self.model.rope {
            // cos and sin on the CPU, because shader sin is only accurate to about 2^-11 outside [-pi, pi] (Vulkan's precision
            // requirements).
            let mut table = Vec::with_capacity(positions.len() * rope.inv_freq.len() * 2);
            for pos in positions {
                for angle in rope.angles(*pos) {
                    table.extend([angle.cos() as f32 * rope.magnitude, angle.sin() as f32 * rope.magnitude]);
                }
            }
            gpu.write(&self.model.act.rope, bytemuck::cast_slice(&table));
        }
        Ok(())
    }

    /// Runs a pass through all layers, after `n_context` tokens: x `[T, C]` of a chunk, `[R, C]` of rows. Reads the complete
    /// pages of the context from any tier.
    ///
    /// # Errors
    /// Token ids outside the vocabulary, a page that must be recomputed, a lost device.
    pub(in crate::engine) fn run_pass(
        &mut self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        n_context: usize,
        mut pass: Pass,
    ) -> Result<(), EngineError> {
        // Inputs are overwritten below: commands that use the old ones must be submitted first.
        pacer.flush(gpu)?;
        let (ids, positions, is_context) = (pass.ids(), pass.positions(n_context), pass.is_context());
        let (n, is_selective) = (pass.n_tokens(), pass.is_selective());
        self.in_place.is_active = false;
        self.return_promoted();
        match &pass {
            Pass::Rows(rows) if is_selective => self.begin_device_selection(gpu, pacer, n_context, rows)?,
            Pass::Rows(rows) if rows.len() == 1 && self.begin_in_place(gpu, n_context)? => {}
            _ => self.release_places(gpu)?,
        }
        let is_streamed = !self.in_place.is_active && (!is_selective || n_context < KV_PAGE_TOKENS);
        self.kv.begin_pass(gpu, n_context, is_streamed);
        self.embed(gpu, pacer, ids.as_deref(), &positions)?;
        let mut hidden = HiddenForm::Plain;
        for layer_idx in 0..self.model.dims.n_layer {
            self.record_qkv(gpu, pacer, layer_idx, n, hidden)?;
            pacer.mark(KernelFamily::Rope, layer_idx as u32);
            for (first, n, kv) in pass.parts() {
                let range = kv.append(self, n_context, first, n);
                self.model.rope_append.record(&mut pacer.recorder, &kv.ops(self, layer_idx).rope_append, range);
            }
            pacer.mark(KernelFamily::Attention, layer_idx as u32);
            let form = self.attend_layer(gpu, pacer, layer_idx, n_context, &mut pass)?;
            if is_context {
                pacer.mark(KernelFamily::Seal, layer_idx as u32);
                self.seal(gpu, pacer, layer_idx, n_context + n)?;
            }
            hidden = self.record_mlp(gpu, pacer, layer_idx, n, form)?;
            pacer.layer_recorded(gpu, layer_idx + 1)?;
        }
        self.hidden.set(hidden);
        if is_context {
            self.kv.end_pass(n_context + n);
        }
        pacer.pause();
        pass.advance();
        if let Some(selector) = self.selector.as_mut().filter(|_| is_selective) {
            selector.end_step();
        }
        Ok(())
    }

    /// Records the attention of a layer: over the selection of the policies, or over everything. Returns the form of the result.
    fn attend_layer(
        &mut self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        layer_idx: usize,
        n_context: usize,
        pass: &mut Pass,
    ) -> Result<ActivationForm, EngineError> {
        let is_selective = pass.is_selective() && n_context >= KV_PAGE_TOKENS;
        if let Pass::Rows(rows) = pass
            && is_selective
            && let Some(mut selector) = self.selector.take()
        {
            let result = self.attend_selected(&mut selector, &mut Device { gpu, pacer }, layer_idx, n_context, rows);
            self.selector = Some(selector);
            return result;
        }
        if matches!(pass, Pass::Rows(rows) if rows.len() == 1) {
            self.measure_attention(gpu, pacer, layer_idx, n_context)?;
        }
        self.attend(gpu, pacer, layer_idx, n_context, pass)
    }

    /// Records the embeddings of the tokens at `positions` to x `[T, C]`. Earlier commands must have been submitted.
    pub(in crate::engine) fn embed(
        &self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        ids: Option<&[u32]>,
        positions: &[usize],
    ) -> Result<(), EngineError> {
        self.write_inputs(gpu, ids, positions)?;
        let n = positions.len();
        pacer.mark(KernelFamily::Other, NO_LAYER);
        for (binding, slab) in &self.model.embed.slabs {
            self.model.embed.op.record(&mut pacer.recorder, binding, n, *slab, 0);
        }
        if let Some(positions) = &self.model.position_embed {
            for (binding, slab) in &positions.slabs {
                positions.op.record(&mut pacer.recorder, binding, n, *slab, self.model.position_offset);
            }
        }
        Ok(())
    }

    /// Records queries, keys and values of a layer from x, before rotation.
    pub(in crate::engine) fn record_qkv(
        &self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        layer_idx: usize,
        n: usize,
        hidden: HiddenForm,
    ) -> Result<(), EngineError> {
        let (d, layer) = (&self.model.dims, &self.model.ops.layers[layer_idx]);
        if let (Some(fused), HiddenForm::Normed) = (&self.model.ops.fused, hidden) {
            pacer.mark(KernelFamily::Linear, layer_idx as u32);
            fused.layers[layer_idx].qkv.record(&mut pacer.recorder);
            return Ok(());
        }
        pacer.mark(KernelFamily::Norm, layer_idx as u32);
        let form = layer.attn_norm.record(&mut pacer.recorder, &layer.qkv, d.hidden_dim, 0, n);
        pacer.mark(KernelFamily::Linear, layer_idx as u32);
        linear(gpu, pacer, &layer.qkv, n, (d.hidden_dim, form), d.q_dim() + 2 * d.kv_dim())
    }

    /// Records the output projection and the MLP of a layer, after attention with a result in `form`. Returns the form of x.
    pub(in crate::engine) fn record_mlp(
        &self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        layer_idx: usize,
        n: usize,
        form: ActivationForm,
    ) -> Result<HiddenForm, EngineError> {
        let (d, layer, idx) = (&self.model.dims, &self.model.ops.layers[layer_idx], layer_idx as u32);
        pacer.mark(KernelFamily::Linear, idx);
        let fused = self.model.ops.fused.as_ref().map(|fused| &fused.layers[layer_idx]);
        if let Some(fused) = fused.filter(|fused| n == 1 && fused.attn_form == form) {
            fused.record_mlp(&mut pacer.recorder);
            return Ok(HiddenForm::Normed);
        }
        linear(gpu, pacer, &layer.attn_output, n, (d.q_dim(), form), d.hidden_dim)?;
        pacer.mark(KernelFamily::Norm, idx);
        let form = layer.ffn_norm.record(&mut pacer.recorder, &layer.ffn_up, d.hidden_dim, 0, n);
        pacer.mark(KernelFamily::Linear, idx);
        linear(gpu, pacer, &layer.ffn_up, n, (d.hidden_dim, form), d.ffn_dim)?;
        linear(gpu, pacer, &layer.ffn_down, n, (d.ffn_dim, ActivationForm::F32), d.hidden_dim)?;
        Ok(HiddenForm::Plain)
    }

    /// Records attention over the whole context, run by run: pages in frames, tails with the new tokens, then the batches
    /// from the offload tiers. Log-sum-exp merges the partial results: in prefill run by run, in decode at the end.
    pub(in crate::engine) fn attend(
        &mut self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        layer_idx: usize,
        n_context: usize,
        pass: &Pass,
    ) -> Result<ActivationForm, EngineError> {
        let resident = self.kv.resident_runs(gpu, layer_idx);
        let batches = if self.in_place.is_active { Vec::new() } else { self.kv.batches_of(layer_idx) };
        let page_runs = resident.iter().map(|(_, pages)| *pages).chain(batches.iter().copied());
        let shared: Vec<usize> = page_runs.map(|pages| pages * KV_PAGE_TOKENS).chain(self.keys_in_place(layer_idx)).collect();
        let mut progress = match pass {
            Pass::Chunk(tokens, _) => Progress::Chunk(ChunkProgress {
                n_tokens: tokens.len(),
                runs_left: resident.len() + batches.len() + 1,
                is_first: true,
            }),
            Pass::Rows(rows) => Progress::Rows(Splits::new(&self.model.page_attention.decode, rows, n_context, &shared)),
        };
        for (segment_idx, n_pages) in resident {
            let run = KeyRun::of_pages(n_pages, self.kv.shapes()[segment_idx].n_blocks());
            self.attend_run(gpu, pacer, &self.model.page_attention, &self.segments[segment_idx][layer_idx], run, &mut progress)?;
        }
        if let Progress::Rows(splits) = &mut progress {
            self.attend_in_place(pacer, layer_idx, splits);
        }
        match (pass, &mut progress) {
            (Pass::Rows(rows), Progress::Rows(splits)) => self.attend_tails(pacer, layer_idx, n_context, rows, splits),
            _ => {
                for (_, n, kv) in pass.parts() {
                    let (run, ops) = (kv.run(self, n_context, n), &kv.ops(self, layer_idx).run);
                    self.attend_run(gpu, pacer, &self.model.tail_attention, ops, run, &mut progress)?;
                }
            }
        }
        self.stream(gpu, pacer, &batches, |exec, pacer, slot, n_pages| {
            let run = KeyRun::of_pages(*n_pages, exec.kv.plan().slot_pages * BLOCKS_PER_PAGE);
            exec.attend_run(gpu, pacer, &exec.model.page_attention, &exec.slots[slot], run, &mut progress)
        })?;
        Ok(match &progress {
            Progress::Rows(splits) => self.merge_rows(pacer, layer_idx, splits),
            Progress::Chunk(_) => ActivationForm::F32,
        })
    }

    /// Records the attention of each row over its own tail.
    pub(in crate::engine) fn attend_tails(
        &self,
        pacer: &mut SubmitPacer,
        layer_idx: usize,
        n_context: usize,
        rows: &[Row],
        splits: &mut Splits,
    ) {
        let tails = splits.tails(rows.iter().map(|row| row.kv.run(self, n_context, 1)));
        for (row, (keys, own)) in rows.iter().zip(tails) {
            let binding = &row.kv.ops(self, layer_idx).run.decode;
            self.model.tail_attention.decode.record_rows(&mut pacer.recorder, binding, keys, own);
        }
    }

    /// Records the merge of the splits of all rows, in the form that the output projection reads if there is such a kernel.
    /// Returns the form.
    pub(in crate::engine) fn merge_rows(&self, pacer: &mut SubmitPacer, layer_idx: usize, splits: &Splits) -> ActivationForm {
        let Some(buffers) = &self.splits else { return ActivationForm::F32 };
        let wanted = self.model.ops.layers[layer_idx].attn_output.input(splits.n_rows);
        let decode = &self.model.page_attention.decode;
        decode.record_merge_rows(&mut pacer.recorder, &buffers.merge, splits.n_splits, splits.n_rows, wanted)
    }

    /// Waits for the batches of the stream, one by one. `read` records the use of each, given its staging buffer and its
    /// entry of `batches`.
    pub(in crate::engine) fn stream<T>(
        &mut self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        batches: &[T],
        mut read: impl FnMut(&Executor, &mut SubmitPacer, usize, &T) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let mut recorded = Vec::new();
        for batch in batches {
            if !self.kv.is_next_filled(gpu)? {
                // The GPU works on the recorded commands while the next pages arrive.
                self.submit_slots(gpu, pacer, &mut recorded)?;
            }
            let filled = pacer.aside(|| self.kv.next_filled(gpu))?;
            if self.synchronous {
                pacer.finish(gpu)?;
            }
            self.kv.record_slot(&mut pacer.recorder, &filled);
            read(self, pacer, filled.slot, batch)?;
            recorded.push(filled);
            if self.synchronous {
                self.submit_slots(gpu, pacer, &mut recorded)?;
                pacer.finish(gpu)?;
            }
        }
        self.submit_slots(gpu, pacer, &mut recorded)
    }

    /// Submits the recorded commands. Their staging buffers may be refilled once the GPU is done.
    pub(in crate::engine) fn submit_slots(
        &self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        recorded: &mut Vec<StagedBatch>,
    ) -> Result<(), EngineError> {
        pacer.flush(gpu)?;
        for filled in recorded.drain(..) {
            self.kv.slot_submitted(&filled);
        }
        Ok(())
    }

    fn attend_run(
        &self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        attention: &AttentionOps,
        ops: &RunOps,
        run: KeyRun,
        progress: &mut Progress,
    ) -> Result<(), EngineError> {
        match progress {
            Progress::Chunk(progress) => self.attend_tiles(gpu, pacer, attention, ops, &run, progress),
            Progress::Rows(splits) => {
                let (keys, rows) = splits.next(run.n_keys, run.n_blocks);
                attention.decode.record_rows(&mut pacer.recorder, &ops.decode, keys, rows);
                Ok(())
            }
        }
    }

    fn attend_tiles(
        &self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        attention: &AttentionOps,
        ops: &RunOps,
        run: &KeyRun,
        progress: &mut ChunkProgress,
    ) -> Result<(), EngineError> {
        progress.runs_left -= 1;
        let n = progress.n_tokens;
        let step = match attention.prefill.variant().is_tiled() {
            true => (self.model.tile_keys * self.model.max_chunk / n / 64 * 64).clamp(64, MAX_RUN_KEYS),
            false => MAX_RUN_KEYS,
        };
        for first_key in (0..run.n_keys).step_by(step) {
            let here = step.min(run.n_keys - first_key);
            let tile = KeyTile {
                n_tokens: n,
                first_key,
                n_keys: here,
                n_blocks: run.n_blocks,
                mask_from: run.mask_from,
                is_first: std::mem::take(&mut progress.is_first),
                is_last: progress.runs_left == 0 && first_key + here == run.n_keys,
            };
            attention.prefill.record(&mut pacer.recorder, &ops.prefill, tile);
            pacer.add(gpu, (4 * n * here * self.model.dims.q_dim()) as f64)?;
        }
        Ok(())
    }

    /// Records the move of newly complete pages out of the tail.
    pub(in crate::engine) fn seal(
        &mut self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        layer_idx: usize,
        end: usize,
    ) -> Result<(), EngineError> {
        if let Some(selector) = &self.selector {
            selector.record_abstracts(&mut pacer.recorder, layer_idx, self.kv.to_seal(end));
        }
        let sealer = self.model.seal.as_ref().zip(self.tails[layer_idx].seal.as_ref());
        if let Some((readback, pages)) = self.kv.record_seal(gpu, &mut pacer.recorder, layer_idx, end, sealer)? {
            pacer.flush(gpu)?;
            self.kv.readback_submitted(readback, pages);
        }
        Ok(())
    }

    /// Records norm and output projection of rows `first_row .. first_row + n` of x: logits f32 `[n, V]` in the buffer that
    /// `output` is bound to.
    ///
    /// # Errors
    /// A lost device.
    pub(in crate::engine) fn run_output(
        &self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        output: &LinearOp,
        (first_row, n): (usize, usize),
    ) -> Result<(), EngineError> {
        // The norm below overwrites the converted hidden states.
        let hidden = self.hidden.take();
        let is_own = std::ptr::eq(output, &self.model.ops.output);
        if let (Some(fused), HiddenForm::Normed, true) = (&self.model.ops.fused, hidden, is_own) {
            self.hidden.set(hidden);
            pacer.mark(KernelFamily::Linear, NO_LAYER);
            fused.output.record(&mut pacer.recorder);
            return Ok(());
        }
        pacer.mark(KernelFamily::Norm, NO_LAYER);
        let d = &self.model.dims;
        let form = self.model.ops.output_norm.record(&mut pacer.recorder, output, d.hidden_dim, first_row, n);
        pacer.mark(KernelFamily::Linear, NO_LAYER);
        linear(gpu, pacer, output, n, (d.hidden_dim, form), d.vocab_size)
    }

    /// Size of the next chunk if `left` tokens remain at `first_pos`: at most `wanted`, and within the room of the tail.
    pub(in crate::engine) fn chunk_at(&self, first_pos: usize, left: usize, wanted: usize) -> usize {
        left.min(wanted).min(self.model.max_chunk).min(self.kv.room_at(first_pos))
    }
}

/// Progress through the runs of one layer.
enum Progress {
    Chunk(ChunkProgress),
    Rows(Splits),
}

struct ChunkProgress {
    n_tokens: usize,
    runs_left: usize,
    is_first: bool,
}

/// Records a matrix product, slab by slab, and submits as the pacer decides. Its activations have the given stride and form.
fn linear(
    gpu: &Gpu,
    pacer: &mut SubmitPacer,
    m: &LinearOp,
    n: usize,
    (x_stride, form): (usize, ActivationForm),
    y_stride: usize,
) -> Result<(), EngineError> {
    for (i, slab) in m.slabs.iter().enumerate() {
        m.record_slab(&mut pacer.recorder, i, n, (x_stride, form), y_stride);
        pacer.add(gpu, 2.0 * (n * slab.n_rows * m.cols) as f64)?;
    }
    debug_assert_eq!(m.slabs.iter().map(|s| s.n_rows).sum::<usize>(), m.rows);
    Ok(())
}
