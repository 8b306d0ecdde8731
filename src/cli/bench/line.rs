//! Line of `strata bench`: the result of one test, and its shares of the GPU's peak.

use serde::Serialize;

use super::kernels::{KernelLine, kernel_peaks};
use crate::engine::{BenchRow, ModelInfo};
use crate::gpu::microbenchmark::DeviceBandwidth;

/// Result of one test with its context: a row of `-o json` and `-o csv`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Line {
    pub engine: &'static str,
    pub version: &'static str,
    pub model: String,
    #[serde(rename = "quantisation")]
    pub quantization: String,
    pub size_bytes: u64,
    pub n_params: u64,
    pub device: String,
    pub software: bool,
    pub test: String,
    pub tokens_per_s_mean: f64,
    pub sd: f64,
    pub n: usize,
    pub tokens_per_s_best: f64,
    pub dispatches: usize,
    pub encode_ms_per_token: f64,
    pub weight_bytes_per_token: u64,
    pub flops_per_token: u64,
    /// decode: weight bytes per second over the GPU's streaming read; only with `--peak`
    pub read_share: Option<f64>,
    /// prefill: operations per second over the GPU's best matrix product; only with `--peak`
    pub gemm_share: Option<f64>,
    pub policy: String,
    /// KV bytes read from disk per token
    pub disk_bytes_per_token: u64,
    /// share of the tokens that attention read; None if it read all
    pub share_read: Option<f64>,
    /// share of the pages read that were in VRAM already
    pub reuse: Option<f64>,
    pub evaluations_per_step: Option<f64>,
    pub evaluation_ms_per_step: Option<f64>,
    /// time, work and share of the peak of each kernel family; only with `--peak`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernels: Option<Vec<KernelLine>>,
}

impl Line {
    pub fn new(info: &ModelInfo, row: &BenchRow, policy: &str, peak: Option<&DeviceBandwidth>) -> Line {
        let (mean, sd) = mean_sd(&row.samples);
        let is_decode = row.test.starts_with("tg");
        let share = |wanted: bool, per_token: u64, peak_per_s: Option<f64>| {
            let peak_per_s = peak_per_s.filter(|p| wanted && *p > 0.0)?;
            Some(mean * per_token as f64 / peak_per_s)
        };
        Line {
            engine: "strata",
            version: env!("CARGO_PKG_VERSION"),
            model: info.name.clone(),
            quantization: info.quantization.clone(),
            size_bytes: info.file_bytes,
            n_params: info.n_params,
            device: info.adapter.clone(),
            software: info.software,
            test: row.test.clone(),
            tokens_per_s_mean: mean,
            sd,
            n: row.samples.len(),
            tokens_per_s_best: row.samples.iter().copied().fold(0.0, f64::max),
            dispatches: row.dispatches,
            encode_ms_per_token: row.encode_ms_per_token,
            weight_bytes_per_token: row.weight_bytes_per_token,
            flops_per_token: row.flops_per_token,
            read_share: share(is_decode, row.weight_bytes_per_token, peak.map(|p| p.stream_read_bytes_per_s)),
            gemm_share: share(!is_decode, row.flops_per_token, peak.map(|p| p.gemm_flops)),
            policy: policy.to_owned(),
            disk_bytes_per_token: row.disk_bytes_per_token,
            share_read: row.selection.as_ref().map(|c| c.share_read),
            reuse: row.selection.as_ref().map(|c| c.reuse),
            evaluations_per_step: row.selection.as_ref().map(|c| c.evaluations_per_step),
            evaluation_ms_per_step: row.selection.as_ref().map(|c| c.evaluation_ms_per_step),
            kernels: peak.and_then(|peak| Some(KernelLine::all(row.profile.as_ref()?, &kernel_peaks(peak)))),
        }
    }
}

/// Mean and sample standard deviation; zeros for no samples.
pub(super) fn mean_sd(samples: &[f64]) -> (f64, f64) {
    if samples.is_empty() {
        return (0.0, 0.0);
    }
    let n = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / n;
    if samples.len() == 1 {
        return (mean, 0.0);
    }
    let squares: f64 = samples.iter().map(|x| (x - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0)).sqrt())
}
