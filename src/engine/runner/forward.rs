//! Records the forward pass: a chunk of new tokens, or one decoded token.
//!
//! 1. A chunk has at most `max_chunk` tokens and fits the tail; what came before it is in complete pages.
//! 2. Recording waits only for pages that are not in VRAM; [`SubmitPacer`] decides after every op whether what was recorded is
//!    enough for one submit.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::gpu::Gpu;
use crate::gpu::kernels::attention_decode::{SPLIT_KEYS, SegmentKeys};
use crate::gpu::kernels::attention_prefill::KeyTile;
use crate::gpu::kernels::linear::LinearShape;
use crate::gpu::kernels::rope_append::AppendRange;

use crate::engine::error::EngineError;
use crate::engine::runner::gpu_model::{AttentionOps, GpuModel, LinearOp, RunOps};
use crate::engine::runner::submit_pacer::SubmitPacer;
use crate::kv::{BLOCKS_PER_PAGE, StagedBatch};
use crate::telemetry::{KernelFamily, NO_LAYER};

impl GpuModel {
    /// Checks ids and writes the small per-chunk inputs: ids, positions, cos and sin.
    fn write_inputs(&self, gpu: &Gpu, tokens: &[u32], positions: &[usize]) -> Result<(), EngineError> {
        let vocab_size = self.dims.vocab_size;
        if let Some(&id) = tokens.iter().find(|&&t| t as usize >= vocab_size) {
            return Err(EngineError::BadToken { id, vocab_size });
        }
        gpu.write(&self.act.ids, bytemuck::cast_slice(tokens));
        if self.position_embed.is_some() {
            let positions: Vec<u32> = positions.iter().map(|p| *p as u32).collect();
            gpu.write(&self.act.positions, bytemuck::cast_slice(&positions));
        }
        if let Some(rope) = &self.rope {
            // Angles in f32 as in the models' own code; cos and sin on the CPU, because shader sin is only good to
            // about 2^-11 outside [-pi, pi] (Vulkan's precision requirements).
            let mut table = Vec::with_capacity(tokens.len() * rope.inv_freq.len() * 2);
            for pos in positions {
                for inv_freq in &rope.inv_freq {
                    let angle = f64::from(*pos as f32 * inv_freq);
                    table.extend([angle.cos() as f32 * rope.magnitude, angle.sin() as f32 * rope.magnitude]);
                }
            }
            gpu.write(&self.act.rope, bytemuck::cast_slice(&table));
        }
        Ok(())
    }

    /// Runs `tokens` at positions `first_pos ..` through all layers, leaving x `[T, C]` and the KV pages. Complete groups
    /// before `first_pos` are read wherever they are.
    ///
    /// # Errors
    /// Token ids outside the vocabulary, a page that must be computed again, a lost device.
    pub(in crate::engine) fn run_layers(
        &mut self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        tokens: &[u32],
        first_pos: usize,
    ) -> Result<(), EngineError> {
        // Inputs are overwritten below: what was recorded with the old ones must be on its way.
        pacer.flush(gpu)?;
        let reads_all = !self.uses_policy || first_pos < KV_PAGE_TOKENS;
        self.kv.begin_pass(gpu, first_pos, reads_all);
        let n = tokens.len();
        self.begin_observation(gpu, first_pos, n, first_pos);
        self.embed(gpu, pacer, tokens, &(first_pos..first_pos + n).collect::<Vec<_>>())?;
        for layer_idx in 0..self.dims.n_layer {
            self.run_layer(gpu, pacer, layer_idx, first_pos, n)?;
        }
        self.end_observation(gpu, pacer)?;
        self.kv.end_pass(first_pos + n);
        pacer.pause();
        if self.uses_policy
            && let Some(selective) = &mut self.selective
        {
            selective.end_step();
        }
        Ok(())
    }

