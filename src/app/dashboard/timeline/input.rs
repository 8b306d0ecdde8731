//! Timeline input: mouse, keys, and a row of buttons with the same functions.
//!
//! | | mouse | keys | button |
//! |---|---|---|---|
//! | zoom | wheel | + and - | yes |
//! | move | drag | arrows | |
//! | all, newest | | Home, End | Fit, Follow |
//! | pause | moving | Space | Pause |
//! | measure | Shift and drag | Shift and arrows | Ruler, then drag |
//! | select a step | click | up, down, Enter | yes |

use egui::{EventFilter, Rect, Response, Role, Sense, Stroke, StrokeKind, Ui, WidgetInfo, vec2};

use crate::app::dashboard::timeline::paint::Source;
use crate::app::dashboard::timeline::state::TimelineState;
use crate::app::dashboard::timeline::view::View;
use crate::app::ui::shortcuts::{self, Shortcut};
use crate::app::ui::theme::{self, GRID};
use crate::app::ui::widgets;
use crate::telemetry::Track;

/// One key or click zooms by this.
const ZOOM: f64 = 1.5;
/// One key moves by this share of the width.
const PAN: f64 = 0.1;
/// One key measures this share of the width.
const MEASURE: f64 = 0.02;

/// The row of buttons.
pub fn toolbar_ui(
    ui: &mut Ui,
    timeline: &mut TimelineState,
    view: &mut View,
    range: (u64, u64),
    sources: &[Source<'_>],
    selected: &mut Option<u64>,
) {
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = GRID;
        let paused = timeline.is_paused;
        if tool_ui(ui, if paused { "Follow" } else { "Pause" }, !paused, "Follow what is new").clicked() {
            timeline.is_paused = !paused;
        }
        if tool_ui(ui, "+", false, "Zoom in").clicked() {
            *view = zoomed(timeline, *view, 1.0 / ZOOM, 0.5);
        }
        if tool_ui(ui, "-", false, "Zoom out").clicked() {
            *view = zoomed(timeline, *view, ZOOM, 0.5);
        }
        if tool_ui(ui, "Fit", false, "Show everything").clicked() {
            (*view, timeline.is_paused) = (View::around(range), true);
        }
        if tool_ui(ui, "Ruler", timeline.rules, "Measure with the ruler").clicked() {
            timeline.rules = !timeline.rules;
            timeline.measured = None;
        }
        ui.add_space(GRID);
        for (text, label, forward) in [("< step", "Previous step", false), ("step >", "Next step", true)] {
            if tool_ui(ui, text, false, label).clicked() {
                select_next(*view, sources, selected, forward);
            }
        }
    });
    ui.add_space(GRID);
}

/// A small button with a label, underlined while its function is on.
pub fn tool_ui(ui: &mut Ui, text: &str, is_on: bool, label: &str) -> Response {
    const HEIGHT: f32 = 24.0;
    let t = theme::tokens(ui);
    let galley = ui.painter().layout_no_wrap(text.to_owned(), theme::small(), t.text);
    let size = vec2((galley.size().x + 4.0 * GRID).max(HEIGHT), HEIGHT);
    let (rect, response) = ui.allocate_exact_size(size, Sense::click());
    let enabled = ui.is_enabled();
    response.widget_info(|| WidgetInfo::selected(Role::Button, enabled, is_on, label));
    let fill = if response.hovered() { t.hover } else { t.raised };
    ui.painter().rect_filled(rect, theme::RADIUS as f32, fill);
    ui.painter().rect_stroke(rect, theme::RADIUS as f32, Stroke::new(1.0, t.line), StrokeKind::Inside);
    let ink = if is_on || response.hovered() { t.strong } else { t.text };
    ui.painter().galley_with_override_text_color(rect.center() - galley.size() / 2.0, galley, ink);
    if is_on {
        ui.painter().hline(rect.shrink2(vec2(2.0 * GRID, 0.0)).x_range(), rect.bottom() - 2.0, Stroke::new(2.0, t.accent));
    }
    widgets::focus_ring(ui, &response, rect, theme::RADIUS);
    response.on_hover_text(label)
}

/// Zooms about `place`, or about the newest event while the view follows it.
fn zoomed(timeline: &TimelineState, view: View, factor: f64, place: f64) -> View {
    view.zoomed(factor, if timeline.is_paused { place } else { 1.0 })
}

