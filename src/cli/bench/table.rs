//! The forms in which `strata bench` prints a line: Markdown as llama-bench has it, CSV, JSON lines.
//!
//! Invariant: every row of a Markdown table is as wide as its head, so that it also reads well in a terminal.

use serde_json::Value;

use super::Line;
use crate::base::Bytes;
use crate::cli::args::BenchOutput;
use crate::cli::device::rate;
use crate::cli::error::CliError;
use crate::engine::ModelInfo;
use crate::gpu::probe::Measured;

/// A column: its title, its width, and whether it is aligned to the right.
type Column = (&'static str, usize, bool);

const COLUMNS: [Column; 8] = [
    ("model", 24, false),
    ("size", 10, true),
    ("params", 10, true),
    ("backend", 24, false),
    ("test", 16, true),
    ("t/s", 20, true),
    ("dispatches", 10, true),
    ("encode ms/t", 11, true),
];
const PEAK_COLUMN: Column = ("of peak", 7, true);

const CSV_FIELDS: [&str; 19] = [
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
];

/// What comes before the first row.
pub fn head(format: BenchOutput, with_peak: bool) -> Option<String> {
    match format {
        BenchOutput::Md => {
            let titles: Vec<String> = columns(with_peak).map(|(title, ..)| title.to_owned()).collect();
            let rules: Vec<String> = columns(with_peak)
                .map(|(_, width, right)| if right { format!("{:-<1$}:", "", width - 1) } else { "-".repeat(width) })
                .collect();
            Some(md_row(&titles, with_peak) + &md_row(&rules, with_peak))
        }
        BenchOutput::Csv => Some(CSV_FIELDS.join(",") + "\n"),
        BenchOutput::Json | BenchOutput::Jsonl => None,
    }
}

/// One test; nothing for `-o json`, which is printed as a whole at the end.
///
/// # Errors
/// Numbers that JSON cannot hold.
pub fn row(format: BenchOutput, with_peak: bool, line: &Line) -> Result<Option<String>, CliError> {
    let json = || serde_json::to_value(line).map_err(|e| CliError::Failed(format!("cannot write the line: {e}")));
    Ok(match format {
        BenchOutput::Md => Some(md_row(&cells(line), with_peak)),
        BenchOutput::Csv => Some(csv_row(&json()?)),
        BenchOutput::Jsonl => Some(format!("{}\n", json()?)),
        BenchOutput::Json => None,
    })
}

/// What the shares refer to.
pub fn foot(info: &ModelInfo, peak: &Measured) -> String {
    format!(
        "\nPeak of {} in this run: streaming read {}, best matrix product {:.1} GFLOP/s.\n",
        info.adapter,
        rate(peak.stream_read_bytes_per_s),
        peak.gemm_flops / 1e9
    )
}

fn columns(with_peak: bool) -> impl Iterator<Item = Column> {
    COLUMNS.into_iter().chain(with_peak.then_some(PEAK_COLUMN))
}

fn cells(line: &Line) -> Vec<String> {
    let share = line.read_share.or(line.gemm_share);
    vec![
        format!("{} {}", line.model, line.quantisation),
        Bytes(line.size_bytes).to_string(),
        count(line.n_params),
        line.device.clone(),
        line.test.clone(),
        format!("{:.2} ± {:.2}", line.tokens_per_s_mean, line.sd),
        line.dispatches.to_string(),
        format!("{:.3}", line.encode_ms_per_token),
        share.map_or_else(|| "N/A".to_owned(), |s| format!("{:.0} %", s * 100.0)),
    ]
}

/// One row, each cell cut or padded to its column.
fn md_row(cells: &[String], with_peak: bool) -> String {
    let mut text = String::from("|");
    for ((_, width, right), cell) in columns(with_peak).zip(cells) {
        let cell: String = cell.replace('|', "/").chars().take(width).collect();
        text += &if right { format!(" {cell:>width$} |") } else { format!(" {cell:<width$} |") };
    }
    text.push('\n');
    text
}

/// Every field quoted but for numbers, so that a name with a comma stays one field.
fn csv_row(json: &Value) -> String {
    let field = |name: &&str| match json.get(*name) {
        Some(Value::String(text)) => format!("\"{}\"", text.replace('"', "\"\"")),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    };
    CSV_FIELDS.iter().map(field).collect::<Vec<_>>().join(",") + "\n"
}

/// A number of weights, as model names have it.
fn count(n: u64) -> String {
    match n {
        0..1_000_000 => format!("{:.2} K", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} M", n as f64 / 1e6),
        _ => format!("{:.2} B", n as f64 / 1e9),
    }
}
