//! Architectures as data: one plan type that every supported family fills in, and that the engine runs without
//! knowing which family it came from.
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
    /// the file stores `[cols, rows]` (GPT-2's Conv1D in safetensors): transpose at load
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
    /// bias parts, stacked in the same order (`n_rows` elements each); empty where there is none. A bias tensor is
    /// one-dimensional: `first_row`/`n_rows` count elements. Interleaved like the rows where `interleave_halves` is set.
    pub bias: Vec<TensorRef>,
    /// parts are [gate, up] halves to be interleaved row by row (gate 0, up 0, gate 1, up 1, ...) at load
    pub interleave_halves: bool,
}

/// A vector (norm weight or bias), by tensor name.
#[derive(Debug, Clone, PartialEq)]
pub struct NormPlan {
    /// scale `[dim]`
    pub weight: String,
    /// shift `[dim]` (LayerNorm)
    pub bias: Option<String>,
}

/// Which normalization, and its epsilon.
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

/// How a rotary embedding pairs dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeStyle {
    /// (0, 1), (2, 3), ...: GGUF `llama`
    Adjacent,
    /// (0, n/2), (1, n/2 + 1), ...: "neox", Hugging Face
    Half,
}

/// Rotary embedding with every scaling already folded in.
#[derive(Debug, Clone, PartialEq)]
pub struct RopePlan {
    /// pairing of dimensions
    pub style: RopeStyle,
    /// angle per position of each pair; `2 * inv_freq.len()` leading dimensions of a head rotate, the rest pass through
    pub inv_freq: Vec<f32>,
    /// multiplies cos and sin (YaRN, LongRoPE attention factor); 1 otherwise
    pub magnitude: f32,
}

/// How positions enter.
#[derive(Debug, Clone, PartialEq)]
pub enum PositionPlan {
    /// rotate queries and keys
    Rope(RopePlan),
    /// add row `pos + offset` of a learned table `[max_positions, C]` to the embedding
    Learned {
        /// the table
        table: Matrix,
        /// OPT starts at row 2
        offset: usize,
    },
}

/// What happens between the up and the down projection.
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
    /// how positions enter
    pub position: PositionPlan,
    /// the kind of every norm in the model
    pub norm: NormKind,
    /// between up and down
    pub activation: Activation,
    /// multiplies q·k; 1/sqrt(D) in every family so far
    pub attn_scale: f32,
    /// the blocks
    pub layers: Vec<LayerPlan>,
    /// before the output
    pub output_norm: NormPlan,
    /// `[V, C]`; equal to `token_embedding` when tied
    pub output: Matrix,
    /// the output projection is the embedding table (stored once)
    pub tied: bool,
    /// keys to attend back to at most (Mistral v0.1, Phi-3 sliding window); None attends to all. A context longer
    /// than this is refused until a windowed kernel exists: never answered with the wrong attention.
    pub sliding_window: Option<usize>,
}

impl ModelPlan {
    /// Every weight matrix once, in the order of use (a tied output is not listed again).
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

    /// Every norm, in the order of use.
    pub fn norms(&self) -> impl Iterator<Item = &NormPlan> {
        self.layers.iter().flat_map(LayerPlan::norms).chain([&self.output_norm])
    }

    /// Names of the norms' tensors (scales and shifts). Biases of matrices are in [`Matrix::bias`].
    pub fn vectors(&self) -> impl Iterator<Item = &str> {
        self.norms().flat_map(|norm| [Some(&norm.weight), norm.bias.as_ref()]).flatten().map(String::as_str)
    }
}

impl LayerPlan {
    /// The four matrices, in the order of use.
    pub fn matrices(&self) -> [&Matrix; 4] {
        [&self.qkv, &self.attn_output, &self.ffn_up, &self.ffn_down]
    }

    /// The norms, in the order of use.
    pub fn norms(&self) -> impl Iterator<Item = &NormPlan> {
        [Some(&self.attn_norm), self.q_norm.as_ref(), self.k_norm.as_ref(), Some(&self.ffn_norm)].into_iter().flatten()
    }
}