    /// Puts the embeddings of `tokens` at `positions` into x `[T, C]`. What was recorded before must be on its way.
    pub(in crate::engine) fn embed(
        &self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        tokens: &[u32],
        positions: &[usize],
    ) -> Result<(), EngineError> {
        self.write_inputs(gpu, tokens, positions)?;
        let n = tokens.len();
        pacer.mark(KernelFamily::Other, NO_LAYER);
        for (binding, slab) in &self.embed.slabs {
            self.embed.op.record(&mut pacer.recorder, binding, n, *slab, 0);
        }
        if let Some(positions) = &self.position_embed {
            for (binding, slab) in &positions.slabs {
                positions.op.record(&mut pacer.recorder, binding, n, *slab, self.position_offset);
            }
        }
        Ok(())
    }

    /// Queries, keys and values of a layer, not rotated, from x.
    pub(in crate::engine) fn record_qkv(
        &self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        layer_idx: usize,
        n: usize,
    ) -> Result<(), EngineError> {
        let (d, layer) = (&self.dims, &self.layers[layer_idx]);
        pacer.mark(KernelFamily::Norm, layer_idx as u32);
        self.norm.record(&mut pacer.recorder, &layer.attn_norm, d.hidden_dim, 0, n);
        pacer.mark(KernelFamily::Linear, layer_idx as u32);
        linear(gpu, pacer, &layer.qkv, n, d.hidden_dim, d.q_dim() + 2 * d.kv_dim())
    }

    fn run_layer(
        &mut self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        layer_idx: usize,
        first_pos: usize,
        n: usize,
    ) -> Result<(), EngineError> {
        let idx = layer_idx as u32;
        self.record_qkv(gpu, pacer, layer_idx, n)?;
        let first_slot = first_pos % KV_PAGE_TOKENS;
        let range = AppendRange { first_token: 0, n_tokens: n, first_slot, n_blocks: self.kv.tail_blocks() };
        pacer.mark(KernelFamily::Rope, idx);
        self.rope_append.record(&mut pacer.recorder, &self.tails[layer_idx].rope_append, range);
        pacer.mark(KernelFamily::Attention, idx);
        if self.uses_policy
            && first_pos >= KV_PAGE_TOKENS
            && let Some(mut selective) = self.selective.take()
        {
            let result = self.attend_selected(&mut selective, gpu, pacer, layer_idx, first_pos);
            self.selective = Some(selective);
            result?;
        } else {
            if n == 1 {
                self.weigh(gpu, pacer, layer_idx, first_pos)?;
            }
            let run = KeyRun { n_keys: first_slot + n, n_blocks: self.kv.tail_blocks(), mask_from: first_slot + 1, n_pages: 0 };
            let tail = self.tails[layer_idx].run.clone();
            self.attend(gpu, pacer, layer_idx, n, (&tail, run))?;
        }
        pacer.mark(KernelFamily::Seal, idx);
        self.seal(gpu, pacer, layer_idx, first_pos + n)?;
        self.record_mlp(gpu, pacer, layer_idx, n)
    }

    /// What follows attention.
    pub(in crate::engine) fn record_mlp(
        &self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        layer_idx: usize,
        n: usize,
    ) -> Result<(), EngineError> {
        let (d, layer, idx) = (&self.dims, &self.layers[layer_idx], layer_idx as u32);
        pacer.mark(KernelFamily::Linear, idx);
        linear(gpu, pacer, &layer.attn_output, n, d.q_dim(), d.hidden_dim)?;
        pacer.mark(KernelFamily::Norm, idx);
        self.norm.record(&mut pacer.recorder, &layer.ffn_norm, d.hidden_dim, 0, n);
        pacer.mark(KernelFamily::Linear, idx);
        linear(gpu, pacer, &layer.ffn_up, n, d.hidden_dim, d.ffn_dim)?;
        linear(gpu, pacer, &layer.ffn_down, n, d.ffn_dim, d.hidden_dim)
    }

