//! Output formats of `strata bench`: a Markdown table like llama-bench's, CSV, JSON lines.

use serde_json::Value;

use super::line::Line;
use crate::base::Bytes;
use crate::cli::args::BenchOutput;
use crate::cli::doctor::device::{flop_rate, rate};
use crate::cli::error::CliError;
use crate::engine::ModelInfo;
use crate::engine::measure::bench_table::{self, Basics, COLUMNS, Column};
use crate::gpu::microbenchmark::DeviceBandwidth;

const PEAK_COLUMN: Column = ("of peak", 7, true);
const TIER_COLUMNS: [Column; 5] =
    [("read", 6, true), ("reuse", 6, true), ("eval/t", 8, true), ("eval ms/t", 9, true), ("disk/t", 10, true)];

/// Optional columns of the Markdown table.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    /// share of the GPU's peak
    pub peak: bool,
    /// selection and disk reads
    pub tiers: bool,
}

const CSV_FIELDS: [&str; 25] = [
    "engine",
    "version",
    "model",
    "quantisation",
    "size_bytes",
    "n_params",
    "device",
    "software",
    "test",
    "tokens_per_s_mean",
    "sd",
    "n",
    "tokens_per_s_best",
    "dispatches",
    "encode_ms_per_token",
    "weight_bytes_per_token",
    "flops_per_token",
    "read_share",
    "gemm_share",
    "policy",
    "disk_bytes_per_token",
    "share_read",
    "reuse",
    "evaluations_per_step",
    "evaluation_ms_per_step",
];

/// Text before the first row.
pub fn head(format: BenchOutput, shown: Shown) -> Option<String> {
    match format {
        BenchOutput::Md => Some(bench_table::head(&columns(shown))),
        BenchOutput::Csv => Some(CSV_FIELDS.join(",") + "\n"),
        BenchOutput::Json | BenchOutput::Jsonl => None,
    }
}

/// One row; None for `-o json`, which is printed as a whole at the end.
///
/// # Errors
/// A number that JSON cannot represent.
pub(super) fn row(format: BenchOutput, shown: Shown, line: &Line) -> Result<Option<String>, CliError> {
    let json = || serde_json::to_value(line).map_err(|e| CliError::Failed(format!("the row could not be written: {e}")));
    Ok(match format {
        BenchOutput::Md => Some(bench_table::row(&columns(shown), &cells(line, shown))),
        BenchOutput::Csv => Some(csv_row(&json()?)),
        BenchOutput::Jsonl => Some(format!("{}\n", json()?)),
        BenchOutput::Json => None,
    })
}

/// Footnote on the peak.
pub fn foot(info: &ModelInfo, peak: &DeviceBandwidth) -> String {
    format!(
        "\nPeak of {} in this run: streaming read {}, best matrix product {}.\n",
        info.adapter,
        rate(peak.stream_read_bytes_per_s),
        flop_rate(peak.gemm_flops)
    )
}

fn columns(shown: Shown) -> Vec<Column> {
    let tiers = TIER_COLUMNS.into_iter().filter(|_| shown.tiers);
    COLUMNS.into_iter().chain(shown.peak.then_some(PEAK_COLUMN)).chain(tiers).collect()
}

fn cells(line: &Line, shown: Shown) -> Vec<String> {
    let percent = |share: Option<f64>| share.map_or_else(|| "N/A".to_owned(), |s| format!("{:.0} %", s * 100.0));
    let number = |x: Option<f64>, decimals: usize| x.map_or_else(|| "N/A".to_owned(), |x| format!("{x:.decimals$}"));
    let basics = Basics {
        model: &line.model,
        quantization: &line.quantization,
        size_bytes: line.size_bytes,
        n_params: line.n_params,
        device: &line.device,
        test: &line.test,
        mean: line.tokens_per_s_mean,
        sd: line.sd,
        dispatches: Some(line.dispatches),
        encode_ms_per_token: Some(line.encode_ms_per_token),
    };
    let mut cells = basics.cells();
    if shown.peak {
        cells.push(percent(line.read_share.or(line.gemm_share)));
    }
    if shown.tiers {
        cells.extend([percent(line.share_read), percent(line.reuse)]);
        cells.extend([number(line.evaluations_per_step, 0), number(line.evaluation_ms_per_step, 2)]);
        cells.push(Bytes(line.disk_bytes_per_token).to_string());
    }
    cells
}

/// CSV row with all fields quoted but numbers, so that a name with a comma stays one field.
fn csv_row(json: &Value) -> String {
    let field = |name: &&str| match json.get(*name) {
        Some(Value::String(text)) => format!("\"{}\"", text.replace('"', "\"\"")),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    };
    CSV_FIELDS.iter().map(field).collect::<Vec<_>>().join(",") + "\n"
}
