//! Prefill attention: a chunk of new tokens over one run of keys at a time, with an online softmax.
//!
//! ```text
//! keys of one segment ─┬─ tiled: q·k ─► scores in a buffer ─► softmax ─► out += p V
//!                      └─ flash: one kernel, scores in workgroup memory
//! ```
//! 1. The runs of a chunk are recorded in order; the first resets the running state, the last divides by the sum.
//! 2. Token t of the chunk attends to all keys up to itself: `mask_from + t` keys, counted from the first key of the
//!    segment.
//! 3. The state f32 `[G, T * group, 4]` begins with the running max and sum in every variant, so runs of one chunk may use
//!    different variants of this kernel.

mod flash;
mod key_tile;
mod matrix_tiling;
mod tiled;

use super::KvFormat;
use crate::gpu::kernels::linear::Precision;
use crate::gpu::{Binding, Gpu, GpuError, KernelKey, PrefillKernel, Recorder, Slice};
use flash::Flash;
use matrix_tiling::{MatrixDevice, MatrixTiling};
use tiled::{Tiled, TiledBindings};

pub use key_tile::KeyTile;

/// Kernels that compute prefill attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PrefillVariant {
    /// three kernels and a buffer of scores, f32
    Tiled,
    /// the same for software devices with [`Gpu::has_subgroup8`]
    TiledSubgroup8,
    /// flash attention, f32
    Flash,
    /// flash attention, products of f16 matrices with f32 sums
    FlashMatrices,
}

impl PrefillVariant {
    /// Variant for this device and heads of D = `head_dim`. F32 pages are for precision: their products stay f32.
    pub fn for_gpu(gpu: &Gpu, head_dim: usize, element: KvFormat, precision: Precision) -> PrefillVariant {
        if gpu.uses_subgroup8() {
            PrefillVariant::TiledSubgroup8
        } else if gpu.uses_software_kernels() || precision == Precision::Exact || !has_memory_for_flash(gpu) {
            PrefillVariant::Tiled
        } else if element != KvFormat::F32
            && gpu.tuning().prefill_attention == PrefillKernel::Matrices
            && matrix_tiling(gpu, head_dim).is_some()
        {
            PrefillVariant::FlashMatrices
        } else {
            PrefillVariant::Flash
        }
    }

    /// Variants that this device can run, for heads of D = `head_dim`.
    pub fn supported(gpu: &Gpu, head_dim: usize) -> Vec<PrefillVariant> {
        [
            (PrefillVariant::Tiled, true),
            (PrefillVariant::TiledSubgroup8, gpu.has_subgroup8()),
            (PrefillVariant::Flash, has_memory_for_flash(gpu)),
            (PrefillVariant::FlashMatrices, matrix_tiling(gpu, head_dim).is_some()),
        ]
        .into_iter()
        .filter_map(|(variant, is_supported)| is_supported.then_some(variant))
        .collect()
    }

    /// True if the scores buffer is used.
    pub fn is_tiled(self) -> bool {
        matches!(self, PrefillVariant::Tiled | PrefillVariant::TiledSubgroup8)
    }
}

fn matrix_tiling(gpu: &Gpu, head_dim: usize) -> Option<MatrixTiling> {
    MatrixTiling::of(MatrixDevice::of(gpu)?, head_dim)
}

fn has_memory_for_flash(gpu: &Gpu) -> bool {
    let limits = gpu.limits();
    limits.max_compute_workgroup_storage_size >= flash::MAX_MEMORY_BYTES
        && limits.max_compute_invocations_per_workgroup >= flash::N_LANES
}

/// The compiled kernels of one variant.
pub struct AttentionPrefill {
    kernels: Kernels,
    variant: PrefillVariant,
    /// H, G, D
    shape: [usize; 3],
    element: KvFormat,
}

enum Kernels {
    Tiled(Tiled),
    Flash(Flash),
}

/// Bind groups for one segment of one layer.
#[derive(Clone)]
pub struct PrefillBindings(Bindings);

#[derive(Clone)]
enum Bindings {
    Tiled(TiledBindings),
    Flash(Binding),
}

