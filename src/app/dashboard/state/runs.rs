//! Runs that the dashboard shows: this session, and saved runs from files beside it.
//!
//! Runs are aligned at the first token of their newest answer. Limits: [`MAX_OPENED`] opened runs; the oldest is closed.

use crate::app::dashboard::timeline::Source;
use crate::telemetry::chrome_trace::RunInfo;
use crate::telemetry::{EventKind, History, Phase, Track};

/// Opened runs at most.
const MAX_OPENED: usize = 2;

/// A run from a file.
#[derive(Debug)]
pub struct OpenRun {
    /// name of its file
    pub name: String,
    /// its metadata
    pub info: RunInfo,
    /// its events
    pub history: History,
}

/// State of the runs between frames.
#[derive(Debug, Default)]
pub struct RunsState {
    /// runs from files, oldest first, and whether each is visible
    pub(in crate::app::dashboard) opened: Vec<(OpenRun, bool)>,
    /// this session is not visible
    pub(in crate::app::dashboard) hides_live: bool,
    /// a saved trace includes questions and answers
    pub(in crate::app::dashboard) with_text: bool,
}

impl RunsState {
    /// Adds a run from a file.
    pub fn open(&mut self, run: OpenRun) {
        if self.opened.len() == MAX_OPENED {
            self.opened.remove(0);
        }
        self.opened.push((run, true));
    }

    /// Visible runs, aligned at their answers.
    pub fn sources<'a>(&'a self, live: &'a History) -> Vec<Source<'a>> {
        let live = (!self.hides_live).then_some(("this session", live));
        let opened = self.opened.iter().filter(|(_, visible)| *visible).map(|(run, _)| (run.name.as_str(), &run.history));
        let runs: Vec<(&str, &History)> = live.into_iter().chain(opened).filter(|(_, run)| run.range_ns().is_some()).collect();
        let first = runs.iter().find_map(|(_, run)| anchor(run));
        let shift = |run: &History| match (first, anchor(run)) {
            (Some(first), Some(own)) => first as i64 - own as i64,
            _ => 0,
        };
        runs.into_iter().map(|(name, run)| Source { name, run, shift_ns: shift(run) }).collect()
    }
}

/// Moment by which runs are aligned: the first token of the newest answer.
fn anchor(run: &History) -> Option<u64> {
    let phases = run.of(Track::Phase).flat_map(|series| series.iter());
    let newest = phases.filter(|e| e.kind == EventKind::Phase(Phase::Decode)).map(|e| e.begin_ns).max();
    newest.or_else(|| run.range_ns().map(|(begin, _)| begin))
}
