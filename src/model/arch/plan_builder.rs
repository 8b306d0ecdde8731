//! Plan builder: makes the matrices and norms of a plan, and checks the shape of every tensor.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::hparams::HParams;
use crate::base::ModelDims;
use crate::model::ModelError;
use crate::model::arch::plan::{Matrix, NormPlan, TensorRef};
use crate::model::tensors::TensorTable;

/// Reads a small tensor as floats.
pub(crate) type ReadVector<'a> = &'a dyn Fn(&str) -> Result<Vec<f32>, ModelError>;

/// Settings that override the model's own in a plan.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PlanOverrides {
    /// context size, if smaller than the model's; LongRoPE has two sets of factors
    pub context: Option<usize>,
    /// base of the rotary embedding
    pub rope_base: Option<f64>,
}

/// Input of an architecture's plan function: hyperparameters, tensors, and a record of the tensors used.
pub(crate) struct PlanBuilder<'a> {
    pub hparams: &'a HParams<'a>,
    pub tensors: &'a TensorTable,
    pub read: ReadVector<'a>,
    /// settings that override the model's own
    pub overrides: PlanOverrides,
    used: RefCell<BTreeSet<String>>,
}

/// Presence of a matrix's bias (`x.bias` beside `x.weight`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bias {
    Required,
    IfPresent,
}

