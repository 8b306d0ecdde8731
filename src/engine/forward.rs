//! Records the forward pass: a chunk of new tokens, or one decoded token.
//!
//! 1. A chunk lies in one KV segment and has at most `max_chunk` tokens; earlier segments are complete.
//! 2. Recording never waits; [`Pace`] decides after every op whether what was recorded is enough for one submit.

use crate::gpu::Gpu;
use crate::gpu::kernels::attention_decode::{SPLIT_KEYS, SegmentKeys};
use crate::gpu::kernels::attention_prefill::KeyTile;
use crate::gpu::kernels::linear::LinearShape;
use crate::gpu::kernels::rope_append::AppendRange;

use super::device_model::{DeviceModel, LinearOp};
use super::error::EngineError;
use super::pace::Pace;

impl DeviceModel {
    /// Checks ids and writes the small per-chunk inputs: ids, positions, cos and sin.
    fn write_inputs(&self, gpu: &Gpu, tokens: &[u32], first_pos: usize) -> Result<(), EngineError> {
        let vocab_size = self.dims.vocab_size;
        if let Some(&id) = tokens.iter().find(|&&t| t as usize >= vocab_size) {
            return Err(EngineError::BadToken { id, vocab_size });
        }
        gpu.write(&self.act.ids, bytemuck::cast_slice(tokens));
        if self.position_embed.is_some() {
            let positions: Vec<u32> = (first_pos..first_pos + tokens.len()).map(|p| p as u32).collect();
            gpu.write(&self.act.positions, bytemuck::cast_slice(&positions));
        }
        if let Some(rope) = &self.rope {
            // Angles in f32 as in the models' own code; cos and sin on the CPU, because shader sin is only good to
            // about 2^-11 outside [-pi, pi] (Vulkan's precision requirements).
            let mut table = Vec::with_capacity(tokens.len() * rope.inv_freq.len() * 2);
            for pos in first_pos..first_pos + tokens.len() {
                for inv_freq in &rope.inv_freq {
                    let angle = f64::from(pos as f32 * inv_freq);
                    table.extend([angle.cos() as f32 * rope.magnitude, angle.sin() as f32 * rope.magnitude]);
                }
            }
            gpu.write(&self.act.rope, bytemuck::cast_slice(&table));
        }
        Ok(())
    }

    /// Runs `tokens` at positions `first_pos ..` through all layers, leaving x `[T, C]` and the KV blocks.
    ///
    /// # Errors
    /// Token ids outside the vocabulary, a lost device.
    pub(super) fn run_layers(&self, gpu: &Gpu, pace: &mut Pace, tokens: &[u32], first_pos: usize) -> Result<(), EngineError> {
        // Inputs are overwritten below: what was recorded with the old ones must be on its way.
        pace.flush(gpu)?;
        self.write_inputs(gpu, tokens, first_pos)?;
        let n = tokens.len();
        for (binding, slab) in &self.embed.slabs {
            self.embed.op.record(&mut pace.recorder, binding, n, *slab, 0);
        }
        if let Some(positions) = &self.position_embed {
            for (binding, slab) in &positions.slabs {
                positions.op.record(&mut pace.recorder, binding, n, *slab, self.position_offset);
            }
        }
        for layer_idx in 0..self.dims.n_layer {
            self.run_layer(gpu, pace, layer_idx, first_pos, n)?;
        }
        Ok(())
    }

    fn run_layer(&self, gpu: &Gpu, pace: &mut Pace, layer_idx: usize, first_pos: usize, n: usize) -> Result<(), EngineError> {
        let d = &self.dims;
        let layer = &self.layers[layer_idx];
        let (qkv_dim, q_dim) = (d.q_dim() + 2 * d.kv_dim(), d.q_dim());
        self.norm.record(&mut pace.recorder, &layer.attn_norm, d.hidden_dim, 0, n);
        linear(gpu, pace, &layer.qkv, n, d.hidden_dim, qkv_dim)?;
        let segment_idx = self.kv.segment_of(first_pos);
        let shape = self.shapes()[segment_idx];
        let ops = &self.segments[segment_idx][layer_idx];
        let range =
            AppendRange { first_token: 0, n_tokens: n, first_slot: first_pos - shape.first_token, n_blocks: shape.n_blocks() };
        self.rope_append.record(&mut pace.recorder, &ops.rope_append, range);
        if n == 1 {
            self.attend_decode(pace, layer_idx, first_pos);
        } else {
            self.attend_prefill(gpu, pace, layer_idx, first_pos, n)?;
        }
        linear(gpu, pace, &layer.attn_output, n, q_dim, d.hidden_dim)?;
        self.norm.record(&mut pace.recorder, &layer.ffn_norm, d.hidden_dim, 0, n);
        linear(gpu, pace, &layer.ffn_up, n, d.hidden_dim, d.ffn_dim)?;
        linear(gpu, pace, &layer.ffn_down, n, d.ffn_dim, d.hidden_dim)
    }

