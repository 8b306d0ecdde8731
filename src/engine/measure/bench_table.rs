//! Benchmark table in the Markdown format of llama-bench, for `strata bench` and for an answer in the window.
//!
//! Invariant: every row is as wide as the header, so that the table is also readable in a terminal.

use crate::base::Bytes;
use crate::engine::api::{ModelInfo, RequestSummary};

/// A column: title, width, true if right-aligned.
pub type Column = (&'static str, usize, bool);

/// Columns of every table.
pub const COLUMNS: [Column; 8] = [
    ("model", 24, false),
    ("size", 10, true),
    ("params", 10, true),
    ("backend", 24, false),
    ("test", 16, true),
    ("t/s", 20, true),
    ("dispatches", 10, true),
    ("encode ms/t", 11, true),
];

/// Values of [`COLUMNS`].
#[derive(Debug, Clone, Copy)]
pub struct Basics<'a> {
    /// name of the model
    pub model: &'a str,
    /// most common weight type
    pub quantization: &'a str,
    /// size of the model files
    pub size_bytes: u64,
    /// weights
    pub n_params: u64,
    /// name of the device
    pub device: &'a str,
    /// `pp512`, `tg128 @ d4096`
    pub test: &'a str,
    /// tokens per second
    pub mean: f64,
    /// sample standard deviation
    pub sd: f64,
    /// dispatches per token or chunk, if counted
    pub dispatches: Option<usize>,
    /// CPU time spent encoding per token, if measured
    pub encode_ms_per_token: Option<f64>,
}

impl Basics<'_> {
    /// Cells of [`COLUMNS`].
    pub fn cells(&self) -> Vec<String> {
        vec![
            format!("{} {}", self.model, self.quantization),
            Bytes(self.size_bytes).to_string(),
            count(self.n_params),
            self.device.to_owned(),
            self.test.to_owned(),
            format!("{:.2} ± {:.2}", self.mean, self.sd),
            self.dispatches.map_or_else(|| "N/A".to_owned(), |n| n.to_string()),
            self.encode_ms_per_token.map_or_else(|| "N/A".to_owned(), |ms| format!("{ms:.3}")),
        ]
    }
}

/// Header row and delimiter row.
pub fn head(columns: &[Column]) -> String {
    let titles: Vec<String> = columns.iter().map(|(title, ..)| (*title).to_owned()).collect();
    let rule = |(_, width, right): &Column| if *right { format!("{:-<1$}:", "", width - 1) } else { "-".repeat(*width) };
    row(columns, &titles) + &row(columns, &columns.iter().map(rule).collect::<Vec<_>>())
}

/// One row, each cell truncated or padded to its column.
pub fn row(columns: &[Column], cells: &[String]) -> String {
    let mut text = String::from("|");
    for (&(_, width, right), cell) in columns.iter().zip(cells) {
        let cell: String = cell.replace('|', "/").chars().take(width).collect();
        text += &if right { format!(" {cell:>width$} |") } else { format!(" {cell:<width$} |") };
    }
    text.push('\n');
    text
}

/// Table of an answer: a row for its prefill and a row for its decode, if any.
pub fn of_answer(info: &ModelInfo, summary: &RequestSummary) -> String {
    let row_of = |test: String, mean, dispatches, encode_ms_per_token| {
        let basics = Basics {
            model: &info.name,
            quantization: &info.quantization,
            size_bytes: info.file_bytes,
            n_params: info.n_params,
            device: &info.adapter,
            test: &test,
            mean,
            sd: 0.0,
            dispatches,
            encode_ms_per_token,
        };
        row(&COLUMNS, &basics.cells())
    };
    let mut text = head(&COLUMNS);
    let n_read = summary.prompt_tokens.saturating_sub(summary.cached_tokens);
    if n_read > 0 && summary.prefill_ms > 0.0 {
        let test = at_depth(format!("pp{n_read}"), summary.cached_tokens);
        text += &row_of(test, n_read as f64 / (summary.prefill_ms / 1e3), None, None);
    }
    // The first token comes from prefill.
    let n_made = summary.generated_tokens.saturating_sub(1);
    if n_made > 0 {
        let test = at_depth(format!("tg{n_made}"), summary.prompt_tokens);
        let (dispatches, encode) = (summary.dispatches_per_token, summary.encode_ms_per_token);
        text += &row_of(test, summary.tokens_per_s, Some(dispatches), Some(encode));
    }
    text
}

/// Test name with depth, as in llama-bench: `tg128 @ d4096`.
fn at_depth(test: String, depth: usize) -> String {
    if depth == 0 { test } else { format!("{test} @ d{depth}") }
}

/// Parameter count, as in model names.
fn count(n: u64) -> String {
    match n {
        0..1_000_000 => format!("{:.2} K", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} M", n as f64 / 1e6),
        _ => format!("{:.2} B", n as f64 / 1e9),
    }
}
