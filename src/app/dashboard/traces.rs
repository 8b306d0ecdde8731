//! Traces: buttons that save and open runs, and the list of opened ones, at the foot of the dock.
//!
//! ```text
//! this session's History ─► Save trace, Save counters ─► files            files ─► OpenRun ─► Source (timeline, ledger)
//! ```
//! Invariant: a file holds text of a chat only if its box is ticked.

use egui::Ui;

use crate::app::dashboard::DashboardState;
use crate::app::dashboard::timeline::tool_ui;
use crate::app::panels::Action;
use crate::app::ui::theme::{self, GRID};
use crate::app::ui::widgets;
use crate::telemetry::History;
use crate::telemetry::chrome_trace::RunInfo;

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
