//! Search for the fastest variants: measures the candidates of each part in order, until the time is up.
//!
//! 1. The default of a part is measured first. Another candidate must be faster by [`LEAST_GAIN`]. What was not measured keeps its
//!    default.
//! 2. A candidate that does not compile is left out. Without VRAM, nothing is tuned. A lost device ends the search with the
//!    name of the candidate, so that the next search leaves it out.
//!
//! Pure: the clock and the measurement are given.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::gpu::GpuError;
use crate::gpu::selection_costs::SelectionCosts;
use crate::gpu::tuning::{Tuning, TuningPart};

/// Time of a whole search.
pub const MAX_TIME: Duration = Duration::from_secs(2);
/// Part of its time that a candidate must save, more than times vary.
const LEAST_GAIN: f64 = 0.03;

/// A candidate with its time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// part
    pub part: TuningPart,
    /// value of the part
    pub value: String,
    /// time, nanoseconds; None if it could not be measured
    pub ns: Option<u64>,
}

/// A tuning and how it was found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TuningReport {
    /// the tuning
    pub tuning: Tuning,
    /// candidates, in the order in which they were measured
    pub measured: Vec<Measured>,
    /// values of candidates that lost the device, which are never tried again
    pub lost: Vec<(TuningPart, String)>,
    /// the time was up before all were measured
    pub out_of_time: bool,
    /// costs of reading and selecting KV; None if they could not be measured
    pub costs: Option<SelectionCosts>,
}

/// End of a search.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// with a tuning
    Tuned(TuningReport),
    /// the device was lost; the candidate is in the report
    Lost(TuningReport),
    /// no VRAM, or another failure of the device: the defaults, not to be kept
    Skipped(GpuError),
}

/// Searches `parts`, each with its candidates, the default first. `elapsed` is the time since the begin, `measure` gives the seconds
/// of a candidate. Candidates in `lost` are left out.
pub fn search(
    parts: &[(TuningPart, Vec<Tuning>)],
    lost: &[(TuningPart, String)],
    mut elapsed: impl FnMut() -> Duration,
    mut measure: impl FnMut(TuningPart, &Tuning) -> Result<f64, GpuError>,
) -> Outcome {
    let mut report = TuningReport { lost: lost.to_vec(), ..TuningReport::default() };
    for (part, candidates) in parts {
        let (mut default_secs, mut best) = (None, None::<(f64, Tuning)>);
        for candidate in candidates {
            let value = part.value(candidate);
            if report.lost.contains(&(*part, value.clone())) {
                continue;
            }
            if elapsed() >= MAX_TIME {
                report.out_of_time = true;
                break;
            }
            let secs = match measure(*part, candidate) {
                Ok(secs) => Some(secs).filter(|secs| secs.is_finite() && *secs > 0.0),
                Err(GpuError::Shader { .. } | GpuError::Rejected { .. }) => None,
                Err(GpuError::Lost(_)) => {
                    report.lost.push((*part, value));
                    return Outcome::Lost(report);
                }
                Err(error) => return Outcome::Skipped(error),
            };
            report.measured.push(Measured { part: *part, value, ns: secs.map(|secs| (secs * 1e9) as u64) });
            let Some(secs) = secs else { continue };
            if Some(candidate) == candidates.first() {
                default_secs = Some(secs);
            }
            if best.is_none_or(|(least, _)| secs < least) {
                best = Some((secs, *candidate));
            }
        }
        let most = default_secs.map_or(f64::INFINITY, |secs: f64| secs * (1.0 - LEAST_GAIN));
        if let Some((_, winner)) = best.filter(|(secs, _)| *secs < most) {
            report.tuning = merged(*part, report.tuning, &winner);
        }
    }
    Outcome::Tuned(report)
}

/// `tuning` with one part of `other`.
fn merged(part: TuningPart, tuning: Tuning, other: &Tuning) -> Tuning {
    match part {
        TuningPart::Matmul => Tuning { matmul: other.matmul, ..tuning },
        TuningPart::PrefillAttention => Tuning { prefill_attention: other.prefill_attention, ..tuning },
        TuningPart::DecodeAttention => Tuning { decode_splits: other.decode_splits, ..tuning },
        TuningPart::Matvec => Tuning { matvec: other.matvec, ..tuning },
        TuningPart::FusedMatvec => Tuning { fused_lanes: other.fused_lanes, ..tuning },
    }
}

impl TuningReport {
    /// The candidates of `part`, the selected value and why it was selected. None if nothing was measured.
    pub fn explanation(&self, part: TuningPart) -> Option<String> {
        let own: Vec<&Measured> = self.measured.iter().filter(|m| m.part == part).collect();
        let default = own.first()?;
        let selected = part.value(&self.tuning);
        let why = match own.iter().filter(|m| m.ns.is_some()).count() {
            0 => "the default, as none could be measured",
            _ if selected == default.value && default.ns.is_some() => "the default, which no other beats by 3 %",
            _ => "the fastest",
        };
        let time = |m: &&Measured| match m.ns {
            Some(ns) => format!("{} {}", m.value, time_text(ns)),
            None => format!("{} does not run", m.value),
        };
        Some(format!("{selected}: {why} ({})", own.iter().map(time).collect::<Vec<_>>().join("; ")))
    }
}