    /// Attention over the whole context, run by run: pages of the pool, the tail with the new tokens, then batch by batch what
    /// has to come from below. Partial results are merged by their log-sum-exp: prefill carries them, decode merges at the end.
    pub(in crate::engine) fn attend(
        &mut self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        layer_idx: usize,
        n: usize,
        (tail, tail_run): (&RunOps, KeyRun),
    ) -> Result<(), EngineError> {
        let resident = self.kv.resident_runs(gpu, layer_idx);
        let batches = self.kv.batches_of(layer_idx);
        let page_runs = resident.iter().map(|(_, pages)| *pages).chain(batches.iter().copied());
        let all_keys = page_runs.map(|pages| pages * KV_PAGE_TOKENS).chain([tail_run.n_keys]);
        let mut progress = Progress {
            n_tokens: n,
            runs_left: resident.len() + batches.len() + 1,
            n_splits: all_keys.map(|keys| keys.div_ceil(SPLIT_KEYS)).sum(),
            next_split: 0,
            n_pages: 0,
            is_first: true,
        };
        if self.observation_window().is_some() {
            let pages = self.kv.pages_in_order(layer_idx);
            self.selective.iter_mut().for_each(|selective| selective.look_at(&pages));
        }
        for (segment_idx, n_pages) in resident {
            let run = KeyRun::of_pages(n_pages, self.kv.shapes()[segment_idx].n_blocks());
            self.attend_run(gpu, pacer, &self.page_attention, &self.segments[segment_idx][layer_idx], run, &mut progress)?;
        }
        self.attend_run(gpu, pacer, &self.tail_attention, tail, tail_run, &mut progress)?;
        self.stream(gpu, pacer, &batches, |model, pacer, slot, n_pages| {
            let run = KeyRun::of_pages(*n_pages, model.kv.plan().slot_pages * BLOCKS_PER_PAGE);
            model.attend_run(gpu, pacer, &model.page_attention, &model.slots[slot], run, &mut progress)
        })?;
        if let Some(observation_window) = self.observation_window() {
            observation_window.record_layer(&mut pacer.recorder);
        }
        if let (1, Some(splits)) = (n, &self.splits) {
            self.page_attention.decode.record_merge(&mut pacer.recorder, &splits.merge, progress.n_splits);
        }
        Ok(())
    }