impl<'a> PlanBuilder<'a> {
    pub fn new(
        hparams: &'a HParams<'a>,
        tensors: &'a TensorTable,
        read: ReadVector<'a>,
        overrides: PlanOverrides,
    ) -> PlanBuilder<'a> {
        PlanBuilder { hparams, tensors, read, overrides, used: RefCell::default() }
    }

    pub fn mark_used(&self, name: &str) {
        self.used.borrow_mut().insert(name.to_owned());
    }

    fn whole(&self, name: &str, n_rows: usize, transposed: bool) -> TensorRef {
        self.mark_used(name);
        TensorRef { name: name.to_owned(), first_row: 0, n_rows, transposed }
    }

    /// A matrix stacked from tensors `[rows, cols]` named `stem.weight`.
    pub fn matrix(&self, stems: &[(String, usize)], cols: usize, bias: Bias) -> Result<Matrix, ModelError> {
        let mut parts = Vec::with_capacity(stems.len());
        for (stem, rows) in stems {
            let name = format!("{stem}.weight");
            self.tensors.require_shape(&name, &[*rows, cols])?;
            parts.push(self.whole(&name, *rows, false));
        }
        let rows = stems.iter().map(|(_, rows)| rows).sum();
        Ok(Matrix { parts, rows, cols, bias: self.biases(stems, bias)?, interleave_halves: false })
    }

    /// A matrix that the file stores as `[cols, rows]` (GPT-2's Conv1D).
    pub fn transposed(&self, stem: String, rows: usize, cols: usize) -> Result<Matrix, ModelError> {
        let name = format!("{stem}.weight");
        self.tensors.require_shape(&name, &[cols, rows])?;
        let parts = vec![self.whole(&name, rows, true)];
        Ok(Matrix { parts, rows, cols, bias: self.biases(&[(stem, rows)], Bias::Required)?, interleave_halves: false })
    }

    /// A matrix by its full tensor name, without bias.
    pub fn table(&self, name: &str, rows: usize, cols: usize) -> Result<Matrix, ModelError> {
        self.tensors.require_shape(name, &[rows, cols])?;
        let parts = vec![self.whole(name, rows, false)];
        Ok(Matrix { parts, rows, cols, bias: Vec::new(), interleave_halves: false })
    }

    /// Gate and up as two tensors `[F, C]`.
    pub fn gate_and_up(&self, gate: String, up: String, ffn_dim: usize, cols: usize) -> Result<Matrix, ModelError> {
        let mut matrix = self.matrix(&[(gate, ffn_dim), (up, ffn_dim)], cols, Bias::IfPresent)?;
        matrix.interleave_halves = true;
        Ok(matrix)
    }

    /// Gate and up as the halves of one tensor `[2F, C]`.
    pub fn fused_gate_and_up(&self, stem: String, ffn_dim: usize, cols: usize) -> Result<Matrix, ModelError> {
        let mut matrix = self.matrix(&[(stem, 2 * ffn_dim)], cols, Bias::IfPresent)?;
        let halves =
            |part: &TensorRef| [0, ffn_dim].map(|first_row| TensorRef { first_row, n_rows: ffn_dim, ..part.clone() }).to_vec();
        matrix.parts = matrix.parts.iter().flat_map(halves).collect();
        matrix.bias = matrix.bias.iter().flat_map(halves).collect();
        matrix.interleave_halves = true;
        Ok(matrix)
    }

    fn biases(&self, stems: &[(String, usize)], bias: Bias) -> Result<Vec<TensorRef>, ModelError> {
        let named: Vec<_> = stems.iter().map(|(stem, rows)| (format!("{stem}.bias"), *rows)).collect();
        if bias == Bias::IfPresent && !named.iter().any(|(name, _)| self.tensors.has(name)) {
            return Ok(Vec::new());
        }
        let mut parts = Vec::with_capacity(named.len());
        for (name, rows) in named {
            self.tensors.require_shape(&name, &[rows])?;
            parts.push(self.whole(&name, rows, false));
        }
        Ok(parts)
    }

    /// A norm with the weight `stem.weight`, and `stem.bias` if `with_bias`.
    pub fn norm(&self, stem: &str, dim: usize, with_bias: bool) -> Result<NormPlan, ModelError> {
        let weight = format!("{stem}.weight");
        self.tensors.require_shape(&weight, &[dim])?;
        self.mark_used(&weight);
        let bias = with_bias.then(|| format!("{stem}.bias"));
        if let Some(bias) = &bias {
            self.tensors.require_shape(bias, &[dim])?;
            self.mark_used(bias);
        }
        Ok(NormPlan { weight, bias })
    }

    /// Embedding, output, and whether they are tied. A tied file may have either tensor alone.
    pub fn embedding_and_output(
        &self,
        embedding: &str,
        output: &str,
        dims: &ModelDims,
        tied_by_config: bool,
    ) -> Result<(Matrix, Matrix, bool), ModelError> {
        let table = |name: &str| self.table(name, dims.vocab_size, dims.hidden_dim);
        let (has_embedding, has_output) = (self.tensors.has(embedding), self.tensors.has(output));
        if tied_by_config && !has_embedding && has_output {
            let matrix = table(output)?;
            return Ok((matrix.clone(), matrix, true));
        }
        let first = table(embedding)?;
        if has_output && !tied_by_config {
            return Ok((first, table(output)?, false));
        }
        self.mark_used(output);
        Ok((first.clone(), first, true))
    }

    /// The name prefix of the body's tensors, which depends on whether the file was saved with its head.
    pub fn prefix(&self, candidates: &[&'static str], known: &[&str]) -> &'static str {
        let has = |prefix: &&&'static str| known.iter().any(|name| self.tensors.has(&format!("{prefix}{name}")));
        candidates.iter().find(has).or(candidates.first()).copied().unwrap_or("")
    }

    /// Rejects a file that has weights which the plan does not use.
    pub fn check_all_used(&self) -> Result<(), ModelError> {
        let used = self.used.borrow();
        let harmless = |name: &str| {
            // Buffers saved by old exports: rope tables and causal masks.
            name.ends_with("rotary_emb.inv_freq") || name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")
        };
        match self.tensors.iter().find(|(name, _)| !used.contains(*name) && !harmless(name)) {
            None => Ok(()),
            Some((name, _)) => Err(ModelError::Unsupported(format!(
                "the model has a tensor '{name}' that its architecture '{}' with these settings does not use, so its answers \
                 would be wrong. Choose another file of this model",
                self.hparams.architecture()
            ))),
        }
    }
}

/// The sliding window; None unless it is smaller than the context.
pub(crate) fn window(size: Option<usize>, context_len: usize) -> Option<usize> {
    size.filter(|size| *size > 0 && *size < context_len)
}
