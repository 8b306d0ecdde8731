//! Traces: saved runs, opened beside this session; the rows at the foot of the dock.
//!
//! ```text
//! this session's History ─► Save trace, Save counters ─► files            files ─► OpenRun ─► Source (timeline, ledger)
//! ```
//! 1. A file holds text of a chat only if its box is ticked. 2. Runs are aligned at the first token of their newest answer.
//!
//! Limits: [`MAX_OPENED`] opened runs; the oldest is closed.

use egui::Ui;

use crate::app::dashboard::DashboardState;
use crate::app::dashboard::timeline::{Source, tool_ui};
use crate::app::panels::Action;
use crate::app::ui::theme::{self, GRID};
use crate::app::ui::widgets;
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
    opened: Vec<(OpenRun, bool)>,
    /// this session is not visible
    hides_live: bool,
    /// a saved trace includes questions and answers
    with_text: bool,
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

/// Draws the rows.
pub fn show(ui: &mut Ui, state: &mut DashboardState) -> Vec<Action> {
    let mut actions = Vec::new();
    runs_ui(ui, state);
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing.x = GRID;
        let runs = &mut state.runs;
        if tool_ui(ui, "Save trace", false, "Save a trace that Perfetto and Tracy open").clicked() {
            actions.push(Action::SaveTrace { with_text: runs.with_text });
        }
        if tool_ui(ui, "Save counters", false, "Add the counters to a file of JSON lines").clicked() {
            actions.push(Action::SaveCounters);
        }
        if tool_ui(ui, "Open trace", false, "Open a saved trace beside this session").clicked() {
            actions.push(Action::OpenTrace);
        }
        if tool_ui(ui, "Copy bench row", false, "Copy as llama-bench row").clicked() {
            actions.push(Action::CopyBenchRow);
        }
        let text = egui::RichText::new("with questions and answers").font(theme::small());
        ui.checkbox(&mut runs.with_text, text).on_hover_text("A saved trace holds no text unless this is ticked");
    });
    lost_ui(ui, &state.history);
    actions
}

/// List of runs, if any was opened from a file.
fn runs_ui(ui: &mut Ui, state: &mut DashboardState) {
    let runs = &mut state.runs;
    if runs.opened.is_empty() {
        return;
    }
    widgets::caption(ui, "Lanes show runs from top to bottom, beginning together at the first token of their newest answer.");
    let mut closed = None;
    let small = |text: String| egui::RichText::new(text).font(theme::small());
    let mut shows_live = !runs.hides_live;
    if ui.checkbox(&mut shows_live, small("this session".to_owned())).changed() {
        runs.hides_live = !shows_live;
        state.timeline.reset();
    }
    for (i, (run, visible)) in runs.opened.iter_mut().enumerate() {
        ui.horizontal(|ui| {
            let RunInfo { model, policy, adapter, .. } = &run.info;
            let what = [model, policy, adapter].map(String::as_str).into_iter().filter(|w| !w.is_empty());
            if ui.checkbox(visible, small(run.name.clone())).changed() {
                state.timeline.reset();
            }
            widgets::caption(ui, what.collect::<Vec<_>>().join(", "));
            if tool_ui(ui, "Close", false, &format!("Close {}", run.name)).clicked() {
                closed = Some(i);
            }
        });
    }
    if let Some(i) = closed {
        runs.opened.remove(i);
        state.timeline.reset();
    }
}

/// Number of lost and dropped events, if any.
fn lost_ui(ui: &mut Ui, history: &History) {
    let (n_lost, n_forgotten) = (history.n_lost(), history.n_forgotten());
    if n_lost + n_forgotten > 0 {
        let cap = history.cap();
        widgets::caption(ui, format!("{n_lost} events lost to full rings, {n_forgotten} dropped to stay under {cap}"));
    }
}