    /// Waits for the batches of the stream, one after the other, and lets `read` record what is done with the slot it lies in;
    /// `batches` says of each what `read` wants to know.
    pub(in crate::engine) fn stream<T>(
        &mut self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        batches: &[T],
        mut read: impl FnMut(&GpuModel, &mut SubmitPacer, usize, &T) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let mut recorded = Vec::new();
        for batch in batches {
            if !self.kv.is_next_filled(gpu)? {
                // The device works on what is recorded while the next pages come.
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

    /// Submits what was recorded; the slots it reads may be filled again when it is done.
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
        progress.runs_left -= 1;
        let n = progress.n_tokens;
        if n == 1 {
            let (first_split, n_splits) = (progress.next_split, progress.n_splits);
            let keys = SegmentKeys { n_keys: run.n_keys, n_blocks: run.n_blocks, first_split, n_splits };
            attention.decode.record_split(&mut pacer.recorder, &ops.decode, keys);
            progress.next_split += run.n_keys.div_ceil(SPLIT_KEYS);
            return Ok(());
        }
        let step = (self.tile_keys * self.max_chunk / n / 64 * 64).clamp(64, 8192);
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
            if let Some(observation_window) = self.observation_window().filter(|_| run.n_pages > 0) {
                observation_window.record_tile(&mut pacer.recorder, &tile, progress.n_pages + first_key / KV_PAGE_TOKENS);
            }
            pacer.add(gpu, (4 * n * here * self.dims.q_dim()) as f64)?;
        }
        progress.n_pages += run.n_pages;
        Ok(())
    }

    /// Moves pages that are complete now out of the tail.
    pub(in crate::engine) fn seal(
        &mut self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        layer_idx: usize,
        end: usize,
    ) -> Result<(), EngineError> {
        if let Some(selective) = &self.selective {
            selective.record_abstracts(&mut pacer.recorder, layer_idx, self.kv.to_seal(end));
        }
        let sealer = self.seal.as_ref().zip(self.tails[layer_idx].seal.as_ref());
        if let Some((readback, pages)) = self.kv.record_seal(gpu, &mut pacer.recorder, layer_idx, end, sealer)? {
            pacer.flush(gpu)?;
            self.kv.readback_submitted(readback, pages);
        }
        Ok(())
    }

    /// Normalizes row `row` of x and projects it to the vocabulary: logits f32 `[V]`.
    ///
    /// # Errors
    /// A lost device.
    pub(in crate::engine) fn run_output(&self, gpu: &Gpu, pacer: &mut SubmitPacer, row: usize) -> Result<(), EngineError> {
        pacer.mark(KernelFamily::Norm, NO_LAYER);
        self.norm.record(&mut pacer.recorder, &self.output_norm, self.dims.hidden_dim, row, 1);
        pacer.mark(KernelFamily::Linear, NO_LAYER);
        linear(gpu, pacer, &self.output, 1, self.dims.hidden_dim, self.dims.vocab_size)
    }

    /// The same for rows `0 .. n` into the buffer that `output` was bound to: logits f32 `[n, V]`.
    pub(in crate::engine) fn run_wide_output(
        &self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        output: &LinearOp,
        n: usize,
    ) -> Result<(), EngineError> {
        self.norm.record(&mut pacer.recorder, &self.output_norm, self.dims.hidden_dim, 0, n);
        linear(gpu, pacer, output, n, self.dims.hidden_dim, self.dims.vocab_size)
    }

    /// Tokens of the next chunk when `left` remain at `first_pos`: within `wanted` and the room of the tail.
    pub(in crate::engine) fn chunk_at(&self, first_pos: usize, left: usize, wanted: usize) -> usize {
        left.min(wanted).min(self.max_chunk).min(self.kv.room_at(first_pos))
    }
}

/// Keys that lie behind one block table.
pub(in crate::engine) struct KeyRun {
    pub(in crate::engine) n_keys: usize,
    /// logical blocks (row stride of the table)
    pub(in crate::engine) n_blocks: usize,
    /// keys that the first token sees; each later one sees one more
    pub(in crate::engine) mask_from: usize,
    /// complete pages, which every token sees; none of a tail
    pub(in crate::engine) n_pages: usize,
}

impl KeyRun {
    /// Complete pages, which every token sees.
    fn of_pages(n_pages: usize, n_blocks: usize) -> KeyRun {
        KeyRun { n_keys: n_pages * KV_PAGE_TOKENS, n_blocks, mask_from: n_pages * KV_PAGE_TOKENS, n_pages }
    }
}

/// How far the attention of one layer has come.
struct Progress {
    n_tokens: usize,
    runs_left: usize,
    n_splits: usize,
    next_split: usize,
    /// complete pages that were read
    n_pages: usize,
    is_first: bool,
}

/// Records a product, slab by slab, and lets the pace submit what is enough.
fn linear(
    gpu: &Gpu,
    pacer: &mut SubmitPacer,
    m: &LinearOp,
    n: usize,
    x_stride: usize,
    y_stride: usize,
) -> Result<(), EngineError> {
    for slab in &m.slabs {
        let shape = LinearShape {
            n_tokens: n,
            n_rows: slab.n_rows,
            x_stride,
            y_stride,
            y_offset: slab.first_row / m.rows_per_output,
            bias_offset: slab.first_row,
        };
        slab.op.record(&mut pacer.recorder, &slab.binding, shape);
        pacer.add(gpu, 2.0 * (n * slab.n_rows * m.cols) as f64)?;
    }
    debug_assert_eq!(m.slabs.iter().map(|s| s.n_rows).sum::<usize>(), m.rows);
    Ok(())
}