pub(super) fn variants(n_kv_head: usize, head_dim: usize, element: KvFormat) -> Vec<KernelKey> {
    let tiled = [false, true].into_iter().flat_map(|subgroup8| tiled::keys(n_kv_head, head_dim, element, subgroup8));
    let matrices = matrix_tiling::variants(n_kv_head, head_dim, element);
    tiled.chain([flash::key(n_kv_head, head_dim, element)]).chain(matrices).collect()
}

impl AttentionPrefill {
    /// Compiles the variant of this device for H = `n_head`, G = `n_kv_head`, D = `head_dim` (a multiple of 8).
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn new(
        gpu: &Gpu,
        n_head: usize,
        n_kv_head: usize,
        head_dim: usize,
        element: KvFormat,
        precision: Precision,
    ) -> Result<AttentionPrefill, GpuError> {
        Self::with_variant(gpu, n_head, n_kv_head, head_dim, element, PrefillVariant::for_gpu(gpu, head_dim, element, precision))
    }

    /// Same with a given variant, one of [`PrefillVariant::supported`].
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn with_variant(
        gpu: &Gpu,
        n_head: usize,
        n_kv_head: usize,
        head_dim: usize,
        element: KvFormat,
        variant: PrefillVariant,
    ) -> Result<AttentionPrefill, GpuError> {
        let shape = [n_head, n_kv_head, head_dim];
        let kernels = match variant {
            PrefillVariant::Tiled => Kernels::Tiled(Tiled::new(gpu, shape, element, false)?),
            PrefillVariant::TiledSubgroup8 => Kernels::Tiled(Tiled::new(gpu, shape, element, true)?),
            PrefillVariant::Flash => Kernels::Flash(Flash::new(gpu, shape, element)?),
            PrefillVariant::FlashMatrices => match matrix_tiling(gpu, head_dim) {
                Some(tiling) => Kernels::Flash(Flash::with_matrices(gpu, shape, element, tiling)?),
                None => {
                    let reason = format!("no cooperative matrices for heads of {head_dim}");
                    return Err(GpuError::Shader { shader: "attention/prefill_flash_matrices".into(), reason });
                }
            },
        };
        Ok(AttentionPrefill { kernels, variant, shape, element })
    }

    /// Variant of these kernels.
    pub fn variant(&self) -> PrefillVariant {
        self.variant
    }

    /// Bytes of the scores buffer for T tokens and a tile of `n_keys`. Flash attention needs none: 16, as a placeholder.
    pub fn scores_bytes(&self, n_tokens: usize, n_keys: usize) -> u64 {
        match self.variant.is_tiled() {
            true => tiled::scores_bytes(self.shape[0], n_tokens, n_keys),
            false => 16,
        }
    }

    /// Bytes of the running state for T tokens.
    pub fn state_bytes(&self, n_tokens: usize) -> u64 {
        (self.shape[0] * n_tokens * 16) as u64
    }

    /// Binds q f32 `[T, H, D]`, the blocks and table of the segment, the score and state buffers, out f32 `[T, H, D]`.
    /// Flash attention leaves the scores out.
    ///
    /// # Errors
    /// Buffers that the GPU refuses to bind.
    pub fn bind(&self, gpu: &Gpu, slices: [&Slice; 6]) -> Result<PrefillBindings, GpuError> {
        let [q, kv, table, _, state, out] = slices;
        Ok(PrefillBindings(match &self.kernels {
            Kernels::Tiled(tiled) => Bindings::Tiled(tiled.bind(gpu, slices)?),
            Kernels::Flash(flash) => Bindings::Flash(flash.bind(gpu, [q, kv, table, state, out])?),
        }))
    }

    /// Records one run of keys: three dispatches if tiled, one if flash.
    pub fn record(&self, recorder: &mut Recorder, bindings: &PrefillBindings, tile: KeyTile) {
        debug_assert!(tile.first_key.is_multiple_of(if self.element.is_quantized() { 64 } else { 8 }), "{tile:?}");
        match (&self.kernels, &bindings.0) {
            (Kernels::Tiled(tiled), Bindings::Tiled(bindings)) => tiled.record(recorder, bindings, tile),
            (Kernels::Flash(flash), Bindings::Flash(binding)) => flash.record(recorder, binding, tile),
            _ => debug_assert!(false, "bind groups of another variant"),
        }
    }
}
