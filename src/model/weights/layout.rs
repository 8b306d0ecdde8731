//! Where every weight lies in VRAM, decided before anything is allocated, then filled.
//!
//! ```text
//! ModelPlan + tensor types ─► lay_out ─► WeightLayout (spots) + arena sizes = the estimate
//!                                          └► upload: arenas, file rows ─► kernel format ─► spots
//! ```
//! * No spot passes the device's binding size: big matrices are cut into slabs of rows.
//! * The estimate is the sum that is then allocated.
//! * A type without a kernel of its own is converted (`I8G16` exactly, floats to F32), and counted.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::base::limits::ARENA_ALIGN_BYTES;
use crate::gpu::kernels::linear::WeightFormat;
use crate::gpu::{Buffer, Gpu, Slice};
use crate::model::ModelError;
use crate::model::arch::plan::{LayerPlan, Matrix, ModelPlan, NormPlan, PositionPlan, TensorRef};
use crate::model::file::ModelFile;
use crate::model::quant::{self, TensorType};

/// Largest arena, bytes: big enough to be few, small enough to be found in fragmented VRAM.
const ARENA_BYTES: u64 = 512 << 20;
/// Weights are repacked in pieces of about this many file bytes, which bounds the RAM that loading takes.
const PIECE_BYTES: usize = 8 << 20;

/// Bytes of an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeightSlice {
    arena: usize,
    offset: u64,
    size: u64,
}

/// Rows `first_row ..` of a group, in one binding each.
#[derive(Debug, Clone, PartialEq)]
pub struct Slab {
    /// packed weights
    pub quants: WeightSlice,
    /// their scales
    pub scales: WeightSlice,
    /// counted from the matrix's first row
    pub first_row: usize,
    /// number of rows
    pub n_rows: usize,
}

/// Parts of a matrix that share a format.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// how its rows are stored
    pub format: WeightFormat,
    /// in row order
    pub slabs: Vec<Slab>,
    parts: Vec<TensorRef>,
    interleaved: bool,
    first_row: usize,
}

/// A matrix in VRAM.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixLayout {
    /// outputs
    pub rows: usize,
    /// inputs
    pub cols: usize,
    /// in row order; one unless the file mixes types
    pub groups: Vec<Group>,
    /// f32 `[rows]`
    pub bias: Option<WeightSlice>,
    source: Matrix,
}

/// A norm in VRAM.
#[derive(Debug, Clone, PartialEq)]
pub struct NormLayout {
    /// f32 `[dim]`
    pub weight: WeightSlice,
    /// f32 `[dim]`
    pub bias: Option<WeightSlice>,
    plan: NormPlan,
}

/// One block in VRAM; the fields are those of [`LayerPlan`].
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "each field is documented in LayerPlan")]
pub struct LayerLayout {
    pub attn_norm: NormLayout,
    pub qkv: MatrixLayout,
    pub q_norm: Option<NormLayout>,
    pub k_norm: Option<NormLayout>,
    pub attn_output: MatrixLayout,
    pub ffn_norm: NormLayout,
    pub ffn_up: MatrixLayout,
    pub ffn_down: MatrixLayout,
}

/// A whole model in VRAM.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightLayout {
    /// `[V, C]`
    pub token_embedding: MatrixLayout,
    /// learned positions
    pub positions: Option<MatrixLayout>,
    /// the blocks
    pub layers: Vec<LayerLayout>,
    /// before the output
    pub output_norm: NormLayout,
    /// `[V, C]`; None when it is the token embedding
    pub output: Option<MatrixLayout>,
    /// size of each arena, bytes
    pub arena_bytes: Vec<u64>,
    /// stored types that were converted at load, with the format and the number of matrices
    pub converted: BTreeMap<String, usize>,
}

/// A placed model and the arenas that hold it.
pub struct Weights {
    /// where everything is
    pub placed: WeightLayout,
    arenas: Vec<Buffer>,
}

