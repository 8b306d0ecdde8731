//! Bindings: norms, matrix products and embeddings of a model, bound to its weights and activations.

use super::activations::Activations;
use crate::gpu::kernels::linear::{
    ActivationForm, ConvertedSlices, Embed, Linear, LinearActivation, LinearBinding, LinearShape, LinearSlices, LinearSpec,
    LinearVariant, WeightFormat,
};
use crate::gpu::kernels::norm::Norm;
use crate::gpu::{Binding, Gpu, GpuError, Recorder, Slice};
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

/// A norm before a matrix product, in each form in which the product reads its activations.
pub(in crate::engine) struct NormOp {
    forms: Vec<(ActivationForm, Norm, Binding)>,
}

pub(in crate::engine) struct EmbedOp {
    pub(in crate::engine) op: Embed,
    /// binding, first row and number of rows of each slab
    pub(in crate::engine) slabs: Vec<(Binding, [usize; 2])>,
}

impl LinearOp {
    /// Form in which every slab reads the activations of `n` tokens; f32 if they differ.
    pub(in crate::engine) fn input(&self, n: usize) -> ActivationForm {
        let mut forms = self.slabs.iter().map(|slab| slab.op.input(n));
        let first = forms.next().unwrap_or(ActivationForm::F32);
        if forms.all(|form| form == first) { first } else { ActivationForm::F32 }
    }

    /// Records the conversion of `n` tokens of activations in f32 to the form of the first slab.
    pub(super) fn record_convert(&self, recorder: &mut Recorder, n: usize) {
        let Some(slab) = self.slabs.first() else { return };
        let (x_stride, y_stride) = (self.cols, self.rows);
        let shape = LinearShape { n_tokens: n, n_rows: slab.n_rows, x_stride, y_stride, y_offset: 0, bias_offset: 0 };
        slab.op.record_convert(recorder, &slab.binding, shape);
    }

    /// Weight formats of the slabs.
    pub(super) fn formats(&self) -> Vec<WeightFormat> {
        self.slabs.iter().map(|slab| slab.op.spec().format).collect()
    }

    /// Records the product of slab `i` with `n` tokens of activations of the given stride and form. Slabs follow each other:
    /// activations are converted once for those that read the same form.
    pub(in crate::engine) fn record_slab(
        &self,
        recorder: &mut Recorder,
        i: usize,
        n: usize,
        (x_stride, form): (usize, ActivationForm),
        y_stride: usize,
    ) {
        let Some(slab) = self.slabs.get(i) else { return };
        let shape = LinearShape {
            n_tokens: n,
            n_rows: slab.n_rows,
            x_stride,
            y_stride,
            y_offset: slab.first_row / self.rows_per_output,
            bias_offset: slab.first_row,
        };
        let before = i.checked_sub(1).map_or(form, |before| self.slabs[before].op.input(n));
        if before != slab.op.input(n) {
            slab.op.record_convert(recorder, &slab.binding, shape);
        }
        slab.op.record(recorder, &slab.binding, shape);
    }
}

impl NormOp {
    /// Records the norm of rows `first_row .. first_row + n` of x, `cols` wide, in the form that `product` reads. Returns the form.
    pub(in crate::engine) fn record(
        &self,
        recorder: &mut Recorder,
        product: &LinearOp,
        cols: usize,
        first_row: usize,
        n: usize,
    ) -> ActivationForm {
        let wanted = product.input(n);
        let found = self.forms.iter().find(|(form, ..)| *form == wanted).or(self.forms.first());
        let Some((form, op, binding)) = found else { return ActivationForm::F32 };
        op.record(recorder, binding, cols, first_row, n);
        *form
    }
}

/// Binder of a model's ops.
pub(super) struct Builder<'a> {
    pub gpu: &'a Gpu,
    pub weights: &'a Weights,
    pub act: &'a Activations,
    /// LayerNorm rather than RMSNorm, and epsilon
    pub norm: (bool, f32),
    pub variant: LinearVariant,
}

impl Builder<'_> {
    /// The norm before `product`, which reads f32 or converted activations.
    pub fn norm(&self, n: &NormLayout, product: &LinearOp) -> Result<NormOp, GpuError> {
        let weight = self.weights.slice(n.weight);
        let bias = n.bias.map(|b| self.weights.slice(b));
        let (layer_norm, eps) = self.norm;
        let mut forms = vec![ActivationForm::F32];
        for n_tokens in [1, usize::MAX] {
            let form = product.input(n_tokens);
            if !forms.contains(&form) && product.cols.is_multiple_of(8) {
                forms.push(form);
            }
        }
        let bind = |form| -> Result<(ActivationForm, Norm, Binding), GpuError> {
            let op = Norm::new(self.gpu, layer_norm, eps, form)?;
            let y: &[&Slice] = match form {
                ActivationForm::F32 => &[&self.act.h],
                _ => &[&self.act.h_values, &self.act.h_scales],
            };
            let binding = op.bind(self.gpu, &self.act.x, &weight, bias.as_ref(), y)?;
            Ok((form, op, binding))
        };
        Ok(NormOp { forms: forms.into_iter().map(bind).collect::<Result<_, _>>()? })
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
        let act = self.act;
        let (values, scales) =
            if x.buffer.is(&act.h.buffer) { (&act.h_values, &act.h_scales) } else { (&act.x_values, &act.x_scales) };
        let converted = Some(ConvertedSlices { values, scales });
        let mut slabs = Vec::new();
        for group in &m.groups {
            let spec = LinearSpec { format: group.format, cols: m.cols, activation, bias: bias.is_some(), residual };
            for slab in &group.slabs {
                let op = Linear::with_variant(self.gpu, spec, self.variant)?;
                let (quants, scales) = (self.weights.slice(slab.quants), self.weights.slice(slab.scales));
                let slices = LinearSlices { x, quants: &quants, scales: &scales, bias: bias.as_ref(), y, converted };
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