    fn attend_decode(&self, pace: &mut Pace, layer_idx: usize, pos: usize) {
        let n_keys = pos + 1;
        let in_segment = |first: usize, n: usize| n_keys.saturating_sub(first).min(n);
        let n_splits = self.shapes().iter().map(|s| in_segment(s.first_token, s.n_tokens).div_ceil(SPLIT_KEYS)).sum();
        let mut first_split = 0;
        for (shape, ops) in self.shapes().iter().zip(&self.segments) {
            let n_keys = in_segment(shape.first_token, shape.n_tokens);
            if n_keys == 0 {
                break;
            }
            let keys = SegmentKeys { n_keys, n_blocks: shape.n_blocks(), first_split, n_splits };
            self.decode.record_split(&mut pace.recorder, &ops[layer_idx].decode, keys);
            first_split += n_keys.div_ceil(SPLIT_KEYS);
        }
        if let Some((_, _, _, merge)) = &self.split_buffers {
            self.decode.record_merge(&mut pace.recorder, merge, n_splits);
        }
    }

    fn attend_prefill(
        &self,
        gpu: &Gpu,
        pace: &mut Pace,
        layer_idx: usize,
        first_pos: usize,
        n: usize,
    ) -> Result<(), EngineError> {
        let end = first_pos + n;
        let step = self.tile_keys * self.max_chunk / n.max(1) / 64 * 64;
        let step = step.clamp(64, 8192);
        for (shape, ops) in self.shapes().iter().zip(&self.segments) {
            let n_keys = end.saturating_sub(shape.first_token).min(shape.n_tokens);
            for first_key in (0..n_keys).step_by(step) {
                let here = step.min(n_keys - first_key);
                let tile = KeyTile {
                    n_tokens: n,
                    first_key,
                    n_keys: here,
                    n_blocks: shape.n_blocks(),
                    mask_from: first_pos + 1 - shape.first_token,
                    is_first: shape.first_token == 0 && first_key == 0,
                    is_last: shape.first_token + first_key + here == end,
                };
                self.prefill.record(&mut pace.recorder, &ops[layer_idx].prefill, tile);
                pace.add(gpu, (4 * n * here * self.dims.q_dim()) as f64)?;
            }
        }
        Ok(())
    }

    /// Normalises row `row` of x and projects it to the vocabulary: logits f32 `[V]`.
    ///
    /// # Errors
    /// A lost device.
    pub(super) fn run_output(&self, gpu: &Gpu, pace: &mut Pace, row: usize) -> Result<(), EngineError> {
        self.norm.record(&mut pace.recorder, &self.output_norm, self.dims.hidden_dim, row, 1);
        linear(gpu, pace, &self.output, 1, self.dims.hidden_dim, self.dims.vocab_size)
    }

    /// The same for rows `0 .. n` into the buffer that `output` was bound to: logits f32 `[n, V]`.
    pub(super) fn run_wide_output(&self, gpu: &Gpu, pace: &mut Pace, output: &LinearOp, n: usize) -> Result<(), EngineError> {
        self.norm.record(&mut pace.recorder, &self.output_norm, self.dims.hidden_dim, 0, n);
        linear(gpu, pace, output, n, self.dims.hidden_dim, self.dims.vocab_size)
    }

    /// Tokens of the next chunk when `left` remain at `first_pos`: within `wanted` and within one segment.
    pub(super) fn chunk_at(&self, first_pos: usize, left: usize, wanted: usize) -> usize {
        let shape = self.shapes()[self.kv.segment_of(first_pos)];
        left.min(wanted).min(self.max_chunk).min(shape.end_token() - first_pos)
    }
}

/// Records a product, slab by slab, and lets the pace submit what is enough.
fn linear(gpu: &Gpu, pace: &mut Pace, m: &LinearOp, n: usize, x_stride: usize, y_stride: usize) -> Result<(), EngineError> {
    for slab in &m.slabs {
        let shape = LinearShape {
            n_tokens: n,
            n_rows: slab.n_rows,
            x_stride,
            y_stride,
            y_offset: slab.first_row / m.rows_per_output,
            bias_offset: slab.first_row,
        };
        slab.op.record(&mut pace.recorder, &slab.binding, shape);
        pace.add(gpu, 2.0 * (n * slab.n_rows * m.cols) as f64)?;
    }
    debug_assert_eq!(m.slabs.iter().map(|s| s.n_rows).sum::<usize>(), m.rows);
    Ok(())
}
