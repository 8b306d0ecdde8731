//! `strata bench`: prefill and decode speed on random tokens, in the format of llama-bench.
//!
//! ```text
//! -p -n -d -r ─► Session ─► BenchRow per test ─► Line (mean, sd, shares of the GPU's peak) ─► md │ csv │ json │ jsonl
//!                            --peak ─► DeviceBandwidth ──┘
//!                                          time and work of each kernel family ─► kernels ─► a table per test
//! ```
//! Units: tokens per second; bytes and floating-point operations per second for the shares.

mod kernels;
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
    let tests = BenchTests {
        n_prompt,
        n_gen,
        depths: args.depths.clone(),
        fill: args.fill,
        repetitions: args.repetitions,
        by_family: args.peak,
    };
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
        for line in &lines {
            console.text(&kernels::table(&line.test, line.kernels.as_deref()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::line::mean_sd;
    use super::*;
    use crate::cli::mock_engine;
    use crate::engine::{BenchRow, KernelProfile, WorkShape};
    use crate::telemetry::KernelFamily;

    /// Two tokens in a microsecond: 600 ns of products, and 200 ns of a policy.
    fn profile() -> KernelProfile {
        let shape = WorkShape { layer_bytes: 300, n_layer_weights: 600, ..WorkShape::default() };
        let times = [(KernelFamily::Linear, 600), (KernelFamily::Evaluation, 200)];
        KernelProfile::new(&shape, false, (1000, 2), &times, &shape.decode(1, 0))
    }

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
            profile: Some(profile()),
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

    #[test]
    fn kernels_have_a_table_and_json_with_their_share_of_the_peak() {
        let line = line("tg64");
        let text = kernels::table(&line.test, line.kernels.as_deref());
        let rows: Vec<&str> = text.lines().filter(|row| row.starts_with('|')).collect();
        assert!(rows.iter().all(|row| row.chars().count() == rows[0].chars().count()), "{text}");
        let row = |name: &str| *rows.iter().find(|row| row.contains(name)).unwrap();
        // 300 bytes in 600 ns against 2,000 bytes a second, 1,200 operations.
        for part in ["60 %", "0.000", "500.0 MB/s", "2.0 GFLOP/s", "memory", "25000000"] {
            assert!(row("linear decode").contains(part), "{part}: {text}");
        }
        assert!(row("selection").contains("20 %") && row("selection").contains("N/A"), "{text}");
        assert!(row("no kernel").contains("20 %"), "{text}");
        let json = serde_json::to_value(&line).unwrap();
        assert_eq!((&json["kernels"][0]["family"], &json["kernels"][0]["limit"]), (&"linear decode".into(), &"memory".into()));
        assert!(json["kernels"][1]["of_peak"].is_null() && json["kernels"][1]["share"] == 0.2, "{json}");
        let without = Line { kernels: None, ..line };
        assert!(serde_json::to_value(&without).unwrap().get("kernels").is_none(), "only with --peak");
        assert!(kernels::table(&without.test, without.kernels.as_deref()).contains("not timed"));
    }
}
