//! Weight upload: allocates the arenas of a [`WeightLayout`] and fills them from the model file.
//!
//! ```text
//! file rows ─► kernel format, in pieces of PIECE_BYTES ─► WeightSlice of an arena
//! ```

use std::borrow::Cow;

use super::layout::{Group, MatrixLayout, NormLayout, Slab, WeightLayout, WeightSlice, native_format};
use crate::gpu::kernels::linear::WeightFormat;
use crate::gpu::{Buffer, Gpu, Slice};
use crate::model::ModelError;
use crate::model::arch::plan::TensorRef;
use crate::model::file::ModelFile;
use crate::model::quant::{self, TensorType};

/// File bytes that are repacked at a time, which limits the RAM that loading takes.
const PIECE_BYTES: usize = 8 << 20;

/// Weights of a model in VRAM.
pub struct Weights {
    /// slice of every tensor
    pub layout: WeightLayout,
    arenas: Vec<Buffer>,
}

impl Weights {
    /// Allocates the arenas of `layout` and fills them from `file`. `progress` gets the share done, and returns false to
    /// cancel.
    ///
    /// # Errors
    /// Out of VRAM, a lost GPU, a tensor that cannot be read, or [`ModelError::Cancelled`].
    pub fn upload(
        gpu: &Gpu,
        file: &ModelFile,
        layout: WeightLayout,
        progress: &mut dyn FnMut(f32) -> bool,
    ) -> Result<Weights, ModelError> {
        let arenas = layout.arena_bytes.iter().map(|&size| gpu.buffer("weights", size)).collect::<Result<Vec<_>, _>>()?;
        let weights = Weights { layout, arenas };
        let mut loader = Loader { gpu, file, weights: &weights, done: 0, total: weights.layout.total_bytes().max(1), progress };
        loader.upload_all()?;
        Ok(weights)
    }

    /// Binding of a slice.
    pub fn slice(&self, of: WeightSlice) -> Slice {
        self.arenas[of.arena].slice(of.offset, of.size)
    }
}

/// Receives one row in the format of the file.
type TakeRow<'a> = dyn FnMut(TensorType, &[u8]) -> Result<(), ModelError> + 'a;

struct Loader<'a> {
    gpu: &'a Gpu,
    file: &'a ModelFile,
    weights: &'a Weights,
    done: u64,
    total: u64,
    progress: &'a mut dyn FnMut(f32) -> bool,
}

