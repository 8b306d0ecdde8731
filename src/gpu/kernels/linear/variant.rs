//! Shader variants of the linear kernels: which one fits a GPU, and the grid of each.

use super::activations::ActivationForm;
use super::format::{ROW_TILE, WeightFormat};
use super::matrix_units::{MatrixTile, MatrixUnits};
use super::spec::{LinearActivation, LinearSpec, MAX_MATVEC_TOKENS};
use crate::gpu::{Gpu, KernelKey, MatmulKernel, MatvecShape, Tuning, TuningPart};

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
    /// real GPU with subgroup operations; activations rounded in a matvec: to 15 bits with integer weights, to 11 with f16
    GpuDot4,
    /// the same with cooperative matrices; activations and weights rounded to f16 (11 bits) in a matmul
    GpuCooperative(MatrixUnits),
}

/// Error of a product that a caller accepts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// f32 activations
    #[default]
    Exact,
    /// activations may be rounded to 15 bits in a matvec with integer weights; operands of other products, and of prefill
    /// attention, to f16 (11 bits)
    Fast,
}

/// Token counts of the matvec kernels that read converted activations: each reads the weights once for as many tokens.
const CONVERTED_TOKENS: [usize; 3] = [1, 4, 8];

/// Rows and tokens of the tiles of a matmul without matrix units on a real GPU.
const TILES: [usize; 2] = [64, 128];

/// Largest of [`TILES`] on `gpu`. A software device with the kernels for real GPUs (tests) compiles large ones slowly.
pub(super) fn largest_plain_tile(gpu: &Gpu) -> usize {
    match gpu.tuning().matmul {
        MatmulKernel::F32Tiles128 => TILES[1],
        MatmulKernel::F32 => TILES[0],
        MatmulKernel::Matrices128 | MatmulKernel::Matrices64 => TILES[usize::from(!gpu.is_software())],
    }
}

/// Weight sharing between the tokens of a dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinearOp {
    /// every token reads all weights (decode)
    Matvec,
    /// tokens share each weight read (prefill)
    Matmul,
}

impl LinearVariant {
    /// Every variant that needs no cooperative matrices.
    const WITHOUT_MATRICES: [LinearVariant; 5] = [
        LinearVariant::Subgroup8,
        LinearVariant::Fallback,
        LinearVariant::GpuSubgroup,
        LinearVariant::Gpu,
        LinearVariant::GpuDot4,
    ];

    /// Every variant that `gpu` can run.
    pub fn all_on(gpu: &Gpu) -> Vec<LinearVariant> {
        let matrices = MatrixUnits::of(gpu).ok().map(LinearVariant::GpuCooperative);
        LinearVariant::WITHOUT_MATRICES.into_iter().chain(matrices).filter(|v| v.runs_on(gpu)).collect()
    }

    /// The variants for `gpu`, fastest first; the last one is exact.
    pub fn candidates(gpu: &Gpu, precision: Precision) -> Vec<LinearVariant> {
        let exact = match (gpu.uses_software_kernels(), gpu.has_subgroups()) {
            (true, _) if LinearVariant::Subgroup8.runs_on(gpu) => LinearVariant::Subgroup8,
            (true, _) => LinearVariant::Fallback,
            (false, true) => LinearVariant::GpuSubgroup,
            (false, false) => LinearVariant::Gpu,
        };
        let is_fast = precision == Precision::Fast && exact == LinearVariant::GpuSubgroup;
        let has_fast_matrices = is_fast && gpu.tuning().matmul.uses_matrices();
        let matrices = MatrixUnits::of(gpu).ok().map(LinearVariant::GpuCooperative).filter(|_| has_fast_matrices);
        matrices.into_iter().chain(is_fast.then_some(LinearVariant::GpuDot4)).chain([exact]).collect()
    }

    /// The fastest one for `gpu`.
    pub fn for_gpu(gpu: &Gpu, precision: Precision) -> LinearVariant {
        LinearVariant::candidates(gpu, precision).first().copied().unwrap_or(LinearVariant::Gpu)
    }

    /// Sentences about the matrix products on `gpu`: the kernels, and why not faster ones.
    pub fn explanation(gpu: &Gpu) -> Vec<String> {
        let variant = LinearVariant::for_gpu(gpu, Precision::Fast);
        if gpu.uses_software_kernels() {
            return vec![format!("Matrix products use {}.", variant.name())];
        }
        match (variant, MatrixUnits::of(gpu)) {
            (LinearVariant::GpuCooperative(units), _) => vec![format!(
                "Matrix products of many tokens use cooperative matrices of {0} x {0}, those of few tokens integer dot products; a \
                 model is loaded with them if they agree with f32 kernels.",
                units.size
            )],
            (_, Err(reason)) => vec![
                format!("Matrix products of few tokens use {}.", variant.name()),
                format!("Those of many tokens use f32 kernels, as the device has no matrix units that can be used: {reason}."),
            ],
            (_, Ok(_)) if gpu.tuning().matmul == MatmulKernel::F32 => vec![
                format!("Matrix products of few tokens use {}.", variant.name()),
                "Those of many tokens use f32 kernels, which were measured to be faster than the matrix units.".to_owned(),
            ],
            _ => vec![format!("Matrix products use {}.", variant.name())],
        }
    }

