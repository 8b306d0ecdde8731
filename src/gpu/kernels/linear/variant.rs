//! Shader variants of the linear kernels: which one fits a GPU, and the grid of each.

use super::format::{ROW_TILE, WeightFormat};
use super::spec::{LinearActivation, LinearSpec};
use crate::gpu::{Gpu, KernelKey};

/// Kernel variant for a class of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinearVariant {
    /// software device with subgroups of exactly 8 lanes and 64-bit integers
    Subgroup8,
    /// software device, fallback
    Fallback,
    /// real GPU with subgroup operations
    GpuSubgroup,
    /// real GPU, fallback
    Gpu,
    /// real GPU with subgroup operations; activations rounded to 15 bits in a matvec with integer weights
    GpuDot4,
}

/// Error of a product that a caller accepts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// f32 activations
    #[default]
    Exact,
    /// activations may be rounded to 15 bits, operands of prefill attention to f16
    Fast,
}

/// Token counts of the matvec kernels of [`LinearVariant::GpuDot4`]: each reads the weights once for as many tokens.
const DOT4_TOKENS: [usize; 3] = [1, 4, 8];
/// Rows and lanes per workgroup of these kernels.
const DOT4_ROWS: usize = 4;
const DOT4_LANES: usize = 128;
/// Most tokens of a matvec on a real GPU.
pub const MAX_MATVEC_TOKENS: usize = 8;

/// Weight sharing between the tokens of a dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinearOp {
    /// every token reads all weights (decode)
    Matvec,
    /// tokens share each weight read (prefill)
    Matmul,
}

impl LinearVariant {
    /// Every variant.
    pub const ALL: [LinearVariant; 5] = [
        LinearVariant::Subgroup8,
        LinearVariant::Fallback,
        LinearVariant::GpuSubgroup,
        LinearVariant::Gpu,
        LinearVariant::GpuDot4,
    ];

    /// The best one for `gpu`.
    pub fn for_gpu(gpu: &Gpu, precision: Precision) -> LinearVariant {
        match (gpu.uses_software_kernels(), gpu.has_subgroups(), precision) {
            (true, ..) if LinearVariant::Subgroup8.runs_on(gpu) => LinearVariant::Subgroup8,
            (true, ..) => LinearVariant::Fallback,
            (false, true, Precision::Fast) => LinearVariant::GpuDot4,
            (false, true, Precision::Exact) => LinearVariant::GpuSubgroup,
            (false, false, _) => LinearVariant::Gpu,
        }
    }

    /// True if the activations of this op are quantized first ([`QuantizeActivations`](super::QuantizeActivations)).
    pub fn quantizes(self, op: LinearOp, format: WeightFormat) -> bool {
        self == LinearVariant::GpuDot4 && op == LinearOp::Matvec && format.is_integer()
    }

    /// Kernels of this op, by the number of tokens that one workgroup computes, ascending.
    pub(super) fn token_tiles(self, op: LinearOp, format: WeightFormat) -> Vec<usize> {
        match self.quantizes(op, format) {
            true => DOT4_TOKENS.to_vec(),
            false => vec![self.token_tile(op, format)],
        }
    }

    /// True if the GPU has the features of this variant.
    pub fn runs_on(self, gpu: &Gpu) -> bool {
        match self {
            LinearVariant::Subgroup8 => gpu.has_subgroup8(),
            LinearVariant::GpuSubgroup | LinearVariant::GpuDot4 => gpu.has_subgroups(),
            LinearVariant::Fallback | LinearVariant::Gpu => true,
        }
    }

    /// The faster op for `n_tokens`: a matmul once shared weight reads outweigh idle token slots.
    pub fn op_for(self, n_tokens: usize) -> LinearOp {
        let matvec_up_to = match self {
            LinearVariant::Subgroup8 => 3,
            LinearVariant::Fallback => 1,
            LinearVariant::GpuSubgroup | LinearVariant::Gpu | LinearVariant::GpuDot4 => MAX_MATVEC_TOKENS,
        };
        if n_tokens <= matvec_up_to { LinearOp::Matvec } else { LinearOp::Matmul }
    }

    /// Tokens per workgroup; of a matvec with quantized activations, the least.
    pub fn token_tile(self, op: LinearOp, format: WeightFormat) -> usize {
        match (op, self) {
            (LinearOp::Matvec, _) => 1,
            // Wide weights are expensive to load, so more tokens share them. Narrow ones gain little and compile
            // slowly.
            (LinearOp::Matmul, LinearVariant::Subgroup8) => match format {
                WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 | WeightFormat::Q8_0 => 16,
                _ => 8,
            },
            (LinearOp::Matmul, LinearVariant::Fallback) => 4,
            (LinearOp::Matmul, LinearVariant::GpuSubgroup | LinearVariant::Gpu | LinearVariant::GpuDot4) => 64,
        }
    }

