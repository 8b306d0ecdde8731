//! Dimensions of a transformer, with checks that keep arithmetic on them safe.

use super::limits;

/// Dimensions of a model. Shape letters: L layers, C hidden, H query heads, G KV heads, D head dimension,
/// F feed-forward width, V vocabulary.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ModelDims {
    /// L
    pub n_layer: usize,
    /// C
    pub hidden_dim: usize,
    /// H
    pub n_head: usize,
    /// G; `n_head` for multi-head attention, fewer for grouped queries
    pub n_kv_head: usize,
    /// D
    pub head_dim: usize,
    /// F
    pub ffn_dim: usize,
    /// V
    pub vocab_size: usize,
    /// context window that the model was trained for, tokens
    pub context_len: usize,
}

/// A dimension outside of [`limits`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the model has {name} = {got}, but it must be {must}. Choose another model file")]
pub struct DimsError {
    /// the field's name
    pub name: &'static str,
    /// value in the file
    pub got: usize,
    /// allowed values
    pub must: String,
}

impl ModelDims {
    /// Checks every field against [`limits`], and the heads against each other.
    ///
    /// # Errors
    /// The first field outside of its limits.
    pub fn check(&self) -> Result<(), DimsError> {
        let within = |name, got: usize, max: usize| {
            if got == 0 || got > max {
                return Err(DimsError { name, got, must: format!("between 1 and {max}") });
            }
            Ok(())
        };
        within("n_layer", self.n_layer, limits::MAX_LAYERS)?;
        within("hidden_dim", self.hidden_dim, limits::MAX_DIM)?;
        within("n_head", self.n_head, limits::MAX_HEADS)?;
        within("n_kv_head", self.n_kv_head, self.n_head)?;
        within("head_dim", self.head_dim, limits::MAX_HEAD_DIM)?;
        within("ffn_dim", self.ffn_dim, limits::MAX_DIM)?;
        within("vocab_size", self.vocab_size, limits::MAX_VOCAB)?;
        within("context_len", self.context_len, limits::MAX_CONTEXT)?;
        if !self.n_head.is_multiple_of(self.n_kv_head) {
            return Err(DimsError {
                name: "n_kv_head",
                got: self.n_kv_head,
                must: format!("a divisor of n_head = {}", self.n_head),
            });
        }
        Ok(())
    }

    /// Query heads that share one KV head.
    pub fn group_size(&self) -> usize {
        self.n_head / self.n_kv_head
    }

    /// Width of the concatenated query heads, H * D.
    pub fn q_dim(&self) -> usize {
        self.n_head * self.head_dim
    }

    /// Width of the concatenated keys (or values), G * D.
    pub fn kv_dim(&self) -> usize {
        self.n_kv_head * self.head_dim
    }
}
