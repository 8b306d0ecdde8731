//! Kernel families of `strata bench --peak`: share of the step, rates, and share of the GPU's peak.

use serde::Serialize;

use crate::cli::doctor::device::{flop_rate, rate};
use crate::engine::measure::bench_table::{self, Column};
use crate::engine::{FamilyProfile, KernelPeaks, KernelProfile, Limit};
use crate::gpu::microbenchmark::DeviceBandwidth;

const COLUMNS: [Column; 7] = [
    ("kernels", 20, false),
    ("ms/t", 10, true),
    ("of step", 7, true),
    ("read", 12, true),
    ("arithmetic", 15, true),
    ("limit", 9, false),
    ("of peak", 9, true),
];

/// Result of one family of kernels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct KernelLine {
    family: &'static str,
    ms_per_token: f64,
    /// share of the time of the steps
    share: f64,
    /// bytes that it must read, per second; null if not known
    bytes_per_s: Option<f64>,
    /// operations that it must do, per second; null if there are none
    flops_per_s: Option<f64>,
    /// unit of the GPU that limits it
    limit: Limit,
    /// share of the peak of that unit
    of_peak: Option<f64>,
}

/// Peaks of the GPU for kernels.
pub(super) fn kernel_peaks(measured: &DeviceBandwidth) -> KernelPeaks {
    KernelPeaks {
        read_bytes_per_s: measured.stream_read_bytes_per_s,
        f32_flops: measured.gemm_flops,
        matrix_flops: measured.matrix_flops.as_ref().ok().copied(),
    }
}

impl KernelLine {
    /// The families of a test, in order.
    pub(super) fn all(profile: &KernelProfile, peaks: &KernelPeaks) -> Vec<KernelLine> {
        let line = |family: &FamilyProfile| KernelLine {
            family: family.family.name(profile.is_prefill),
            ms_per_token: family.ns as f64 / 1e6 / profile.n_tokens.max(1) as f64,
            share: profile.share(family),
            bytes_per_s: family.bytes_per_s(),
            flops_per_s: family.flops_per_s(),
            limit: family.limit,
            of_peak: family.of_peak(peaks),
        };
        profile.families.iter().map(line).collect()
    }

    fn cells(&self) -> Vec<String> {
        let known = |value: Option<f64>, write: &dyn Fn(f64) -> String| value.map_or_else(|| "N/A".to_owned(), write);
        let limit = match self.limit {
            Limit::Memory => "memory",
            Limit::F32 => "f32",
            Limit::Matrices => "matrices",
        };
        vec![
            self.family.to_owned(),
            format!("{:.3}", self.ms_per_token),
            percent(self.share),
            known(self.bytes_per_s, &small_rate),
            known(self.flops_per_s, &flop_rate),
            limit.to_owned(),
            known(self.of_peak, &percent),
        ]
    }
}

/// A bandwidth that may be far below the peak.
fn small_rate(bytes_per_s: f64) -> String {
    if bytes_per_s < 1e9 { format!("{:.1} MB/s", bytes_per_s / 1e6) } else { rate(bytes_per_s) }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Table of the kernels of a test, each part timed alone.
pub(super) fn table(test: &str, kernels: Option<&[KernelLine]>) -> String {
    let Some(kernels) = kernels else {
        return format!(
            "\nKernels of {test} were not timed: the GPU has no timestamps, or the test more parts than were kept.\n"
        );
    };
    let mut text = format!("\nKernels of {test}, each part timed alone\n") + &bench_table::head(&COLUMNS);
    for kernel in kernels {
        text += &bench_table::row(&COLUMNS, &kernel.cells());
    }
    let idle = (1.0 - kernels.iter().map(|kernel| kernel.share).sum::<f64>()).max(0.0);
    let mut cells = vec!["no kernel".to_owned(), String::new(), percent(idle)];
    cells.resize(COLUMNS.len(), String::new());
    text + &bench_table::row(&COLUMNS, &cells)
}