/// Decides where every weight of `file` goes on a device whose bindings take `max_binding_bytes`. Allocates nothing.
///
/// # Errors
/// A width that the kernels cannot read.
pub fn lay_out(file: &ModelFile, max_binding_bytes: u64) -> Result<WeightLayout, ModelError> {
    let mut p = LayoutBuilder { file, max_binding_bytes, arena_bytes: vec![0], converted: BTreeMap::new() };
    let plan: &ModelPlan = file.plan();
    let token_embedding = p.matrix(&plan.token_embedding)?;
    let positions = match &plan.position {
        PositionPlan::Rope(_) => None,
        PositionPlan::Learned { table, .. } => Some(p.matrix(table)?),
    };
    let layers = plan.layers.iter().map(|l| p.layer(l)).collect::<Result<Vec<_>, _>>()?;
    let output_norm = p.norm(&plan.output_norm, plan.dims.hidden_dim);
    let output = if plan.tied { None } else { Some(p.matrix(&plan.output)?) };
    let (arena_bytes, converted) = (p.arena_bytes, p.converted);
    Ok(WeightLayout { token_embedding, positions, layers, output_norm, output, arena_bytes, converted })
}

impl WeightLayout {
    /// VRAM that the weights take, bytes.
    pub fn total_bytes(&self) -> u64 {
        self.arena_bytes.iter().sum()
    }

    /// The output projection.
    pub fn output(&self) -> &MatrixLayout {
        self.output.as_ref().unwrap_or(&self.token_embedding)
    }
}

impl MatrixLayout {
    /// Bytes that one product with this matrix reads.
    pub fn weight_bytes(&self) -> u64 {
        self.groups.iter().flat_map(|g| &g.slabs).map(|s| s.quants.size + s.scales.size).sum()
    }
}

struct LayoutBuilder<'a> {
    file: &'a ModelFile,
    max_binding_bytes: u64,
    arena_bytes: Vec<u64>,
    converted: BTreeMap<String, usize>,
}

