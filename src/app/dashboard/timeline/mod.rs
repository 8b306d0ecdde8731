//! Timeline: every event of a session on one time axis.
//!
//! ```text
//! History, opened runs ─► Source ─► lanes × columns ─► one mesh         wheel, drag, keys ─► View, ruler, selected step
//! ```
//! 1. Drawing costs the width of the panel, not the number of events. 2. A pause freezes the view; events still arrive.
//! 3. Every mouse action has a key. 4. Unattributed time has a lane of its own.
//!
//! Owner thread: the UI thread.

mod footer;
mod input;
pub mod labels;
mod lanes;
mod paint;
mod state;
mod view;

use egui::{Align2, Rect, Role, ScrollArea, Sense, Ui, WidgetInfo, pos2, vec2};

use crate::app::dashboard::DashboardState;
use crate::app::panels::Action;
use crate::app::ui::theme::{self, GRID, GUTTER};
use crate::app::ui::widgets;
use crate::telemetry::History;
pub use input::tool_ui;
pub use lanes::INGEST_LANE;
use lanes::Lane;
use paint::Rows;
pub use paint::Source;
pub use state::TimelineState;
use view::View;

/// Width of the lane names, points.
const NAMES: f32 = 96.0;

/// Draws the panel.
pub fn show(ui: &mut Ui, state: &mut DashboardState) -> Vec<Action> {
    let DashboardState { history, timeline, runs, selected_step, .. } = state;
    let sources = runs.sources(history);
    let ranges = sources.iter().filter_map(|s| s.run.range_ns().map(|(b, e)| (s.shown_ns(b), s.shown_ns(e))));
    let Some(range) = ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) else {
        empty_ui(ui);
        return Vec::new();
    };
    let selected = selected_step.and_then(|at| sources.iter().find_map(|s| s.step_at(at)));
    let mut view = timeline.follow(range, selected.as_ref());
    input::toolbar_ui(ui, timeline, &mut view, range, &sources, selected_step);
    let runs_shown: Vec<&History> = sources.iter().map(|s| s.run).collect();
    let lanes = Lane::of(&runs_shown);
    let room = (ui.available_height() - footer::HEIGHT).max(80.0);
    ScrollArea::vertical().id_salt("lanes").max_height(room).auto_shrink([false, true]).show(ui, |ui| {
        lanes_ui(ui, timeline, &mut view, (&lanes, room), &sources, range.0, selected_step);
    });
    timeline.view = Some(view);
    let selected = selected_step.and_then(|at| sources.iter().find_map(|s| s.step_at(at)));
    footer::footer_ui(ui, timeline, view, &sources, selected.as_ref());
    Vec::new()
}

/// Axis and lanes, with their mouse and key input.
fn lanes_ui(
    ui: &mut Ui,
    timeline: &mut TimelineState,
    view: &mut View,
    (lanes, room): (&[Lane], f32),
    sources: &[Source<'_>],
    origin_ns: u64,
    selected_step: &mut Option<u64>,
) {
    let t = theme::tokens(ui);
    let part = Rows::part_height(room, lanes.len(), sources.len());
    let height = paint::AXIS + Rows::height(part, lanes.len(), sources.len());
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), height), Sense::click_and_drag());
    let axis = Rect::from_min_max(pos2(rect.left() + NAMES, rect.top()), pos2(rect.right(), rect.top() + paint::AXIS));
    let area = Rect::from_min_max(pos2(axis.left(), axis.bottom()), rect.max);
    let rows = Rows::new(area, part, sources.len());
    response.widget_info(|| {
        WidgetInfo::labeled(
            Role::Canvas,
            true,
            "Timeline. Arrows move, plus and minus zoom, Shift and arrows measure, Enter selects",
        )
    });
    input::pointer(ui, &response, timeline, view, area, sources, selected_step);
    input::keys(ui, &response, timeline, view, sources, selected_step);
    let painter = ui.painter_at(rect);
    painter.rect_filled(area, 0.0, t.panel);
    paint::axis(&painter, axis, rect.bottom(), *view, origin_ns, t);
    paint::lanes(&painter, &rows, *view, lanes, sources, t);
    if let Some(step) = selected_step.and_then(|at| sources.iter().find_map(|s| s.step_at(at))) {
        paint::band(&painter, area, *view, (step.begin_ns, step.end_ns()), t.accent);
    }
    if let Some(measured) = timeline.measured {
        paint::band(&painter, area, *view, measured, t.strong);
    }
    for (i, lane) in lanes.iter().enumerate() {
        name_ui(ui, Rect::from_x_y_ranges(rect.left()..=area.left() - GRID, rows.part(i, 0).y_range()), *lane, *view, sources);
    }
    widgets::focus_ring(ui, &response, rect, 0);
    hover_ui(&response, *view, &rows, lanes, sources);
}

fn name_ui(ui: &Ui, name: Rect, lane: Lane, view: View, sources: &[Source<'_>]) {
    let t = theme::tokens(ui);
    let response = ui.interact(name, ui.scope_id().with(("lane", lane)), Sense::hover());
    let sentence = || {
        let each = sources.iter().map(|s| lane.sentence(s.run, s.window(view)));
        each.collect::<Vec<_>>().join("; ")
    };
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, sentence()));
    let at = pos2(name.right(), name.center().y);
    ui.painter().text(at, Align2::RIGHT_CENTER, lane.name(), theme::small(), t.text);
    response.on_hover_ui(|ui| _ = ui.label(sentence()));
}

/// Tooltip of the event below the pointer.
fn hover_ui(response: &egui::Response, view: View, rows: &Rows, lanes: &[Lane], sources: &[Source<'_>]) {
    let area = rows.area;
    let Some(at) = response.hover_pos().filter(|at| area.contains(*at)) else { return };
    let (lane, part) = rows.at(at.y);
    let (Some(lane), Some(source)) = (lanes.get(lane).copied(), sources.get(part)) else { return };
    let place = |x: f32| view.at(f64::from((x - area.left()) / area.width()));
    let window = (source.own_ns(place(at.x - 1.0)), source.own_ns(place(at.x + 1.0)));
    let longest = lane.within(source.run, window).max_by_key(|event| event.duration_ns);
    let n_events = lane.n_events(source.run, window);
    let Some(event) = longest else { return };
    response.clone().on_hover_ui_at_pointer(|ui| {
        if sources.len() > 1 {
            widgets::caption(ui, source.name);
        }
        for line in labels::event(event) {
            ui.label(line);
        }
        if n_events > 1 {
            widgets::caption(ui, format!("the longest of {n_events} here"));
        }
    });
}

fn empty_ui(ui: &mut Ui) {
    let t = theme::tokens(ui);
    ui.add_space(GUTTER);
    ui.label(egui::RichText::new("Nothing has happened yet").color(t.strong));
    ui.add_space(GRID);
    let text = "Ask a question, and every step of the answer appears here on one axis of time: what the GPU computed, which pages \
                moved between VRAM, RAM and NVMe and why, what was recomputed, and what was waited for. Unattributed time \
                is drawn too. A saved trace opens here as well.";
    ui.label(egui::RichText::new(text).color(t.weak));
}
