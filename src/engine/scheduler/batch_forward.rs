//! Records passes of several questions: the rest of one prompt, or one token of each.
//!
//! ```text
//! rest of a prompt:   T rows of one branch  ─► prefill attention over the shared pages and its tail
//! decode:             one row of each branch ─► decode attention of all rows over the shared pages, of each over its own tail
//! ```
//! Everything but attention is the same for all rows. What has to come from below comes once for all of them.
//!
//! Owner: the engine thread. Shapes: R rows, one of each branch; `n_shared` tokens before all of them.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::engine::error::EngineError;
use crate::engine::runner::gpu_model::GpuModel;
use crate::engine::runner::submit_pacer::SubmitPacer;
use crate::engine::scheduler::batch_selection::{BatchSelector, RowPolicy};
use crate::engine::scheduler::sequence_tail::SequenceTail;
use crate::engine::selection::fetch::SelectedOps;
use crate::gpu::kernels::attention_decode::{SPLIT_KEYS, SegmentKeys, SplitRows};
use crate::gpu::{Binding, Gpu};
use crate::kv::policy::SelectedBlock;
use crate::kv::{BLOCKS_PER_PAGE, BlockTable};
use crate::telemetry::KernelFamily;

/// The next token of a branch.
pub(in crate::engine) struct Row<'a> {
    pub token: u32,
    pub tail: &'a mut SequenceTail,
    /// none where everything is read
    pub policy: Option<&'a mut RowPolicy>,
}

/// Where the splits of several rows go.
struct Splits {
    n_rows: usize,
    /// of each row
    n_splits: usize,
    next: usize,
}

impl Splits {
    /// The next `n_keys` keys, which all rows see.
    fn shared(&mut self, n_keys: usize, n_blocks: usize) -> (SegmentKeys, SplitRows) {
        let n_here = n_keys.div_ceil(SPLIT_KEYS);
        let keys = SegmentKeys { n_keys, n_blocks, first_split: self.next, n_splits: self.n_splits };
        self.next += n_here;
        (keys, SplitRows { first: 0, n: self.n_rows, n_splits: n_here })
    }
}

impl GpuModel {
    /// Runs the next `tokens` of one branch, leaving x `[T, C]`.
    ///
    /// # Errors
    /// Token ids outside the vocabulary, a page that must be computed again, a lost device.
    pub(in crate::engine) fn read_branch(
        &mut self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        n_shared: usize,
        tail: &mut SequenceTail,
        tokens: &[u32],
    ) -> Result<(), EngineError> {
        pacer.flush(gpu)?;
        self.kv.begin_pass(gpu, n_shared, true);
        let (n, first_pos) = (tokens.len(), n_shared + tail.n_tokens);
        self.begin_observation(gpu, first_pos, n, n_shared);
        self.embed(gpu, pacer, tokens, &(first_pos..first_pos + n).collect::<Vec<_>>())?;
        for layer_idx in 0..self.dims.n_layer {
            self.record_qkv(gpu, pacer, layer_idx, n)?;
            let ops = &tail.ops[layer_idx];
            pacer.mark(KernelFamily::Rope, layer_idx as u32);
            self.rope_append.record(&mut pacer.recorder, &ops.rope_append, tail.append(0, n));
            pacer.mark(KernelFamily::Attention, layer_idx as u32);
            self.attend(gpu, pacer, layer_idx, n, (&ops.run, tail.run(n)))?;
            self.record_mlp(gpu, pacer, layer_idx, n)?;
        }
        self.end_observation(gpu, pacer)?;
        tail.n_tokens += n;
        Ok(())
    }

    /// Runs one token of each branch, leaving x `[R, C]`.
    ///
    /// # Errors
    /// The same.
    pub(in crate::engine) fn decode_rows(
        &mut self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        n_shared: usize,
        rows: &mut [Row],
        mut chooser: Option<&mut BatchSelector>,
    ) -> Result<(), EngineError> {
        pacer.flush(gpu)?;
        self.kv.begin_pass(gpu, n_shared, chooser.is_none());
        let clock = self.selective.as_mut().map_or(0, |selective| selective.count_step());
        let tokens: Vec<u32> = rows.iter().map(|row| row.token).collect();
        let positions: Vec<usize> = rows.iter().map(|row| n_shared + row.tail.n_tokens).collect();
        self.embed(gpu, pacer, &tokens, &positions)?;
        for layer_idx in 0..self.dims.n_layer {
            self.record_qkv(gpu, pacer, layer_idx, rows.len())?;
            pacer.mark(KernelFamily::Rope, layer_idx as u32);
            for (i, row) in rows.iter().enumerate() {
                let ops = &row.tail.ops[layer_idx];
                self.rope_append.record(&mut pacer.recorder, &ops.rope_append, row.tail.append(i, 1));
            }
            pacer.mark(KernelFamily::Attention, layer_idx as u32);
            match &mut chooser {
                Some(chooser) => self.attend_selected_rows(gpu, pacer, layer_idx, rows, chooser, clock)?,
                None => self.attend_rows(gpu, pacer, layer_idx, rows)?,
            }
            self.record_mlp(gpu, pacer, layer_idx, rows.len())?;
        }
        for row in rows {
            row.tail.n_tokens += 1;
            if let Some(policy) = &mut row.policy {
                policy.end_step();
            }
        }
        Ok(())
    }