impl Loader<'_> {
    fn upload_all(&mut self) -> Result<(), ModelError> {
        let layout = &self.weights.layout;
        self.matrix(&layout.token_embedding)?;
        if let Some(positions) = &layout.positions {
            self.matrix(positions)?;
        }
        for l in &layout.layers {
            for m in [&l.qkv, &l.attn_output, &l.ffn_up, &l.ffn_down] {
                self.matrix(m)?;
            }
            for n in [Some(&l.attn_norm), Some(&l.ffn_norm), l.q_norm.as_ref(), l.k_norm.as_ref()].into_iter().flatten() {
                self.norm(n)?;
            }
        }
        self.norm(&layout.output_norm)?;
        if let Some(output) = &layout.output {
            self.matrix(output)?;
        }
        Ok(())
    }

    fn write(&mut self, slice: WeightSlice, skip: u64, bytes: &[u8]) -> Result<(), ModelError> {
        let mut target = self.weights.slice(slice);
        target.offset += skip;
        let padded: Cow<'_, [u8]> = if bytes.len().is_multiple_of(4) {
            bytes.into()
        } else {
            let mut padded = bytes.to_vec();
            padded.resize(bytes.len().next_multiple_of(4), 0);
            padded.into()
        };
        self.gpu.upload(&target, &padded)?;
        self.done += bytes.len() as u64;
        match (self.progress)((self.done as f32 / self.total as f32).min(1.0)) {
            true => Ok(()),
            false => Err(ModelError::Cancelled),
        }
    }

    fn norm(&mut self, n: &NormLayout) -> Result<(), ModelError> {
        let weight = self.file.vector(&n.plan.weight)?;
        self.write(n.weight, 0, bytemuck::cast_slice(&weight))?;
        if let (Some(slice), Some(name)) = (n.bias, &n.plan.bias) {
            let bias = self.file.vector(name)?;
            self.write(slice, 0, bytemuck::cast_slice(&bias))?;
        }
        Ok(())
    }

    fn matrix(&mut self, m: &MatrixLayout) -> Result<(), ModelError> {
        for group in &m.groups {
            for slab in &group.slabs {
                self.slab(group, slab, m.cols)?;
            }
        }
        if let Some(slice) = m.bias {
            let bias = self.file.bias(&m.source)?.unwrap_or_default();
            self.write(slice, 0, bytemuck::cast_slice(&bias))?;
        }
        Ok(())
    }

    /// Repacks and uploads a slab in pieces of whole row granules.
    fn slab(&mut self, group: &Group, slab: &Slab, cols: usize) -> Result<(), ModelError> {
        let format = group.format;
        let step = format.row_granularity();
        let step_bytes = (format.quants_bytes(step, cols) as usize).max(1);
        let piece = (PIECE_BYTES / step_bytes).max(1) * step;
        for first in (0..slab.n_rows).step_by(piece) {
            let n = piece.min(slab.n_rows - first);
            let row = slab.first_row - group.first_row + first;
            let mut quants = vec![0u8; format.quants_bytes(n, cols) as usize];
            let mut scales = vec![0u8; format.scales_bytes(n, cols) as usize];
            self.pack(group, row, n, cols, &mut quants, &mut scales)?;
            self.write(slab.quants, format.quants_bytes(first, cols), &quants)?;
            let skip = if first == 0 { 0 } else { format.scales_bytes(first, cols) };
            if format.scales_bytes(step * 2, cols) > format.scales_bytes(step, cols) || first == 0 {
                self.write(slab.scales, skip, &scales)?;
            }
        }
        Ok(())
    }

    /// Packs rows `row .. row + n` of a group in its kernel format.
    fn pack(&self, g: &Group, row: usize, n: usize, cols: usize, quants: &mut [u8], scales: &mut [u8]) -> Result<(), ModelError> {
        match g.format {
            WeightFormat::I8G16 => {
                let (mut q, mut scale, mut offset) = (Vec::new(), Vec::new(), Vec::new());
                self.rows(g, row, n, &mut |ty, bytes| {
                    let (a, b) = (q.len(), scale.len());
                    q.resize(a + cols, 0);
                    scale.resize(b + cols / 16, 0.0);
                    offset.resize(b + cols / 16, 0.0);
                    quant::to_i8_groups(ty, bytes, &mut q[a..], &mut scale[b..], &mut offset[b..])
                })?;
                WeightFormat::repack_i8_groups(n, cols, &q, &scale, &offset, quants, scales)?;
            }
            format => {
                let mut raw = Vec::new();
                self.rows(g, row, n, &mut |ty, bytes| {
                    if native_format(ty) == Some(format) {
                        raw.extend_from_slice(bytes);
                        return Ok(());
                    }
                    let mut values = vec![0.0f32; cols];
                    quant::dequantize(ty, bytes, &mut values)?;
                    raw.extend_from_slice(bytemuck::cast_slice(&values));
                    Ok(())
                })?;
                format.repack(n, cols, &raw, quants, scales)?;
            }
        }
        Ok(())
    }

    /// Passes rows `row .. row + n` of a group to `take`, one at a time, in the group's row order.
    fn rows(&self, g: &Group, row: usize, n: usize, take: &mut TakeRow<'_>) -> Result<(), ModelError> {
        let (first, step) = if g.interleaved { (row / 2, 2) } else { (row, 1) };
        let read = |part: &TensorRef, first_row: usize, n_rows: usize| -> Result<(TensorType, Cow<'_, [u8]>), ModelError> {
            let rows = TensorRef { first_row: part.first_row + first_row, n_rows, ..part.clone() };
            Ok((self.file.tensor_type(part)?, self.file.tensor_bytes(&rows)?))
        };
        if step == 2 {
            let n_pairs = n.div_ceil(2);
            let (gate_ty, gate) = read(&g.parts[0], first, n_pairs)?;
            let (up_ty, up) = read(&g.parts[1], first, n_pairs)?;
            let (gate_row, up_row) = (gate.len() / n_pairs, up.len() / n_pairs);
            for i in 0..n_pairs {
                take(gate_ty, &gate[i * gate_row..(i + 1) * gate_row])?;
                take(up_ty, &up[i * up_row..(i + 1) * up_row])?;
            }
            return Ok(());
        }
        let (mut skip, mut left) = (first, n);
        for part in &g.parts {
            if skip >= part.n_rows {
                skip -= part.n_rows;
                continue;
            }
            let here = left.min(part.n_rows - skip);
            if here == 0 {
                break;
            }
            let (ty, bytes) = read(part, skip, here)?;
            for row in bytes.chunks_exact(bytes.len() / here) {
                take(ty, row)?;
            }
            (skip, left) = (0, left - here);
        }
        Ok(())
    }
}
