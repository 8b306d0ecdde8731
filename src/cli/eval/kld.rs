//! `strata eval kld`: compares a policy with exact attention, teacher-forced on the same tokens.
//!
//! ```text
//! --text ─► N + T + 1 ids ─► Score with full attention, f16 ─► logits [T, V] in RAM ─┐
//!                        └─► Score with the given flags ─► a row at a time ──────────┴► Position [T] ─► figures, heat map
//! ```
//! Invariants: 1. Both runs get the same ids, whatever either would have generated. 2. Rows arrive in order, each once.
//! Limits: [`MAX_LOGITS_BYTES`] of exact logits.

use std::path::Path;

use serde::Serialize;

use super::divergence::{self, Figures, Position};
use super::heatmap::{Cell, HeatMap};
use super::results::{Results, Setting};
use crate::base::Bytes;
use crate::cli::args::EvalKldArgs;
use crate::cli::console::Console;
use crate::cli::error::CliError;
use crate::cli::input::{self, Encoding};
use crate::cli::session::Session;
use crate::engine::{AttentionKind, EngineCommand, EngineEvent, MassKept, RequestSummary, StopReason};

/// Largest size of the exact logits in RAM, bytes.
const MAX_LOGITS_BYTES: usize = 2 << 30;
/// Positions per row of the heat map.
const MAP_COLUMNS: usize = 32;

/// Last line of `--json`, and beginning of `kld.json`.
#[derive(Debug, Serialize)]
struct Summary<'a> {
    event: &'static str,
    eval: &'static str,
    #[serde(flatten)]
    setting: &'a Setting,
    attention: AttentionKind,
    text: &'a Path,
    prefix_tokens: usize,
    scored_tokens: usize,
    #[serde(flatten)]
    figures: Figures,
    /// attention mass that the policy retained, by layer; null for full attention
    mass_kept: Option<Vec<f64>>,
    /// best attention mass of as many tokens, by layer
    mass_best: Option<Vec<f64>>,
    /// share of the exact top tokens that the policy selected, by layer; null for full attention
    recall: Option<Vec<f64>>,
    cost_exact: &'a RequestSummary,
    cost: &'a RequestSummary,
}

/// `kld.json`: the summary and every position.
#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    summary: &'a Summary<'a>,
    /// KL divergence of each position, nats
    kld: Vec<f64>,
}

/// A figure of every layer; None unless the policy's selections were measured.
fn by_layer(cost: &RequestSummary, figure: impl Fn(&MassKept) -> f64) -> Option<Vec<f64>> {
    Some(cost.selection.as_ref()?.mass.as_ref()?.iter().map(figure).collect())
}

/// Compares and prints. `start` creates the session after the text is read.
///
/// # Errors
/// A text that is too short, a bad model or output folder; a failure of the engine; Ctrl-C.
pub fn run(args: &EvalKldArgs, start: impl FnOnce() -> Session, console: &mut Console) -> Result<(), CliError> {
    let text = TeacherText::read(args)?;
    let results = Results::open(&args.out)?;
    let mut session = start();
    session.load(args.model.source(), args.device.exact_options(), console)?;
    let mut exact = Vec::new();
    let cost_exact = score(&mut session, &text, "exact", console, |_, row| {
        if text.next.len().saturating_mul(size_of_val(row)) > MAX_LOGITS_BYTES {
            let most = MAX_LOGITS_BYTES / size_of_val(row).max(1);
            let max = Bytes(MAX_LOGITS_BYTES as u64);
            return Err(CliError::Input(format!(
                "the logits of so many tokens take more than {max}. Give --tokens {most} or fewer"
            )));
        }
        exact.push(row.to_vec());
        Ok(())
    })?;
    let info = session.load(args.model.source(), args.device.forced_options(), console)?;
    let mut positions = Vec::new();
    let cost = score(&mut session, &text, "policy", console, |i, row| {
        let (Some(exact), Some(next)) = (exact.get(i), text.next.get(i)) else { return Err(out_of_order(i)) };
        let position = divergence::compare(exact, row, *next);
        positions.push(position.map_err(|e| CliError::Failed(format!("position {}: {e}", text.n_prefix + i)))?);
        Ok(())
    })?;
    let figures = divergence::figures(&positions).ok_or_else(|| CliError::Failed("the engine returned no logits".to_owned()))?;
    let setting = Setting::new(&info, &args.device);
    let summary = Summary {
        event: "summary",
        eval: "kld",
        setting: &setting,
        attention: cost.attention,
        text: &args.text,
        prefix_tokens: text.n_prefix,
        scored_tokens: positions.len(),
        figures,
        mass_kept: by_layer(&cost, |m| m.kept),
        mass_best: by_layer(&cost, |m| m.best),
        recall: by_layer(&cost, |m| m.recall),
        cost_exact: &cost_exact,
        cost: &cost,
    };
    if console.is_json() {
        console.json_line(&summary)?;
    } else {
        console.text(&summary.lines())?;
    }
    let report = Report { summary: &summary, kld: positions.iter().map(|p| p.kld).collect() };
    results.write("kld", &report, &heat_map(&summary, &positions), console)
}

