//! Configuration of a matrix product, which chooses its shader.

use super::format::WeightFormat;

/// Most tokens of a matvec on a real GPU.
pub const MAX_MATVEC_TOKENS: usize = 8;

/// Activation after the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinearActivation {
    /// none
    None,
    /// rows 2i and 2i + 1 are gate and up: out i = silu(gate) * up; N/2 outputs
    SwiGlu,
    /// tanh approximation
    GeluTanh,
    /// erf
    Gelu,
    /// max(0, x)
    Relu,
}

impl LinearActivation {
    /// Define of the shaders.
    pub(super) fn define(self) -> Option<&'static str> {
        match self {
            LinearActivation::None => None,
            LinearActivation::SwiGlu => Some("SWIGLU"),
            LinearActivation::GeluTanh => Some("GELU_TANH"),
            LinearActivation::Gelu => Some("GELU_ERF"),
            LinearActivation::Relu => Some("RELU"),
        }
    }
}

/// Configuration of the op.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinearSpec {
    /// storage format of W
    pub format: WeightFormat,
    /// K
    pub cols: usize,
    /// activation, after the bias
    pub activation: LinearActivation,
    /// true if there is a bias
    pub bias: bool,
    /// true if the result is added to y
    pub residual: bool,
}