    /// Name for messages.
    pub fn name(self) -> &'static str {
        match self {
            LinearVariant::Subgroup8 | LinearVariant::Fallback => "kernels for software devices",
            LinearVariant::GpuSubgroup | LinearVariant::Gpu => "f32 kernels",
            LinearVariant::GpuDot4 => "integer dot products",
            LinearVariant::GpuCooperative(_) => "cooperative matrices",
        }
    }

    /// Form in which this op reads its activations.
    pub fn input(self, op: LinearOp, spec: &LinearSpec) -> ActivationForm {
        match (self, op) {
            (LinearVariant::GpuDot4 | LinearVariant::GpuCooperative(_), LinearOp::Matvec) if spec.format.is_integer() => {
                ActivationForm::Bytes { even_odd: spec.format.is_even_odd() }
            }
            (LinearVariant::GpuDot4 | LinearVariant::GpuCooperative(_), LinearOp::Matvec)
                if matches!(spec.format, WeightFormat::F16 | WeightFormat::Bf16) && spec.cols.is_multiple_of(8) =>
            {
                ActivationForm::Halves
            }
            // Weights of an F32 file may not fit f16.
            (LinearVariant::GpuCooperative(_), LinearOp::Matmul)
                if spec.format != WeightFormat::F32 && spec.cols.is_multiple_of(8) =>
            {
                ActivationForm::Halves
            }
            _ => ActivationForm::F32,
        }
    }

    /// Kernels of this op, by the number of tokens that one workgroup computes, ascending.
    pub(super) fn token_tiles(self, op: LinearOp, spec: &LinearSpec) -> Vec<usize> {
        match (self, op, self.input(op, spec)) {
            (_, LinearOp::Matvec, ActivationForm::Bytes { .. } | ActivationForm::Halves) => CONVERTED_TOKENS.to_vec(),
            (LinearVariant::GpuCooperative(units), _, ActivationForm::Halves) => units.tiles().map(|tile| tile.tokens).to_vec(),
            (_, LinearOp::Matmul, _) if self.is_for_real_gpus() => TILES.to_vec(),
            _ => vec![self.plain_token_tile(op, spec.format)],
        }
    }

    fn is_for_real_gpus(self) -> bool {
        !matches!(self, LinearVariant::Subgroup8 | LinearVariant::Fallback)
    }

    /// The tile of [`LinearVariant::token_tiles`] for `n_tokens`: the least that holds them. A matmul by cooperative matrices
    /// rather reads the weights twice than leave half of the tile empty.
    pub(super) fn tile_for(self, op: LinearOp, tiles: &[usize], n_tokens: usize) -> usize {
        let factor = if matches!((self, op), (LinearVariant::GpuCooperative(_), LinearOp::Matmul)) { 2 } else { 1 };
        let fits = tiles.iter().position(|tile| n_tokens <= factor * tile);
        fits.unwrap_or(tiles.len().saturating_sub(1))
    }

    /// True if the GPU has the features of this variant.
    pub fn runs_on(self, gpu: &Gpu) -> bool {
        match self {
            LinearVariant::Subgroup8 => gpu.has_subgroup8(),
            LinearVariant::GpuSubgroup | LinearVariant::GpuDot4 => gpu.has_subgroups(),
            LinearVariant::GpuCooperative(units) => MatrixUnits::of(gpu) == Ok(units),
            LinearVariant::Fallback | LinearVariant::Gpu => true,
        }
    }

    /// The faster op for `n_tokens`: a matmul once shared weight reads outweigh idle token slots.
    pub fn op_for(self, n_tokens: usize) -> LinearOp {
        let matvec_up_to = match self {
            LinearVariant::Subgroup8 => 3,
            LinearVariant::Fallback => 1,
            LinearVariant::GpuSubgroup | LinearVariant::Gpu | LinearVariant::GpuDot4 | LinearVariant::GpuCooperative(_) => {
                MAX_MATVEC_TOKENS
            }
        };
        if n_tokens <= matvec_up_to { LinearOp::Matvec } else { LinearOp::Matmul }
    }

    /// Tokens per workgroup of a kernel that reads f32 activations.
    fn plain_token_tile(self, op: LinearOp, format: WeightFormat) -> usize {
        match (op, self) {
            (LinearOp::Matvec, _) => 1,
            // Wide weights are expensive to load, so more tokens share them. Narrow ones gain little and compile
            // slowly.
            (LinearOp::Matmul, LinearVariant::Subgroup8) => match format {
                WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 | WeightFormat::Q8_0 => 16,
                _ => 8,
            },
            (LinearOp::Matmul, _) => 4,
        }
    }

    /// Workgroups of `tile` tokens, for `n_tiles` tiles of 32 rows and `n_tokens` tokens.
    pub(super) fn grid(
        self,
        op: LinearOp,
        spec: &LinearSpec,
        matvec: MatvecShape,
        n_tiles: usize,
        [n_tokens, tile]: [usize; 2],
    ) -> [u32; 3] {
        let tokens = n_tokens.div_ceil(tile) as u32;
        match (self, op) {
            (LinearVariant::GpuCooperative(units), LinearOp::Matmul) if self.input(op, spec) == ActivationForm::Halves => {
                [(n_tiles * ROW_TILE).div_ceil(units.largest_tile) as u32, tokens, 1]
            }
            _ if self.input(op, spec) != ActivationForm::F32 => [(n_tiles * ROW_TILE / matvec.rows) as u32, tokens, 1],
            (LinearVariant::Subgroup8, LinearOp::Matvec) => [n_tiles.div_ceil(2) as u32, tokens, 1],
            (LinearVariant::Subgroup8 | LinearVariant::Fallback, _) => [n_tiles as u32, tokens, 1],
            (_, LinearOp::Matvec) => [n_tiles as u32, tokens, 8],
            (_, LinearOp::Matmul) => [(n_tiles * ROW_TILE).div_ceil(tile) as u32, tokens, 1],
        }
    }

    /// The kernel of this op for `tile` tokens per workgroup.
    pub(super) fn key(self, op: LinearOp, spec: &LinearSpec, matvec: MatvecShape, tile: usize) -> KernelKey {
        let input = self.input(op, spec);
        let (is_plain, dot4) = (input == ActivationForm::F32, matches!(input, ActivationForm::Bytes { .. }));
        let halves = input == ActivationForm::Halves;
        let mut names = vec![spec.format.define()];
        names.extend(spec.activation.define());
        for (present, name) in [
            (spec.bias, "BIAS"),
            (spec.residual, "RESIDUAL"),
            (!spec.cols.is_multiple_of(8) && is_plain, "SCALAR_X"),
            (self == LinearVariant::Subgroup8, "SUBGROUP8"),
            (self.reduces_by_subgroup() && op == LinearOp::Matvec && is_plain, "SUBGROUP"),
            (dot4, "DOT4"),
            (halves && op == LinearOp::Matmul, "HALVES"),
            (!is_plain, "CONVERTED"),
        ] {
            if present {
                names.push(name);
            }
        }
        let mut defines: Vec<_> = names.into_iter().map(|name| (name, String::new())).collect();
        if !is_plain {
            let x = if halves && op == LinearOp::Matmul { "vec4<f16>" } else { "vec4<u32>" };
            defines.extend([("X", x.to_owned()), ("SCALE", if dot4 { "vec4<f32>" } else { "f32" }.to_owned())]);
        }
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
            (_, LinearOp::Matvec) if !is_plain => {
                let numbers = [("COLS", tile), ("ROWS", matvec.rows), ("LANES", matvec.lanes)];
                defines.extend(numbers.map(|(name, n)| (name, n.to_string())));
                "linear/matvec_converted"
            }
            (_, LinearOp::Matvec) => "linear/matvec_subgroup",
            (LinearVariant::GpuCooperative(units), LinearOp::Matmul) if halves => {
                let matching = units.tiles().into_iter().find(|t| t.tokens == tile);
                defines.extend(matching.map(|t: MatrixTile| t.defines(units)).unwrap_or_default());
                "linear/matmul_cooperative"
            }
            (_, LinearOp::Matmul) => {
                defines.extend([("SIDE", tile), ("EACH", tile / 16)].map(|(name, n)| (name, n.to_string())));
                "linear/matmul_tiled"
            }
        };
        KernelKey::new(shader, &defines)
    }

    /// True if a matvec reads converted activations, of a format that allows it.
    pub fn converts_activations(self) -> bool {
        matches!(self, LinearVariant::GpuDot4 | LinearVariant::GpuCooperative(_))
    }

    fn reduces_by_subgroup(self) -> bool {
        matches!(self, LinearVariant::GpuSubgroup | LinearVariant::GpuDot4 | LinearVariant::GpuCooperative(_))
    }
}

/// Every variant of the linear kernels, for the checks without a GPU.
pub(super) fn variants() -> Vec<KernelKey> {
    let units = [(16, 32, 128), (16, 64, 64), (16, 16, 128), (8, 32, 64), (8, 8, 64)]
        .map(|(size, lanes, largest_tile)| MatrixUnits { size, lanes, largest_tile });
    let shapes: Vec<MatvecShape> = TuningPart::Matvec.candidates(Tuning::default()).into_iter().map(|t| t.matvec).collect();
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
            for variant in LinearVariant::WITHOUT_MATRICES.into_iter().chain(units.map(LinearVariant::GpuCooperative)) {
                for op in [LinearOp::Matvec, LinearOp::Matmul] {
                    let shapes = if variant == LinearVariant::GpuDot4 { &shapes[..] } else { &shapes[..1] };
                    for (tile, shape) in
                        variant.token_tiles(op, &spec).into_iter().flat_map(|tile| shapes.iter().map(move |s| (tile, s)))
                    {
                        keys.push(variant.key(op, &spec, *shape, tile));
                    }
                }
            }
        }
    }
    keys.sort();
    keys.dedup();
    keys
}
