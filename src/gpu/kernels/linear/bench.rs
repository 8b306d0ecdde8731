//! Microbenchmarks for the linear kernels: streaming reads and a plain f32 GEMM.

use super::variant::LinearVariant;
use crate::gpu::{Gpu, GpuError, KernelKey, Recorder, Slice};

/// Bytes per workgroup of the streaming read.
const STREAM_GROUP_BYTES: u64 = 64 * 256;

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct GemmParams {
    n_cols: u32,
    n_rows: u32,
}

fn stream_key(int64: bool, coalesced: bool) -> KernelKey {
    let defines = [(int64, "INT64"), (coalesced, "COALESCED")];
    let defines: Vec<_> = defines.into_iter().filter(|d| d.0).map(|d| (d.1, String::new())).collect();
    KernelKey::new("bench/stream_read", &defines)
}

fn gemm_key(subgroup8: bool) -> KernelKey {
    let defines = if subgroup8 { vec![("SUBGROUP8", String::new())] } else { vec![] };
    KernelKey::new("bench/gemm", &defines)
}

pub(super) fn variants() -> Vec<KernelKey> {
    let mut keys = vec![gemm_key(false), gemm_key(true)];
    for int64 in [false, true] {
        keys.extend([false, true].map(|coalesced| stream_key(int64, coalesced)));
    }
    keys
}

/// Records one read of `source` (whole multiples of 16 KiB). `folded` has 1/64 of its size. Returns the bytes read.
///
/// # Errors
/// A kernel that does not compile, or buffers that cannot be bound.
pub fn record_stream_read(gpu: &Gpu, recorder: &mut Recorder, source: &Slice, folded: &Slice) -> Result<u64, GpuError> {
    let software = gpu.is_software();
    let kernel = gpu.kernel(&stream_key(software && gpu.has_int64(), !software))?;
    let binding = gpu.bind(&kernel, &[source, folded])?;
    let groups = (source.size / STREAM_GROUP_BYTES).min(65_535);
    recorder.dispatch(&kernel, &binding, &0u32, [groups as u32, 1, 1]);
    Ok(groups * STREAM_GROUP_BYTES)
}

/// Records one product of `[n, n]` f32 weights with n activations of width n (n a multiple of 64). Returns its FLOPs.
/// The buffers are w, x and y, 4 * n * n bytes each.
///
/// # Errors
/// A kernel that does not compile, or buffers that cannot be bound.
pub fn record_gemm(gpu: &Gpu, recorder: &mut Recorder, buffers: [&Slice; 3], n: usize) -> Result<f64, GpuError> {
    let subgroup8 = LinearVariant::Subgroup8.runs_on(gpu);
    let kernel = gpu.kernel(&gemm_key(subgroup8))?;
    let binding = gpu.bind(&kernel, &buffers)?;
    let params = GemmParams { n_cols: n as u32, n_rows: n as u32 };
    let grid = if subgroup8 { [n / 32, n / 16, 1] } else { [n / 64, n / 64, 1] };
    recorder.dispatch(&kernel, &binding, &params, grid.map(|g| g as u32));
    Ok(2.0 * (n as f64).powi(3))
}