fn time_text(ns: u64) -> String {
    if ns < 1_000_000 { format!("{:.1} us", ns as f64 / 1e3) } else { format!("{:.2} ms", ns as f64 / 1e6) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::tuning::{MatmulKernel, MatvecShape, PrefillKernel};

    fn parts() -> Vec<(TuningPart, Vec<Tuning>)> {
        TuningPart::ALL.map(|part| (part, part.candidates(Tuning::default()))).to_vec()
    }

    /// A search with the times of `secs`, in which every measurement takes `each`.
    fn run(each: Duration, secs: impl Fn(&str) -> Result<f64, GpuError>) -> (Outcome, Vec<String>) {
        run_without(&[], each, secs)
    }

    fn run_without(
        lost: &[(TuningPart, String)],
        each: Duration,
        secs: impl Fn(&str) -> Result<f64, GpuError>,
    ) -> (Outcome, Vec<String>) {
        let tried = std::cell::RefCell::new(Vec::new());
        let elapsed = || each * tried.borrow().len() as u32;
        let outcome = search(&parts(), lost, elapsed, |part, tuning| {
            let value = part.value(tuning);
            tried.borrow_mut().push(value.clone());
            secs(&value)
        });
        (outcome, tried.into_inner())
    }

    fn tuned(outcome: Outcome) -> TuningReport {
        let Outcome::Tuned(report) = outcome else { panic!("{outcome:?}") };
        report
    }

    fn compile_error() -> GpuError {
        GpuError::Shader { shader: "linear/any".into(), reason: "the driver failed".into() }
    }

    #[test]
    fn fastest_candidate_of_each_part_is_selected_if_it_saves_enough() {
        let (outcome, tried) = run(Duration::ZERO, |value| {
            Ok(match value {
                "f32 tiles" | "f32 tiles of 64" | "f32 tiles of 128" => 9.0,
                "matrix units, tiles of 64" => 0.5,
                "128 splits" => 0.98,
                "8 rows by 256 lanes" => 0.7,
                "8 rows by 128 lanes" => 0.8,
                _ => 1.0,
            })
        });
        let report = tuned(outcome);
        let want = Tuning { matmul: MatmulKernel::Matrices64, matvec: MatvecShape { rows: 8, lanes: 256 }, ..Tuning::default() };
        assert_eq!((report.tuning, tried.len(), report.out_of_time), (want, 16, false), "2 % are noise");
        let why = |part| report.explanation(part).unwrap();
        assert!(
            why(TuningPart::Matmul).starts_with("matrix units, tiles of 64: the fastest (matrix units, tiles of 128 1000.00 ms;")
        );
        assert!(why(TuningPart::DecodeAttention).starts_with("64 splits: the default, which no other beats by 3 %"));
    }

    #[test]
    fn small_gains_that_add_up_do_not_replace_the_default_unless_the_winner_saves_enough() {
        let (outcome, _) = run(Duration::ZERO, |value| Ok(if value == "32 splits" { 0.99 } else { 1.0 }));
        assert_eq!(tuned(outcome).tuning, Tuning::default());
        let (outcome, _) = run(Duration::ZERO, |value| match value {
            "128 splits" => Ok(0.96),
            "32 splits" => Ok(0.95),
            _ => Ok(1.0),
        });
        assert_eq!(tuned(outcome).tuning.decode_splits, 32);
    }

    #[test]
    fn search_stops_after_two_seconds_and_keeps_the_default_of_the_rest() {
        // Every candidate but the defaults would win.
        let is_default =
            |value: &str| ["matrix units, tiles of 128", "matrix units", "64 splits", "4 rows by 128 lanes"].contains(&value);
        let (outcome, tried) = run(Duration::from_millis(500), |value| Ok(if is_default(value) { 1.0 } else { 0.5 }));
        let report = tuned(outcome);
        assert_eq!((tried.len(), report.out_of_time), (4, true));
        assert_eq!(report.tuning, Tuning { matmul: MatmulKernel::Matrices64, ..Tuning::default() });
        assert_eq!(report.explanation(TuningPart::Matvec), None, "not measured");
    }

    #[test]
    fn candidate_that_does_not_compile_is_left_out() {
        let (outcome, _) = run(Duration::ZERO, |value| if value.starts_with("matrix") { Err(compile_error()) } else { Ok(1.0) });
        let report = tuned(outcome);
        let f32_tiles = Tuning { matmul: MatmulKernel::F32Tiles128, prefill_attention: PrefillKernel::F32, ..Tuning::default() };
        assert_eq!(report.tuning, f32_tiles);
        assert!(report.explanation(TuningPart::Matmul).unwrap().contains("matrix units, tiles of 64 does not run"));
        let (outcome, _) = run(Duration::ZERO, |_| Err(compile_error()));
        assert_eq!(tuned(outcome).tuning, Tuning::default());
        let (outcome, _) = run(Duration::ZERO, |value| Ok(if value == "64 splits" { f64::NAN } else { 1.0 }));
        assert_eq!(tuned(outcome).tuning.decode_splits, 128, "no time is no result");
    }

    #[test]
    fn lost_device_names_its_candidate_which_is_not_tried_again() {
        let lost = |value: &str| if value == "128 splits" { Err(GpuError::Lost("hang".into())) } else { Ok(1.0) };
        let (outcome, tried) = run(Duration::ZERO, lost);
        let Outcome::Lost(report) = outcome else { panic!("{outcome:?}") };
        assert_eq!(tried.last().map(String::as_str), Some("128 splits"));
        let (outcome, tried) = run_without(&report.lost, Duration::ZERO, lost);
        assert_eq!(tuned(outcome).lost, report.lost);
        assert!(!tried.iter().any(|value| value == "128 splits"));
    }

    #[test]
    fn without_vram_nothing_is_tuned() {
        let full = GpuError::OutOfMemory { what: "keys".into(), size: crate::base::Bytes(1) };
        let (outcome, tried) = run(Duration::ZERO, |value| if value == "64 splits" { Err(full.clone()) } else { Ok(1.0) });
        assert_eq!((outcome, tried.len()), (Outcome::Skipped(full.clone()), 7));
    }
}
