//! Kernel tests: every kernel compared with its reference over a table of shapes, and every shader variant validated by
//! naga.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;

mod attention;
mod batch_rows;
mod decode_merge;
mod kv_pages;
mod microbenchmark;
mod norm;
mod page_abstracts;
mod qk_scores;
mod sample;
mod selected_attention;
mod shaders;
mod token_selection;

use strata::gpu::kernels::attention_decode::DecodeKernel;
use strata::gpu::kernels::attention_prefill::PrefillVariant;
use strata::gpu::{Gpu, Slice};

/// NMSE of attention with products of f16 and f32 sums.
const MATRICES_LIMIT: f64 = 1e-6;

/// Prefill variants to test for heads of D = `head_dim`. A software device compiles a kernel of cooperative matrices in 10 to
/// 60 seconds: heads of 64 must do there.
fn prefill_variants(gpu: &Gpu, head_dim: usize) -> Vec<PrefillVariant> {
    let mut variants = PrefillVariant::supported(gpu, head_dim);
    variants.retain(|v| *v != PrefillVariant::FlashMatrices || !gpu.is_software() || head_dim == 64);
    variants
}

/// A GPU buffer with these values.
fn upload<T: bytemuck::NoUninit>(gpu: &Gpu, values: &[T]) -> Slice {
    let bytes: &[u8] = bytemuck::cast_slice(values);
    let slice = gpu.buffer("test", bytes.len() as u64).unwrap().all();
    gpu.upload(&slice, bytes).unwrap();
    slice
}

fn empty(gpu: &Gpu, n_bytes: u64) -> Slice {
    gpu.buffer("test", n_bytes).unwrap().all()
}

fn download_f32(gpu: &Gpu, slice: &Slice, n: usize) -> Vec<f32> {
    let bytes = gpu.download(slice).unwrap();
    bytemuck::pod_collect_to_vec::<u8, f32>(&bytes[..4 * n])
}

/// The kernels of decode attention that run on this device.
fn decode_kernels(gpu: &Gpu) -> Vec<DecodeKernel> {
    DecodeKernel::ALL.into_iter().filter(|kernel| kernel.runs_on(gpu)).collect()
}

fn random(rng: &mut strata::base::Rng, n: usize, scale: f32) -> Vec<f32> {
    (0..n).map(|_| rng.next_signed() * scale).collect()
}
