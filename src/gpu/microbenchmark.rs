//! GPU microbenchmarks: peak rates, the denominators of every ratio that `bench` and `doctor` print.
//!
//! Every figure is the best of a few repetitions after a warm-up, on buffers larger than the caches. On a software
//! device the buffers and the product are smaller. Units: bytes per second, floating-point operations per second.

use std::time::Instant;

use super::device::Gpu;
use super::error::GpuError;
use super::kernels::arithmetic::Arithmetic;
use super::kernels::linear::{MatrixUnits, bench};
use super::recorder::Recorder;
use super::upload_ring::PageUploads;

/// Timed repetitions; the best one counts.
const REPETITIONS: usize = 4;
/// Staging buffers of an upload, as many and as large as those of KV pages.
const UPLOAD_SLOTS: usize = 3;
const UPLOAD_SLOT_BYTES: u64 = 4 << 20;

/// Target time of a measurement of arithmetic, seconds: longer than a launch, shorter than a driver allows.
const ARITHMETIC_SECS: f64 = 5e-3;
/// Most steps of such a measurement.
const MAX_STEPS: u32 = 1 << 20;

/// Peak rates of a GPU.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct DeviceBandwidth {
    /// a kernel that reads buffers once
    pub stream_read_bytes_per_s: f64,
    /// buffer to buffer, bytes copied
    pub copy_bytes_per_s: f64,
    /// RAM to GPU
    pub upload_bytes_per_s: f64,
    /// GPU to RAM
    pub readback_bytes_per_s: f64,
    /// best f32 matrix product
    pub gemm_flops: f64,
    /// f16 vectors in registers, or why they cannot be measured; in JSON `will_use` has it
    #[serde(skip)]
    pub f16_flops: Result<f64, String>,
    /// products of f16 matrices with f32 sums in registers, or why they cannot be measured; in JSON `will_use` has it
    #[serde(skip)]
    pub matrix_flops: Result<f64, String>,
}

/// Measures `gpu`. Takes a second or two on a software device.
///
/// # Errors
/// A lost device, or no memory for the buffers.
pub fn measure(gpu: &Gpu) -> Result<DeviceBandwidth, GpuError> {
    let n_bytes: u64 = if gpu.is_software() { 128 << 20 } else { 1 << 30 };
    let n_bytes = n_bytes.min(gpu.max_binding_bytes());
    let n = if gpu.is_software() { 512 } else { 4096 };
    Ok(DeviceBandwidth {
        stream_read_bytes_per_s: stream_read(gpu, n_bytes)?,
        copy_bytes_per_s: copy(gpu, n_bytes)?,
        upload_bytes_per_s: upload(gpu, n_bytes / 2)?,
        readback_bytes_per_s: readback(gpu, n_bytes / 2)?,
        gemm_flops: gemm(gpu, n)?,
        f16_flops: f16_vectors(gpu)?,
        matrix_flops: matrices(gpu)?,
    })
}

fn f16_vectors(gpu: &Gpu) -> Result<Result<f64, String>, GpuError> {
    match gpu.has_f16() {
        true => arithmetic(gpu, Arithmetic::F16Vectors),
        false => Ok(Err("the device lists no f16 arithmetic".to_owned())),
    }
}

fn matrices(gpu: &Gpu) -> Result<Result<f64, String>, GpuError> {
    if gpu.uses_software_kernels() {
        return Ok(Err("a software device has no matrix units".to_owned()));
    }
    match MatrixUnits::of(gpu) {
        Ok(units) => arithmetic(gpu, Arithmetic::Matrices(units)),
        Err(reason) => Ok(Err(reason)),
    }
}

/// Operations per second in registers; the reason if the driver does not compile the kernel.
fn arithmetic(gpu: &Gpu, unit: Arithmetic) -> Result<Result<f64, String>, GpuError> {
    let numbers = gpu.buffer("probe numbers", 8)?.all();
    gpu.upload(&numbers, bytemuck::cast_slice(&[0.5f32, 0.125]))?;
    let sums = gpu.buffer("probe sums", unit.sums_bytes(gpu))?.all();
    let run = |n_steps| -> Result<(f64, f64), GpuError> {
        let mut recorder = Recorder::new();
        let flops = unit.record(gpu, &mut recorder, [&numbers, &sums], n_steps)?;
        Ok((flops, gpu.time(&mut recorder)?))
    };
    let mut n_steps = 16;
    loop {
        match run(n_steps) {
            Ok((_, secs)) if secs >= ARITHMETIC_SECS || n_steps >= MAX_STEPS => break,
            Ok(_) => n_steps *= 4,
            Err(GpuError::Shader { reason, .. }) => return Ok(Err(format!("its driver does not compile them ({reason})"))),
            Err(error) => return Err(error),
        }
    }
    let mut flops = 0.0;
    let secs = best_secs(|| {
        let (done, secs) = run(n_steps)?;
        flops = done;
        Ok(secs)
    })?;
    Ok(Ok(flops / secs))
}