/// Token ids of both runs.
struct TeacherText {
    /// input ids: prefix and scored tokens
    input: Vec<u32>,
    n_prefix: usize,
    /// the next token of each scored one
    next: Vec<u32>,
}

impl TeacherText {
    fn read(args: &EvalKldArgs) -> Result<TeacherText, CliError> {
        let encoding = Encoding { with_start: true, parse_special: true };
        let mut ids = input::token_ids(&args.model.source(), &input::read_text(&args.text)?, encoding)?;
        let wanted = args.prefix.saturating_add(args.tokens).saturating_add(1);
        let shown = args.text.display();
        let (Some(next), true) = (ids.get(args.prefix.saturating_add(1)..wanted).map(<[u32]>::to_vec), wanted > 1) else {
            return Err(CliError::Input(format!(
                "{shown} has {} tokens, but --prefix {} with --tokens {} needs {wanted}. Give less of either, or a longer text",
                ids.len(),
                args.prefix,
                args.tokens
            )));
        };
        ids.truncate(wanted - 1);
        Ok(TeacherText { input: ids, n_prefix: args.prefix, next })
    }
}

/// Scores the tokens with the loaded model. `on_row` gets the logits `[V]` of each scored token, counted from 0.
fn score(
    session: &mut Session,
    text: &TeacherText,
    run: &str,
    console: &mut Console,
    mut on_row: impl FnMut(usize, &[f32]) -> Result<(), CliError>,
) -> Result<RequestSummary, CliError> {
    let (request, total) = (session.next_request(), text.next.len());
    let command = EngineCommand::Score { request, tokens: text.input.clone(), n_prefix: text.n_prefix };
    let mut n_rows = 0;
    let cost = session.run_request(request, command, console, |event, console| {
        let EngineEvent::LogitsRows { first, rows, vocab_size, .. } = event else { return Ok(()) };
        for (i, row) in rows.chunks(vocab_size.max(1)).enumerate() {
            if first + i != text.n_prefix + n_rows {
                return Err(out_of_order(first + i));
            }
            on_row(n_rows, row)?;
            n_rows += 1;
        }
        let json = serde_json::json!({ "event": "progress", "phase": "score", "run": run, "done": n_rows, "total": total });
        console.progress(&format!("{run}: {n_rows} of {total} tokens decoded"), &json)
    })?;
    match cost.stop {
        StopReason::Cancelled => {
            Err(CliError::Failed(format!("interrupted after {n_rows} of {total} tokens. No results were written")))
        }
        _ if n_rows < total => Err(CliError::Failed(format!("the engine returned {n_rows} rows of logits instead of {total}"))),
        _ => Ok(cost),
    }
}

fn out_of_order(position: usize) -> CliError {
    CliError::Failed(format!("the engine returned logits of position {position} out of order"))
}

impl Summary<'_> {
    /// Text for the console.
    fn lines(&self) -> String {
        let f = &self.figures;
        let speed = |cost: &RequestSummary| format!("{:.1} ms", cost.decode_ms / self.scored_tokens.max(1) as f64);
        let mut lines = format!(
            "{}\n{} tokens prefilled, {} compared one by one ({} each; exact attention {})\n\
             KL divergence     mean {:.3e}, 99th percentile {:.3e}, most {:.3e}\n\
             top-1 agreement   {:.2} %\n\
             perplexity        {:.4} (exact attention {:.4})\n",
            self.setting.line(),
            self.prefix_tokens,
            self.scored_tokens,
            speed(self.cost),
            speed(self.cost_exact),
            f.kld_mean,
            f.kld_p99,
            f.kld_max,
            f.top1_agreement * 100.0,
            f.perplexity,
            f.perplexity_exact,
        );
        let layers = self.cost.selection.as_ref().and_then(|c| c.mass.as_deref()).unwrap_or_default();
        for (layer, m) in layers.iter().enumerate() {
            let [kept, best, recall] = [m.kept, m.best, m.recall].map(|x| x * 100.0);
            lines += &format!(
                "layer {layer:<3}         {kept:.1} % of the attention retained; at best {best:.1} % in as many tokens; \
                 {recall:.0} % of those tokens\n"
            );
        }
        lines
    }
}

