//! Runs saved, opened again and laid beside each other: the rows at the foot of the dock.
//!
//! ```text
//! this session's History ─► Save trace, Save counters ─► files            files ─► OpenRun ─► Source (timeline, ledger)
//! ```
//! 1. A file holds text of a document only where the box for that is ticked. 2. Runs begin together: where the first token of
//!    their newest answer came.
//!
//! Limits: [`MAX_OPENED`] runs from files at once; the oldest goes.

use egui::Ui;

use crate::app::dashboard::DashboardState;
use crate::app::dashboard::timeline::{Source, tool_ui};
use crate::app::panels::Action;
use crate::app::ui::theme::{self, GRID};
use crate::app::ui::widgets;
use crate::telemetry::chrome_trace::RunInfo;
use crate::telemetry::{EventKind, History, Phase, Track};

/// Runs from files at once.
const MAX_OPENED: usize = 2;

/// A run that was opened from a file.
#[derive(Debug)]
pub struct OpenRun {
    /// name of its file
    pub name: String,
    /// what it is of
    pub info: RunInfo,
    /// its events
    pub history: History,
}

/// What it remembers from frame to frame.
#[derive(Debug, Default)]
pub struct RunsState {
    /// runs from files, oldest first, and whether they are drawn
    opened: Vec<(OpenRun, bool)>,
    /// this session's own is not drawn
    hides_live: bool,
    /// a trace is to hold questions and answers
    with_text: bool,
}

impl RunsState {
    /// Shows a run beside what is shown already.
    pub fn open(&mut self, run: OpenRun) {
        if self.opened.len() == MAX_OPENED {
            self.opened.remove(0);
        }
        self.opened.push((run, true));
    }

    /// What is drawn: this session and runs from files, so that their answers begin together.
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

/// The moment by which runs are laid beside each other: when the newest answer's first token came.
fn anchor(run: &History) -> Option<u64> {
    let phases = run.of(Track::Phase).flat_map(|series| series.iter());
    let newest = phases.filter(|e| e.kind == EventKind::Phase(Phase::Decode)).map(|e| e.begin_ns).max();
    newest.or_else(|| run.range_ns().map(|(begin, _)| begin))
}

/// Draws it.
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

/// The runs on the axis, where there are more than this session's.
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

/// What is missing of this session, where something is.
fn lost_ui(ui: &mut Ui, history: &History) {
    let (n_lost, n_forgotten) = (history.n_lost(), history.n_forgotten());
    if n_lost + n_forgotten > 0 {
        let cap = history.cap();
        widgets::caption(ui, format!("{n_lost} events lost by full rings, {n_forgotten} forgotten to stay under {cap}"));
    }
}
