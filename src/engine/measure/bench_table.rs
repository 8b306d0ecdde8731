//! The Markdown table that llama-bench prints, for whoever shows speeds: `strata bench`, and an answer in the window.
//!
//! Invariant: every row of a table is as wide as its head, so that it also reads well in a terminal.

use crate::base::Bytes;
use crate::engine::api::{ModelInfo, RequestSummary};

/// A column: its title, its width, and whether it is aligned to the right.
pub type Column = (&'static str, usize, bool);

/// The columns that are always there.
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

/// What the columns that are always there say.
#[derive(Debug, Clone, Copy)]
pub struct Basics<'a> {
    /// name of the model
    pub model: &'a str,
    /// its most common weight type
    pub quantization: &'a str,
    /// size of its files
    pub size_bytes: u64,
    /// weights
    pub n_params: u64,
    /// name of the device
    pub device: &'a str,
    /// `pp512`, `tg128 @ d4096`
    pub test: &'a str,
    /// tokens per second
    pub mean: f64,
    /// and their sample standard deviation
    pub sd: f64,
    /// dispatches of a token or chunk, where they were counted
    pub dispatches: Option<usize>,
    /// CPU time spent encoding per token, where it was measured
    pub encode_ms_per_token: Option<f64>,
}

impl Basics<'_> {
    /// A cell for each of [`COLUMNS`].
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

/// Titles and the rule below them.
pub fn head(columns: &[Column]) -> String {
    let titles: Vec<String> = columns.iter().map(|(title, ..)| (*title).to_owned()).collect();
    let rule = |(_, width, right): &Column| if *right { format!("{:-<1$}:", "", width - 1) } else { "-".repeat(*width) };
    row(columns, &titles) + &row(columns, &columns.iter().map(rule).collect::<Vec<_>>())
}

/// One row, each cell cut or padded to its column.
pub fn row(columns: &[Column], cells: &[String]) -> String {
    let mut text = String::from("|");
    for (&(_, width, right), cell) in columns.iter().zip(cells) {
        let cell: String = cell.replace('|', "/").chars().take(width).collect();
        text += &if right { format!(" {cell:>width$} |") } else { format!(" {cell:<width$} |") };
    }
    text.push('\n');
    text
}

/// An answer as a table: the prompt that it read and the tokens that it made, each where there were any.
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
    // The first token comes from the prompt's pass.
    let n_made = summary.generated_tokens.saturating_sub(1);
    if n_made > 0 {
        let test = at_depth(format!("tg{n_made}"), summary.prompt_tokens);
        let (dispatches, encode) = (summary.dispatches_per_token, summary.encode_ms_per_token);
        text += &row_of(test, summary.tokens_per_s, Some(dispatches), Some(encode));
    }
    text
}

/// `tg128 @ d4096`, as llama-bench names what comes after a context.
fn at_depth(test: String, depth: usize) -> String {
    if depth == 0 { test } else { format!("{test} @ d{depth}") }
}

/// A number of weights, as model names have it.
fn count(n: u64) -> String {
    match n {
        0..1_000_000 => format!("{:.2} K", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} M", n as f64 / 1e6),
        _ => format!("{:.2} B", n as f64 / 1e9),
    }
}
