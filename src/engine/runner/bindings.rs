//! Bindings: norms, matrix products and embeddings of a model, bound to its weights and activations.

use super::activations::Activations;
use crate::gpu::kernels::linear::{
    Embed, Linear, LinearActivation, LinearBinding, LinearSlices, LinearSpec, Precision, QuantizedSlices, WeightFormat,
};
use crate::gpu::kernels::norm::Norm;
use crate::gpu::{Binding, Gpu, GpuError, Slice};
use crate::model::weights::layout::{MatrixLayout, NormLayout};
use crate::model::weights::upload::Weights;

/// One matrix product, bound.
pub(in crate::engine) struct LinearOp {
    pub(in crate::engine) slabs: Vec<LinearSlab>,
    pub(in crate::engine) rows: usize,
    pub(in crate::engine) cols: usize,
    /// matrix rows per output: 1, or 2 for SwiGLU
    pub(in crate::engine) rows_per_output: usize,
}

pub(in crate::engine) struct LinearSlab {
    pub(in crate::engine) op: Linear,
    pub(in crate::engine) binding: LinearBinding,
    pub(in crate::engine) first_row: usize,
    pub(in crate::engine) n_rows: usize,
}

pub(in crate::engine) struct EmbedOp {
    pub(in crate::engine) op: Embed,
    /// binding, first row and number of rows of each slab
    pub(in crate::engine) slabs: Vec<(Binding, [usize; 2])>,
}

/// Binder of a model's ops.
pub(super) struct Builder<'a> {
    pub gpu: &'a Gpu,
    pub weights: &'a Weights,
    pub act: &'a Activations,
    pub norm: &'a Norm,
    pub precision: Precision,
}

impl Builder<'_> {
    pub fn norm(&self, n: &NormLayout) -> Result<Binding, GpuError> {
        let weight = self.weights.slice(n.weight);
        let bias = n.bias.map(|b| self.weights.slice(b));
        self.norm.bind(self.gpu, &self.act.x, &weight, bias.as_ref(), &self.act.h)
    }

    pub fn linear(
        &self,
        m: &MatrixLayout,
        x: &Slice,
        y: &Slice,
        activation: LinearActivation,
        residual: bool,
    ) -> Result<LinearOp, GpuError> {
        let bias = m.bias.map(|b| self.weights.slice(b));
        let quantized = Some(QuantizedSlices { codes: &self.act.x_codes, scales: &self.act.x_scales });
        let mut slabs = Vec::new();
        for group in &m.groups {
            let spec = LinearSpec { format: group.format, cols: m.cols, activation, bias: bias.is_some(), residual };
            for slab in &group.slabs {
                let op = Linear::new(self.gpu, spec, self.precision)?;
                let (quants, scales) = (self.weights.slice(slab.quants), self.weights.slice(slab.scales));
                let slices = LinearSlices { x, quants: &quants, scales: &scales, bias: bias.as_ref(), y, quantized };
                let binding = op.bind(self.gpu, slices)?;
                slabs.push(LinearSlab { op, binding, first_row: slab.first_row, n_rows: slab.n_rows });
            }
        }
        let rows_per_output = if activation == LinearActivation::SwiGlu { 2 } else { 1 };
        Ok(LinearOp { slabs, rows: m.rows, cols: m.cols, rows_per_output })
    }

    pub fn embed(&self, m: &MatrixLayout, ids: &Slice, add: bool) -> Result<EmbedOp, GpuError> {
        let format = m.groups.first().map_or(WeightFormat::F32, |g| g.format);
        let op = Embed::new(self.gpu, format, m.cols, add)?;
        let mut slabs = Vec::new();
        for slab in m.groups.iter().flat_map(|g| &g.slabs) {
            let (quants, scales) = (self.weights.slice(slab.quants), self.weights.slice(slab.scales));
            let binding = op.bind(self.gpu, ids, &quants, &scales, &self.act.x)?;
            slabs.push((binding, [slab.first_row, slab.n_rows]));
        }
        Ok(EmbedOp { op, slabs })
    }
}