/// Heat map in reading order; the darkest cell is the worst position.
fn heat_map(summary: &Summary, positions: &[Position]) -> HeatMap {
    let most = summary.figures.kld_max;
    let cell = |p: &Position| Some(Cell { shade: if most > 0.0 { p.kld / most } else { 0.0 }, text: String::new() });
    let rows = positions.chunks(MAP_COLUMNS);
    HeatMap {
        title: format!("KL divergence from exact attention, mean {:.3e}", summary.figures.kld_mean),
        subtitle: summary.setting.line(),
        caption: format!("{MAP_COLUMNS} tokens per row, from the position beside it; darkest: {most:.3e} nats"),
        row_labels: (0..rows.len()).map(|i| (summary.prefix_tokens + i * MAP_COLUMNS).to_string()).collect(),
        column_labels: Vec::new(),
        cells: rows.map(|row| row.iter().map(cell).collect()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::Value;

    use super::*;
    use crate::cli::args::{Cli, Command, EvalCommand};
    use crate::cli::interrupt::Interrupt;
    use crate::cli::mock_engine::{finished, session};
    use crate::engine::KvDtype;

    /// Last JSON line of a comparison of the exact run's `logits` with those of the other run, `[3, 2]` each.
    fn run_mock(exact: &'static [[f32; 2]], other: &'static [[f32; 2]]) -> Result<Value, CliError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text.txt");
        std::fs::write(&path, "Rents rose and rose and rose again.").unwrap();
        let words = ["strata", "eval", "kld", "--text", path.to_str().unwrap(), "--prefix", "2", "--tokens", "3", "--json"];
        let Some(Command::Eval(EvalCommand::Kld(args))) = Cli::parse_from(words.iter().chain(&["--kv-dtype", "q4"])).command
        else {
            panic!("not kld")
        };
        let n_scored = std::cell::Cell::new(0);
        let (session, worker) = session(Interrupt::default(), move |command, port| {
            let EngineCommand::Score { request, tokens, n_prefix } = command else { panic!("{command:?}") };
            assert_eq!((tokens.len(), *n_prefix), (5, 2));
            let logits = if n_scored.get() == 0 { exact } else { other };
            n_scored.set(n_scored.get() + 1);
            for (i, row) in logits.iter().enumerate() {
                port.emit(EngineEvent::LogitsRows {
                    request: *request,
                    first: 2 + i,
                    rows: vec![0.0; V - 2].into_iter().chain(*row).collect(),
                    vocab_size: V,
                });
            }
            port.emit(finished(*request, logits.len(), StopReason::Length));
        });
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let result = run(&args, || session, &mut Console::plain(&mut out, &mut err, true));
        let dtypes: Vec<KvDtype> = worker
            .join()
            .unwrap()
            .iter()
            .filter_map(|command| match command {
                EngineCommand::LoadModel { options, .. } => Some(options.kv_dtype),
                _ => None,
            })
            .collect();
        assert_eq!(dtypes, [KvDtype::F16, KvDtype::Q4], "the exact run comes first");
        result.map(|()| serde_json::from_str(String::from_utf8(out).unwrap().lines().last().unwrap()).unwrap())
    }

    /// Vocabulary of the mock engine, which has every id of the text.
    const V: usize = 4096;
    const EVEN: [f32; 2] = [0.0, 0.0];

    #[test]
    fn kld_summary_compares_row_with_row() {
        let summary = run_mock(&[EVEN, EVEN, [1.0, 9.0]], &[EVEN, EVEN, [9.0, 1.0]]).unwrap();
        assert_eq!((&summary["scored_tokens"], &summary["kv_dtype"]), (&3.into(), &"q4".into()));
        assert!((summary["top1_agreement"].as_f64().unwrap() - 2.0 / 3.0).abs() < 1e-12, "{summary}");
        let figure = |name: &str| summary[name].as_f64().unwrap();
        assert!((figure("kld_mean") * 3.0 - figure("kld_max")).abs() < 1e-12 && figure("kld_max") > 1.0, "{summary}");
        for field in ["model", "adapter", "policy", "text", "kld_p99", "perplexity", "mass_kept", "recall", "cost", "cost_exact"]
        {
            assert!(summary.get(field).is_some(), "{field}");
        }
        assert_eq!(run_mock(&[EVEN; 3], &[EVEN; 3]).unwrap()["kld_max"], 0.0);
    }

    #[test]
    fn kld_with_missing_or_invalid_rows_fails() {
        for (exact, other, part) in [
            (&[EVEN; 3][..], &[EVEN; 2][..], "2 rows"),
            (&[EVEN; 3], &[EVEN, [f32::NAN, 0.0], EVEN], "position 3"),
            (&[EVEN; 3], &[EVEN; 4], "out of order"),
        ] {
            let error = run_mock(exact, other).unwrap_err();
            assert!(error.exit_code() == 1 && error.to_string().contains(part), "{error}");
        }
    }
}