    /// Attention of every row over all shared pages, and of each over its own tail.
    fn attend_rows(&mut self, gpu: &Gpu, pacer: &mut SubmitPacer, layer_idx: usize, rows: &[Row]) -> Result<(), EngineError> {
        let resident = self.kv.resident_runs(gpu, layer_idx);
        let batches = self.kv.batches_of(layer_idx);
        let n_pages = resident.iter().map(|(_, pages)| *pages).chain(batches.iter().copied());
        let n_shared: usize = n_pages.map(|pages| (pages * KV_PAGE_TOKENS).div_ceil(SPLIT_KEYS)).sum();
        let mut splits = Splits { n_rows: rows.len(), n_splits: n_shared + n_own_splits(rows), next: 0 };
        for (segment_idx, n_pages) in resident {
            let (keys, all) = splits.shared(n_pages * KV_PAGE_TOKENS, self.kv.shapes()[segment_idx].n_blocks());
            let binding = &self.segments[segment_idx][layer_idx].decode;
            self.page_attention.decode.record_rows(&mut pacer.recorder, binding, keys, all);
        }
        self.attend_tails(pacer, layer_idx, rows, n_shared, splits.n_splits);
        self.stream(gpu, pacer, &batches, |model, pacer, slot, n_pages| {
            let (keys, all) = splits.shared(*n_pages * KV_PAGE_TOKENS, model.kv.plan().slot_pages * BLOCKS_PER_PAGE);
            model.page_attention.decode.record_rows(&mut pacer.recorder, &model.slots[slot].decode, keys, all);
            Ok(())
        })?;
        self.merge_rows(pacer, rows.len(), splits.n_splits);
        Ok(())
    }

    /// Attention of every row over what it chooses of the shared pages, and over its own tail.
    fn attend_selected_rows(
        &mut self,
        gpu: &Gpu,
        pacer: &mut SubmitPacer,
        layer: usize,
        rows: &mut [Row],
        chooser: &mut BatchSelector,
        clock: u64,
    ) -> Result<(), EngineError> {
        let mut recorded = Vec::new();
        self.collect_prefetched(gpu, pacer, layer, &mut recorded)?;
        let selections = self.choose_rows(chooser, gpu, pacer, layer, (rows, clock), &mut recorded)?;
        self.collect_prefetched(gpu, pacer, layer, &mut recorded)?;
        let stream = self.begin_rows(chooser, layer, &selections, clock);
        let blocks: Vec<Vec<SelectedBlock>> = selections.into_iter().flat_map(|selection| selection.blocks).collect();
        let tables = self.fetch_into_frames(gpu, pacer, layer, &stream, &blocks, &mut recorded)?;
        let n_shared = tables.n_splits();
        let mut splits = Splits { n_rows: rows.len(), n_splits: n_shared + n_own_splits(rows), next: 0 };
        let mut read = |pacer: &mut SubmitPacer, ops: &SelectedOps, binding: &Binding, table: &BlockTable| {
            gpu.write(&ops.table, bytemuck::cast_slice(&table.entries));
            let (keys, all) = splits.shared(table.n_listed, table.n_listed);
            chooser.decode.record_rows(&mut pacer.recorder, binding, keys, all);
        };
        for (ops, table) in chooser.segments.iter().zip(&tables.in_segments).filter(|(_, table)| table.n_listed > 0) {
            read(pacer, ops, &ops.decode[layer], table);
        }
        for (fill, table) in &tables.in_fills {
            self.fill_staging(gpu, pacer, fill.clone(), &mut recorded)?;
            if let Some(ops) = &chooser.area {
                read(pacer, ops, &ops.decode[0], table);
            }
            // The next fill has a table of its own.
            self.submit_slots(gpu, pacer, &mut recorded)?;
        }
        let n_splits = splits.n_splits;
        self.attend_tails(pacer, layer, rows, n_shared, n_splits);
        self.merge_rows(pacer, rows.len(), n_splits);
        // Tables are written ahead of what is submitted: the next layer's must not come before this one. Where the next layer
        // is scored, that is a submit anyway.
        let is_scored = rows.iter().filter_map(|row| row.policy.as_ref()).all(|policy| policy.is_scored());
        if recorded.is_empty() && is_scored { Ok(()) } else { self.submit_slots(gpu, pacer, &mut recorded) }
    }

    /// The splits of each row over its own tail, from `first_split` on.
    fn attend_tails(&self, pacer: &mut SubmitPacer, layer_idx: usize, rows: &[Row], first_split: usize, n_splits: usize) {
        for (i, row) in rows.iter().enumerate() {
            let run = row.tail.run(1);
            let keys = SegmentKeys { n_keys: run.n_keys, n_blocks: run.n_blocks, first_split, n_splits };
            let own = SplitRows { first: i, n: 1, n_splits: n_splits - first_split };
            let binding = &row.tail.ops[layer_idx].run.decode;
            self.tail_attention.decode.record_rows(&mut pacer.recorder, binding, keys, own);
        }
    }

    fn merge_rows(&self, pacer: &mut SubmitPacer, n_rows: usize, n_splits: usize) {
        if let Some(splits) = &self.splits {
            self.page_attention.decode.record_merge_rows(&mut pacer.recorder, &splits.merge, n_splits, n_rows);
        }
    }
}

/// Splits of the longest tail, with the token that comes.
fn n_own_splits(rows: &[Row]) -> usize {
    rows.iter().map(|row| (row.tail.n_tokens + 1).div_ceil(SPLIT_KEYS)).max().unwrap_or(0)
}
