//! `strata bench`: prefill and decode speed on random tokens, in the format of llama-bench.
//!
//! ```text
//! -p -n -d -r ─► Session ─► BenchRow per test ─► Line (mean, sd, shares of the GPU's peak) ─► md │ csv │ json │ jsonl
//!                            --peak ─► DeviceBandwidth ──┘
//! ```
//! Units: tokens per second; bytes and floating-point operations per second for the shares.

mod line;
mod table;

use super::args::{BenchArgs, BenchOutput};
use super::console::Console;
use super::doctor::device;
use super::error::CliError;
use super::session::Session;
use crate::engine::{BenchTests, EngineCommand, EngineEvent};
use line::Line;
use table::Shown;

/// Runs and prints every test. `start` creates the session after the peak is measured.
///
/// # Errors
/// Nothing to measure; a bad model or GPU; a failure of the engine or the output.
pub fn run(args: &BenchArgs, start: impl FnOnce() -> Session, console: &mut Console) -> Result<(), CliError> {
    let wanted = |lengths: &[usize]| lengths.iter().copied().filter(|n| *n > 0).collect::<Vec<_>>();
    let (n_prompt, n_gen) = (wanted(&args.n_prompt), wanted(&args.n_gen));
    if n_prompt.is_empty() && n_gen.is_empty() {
        return Err(CliError::Input("there is nothing to measure. Give -p or -n a length above 0".to_owned()));
    }
    // Measured before the engine opens the GPU, so that the two do not disturb each other.
    let peak = if args.peak { Some(device::measure(args.device.gpu.as_deref())?) } else { None };
    let mut session = start();
    let info = session.load(args.source(), args.device.options(), console)?;
    let format = args.format();
    let (policy, shown) = (args.device.policy_name(), Shown { peak: args.peak, tiers: args.shows_tiers() });
    if let Some(head) = table::head(format, shown) {
        console.text(&head)?;
    }
    let mut lines = Vec::new();
    let request = session.next_request();
    let tests = BenchTests { n_prompt, n_gen, depths: args.depths.clone(), fill: args.fill, repetitions: args.repetitions };
    let command = EngineCommand::Bench { request, tests };
    session.run_request(request, command, console, |event, console| {
        let EngineEvent::BenchResult { row, .. } = event else { return Ok(()) };
        let line = Line::new(&info, &row, &policy, peak.as_ref());
        if let Some(text) = table::row(format, shown, &line)? {
            console.text(&text)?;
        }
        lines.push(line);
        Ok(())
    })?;
    if format == BenchOutput::Json {
        console.json_line(&lines)?;
    }
    if let (Some(peak), BenchOutput::Md) = (&peak, format) {
        console.text(&table::foot(&info, peak))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::line::mean_sd;
    use super::*;
    use crate::cli::mock_engine;
    use crate::engine::BenchRow;

    fn line(test: &str) -> Line {
        let row = BenchRow {
            test: test.into(),
            samples: vec![9.0, 10.0, 11.0],
            dispatches: 12,
            encode_ms_per_token: 0.25,
            weight_bytes_per_token: 100,
            flops_per_token: 300,
            disk_bytes_per_token: 4096,
            selection: None,
        };
        Line::new(&mock_engine::info(), &row, "full", Some(&mock_engine::measured()))
    }

    #[test]
    fn bench_line_has_mean_sd_and_the_share_of_its_kind() {
        let decode = line("tg64 @ d128");
        assert_eq!((decode.tokens_per_s_mean, decode.sd, decode.tokens_per_s_best), (10.0, 1.0, 11.0));
        assert_eq!((decode.read_share, decode.gemm_share), (Some(0.5), None));
        let prefill = line("pp512");
        assert_eq!((prefill.read_share, prefill.gemm_share), (None, Some(0.5)));
        assert_eq!(mean_sd(&[]), (0.0, 0.0));
        assert_eq!(mean_sd(&[4.0]), (4.0, 0.0));
    }

    #[test]
    fn bench_tables_keep_their_columns_in_every_format() {
        let line = line("tg64");
        let shown = Shown { peak: true, tiers: true };
        let row = |format| table::row(format, shown, &line).unwrap().unwrap_or_default();
        let head = |format| table::head(format, shown).unwrap_or_default();
        let (md_head, md_row) = (head(BenchOutput::Md), row(BenchOutput::Md));
        for text in md_head.lines().chain(md_row.lines()) {
            assert_eq!(text.chars().count(), md_row.trim_end().chars().count(), "{text}");
        }
        assert!(md_row.contains("10.00 ± 1.00") && md_row.contains("50 %") && md_row.contains("4.00 KiB"), "{md_row}");
        let csv_row = row(BenchOutput::Csv);
        // A comma inside quotation marks is part of its field.
        let commas = csv_row.split('"').step_by(2).map(|outside| outside.matches(',').count()).sum::<usize>();
        assert_eq!(commas, head(BenchOutput::Csv).matches(',').count(), "{csv_row}");
        let json: serde_json::Value = serde_json::from_str(&row(BenchOutput::Jsonl)).unwrap();
        assert_eq!(json["tokens_per_s_mean"], 10.0);
        assert_eq!(json["test"], "tg64");
    }
}