/// Upload and readback bandwidth, by copies of `n_bytes`. Takes a few hundredths of a second.
///
/// # Errors
/// A lost device, or no memory for the buffers.
pub fn measure_links(gpu: &Gpu, n_bytes: u64) -> Result<[f64; 2], GpuError> {
    let n_bytes = n_bytes.min(gpu.max_binding_bytes());
    Ok([upload(gpu, n_bytes)?, readback(gpu, n_bytes)?])
}

/// Bytes that [`measure_kernels`] reads on a software device and on others, more than their caches hold.
const SMALL_READ_BYTES: [u64; 2] = [32 << 20, 256 << 20];

/// Peaks for kernels: streaming read, bytes per second; f32 matrix product, and matrix units if there are any, operations per
/// second. Takes a few tenths of a second at most.
///
/// # Errors
/// A lost device, or no memory for the buffers.
pub fn measure_kernels(gpu: &Gpu) -> Result<(f64, f64, Option<f64>), GpuError> {
    let [software, real] = SMALL_READ_BYTES;
    let (n_bytes, n) = if gpu.is_software() { (software, 512) } else { (real, 2048) };
    Ok((stream_read(gpu, n_bytes.min(gpu.max_binding_bytes()))?, gemm(gpu, n)?, matrices(gpu)?.ok()))
}

/// Seconds of the fastest of [`REPETITIONS`] runs, after a warm-up run.
fn best_secs(mut run: impl FnMut() -> Result<f64, GpuError>) -> Result<f64, GpuError> {
    run()?;
    let mut best = f64::INFINITY;
    for _ in 0..REPETITIONS {
        best = best.min(run()?);
    }
    Ok(best.max(1e-9))
}

/// Seconds of `run` by the CPU clock.
fn wall_secs(run: impl FnOnce() -> Result<(), GpuError>) -> Result<f64, GpuError> {
    let began = Instant::now();
    run().map(|()| began.elapsed().as_secs_f64())
}

fn stream_read(gpu: &Gpu, n_bytes: u64) -> Result<f64, GpuError> {
    let source = gpu.buffer("probe source", n_bytes)?.all();
    let folded = gpu.buffer("probe sums", n_bytes / 64)?.all();
    let mut read_bytes = 0;
    let secs = best_secs(|| {
        let mut recorder = Recorder::new();
        read_bytes = bench::record_stream_read(gpu, &mut recorder, &source, &folded)?;
        gpu.time(&mut recorder)
    })?;
    Ok(read_bytes as f64 / secs)
}

fn copy(gpu: &Gpu, n_bytes: u64) -> Result<f64, GpuError> {
    let (source, target) = (gpu.buffer("probe source", n_bytes)?.all(), gpu.buffer("probe target", n_bytes)?.all());
    let secs = best_secs(|| {
        let mut recorder = Recorder::new();
        recorder.copy(&source, &target);
        gpu.time(&mut recorder)
    })?;
    Ok(n_bytes as f64 / secs)
}

fn upload(gpu: &Gpu, n_bytes: u64) -> Result<f64, GpuError> {
    let target = gpu.buffer("probe target", n_bytes)?.all();
    let bytes = vec![1u8; n_bytes as usize];
    let mut uploads = PageUploads::new(gpu, UPLOAD_SLOTS, UPLOAD_SLOT_BYTES)?;
    let secs = best_secs(|| wall_secs(|| uploads.upload(gpu, &target, &bytes)))?;
    Ok(n_bytes as f64 / secs)
}

fn readback(gpu: &Gpu, n_bytes: u64) -> Result<f64, GpuError> {
    let source = gpu.buffer("probe source", n_bytes)?.all();
    let staging = gpu.readback_buffer("probe readback", n_bytes)?;
    let secs = best_secs(|| {
        wall_secs(|| {
            let mut recorder = Recorder::new();
            recorder.copy(&source, &staging.all());
            let submitted = gpu.submit(&mut recorder)?;
            let touch = |bytes: &[u8]| bytes.iter().step_by(4096).map(|b| u64::from(*b)).sum::<u64>();
            gpu.read_after(&submitted, &staging, |bytes| std::hint::black_box(touch(bytes))).map(drop)
        })
    })?;
    Ok(n_bytes as f64 / secs)
}

fn gemm(gpu: &Gpu, n: u32) -> Result<f64, GpuError> {
    let matrix = |what| -> Result<_, GpuError> { Ok(gpu.buffer(what, u64::from(n) * u64::from(n) * 4)?.all()) };
    let (a, b, c) = (matrix("probe a")?, matrix("probe b")?, matrix("probe c")?);
    let mut flops = 0.0;
    let secs = best_secs(|| {
        let mut recorder = Recorder::new();
        flops = bench::record_gemm(gpu, &mut recorder, [&a, &b, &c], n as usize)?;
        gpu.time(&mut recorder)
    })?;
    Ok(flops / secs)
}
