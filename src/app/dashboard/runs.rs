//! Runs saved, opened again and laid beside each other: one row at the foot of the dock.

use egui::Ui;

use super::DashboardState;
use super::timeline::Source;
use crate::app::panels::Action;
use crate::telemetry::chrome::RunInfo;
use crate::telemetry::{EventKind, History, Phase, Track};

/// A run that was opened from a file.
#[derive(Debug)]
pub struct OpenRun {
    /// name of its file
    pub name: String,
    /// what it is of
    pub info: RunInfo,
    /// its events
    pub history: History,
    /// it is drawn
    pub visible: bool,
}

/// What it remembers from frame to frame.
#[derive(Debug, Default)]
pub struct RunsState {
    /// runs from files, oldest first
    pub opened: Vec<OpenRun>,
    /// this session's own is not drawn
    pub hides_live: bool,
    /// a trace is to hold questions and answers
    pub with_text: bool,
}

impl RunsState {
    /// What is drawn: this session and runs from files, so that their answers begin together.
    pub fn sources<'a>(&'a self, live: &'a History) -> Vec<Source<'a>> {
        let live = (!self.hides_live).then_some(("this session", live));
        let opened = self.opened.iter().filter(|run| run.visible).map(|run| (run.name.as_str(), &run.history));
        let runs: Vec<(&str, &History)> = live.into_iter().chain(opened).collect();
        let first = runs.iter().find_map(|(_, run)| anchor(run));
        let shift = |run: &History| match (first, anchor(run)) {
            (Some(first), Some(own)) => first as i64 - own as i64,
            _ => 0,
        };
        runs.into_iter().map(|(name, run)| Source { name, run, shift_ns: shift(run) }).collect()
    }
}

/// The moment by which runs are laid beside each other: when the newest answer's first token came.
fn anchor(run: &History) -> Option<u64> {
    let decodes = run.of(Track::Phase).flat_map(|series| series.iter());
    let newest = decodes.filter(|e| e.kind == EventKind::Phase(Phase::Decode)).map(|e| e.begin_ns).max();
    newest.or_else(|| run.range_ns().map(|(begin, _)| begin))
}

/// Draws it.
pub fn show(_ui: &mut Ui, _state: &mut DashboardState) -> Vec<Action> {
    Vec::new()
}
