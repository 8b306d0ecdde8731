//! Weight layout: assigns every weight a slice of an arena, before anything is allocated.
//!
//! ```text
//! ModelPlan + tensor types ─► lay_out ─► WeightLayout: a WeightSlice per tensor, and the size of each arena
//! ```
//! 1. No slice exceeds the GPU's binding size: large matrices are split into slabs of rows.
//! 2. [`WeightLayout::total_bytes`] is exactly what the upload allocates.
//! 3. A type without a kernel of its own is converted (to `I8G16` without loss, floats to F32), and counted.

use std::collections::BTreeMap;

use crate::base::limits::ARENA_ALIGN_BYTES;
use crate::gpu::kernels::linear::WeightFormat;
use crate::model::ModelError;
use crate::model::arch::plan::{LayerPlan, Matrix, ModelPlan, NormPlan, PositionPlan, TensorRef};
use crate::model::file::ModelFile;
use crate::model::quant::TensorType;

/// Largest arena, bytes: large enough for few arenas, small enough to fit fragmented VRAM.
const ARENA_BYTES: u64 = 512 << 20;

/// A byte range of an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeightSlice {
    pub(super) arena: usize,
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// Consecutive rows of a group that fit one binding each for quants and scales.
#[derive(Debug, Clone, PartialEq)]
pub struct Slab {
    /// weights
    pub quants: WeightSlice,
    /// scales of the weights
    pub scales: WeightSlice,
    /// first row, counted from that of the matrix
    pub first_row: usize,
    /// number of rows
    pub n_rows: usize,
}

/// Parts of a matrix that share a format.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// format of its rows
    pub format: WeightFormat,
    /// slabs in row order
    pub slabs: Vec<Slab>,
    pub(super) parts: Vec<TensorRef>,
    pub(super) interleaved: bool,
    pub(super) first_row: usize,
}

/// Layout of a matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixLayout {
    /// outputs
    pub rows: usize,
    /// inputs
    pub cols: usize,
    /// groups in row order; more than one only if the file mixes types
    pub groups: Vec<Group>,
    /// bias, f32 `[rows]`
    pub bias: Option<WeightSlice>,
    pub(super) source: Matrix,
}

/// Layout of a norm.
#[derive(Debug, Clone, PartialEq)]
pub struct NormLayout {
    /// scale, f32 `[dim]`
    pub weight: WeightSlice,
    /// shift, f32 `[dim]`
    pub bias: Option<WeightSlice>,
    pub(super) plan: NormPlan,
}

/// Layout of a transformer block, with the fields of [`LayerPlan`].
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

/// Layout of a whole model.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightLayout {
    /// `[V, C]`
    pub token_embedding: MatrixLayout,
    /// table of learned positions; None for rotary embeddings
    pub positions: Option<MatrixLayout>,
    /// transformer blocks
    pub layers: Vec<LayerLayout>,
    /// norm before the output
    pub output_norm: NormLayout,
    /// `[V, C]`; None if it is the token embedding
    pub output: Option<MatrixLayout>,
    /// size of each arena, bytes
    pub arena_bytes: Vec<u64>,
    /// types to convert at load with their new format, and the number of matrices of each
    pub converted: BTreeMap<String, usize>,
}

/// Lays out the weights of `file` for a GPU with bindings of up to `max_binding_bytes`. Allocates nothing.
///
/// # Errors
/// A matrix width that no kernel supports.
pub fn lay_out(file: &ModelFile, max_binding_bytes: u64) -> Result<WeightLayout, ModelError> {
    let mut builder = LayoutBuilder { file, max_binding_bytes, arena_bytes: vec![0], converted: BTreeMap::new() };
    let plan: &ModelPlan = file.plan();
    let token_embedding = builder.matrix(&plan.token_embedding)?;
    let positions = match &plan.position {
        PositionPlan::Rope(_) => None,
        PositionPlan::Learned { table, .. } => Some(builder.matrix(table)?),
    };
    let layers = plan.layers.iter().map(|l| builder.layer(l)).collect::<Result<Vec<_>, _>>()?;
    let output_norm = builder.norm(&plan.output_norm, plan.dims.hidden_dim);
    let output = if plan.tied { None } else { Some(builder.matrix(&plan.output)?) };
    let (arena_bytes, converted) = (builder.arena_bytes, builder.converted);
    Ok(WeightLayout { token_embedding, positions, layers, output_norm, output, arena_bytes, converted })
}

impl WeightLayout {
    /// VRAM of all weights, bytes.
    pub fn total_bytes(&self) -> u64 {
        self.arena_bytes.iter().sum()
    }

    /// The output projection.
    pub fn output(&self) -> &MatrixLayout {
        self.output.as_ref().unwrap_or(&self.token_embedding)
    }
}

impl MatrixLayout {
    /// Bytes read by one product with this matrix.
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
    fn allocate(&mut self, size: u64) -> WeightSlice {
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
        let weight = self.allocate(dim as u64 * 4);
        let bias = plan.bias.as_ref().map(|_| self.allocate(dim as u64 * 4));
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
        let mut laid_out = Vec::new();
        for (format, parts) in groups {
            let n_rows = parts.iter().map(|p| p.n_rows).sum();
            let slabs = self.slabs(format, first_row, n_rows, m.cols);
            laid_out.push(Group { format, slabs, parts, interleaved: m.interleave_halves, first_row });
            first_row += n_rows;
        }
        let bias = if m.bias.is_empty() { None } else { Some(self.allocate(m.rows as u64 * 4)) };
        Ok(MatrixLayout { rows: m.rows, cols: m.cols, groups: laid_out, bias, source: m.clone() })
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
            "the model has a matrix of width {cols} in {ty}, but the kernels need a multiple of {}. Choose another model",
            fallback.block_cols()
        )))
    }

    fn slabs(&mut self, format: WeightFormat, first_row: usize, n_rows: usize, cols: usize) -> Vec<Slab> {
        let step = format.row_granularity();
        let step_bytes = format.quants_bytes(step, cols).max(format.scales_bytes(step, cols)).max(1);
        let max_rows = ((self.max_binding_bytes / step_bytes) as usize).max(1) * step;
        (0..n_rows)
            .step_by(max_rows)
            .map(|first| {
                let n = max_rows.min(n_rows - first);
                let (quants, scales) = (self.allocate(format.quants_bytes(n, cols)), self.allocate(format.scales_bytes(n, cols)));
                Slab { quants, scales, first_row: first_row + first, n_rows: n }
            })
            .collect()
    }
}

/// The format whose kernel reads `ty` unconverted; None if there is none.
pub(super) fn native_format(ty: TensorType) -> Option<WeightFormat> {
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
