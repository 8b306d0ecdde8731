//! Fused ops: the matrix products of a decode step of one token, which also do the norms and conversions between them.
//!
//! ```text
//! norm ─► qkv ─► attention ─► attn_output (x, bytes of the ffn norm) ─► ffn_up (bytes) ─► ffn_down (x, bytes of the next norm) ─► qkv
//! ```
//! Bytes of hidden states and of other activations are in buffers of their own, as each product reads one and writes the other.

use super::bindings::{Builder, LinearOp};
use super::layer_ops::LayerOps;
use crate::gpu::kernels::linear::{ActivationForm, ConvertedSlices, FusedMatvec, FusedOutput, FusedSlices, Fusion, LinearSpec};
use crate::gpu::{Binding, GpuError, Recorder, Slice};
use crate::model::weights::layout::{MatrixLayout, NormLayout};

/// A fused product, slab by slab.
pub(in crate::engine) struct FusedOp(Vec<FusedSlab>);

struct FusedSlab {
    op: FusedMatvec,
    binding: Binding,
    first_row: usize,
    n_rows: usize,
}

/// Fused products of one layer.
pub(in crate::engine) struct FusedLayer {
    /// after another layer; the first one has a norm of its own
    pub(in crate::engine) qkv: FusedOp,
    attn_output: FusedOp,
    /// form that `attn_output` reads
    pub(in crate::engine) attn_form: ActivationForm,
    ffn_up: FusedOp,
    ffn_down: FusedOp,
}

/// Fused products of a model.
pub(in crate::engine) struct FusedOps {
    pub(in crate::engine) layers: Vec<FusedLayer>,
    pub(in crate::engine) output: FusedOp,
}

impl FusedOp {
    /// Records every slab.
    pub(in crate::engine) fn record(&self, recorder: &mut Recorder) {
        for slab in &self.0 {
            slab.op.record(recorder, &slab.binding, slab.first_row, slab.n_rows);
        }
    }
}

impl FusedLayer {
    /// Records the output projection and the MLP, after attention with a result in `attn_form`.
    pub(in crate::engine) fn record_mlp(&self, recorder: &mut Recorder) {
        for op in [&self.attn_output, &self.ffn_up, &self.ffn_down] {
            op.record(recorder);
        }
    }
}

/// A product to fuse.
struct Product<'a> {
    op: &'a LinearOp,
    matrix: &'a MatrixLayout,
    y: &'a Slice,
}

impl Builder<'_> {
    /// The fused products of `layers` and of the output projection. None if some product cannot be fused: other norms than RMSNorm,
    /// weights of floats, several slabs, or products after a norm that read different forms.
    ///
    /// # Errors
    /// A kernel that does not compile, or buffers that the GPU refuses to bind.
    pub fn fused_ops(&self, layers: &[LayerOps], output: &LinearOp) -> Result<Option<FusedOps>, GpuError> {
        let (layout, act, is_layer_norm) = (&self.weights.layout, self.act, self.norm.0);
        if is_layer_norm {
            return Ok(None);
        }
        let mut fused = Vec::with_capacity(layers.len());
        for (i, (ops, l)) in layers.iter().zip(&layout.layers).enumerate() {
            let (next_norm, after) = match (layout.layers.get(i + 1), layers.get(i + 1)) {
                (Some(next), Some(ops)) => (&next.attn_norm, &ops.qkv),
                _ => (&layout.output_norm, output),
            };
            let normed = |of: &LinearOp| FusedOutput::Normed(of.input(1));
            let product = |op, matrix, y| Product { op, matrix, y };
            let qkv = self.fused(product(&ops.qkv, &l.qkv, &act.qkv), true, FusedOutput::Plain, None)?;
            let attn_output = product(&ops.attn_output, &l.attn_output, &act.x);
            let attn_output = self.fused(attn_output, false, normed(&ops.ffn_up), Some(&l.ffn_norm))?;
            let ffn_up = product(&ops.ffn_up, &l.ffn_up, &act.ff);
            let ffn_up = self.fused(ffn_up, true, FusedOutput::Converted(ops.ffn_down.input(1)), None)?;
            let ffn_down = self.fused(product(&ops.ffn_down, &l.ffn_down, &act.x), false, normed(after), Some(next_norm))?;
            let (Some(qkv), Some(attn_output), Some(ffn_up), Some(ffn_down)) = (qkv, attn_output, ffn_up, ffn_down) else {
                return Ok(None);
            };
            fused.push(FusedLayer { qkv, attn_output, attn_form: ops.attn_output.input(1), ffn_up, ffn_down });
        }
        let output = Product { op: output, matrix: layout.output(), y: &act.logits };
        let output = self.fused(output, true, FusedOutput::Plain, None)?;
        Ok(output.map(|output| FusedOps { layers: fused, output }))
    }

    /// One product. After a norm it `divides_by_rms` and reads the bytes of hidden states.
    fn fused(
        &self,
        Product { op, matrix, y }: Product<'_>,
        divides_by_rms: bool,
        output: FusedOutput,
        next_norm: Option<&NormLayout>,
    ) -> Result<Option<FusedOp>, GpuError> {
        let fusion = Fusion { divides_by_rms, output };
        let allowed = |spec: &LinearSpec, n_rows: usize| fusion.allows(spec, n_rows);
        let is_whole = output == FusedOutput::Plain || op.slabs.len() == 1;
        let reads_bytes = matches!(op.input(1), ActivationForm::Bytes { .. });
        if !is_whole || !reads_bytes || !op.slabs.iter().all(|slab| allowed(slab.op.spec(), slab.n_rows)) {
            return Ok(None);
        }
        let act = self.act;
        let hidden = ConvertedSlices { values: &act.h_values, scales: &act.h_scales };
        let other = ConvertedSlices { values: &act.x_values, scales: &act.x_scales };
        let (x, out) = if divides_by_rms { (hidden, other) } else { (other, hidden) };
        let bias = matrix.bias.map(|b| self.weights.slice(b));
        let norm_weight = next_norm.map(|norm| self.weights.slice(norm.weight));
        let next_norm = norm_weight.as_ref().map(|weight| [weight, &act.squares]);
        let mut slabs = Vec::new();
        for (slab, layout) in op.slabs.iter().zip(matrix.groups.iter().flat_map(|group| &group.slabs)) {
            let kernel = FusedMatvec::new(self.gpu, *slab.op.spec(), fusion, self.norm.1)?;
            let weights = [self.weights.slice(layout.quants), self.weights.slice(layout.scales)];
            let weights = [&weights[0], &weights[1]];
            let slices = FusedSlices { weights, x, y, bias: bias.as_ref(), squares: &act.squares, out, next_norm };
            let binding = kernel.bind(self.gpu, slices)?;
            slabs.push(FusedSlab { op: kernel, binding, first_row: slab.first_row, n_rows: slab.n_rows });
        }
        Ok(Some(FusedOp(slabs)))
    }
}

/// Form in which the results of the last pass, x, are also there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::engine) enum HiddenForm {
    /// f32 alone
    #[default]
    Plain,
    /// times the weights of the next norm, as bytes, with the sums of squares
    Normed,
}