/// Wheel, drag and click over the lanes.
pub fn pointer(
    ui: &Ui,
    response: &Response,
    timeline: &mut TimelineState,
    view: &mut View,
    area: Rect,
    sources: &[Source<'_>],
    selected: &mut Option<u64>,
) {
    let share = |x: f32| f64::from((x - area.left()) / area.width().max(1.0));
    if let Some(at) = response.hover_pos() {
        let (scroll, pinch) = ui.input_mut(|i| (std::mem::take(&mut i.smooth_scroll_delta), i.zoom_delta()));
        let factor = f64::from(1.0 / pinch) * (-f64::from(scroll.y) / 200.0).exp();
        if (factor - 1.0).abs() > 1e-6 {
            *view = zoomed(timeline, *view, factor, share(at.x));
        }
        if scroll.x != 0.0 {
            (*view, timeline.is_paused) = (view.panned(-f64::from(scroll.x / area.width())), true);
        }
    }
    let Some(at) = response.interact_pointer_pos() else { return };
    let at_ns = view.at(share(at.x).clamp(0.0, 1.0));
    if response.drag_started() {
        response.request_focus();
        let measures = timeline.rules || ui.input(|i| i.modifiers.shift);
        let began = ui.input(|i| i.pointer.press_origin()).unwrap_or(at);
        timeline.drag_began_ns = measures.then(|| view.at(share(began.x).clamp(0.0, 1.0)));
    }
    match timeline.drag_began_ns {
        Some(began_ns) if response.dragged() || response.drag_stopped() => {
            (timeline.measured, timeline.is_paused) = (Some((began_ns.min(at_ns), began_ns.max(at_ns))), true);
        }
        None if response.dragged() => {
            (*view, timeline.is_paused) = (view.panned(-f64::from(response.drag_delta().x / area.width())), true);
        }
        _ => {}
    }
    if response.drag_stopped() {
        timeline.drag_began_ns = None;
    }
    if response.clicked() {
        response.request_focus();
        timeline.measured = None;
        select(sources, selected, at_ns, timeline);
    }
}

fn select(sources: &[Source<'_>], selected: &mut Option<u64>, at_ns: u64, timeline: &mut TimelineState) {
    *selected = sources.iter().find_map(|source| source.step_at(at_ns)).map(|step| step.begin_ns);
    // The step is in view already: the view does not move.
    timeline.followed_step = *selected;
}

/// Keys, while the lanes have the focus.
pub fn keys(
    ui: &Ui,
    response: &Response,
    timeline: &mut TimelineState,
    view: &mut View,
    sources: &[Source<'_>],
    selected: &mut Option<u64>,
) {
    if !response.has_focus() {
        return;
    }
    let filter = EventFilter { horizontal_arrows: true, vertical_arrows: true, ..EventFilter::default() };
    ui.memory_mut(|m| m.set_focus_lock_filter(response.id, filter));
    let pressed = |shortcut: Shortcut| shortcut.consume(ui);
    let directions = [(shortcuts::MEASURE_LESS, shortcuts::EARLIER, -1.0), (shortcuts::MEASURE_MORE, shortcuts::LATER, 1.0)];
    for (measure, pan, sign) in directions {
        if pressed(measure) {
            let (from_ns, to_ns) = timeline.measured.unwrap_or_else(|| (view.at(0.5), view.at(0.5)));
            let to_ns = View { from_ns: to_ns, to_ns: to_ns + view.span_ns() }.at(sign * MEASURE).max(from_ns);
            (timeline.measured, timeline.is_paused) = (Some((from_ns, to_ns)), true);
        } else if pressed(pan) {
            (*view, timeline.is_paused) = (view.panned(sign * PAN), true);
        }
    }
    for (zoom, factor) in [(shortcuts::ZOOM_IN, 1.0 / ZOOM), (shortcuts::ZOOM_OUT, ZOOM)] {
        if pressed(zoom) {
            *view = zoomed(timeline, *view, factor, 0.5);
        }
    }
    if pressed(shortcuts::PAUSE) {
        timeline.is_paused = !timeline.is_paused;
    }
    if pressed(shortcuts::NEWEST) {
        timeline.is_paused = false;
    }
    if pressed(shortcuts::WHOLE_RUN) {
        let ranges = sources.iter().filter_map(|s| s.run.range_ns().map(|(b, e)| (s.shown_ns(b), s.shown_ns(e))));
        if let Some(range) = ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) {
            (*view, timeline.is_paused) = (View::around(range), true);
        }
    }
    if pressed(shortcuts::STEP_BEFORE) {
        select_next(*view, sources, selected, false);
    }
    if pressed(shortcuts::STEP_AFTER) {
        select_next(*view, sources, selected, true);
    }
    if pressed(shortcuts::TAKE_STEP) {
        select(sources, selected, view.at(0.5), timeline);
    }
}

/// Selects the step after or before the selected one; without one, that in the middle of the view.
fn select_next(view: View, sources: &[Source<'_>], selected: &mut Option<u64>, forward: bool) {
    let at_ns = selected.unwrap_or_else(|| view.at(0.5));
    let Some(source) = sources.first() else { return };
    let own_ns = source.own_ns(at_ns);
    let step = match forward {
        true => {
            let later = source.run.of(Track::Step).flat_map(|s| s.within(own_ns, u64::MAX).find(|e| e.begin_ns > own_ns));
            later.min_by_key(|step| step.begin_ns)
        }
        false => {
            let earlier = source.run.of(Track::Step).filter_map(|s| s.last_before(own_ns));
            earlier.max_by_key(|step| step.begin_ns)
        }
    };
    if let Some(step) = step {
        *selected = Some(source.shown_ns(step.begin_ns));
    }
}
