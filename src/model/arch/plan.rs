//! Model plan: one plan type for every architecture, which the engine runs without a case for any of them.
//!
//! ```text
//! header (GGUF metadata or config.json) ──► ModelPlan { dims, norm, position, activation, layers: [LayerPlan] }
//!                                               every matrix is a list of TensorRef: rows of a tensor in the file
//! ```
//! Matrices are `[rows, cols]` row-major, `y = W x + b`: `rows` outputs, `cols` inputs. `cols` never spans parts:
//! the parts of a [`Matrix`] are stacked by rows (fused QKV is parts q, k, v or one part holding all three).

use crate::base::ModelDims;

/// Rows `first_row .. first_row + n_rows` of the tensor `name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TensorRef {
    /// tensor name in the file
    pub name: String,
    /// first row used
    pub first_row: usize,
    /// number of rows used
    pub n_rows: usize,
    /// true if the file stores `[cols, rows]` (GPT-2's Conv1D in safetensors), to be transposed at load
    pub transposed: bool,
}

/// A weight matrix `[rows, cols]`, stacked from parts, with an optional bias `[rows]` stacked the same way.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    /// stacked by rows, in output order
    pub parts: Vec<TensorRef>,
    /// outputs
    pub rows: usize,
    /// inputs
    pub cols: usize,
    /// bias parts in the same order (`n_rows` elements each); empty if there is no bias. Bias tensors have one dimension, so
    /// `first_row` and `n_rows` count elements. Interleaved like the rows if `interleave_halves` is set.
    pub bias: Vec<TensorRef>,
    /// true if the parts are [gate, up], to be interleaved row by row (gate 0, up 0, gate 1, up 1, ...) at load
    pub interleave_halves: bool,
}

/// A norm, by the names of its tensors.
#[derive(Debug, Clone, PartialEq)]
pub struct NormPlan {
    /// scale `[dim]`
    pub weight: String,
    /// shift `[dim]` (LayerNorm)
    pub bias: Option<String>,
}

/// Kind of normalization, with its epsilon.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NormKind {
    /// x / rms(x) * w
    Rms {
        /// added to the mean square
        eps: f32,
    },
    /// (x - mean) / sd * w + b
    Layer {
        /// added to the variance
        eps: f32,
    },
}

/// Pairing of dimensions in a rotary embedding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeStyle {
    /// (0, 1), (2, 3), ...: GGUF `llama`
    Adjacent,
    /// (0, n/2), (1, n/2 + 1), ...: "neox", Hugging Face
    Half,
}

/// Rotary embedding with all scaling folded in.
#[derive(Debug, Clone, PartialEq)]
pub struct RopePlan {
    /// pairing of dimensions
    pub style: RopeStyle,
    /// angle per position of each pair; the first `2 * inv_freq.len()` dimensions of a head rotate, the rest pass through
    pub inv_freq: Vec<f32>,
    /// factor on cos and sin (YaRN, LongRoPE attention factor); 1 otherwise
    pub magnitude: f32,
}

impl RopePlan {
    /// Angle of each pair at a position: in f32 as in the models' own code.
    pub fn angles(&self, pos: usize) -> impl Iterator<Item = f64> {
        self.inv_freq.iter().map(move |inv_freq| f64::from(pos as f32 * inv_freq))
    }
}

/// Position encoding.
#[derive(Debug, Clone, PartialEq)]
pub enum PositionPlan {
    /// rotates queries and keys
    Rope(RopePlan),
    /// adds row `pos + offset` of a learned table `[max_positions, C]` to the embedding
    Learned {
        /// the table
        table: Matrix,
        /// OPT starts at row 2
        offset: usize,
    },
}

/// Activation between the up and the down projection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// silu(gate) * up; `ffn_up` is a [gate, up] pair with `interleave_halves`
    SwiGlu,
    /// tanh approximation of GELU (GPT-2)
    GeluTanh,
    /// exact GELU (erf)
    Gelu,
    /// max(0, x)
    Relu,
}

/// One transformer block, pre-norm.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerPlan {
    /// before attention
    pub attn_norm: NormPlan,
    /// rows: H*D of q, then G*D of k, then G*D of v
    pub qkv: Matrix,
    /// RMS norm over D of each query head, before rope (Qwen3); weight `[D]`
    pub q_norm: Option<NormPlan>,
    /// the same for keys
    pub k_norm: Option<NormPlan>,
    /// `[C, H*D]`
    pub attn_output: Matrix,
    /// before the feed-forward
    pub ffn_norm: NormPlan,
    /// `[F, C]`, or `[2F, C]` with interleaved gate and up (SwiGLU)
    pub ffn_up: Matrix,
    /// `[C, F]`
    pub ffn_down: Matrix,
}

/// Everything the engine needs to run a model of any supported architecture.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelPlan {
    /// checked dimensions
    pub dims: ModelDims,
    /// token embedding `[V, C]`
    pub token_embedding: Matrix,
    /// position encoding
    pub position: PositionPlan,
    /// the kind of every norm in the model
    pub norm: NormKind,
    /// activation of the feed-forward
    pub activation: Activation,
    /// factor on q·k; 1/sqrt(D) in every architecture so far
    pub attn_scale: f32,
    /// transformer blocks
    pub layers: Vec<LayerPlan>,
    /// norm before the output
    pub output_norm: NormPlan,
    /// `[V, C]`; equal to `token_embedding` if tied
    pub output: Matrix,
    /// true if the output projection is the embedding table (stored once)
    pub tied: bool,
    /// attention window in keys (Mistral v0.1, Phi-3); None attends to all. The engine rejects longer contexts, because no
    /// kernel supports windows yet.
    pub sliding_window: Option<usize>,
}

impl ModelPlan {
    /// Every weight matrix once, in order of use; a tied output is not repeated.
    pub fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let positions = match &self.position {
            PositionPlan::Learned { table, .. } => Some(table),
            PositionPlan::Rope(_) => None,
        };
        [&self.token_embedding]
            .into_iter()
            .chain(positions)
            .chain(self.layers.iter().flat_map(LayerPlan::matrices))
            .chain(Some(&self.output).filter(|_| !self.tied))
    }

    /// Every norm, in order of use.
    pub fn norms(&self) -> impl Iterator<Item = &NormPlan> {
        self.layers.iter().flat_map(LayerPlan::norms).chain([&self.output_norm])
    }

    /// Tensor names of the norms (scales and shifts). Biases of matrices are in [`Matrix::bias`].
    pub fn vectors(&self) -> impl Iterator<Item = &str> {
        self.norms().flat_map(|norm| [Some(&norm.weight), norm.bias.as_ref()]).flatten().map(String::as_str)
    }
}

impl LayerPlan {
    /// The four matrices, in order of use.
    pub fn matrices(&self) -> [&Matrix; 4] {
        [&self.qkv, &self.attn_output, &self.ffn_up, &self.ffn_down]
    }

    /// The norms, in order of use.
    pub fn norms(&self) -> impl Iterator<Item = &NormPlan> {
        [Some(&self.attn_norm), self.q_norm.as_ref(), self.k_norm.as_ref(), Some(&self.ffn_norm)].into_iter().flatten()
    }
}