impl LayoutBuilder<'_> {
    fn spot(&mut self, size: u64) -> WeightSlice {
        let size = size.max(16);
        let limit = ARENA_BYTES.max(self.max_binding_bytes);
        let mut arena = self.arena_bytes.len() - 1;
        if self.arena_bytes[arena] > 0 && self.arena_bytes[arena] + size > limit {
            self.arena_bytes.push(0);
            arena += 1;
        }
        let offset = self.arena_bytes[arena];
        self.arena_bytes[arena] = (offset + size).next_multiple_of(ARENA_ALIGN_BYTES);
        WeightSlice { arena, offset, size }
    }

    fn norm(&mut self, plan: &NormPlan, dim: usize) -> NormLayout {
        let weight = self.spot(dim as u64 * 4);
        let bias = plan.bias.as_ref().map(|_| self.spot(dim as u64 * 4));
        NormLayout { weight, bias, plan: plan.clone() }
    }

    fn layer(&mut self, l: &LayerPlan) -> Result<LayerLayout, ModelError> {
        let dims = &self.file.plan().dims;
        let (hidden_dim, head_dim) = (dims.hidden_dim, dims.head_dim);
        Ok(LayerLayout {
            attn_norm: self.norm(&l.attn_norm, hidden_dim),
            qkv: self.matrix(&l.qkv)?,
            q_norm: l.q_norm.as_ref().map(|n| self.norm(n, head_dim)),
            k_norm: l.k_norm.as_ref().map(|n| self.norm(n, head_dim)),
            attn_output: self.matrix(&l.attn_output)?,
            ffn_norm: self.norm(&l.ffn_norm, hidden_dim),
            ffn_up: self.matrix(&l.ffn_up)?,
            ffn_down: self.matrix(&l.ffn_down)?,
        })
    }

    fn matrix(&mut self, m: &Matrix) -> Result<MatrixLayout, ModelError> {
        let mut groups: Vec<(WeightFormat, Vec<TensorRef>)> = Vec::new();
        let types = m.parts.iter().map(|p| self.stored_type(p)).collect::<Result<Vec<_>, _>>()?;
        for (part, &ty) in m.parts.iter().zip(&types) {
            let format = self.format(ty, m.cols)?;
            match groups.last_mut() {
                Some((f, parts)) if *f == format => parts.push(part.clone()),
                _ => groups.push((format, vec![part.clone()])),
            }
        }
        if m.interleave_halves && groups.len() > 1 {
            // Interleaved rows must share one format.
            let floats = types.iter().any(|t| t.is_float());
            groups = vec![(if floats { WeightFormat::F32 } else { WeightFormat::I8G16 }, m.parts.clone())];
        }
        for (ty, format) in types.iter().zip(groups.iter().map(|g| g.0).cycle()) {
            if native_format(*ty) != Some(format) && (groups.len() == 1 || native_format(*ty).is_none()) {
                *self.converted.entry(format!("{ty} as {format:?}")).or_default() += 1;
            }
        }
        let mut first_row = 0;
        let mut placed = Vec::new();
        for (format, parts) in groups {
            let n_rows = parts.iter().map(|p| p.n_rows).sum();
            let slabs = self.slabs(format, first_row, n_rows, m.cols);
            placed.push(Group { format, slabs, parts, interleaved: m.interleave_halves, first_row });
            first_row += n_rows;
        }
        let bias = if m.bias.is_empty() { None } else { Some(self.spot(m.rows as u64 * 4)) };
        Ok(MatrixLayout { rows: m.rows, cols: m.cols, groups: placed, bias, source: m.clone() })
    }

    fn stored_type(&self, part: &TensorRef) -> Result<TensorType, ModelError> {
        self.file.tensor_type(part)
    }

    fn format(&self, ty: TensorType, cols: usize) -> Result<WeightFormat, ModelError> {
        let fallback = if ty.is_float() { WeightFormat::F32 } else { WeightFormat::I8G16 };
        let format = native_format(ty).unwrap_or(fallback);
        for format in [format, fallback] {
            if cols.is_multiple_of(format.block_cols()) {
                return Ok(format);
            }
        }
        Err(ModelError::Unsupported(format!(
            "a matrix of width {cols} in {ty}: the kernels read widths that are a multiple of {}",
            fallback.block_cols()
        )))
    }

    fn slabs(&mut self, format: WeightFormat, first_row: usize, n_rows: usize, cols: usize) -> Vec<Slab> {
        let step = format.row_granularity();
        let step_bytes = format.quants_bytes(step, cols).max(format.scales_bytes(step, cols)).max(1);
        let most = ((self.max_binding_bytes / step_bytes) as usize).max(1) * step;
        (0..n_rows)
            .step_by(most)
            .map(|first| {
                let n = most.min(n_rows - first);
                let (quants, scales) = (self.spot(format.quants_bytes(n, cols)), self.spot(format.scales_bytes(n, cols)));
                Slab { quants, scales, first_row: first_row + first, n_rows: n }
            })
            .collect()
    }
}

/// The format whose kernel reads `ty` as it is.
fn native_format(ty: TensorType) -> Option<WeightFormat> {
    match ty {
        TensorType::F32 => Some(WeightFormat::F32),
        TensorType::F16 => Some(WeightFormat::F16),
        TensorType::BF16 => Some(WeightFormat::Bf16),
        TensorType::Q8_0 => Some(WeightFormat::Q8_0),
        TensorType::Q4_0 => Some(WeightFormat::Q4_0),
        TensorType::Q4_K => Some(WeightFormat::Q4K),
        TensorType::Q5_K => Some(WeightFormat::Q5K),
        TensorType::Q6_K => Some(WeightFormat::Q6K),
        _ => None,
    }
}