    /// Workgroups of `tile` tokens, for `n_tiles` tiles of 32 rows and `n_tokens` tokens.
    pub(super) fn grid(self, op: LinearOp, format: WeightFormat, n_tiles: usize, n_tokens: usize, tile: usize) -> [u32; 3] {
        let tokens = n_tokens.div_ceil(tile) as u32;
        match (self, op) {
            _ if self.quantizes(op, format) => [(n_tiles * ROW_TILE / DOT4_ROWS) as u32, tokens, 1],
            (LinearVariant::Subgroup8, LinearOp::Matvec) => [n_tiles.div_ceil(2) as u32, tokens, 1],
            (LinearVariant::Subgroup8 | LinearVariant::Fallback, _) => [n_tiles as u32, tokens, 1],
            (_, LinearOp::Matvec) => [n_tiles as u32, tokens, 8],
            (_, LinearOp::Matmul) => [n_tiles.div_ceil(2) as u32, tokens, 1],
        }
    }

    /// The kernel of this op for `tile` tokens per workgroup.
    pub(super) fn key(self, op: LinearOp, spec: &LinearSpec, tile: usize) -> KernelKey {
        let quantizes = self.quantizes(op, spec.format);
        let mut names = vec![spec.format.define()];
        names.extend(match spec.activation {
            LinearActivation::None => None,
            LinearActivation::SwiGlu => Some("SWIGLU"),
            LinearActivation::GeluTanh => Some("GELU_TANH"),
            LinearActivation::Gelu => Some("GELU_ERF"),
            LinearActivation::Relu => Some("RELU"),
        });
        for (present, name) in [
            (spec.bias, "BIAS"),
            (spec.residual, "RESIDUAL"),
            (!spec.cols.is_multiple_of(8) && !quantizes, "SCALAR_X"),
            (self == LinearVariant::Subgroup8, "SUBGROUP8"),
            (self.reduces_by_subgroup() && op == LinearOp::Matvec && !quantizes, "SUBGROUP"),
            (quantizes, "DOT4"),
        ] {
            if present {
                names.push(name);
            }
        }
        let mut defines: Vec<_> = names.into_iter().map(|name| (name, String::new())).collect();
        let shader = match (self, op) {
            (LinearVariant::Subgroup8, LinearOp::Matvec) => "linear/matvec_subgroup8",
            (LinearVariant::Subgroup8, LinearOp::Matmul) => {
                defines.push(("TOKENS", tile.to_string()));
                "linear/matmul_subgroup8"
            }
            (LinearVariant::Fallback, _) => {
                defines.push(("TOKENS", tile.to_string()));
                "linear/matmul_fallback"
            }
            (_, LinearOp::Matvec) if quantizes => {
                let numbers = [("COLS", tile), ("ROWS", DOT4_ROWS), ("LANES", DOT4_LANES)];
                defines.extend(numbers.map(|(name, n)| (name, n.to_string())));
                "linear/matvec_dot4"
            }
            (_, LinearOp::Matvec) => "linear/matvec_subgroup",
            (_, LinearOp::Matmul) => "linear/matmul_tiled",
        };
        KernelKey::new(shader, &defines)
    }

    fn reduces_by_subgroup(self) -> bool {
        matches!(self, LinearVariant::GpuSubgroup | LinearVariant::GpuDot4)
    }
}

/// Every variant of the linear kernels, for the checks without a GPU.
pub(super) fn variants() -> Vec<KernelKey> {
    let mut keys = Vec::new();
    for format in WeightFormat::ALL {
        let plain = LinearSpec { format, cols: 256, activation: LinearActivation::None, bias: false, residual: false };
        let mut specs = vec![plain, LinearSpec { bias: true, residual: true, cols: 4, ..plain }];
        if format == WeightFormat::Q4_0 {
            for activation in
                [LinearActivation::SwiGlu, LinearActivation::GeluTanh, LinearActivation::Gelu, LinearActivation::Relu]
            {
                specs.push(LinearSpec { activation, ..plain });
            }
        }
        for spec in specs {
            for variant in LinearVariant::ALL {
                for op in [LinearOp::Matvec, LinearOp::Matmul] {
                    keys.extend(variant.token_tiles(op, format).into_iter().map(|tile| variant.key(op, &spec, tile)));
                }
            }
        }
    }
    keys.sort();
    keys.dedup();
    keys
}