impl Weights {
    /// Allocates the arenas of `placed` and fills them from `file`. `progress` gets the share done; it returns false to
    /// stop.
    ///
    /// # Errors
    /// Out of VRAM, a lost device, a tensor that cannot be read, or [`ModelError::Cancelled`].
    pub fn upload(
        gpu: &Gpu,
        file: &ModelFile,
        placed: WeightLayout,
        progress: &mut dyn FnMut(f32) -> bool,
    ) -> Result<Weights, ModelError> {
        let arenas = placed.arena_bytes.iter().map(|&size| gpu.buffer("weights", size)).collect::<Result<Vec<_>, _>>()?;
        let weights = Weights { placed, arenas };
        let mut loader = Loader { gpu, file, weights: &weights, done: 0, total: weights.placed.total_bytes().max(1), progress };
        loader.all()?;
        Ok(weights)
    }

    /// The binding of a spot.
    pub fn slice(&self, spot: WeightSlice) -> Slice {
        self.arenas[spot.arena].slice(spot.offset, spot.size)
    }
}

/// Takes one row as the file has it.
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
    fn all(&mut self) -> Result<(), ModelError> {
        let placed = &self.weights.placed;
        self.matrix(&placed.token_embedding)?;
        if let Some(positions) = &placed.positions {
            self.matrix(positions)?;
        }
        for l in &placed.layers {
            for m in [&l.qkv, &l.attn_output, &l.ffn_up, &l.ffn_down] {
                self.matrix(m)?;
            }
            for n in [Some(&l.attn_norm), Some(&l.ffn_norm), l.q_norm.as_ref(), l.k_norm.as_ref()].into_iter().flatten() {
                self.norm(n)?;
            }
        }
        self.norm(&placed.output_norm)?;
        if let Some(output) = &placed.output {
            self.matrix(output)?;
        }
        Ok(())
    }

    fn put(&mut self, spot: WeightSlice, skip: u64, bytes: &[u8]) -> Result<(), ModelError> {
        let mut target = self.weights.slice(spot);
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
        self.put(n.weight, 0, bytemuck::cast_slice(&weight))?;
        if let (Some(spot), Some(name)) = (n.bias, &n.plan.bias) {
            let bias = self.file.vector(name)?;
            self.put(spot, 0, bytemuck::cast_slice(&bias))?;
        }
        Ok(())
    }

    fn matrix(&mut self, m: &MatrixLayout) -> Result<(), ModelError> {
        for group in &m.groups {
            for slab in &group.slabs {
                self.slab(group, slab, m.cols)?;
            }
        }
        if let Some(spot) = m.bias {
            let bias = self.file.bias(&m.source)?.unwrap_or_default();
            self.put(spot, 0, bytemuck::cast_slice(&bias))?;
        }
        Ok(())
    }

    /// Repacks a slab in pieces of whole row granules.
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
            self.put(slab.quants, format.quants_bytes(first, cols), &quants)?;
            let skip = if first == 0 { 0 } else { format.scales_bytes(first, cols) };
            if format.scales_bytes(step * 2, cols) > format.scales_bytes(step, cols) || first == 0 {
                self.put(slab.scales, skip, &scales)?;
            }
        }
        Ok(())
    }

    /// Rows `row .. row + n` of a group, in its kernel format.
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

    /// Hands over the file bytes of rows `row .. row + n` of a group, one row at a time, in the group's row order.
    fn rows(&self, g: &Group, row: usize, n: usize, take: &mut TakeRow<'_>) -> Result<(), ModelError> {
        let (first, step) = if g.interleaved { (row / 2, 2) } else { (row, 1) };
        let read = |part: &TensorRef, first_row: usize, n_rows: usize| -> Result<(TensorType, Cow<'_, [u8]>), ModelError> {
            let wanted = TensorRef { first_row: part.first_row + first_row, n_rows, ..part.clone() };
            Ok((self.file.tensor_type(part)?, self.file.tensor_bytes(&wanted)?))
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
