//! Fidelity panel: attention mass that a policy kept, by step and by layer, and the exact checks.
//!
//! ```text
//! mass events ─► samples, one for each measured step ─► lane │ summary ─► layers │ checks ─► list
//! ```
//! 1. Only sampled steps are drawn; the heading has their number. 2. Red marks only mass below the requested share.

use egui::{Align2, Color32, Rect, Role, ScrollArea, Sense, Stroke, Ui, WidgetInfo, pos2, vec2};

use crate::app::answer::exact_check::{Verdict, compare};
use crate::app::dashboard::{DashboardState, charts};
use crate::app::state::ViewState;
use crate::app::state::chat::{Exchange, Outcome};
use crate::app::ui::theme::{self, GRID, GUTTER};
use crate::app::ui::{format, widgets};
use crate::engine::{MassKept, RequestSummary, SelectionBudget};
use crate::telemetry::{Event, EventKind, History, Track};

/// Samples in view: the newest.
const MAX_SAMPLES: usize = 48;
/// Height of the lane, points.
const LANE: f32 = 116.0;

/// A step in which the attention mass was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// when
    pub at_ns: u64,
    /// mass kept, mean over layers
    pub kept: f64,
    /// mass kept in the worst layer
    pub least: f64,
    /// largest mass that as many tokens could keep, mean over layers
    pub best: f64,
}

/// The newest samples of `history`, oldest first.
pub fn samples(history: &History) -> Vec<Sample> {
    let (from, to) = history.range_ns().unwrap_or_default();
    let events: Vec<&Event> = history.of(Track::Mass).flat_map(|series| series.within(from, to + 1)).collect();
    let begins_step = |event: &Event| matches!(event.kind, EventKind::Mass { layer: 0, .. });
    let mut samples: Vec<Sample> = events.chunk_by(|_, next| !begins_step(next)).filter_map(sample).collect();
    samples.drain(..samples.len().saturating_sub(MAX_SAMPLES));
    samples
}

fn sample(layers: &[&Event]) -> Option<Sample> {
    let share = |ppm: u32| f64::from(ppm) / 1e6;
    let masses = layers.iter().filter_map(|event| match event.kind {
        EventKind::Mass { kept_ppm, best_ppm, .. } => Some((share(kept_ppm), share(best_ppm))),
        _ => None,
    });
    let n = layers.len() as f64;
    let (kept, best) = masses.clone().fold((0.0, 0.0), |(kept, best), m| (kept + m.0, best + m.1));
    let least = masses.map(|m| m.0).fold(1.0, f64::min);
    Some(Sample { at_ns: layers.first()?.begin_ns, kept: kept / n, least, best: best / n })
}

/// Draws the panel.
pub fn fidelity_ui(ui: &mut Ui, view: &ViewState, state: &mut DashboardState) {
    let samples = samples(&state.history);
    let newest = newest_choice(view);
    ScrollArea::vertical().id_salt("fidelity").auto_shrink(false).show(ui, |ui| {
        ui.spacing_mut().item_spacing.y = 0.0;
        if samples.is_empty() && newest.is_none() {
            return empty_ui(ui, view);
        }
        let promised = promised(view);
        let note = match newest.and_then(|s| s.selection.as_ref()) {
            Some(c) => format!("sampled in {} of {} steps of the newest answer", c.mass_steps, c.steps),
            None => format!("{} sampled steps", samples.len()),
        };
        charts::heading(ui, "Attention mass kept", &note);
        ui.add_space(2.0 * GRID);
        lane_ui(ui, state, &samples, promised);
        ui.add_space(GUTTER);
        caption(
            ui,
            "A dot is the mean over layers, its stem reaches to the layer that kept least, a ring is the most that as many \
                     tokens could have kept. Steps between samples are not known.",
        );
        if let Some(layers) = newest.and_then(|s| s.selection.as_ref()?.mass.as_deref()) {
            layers_ui(ui, layers, promised);
        }
        checks_ui(ui, view);
        ui.add_space(GUTTER);
    });
}

/// The newest answer of the current chat that used a policy.
fn newest_choice(view: &ViewState) -> Option<&RequestSummary> {
    view.chat().exchanges.iter().rev().find_map(|exchange| match &exchange.outcome {
        Outcome::Done(summary) if summary.selection.is_some() => Some(summary.as_ref()),
        _ => None,
    })
}

/// Attention mass budget of the loaded policy.
fn promised(view: &ViewState) -> Option<f64> {
    match view.engine.load.policy?.amount {
        SelectionBudget::Mass { mass, .. } => Some(f64::from(mass)),
        SelectionBudget::Rate(_) | SelectionBudget::Tokens(_) => None,
    }
}

fn empty_ui(ui: &mut Ui, view: &ViewState) {
    let t = theme::tokens(ui);
    ui.add_space(GUTTER);
    let (title, text) = match view.engine.load.policy {
        None => (
            "Nothing is left out",
            "Every token of an answer reads the whole context, so there is nothing to lose. Choose a policy in the settings to \
             read a part of it, and this panel shows what share of the attention that part held.",
        ),
        Some(_) => (
            "Nothing was sampled yet",
            "A policy chooses what is read. In a few steps of every answer everything is read as well, and what share of the \
             attention the chosen part held appears here, with the exact checks that you asked for.",
        ),
    };
    ui.label(egui::RichText::new(title).color(t.strong));
    ui.add_space(GRID);
    caption(ui, text);
    checks_ui(ui, view);
}

fn caption(ui: &mut Ui, text: &str) {
    let t = theme::tokens(ui);
    ui.add(egui::Label::new(egui::RichText::new(text).font(theme::small()).color(t.weak)).wrap());
}

/// The error color if less than the requested mass was kept.
fn ink(t: &theme::Tokens, kept: f64, promised: Option<f64>) -> Color32 {
    if promised.is_some_and(|p| kept < p) { t.error } else { t.accent }
}

/// Lowest share on the axis, a multiple of a tenth, so that differences are visible.
fn floor_of(samples: &[Sample], promised: Option<f64>) -> f64 {
    let least = samples.iter().map(|s| s.least).chain(promised).fold(1.0, f64::min);
    ((least * 10.0).floor() / 10.0).min(0.9)
}

fn lane_ui(ui: &mut Ui, state: &mut DashboardState, samples: &[Sample], promised: Option<f64>) {
    const LABELS: f32 = 36.0;
    let t = theme::tokens(ui);
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), LANE), Sense::hover());
    let lane = rect.with_min_x(rect.left() + LABELS);
    let floor = floor_of(samples, promised);
    let y = |share: f64| lane.bottom() - lane.height() * ((share - floor) / (1.0 - floor)) as f32;
    let painter = ui.painter();
    for i in 0..=2 {
        let share = floor + (1.0 - floor) * f64::from(i) / 2.0;
        painter.hline(lane.x_range(), y(share), Stroke::new(1.0, t.line));
        charts::right(painter, pos2(lane.left() - 2.0 * GRID, y(share)), &format!("{share:.2}"), t.weak);
    }
    if let Some(promised) = promised {
        let ends = [pos2(lane.left(), y(promised)), pos2(lane.right(), y(promised))];
        painter.extend(egui::Shape::dashed_line(&ends, Stroke::new(1.5, t.text), 6.0, 4.0));
        let at = pos2(lane.right(), y(promised) - 2.0);
        painter.text(at, Align2::RIGHT_BOTTOM, format!("asked for {promised:.2}"), theme::small(), t.text);
    }
    let gap = (lane.width() / samples.len().max(1) as f32).min(28.0);
    for (i, sample) in samples.iter().enumerate() {
        let x = lane.left() + (i as f32 + 0.5) * gap;
        let hit = Rect::from_x_y_ranges(x - gap / 2.0..=x + gap / 2.0, lane.y_range());
        let response = ui.interact(hit, ui.scope_id().with(("sample", sample.at_ns)), Sense::click());
        let label = format!(
            "Sampled step: {:.3} kept on average, {:.3} in the layer that kept least, {:.3} at best",
            sample.kept, sample.least, sample.best
        );
        response.widget_info(|| WidgetInfo::labeled(Role::Button, true, &label));
        let color = ink(t, sample.kept, promised);
        let painter = ui.painter();
        if response.hovered() || response.has_focus() {
            painter.rect_filled(hit, 2.0, t.hover);
        }
        painter.vline(x, y(sample.kept)..=y(sample.least), Stroke::new(2.0, color));
        painter.circle_stroke(pos2(x, y(sample.best)), 3.0, Stroke::new(1.0, t.weak));
        painter.circle_filled(pos2(x, y(sample.kept)), 3.5, color);
        if response.on_hover_text(label).clicked() {
            state.selected_step = step_at(&state.history, sample.at_ns);
        }
    }
}

/// Beginning of the step that contains a moment.
fn step_at(history: &History, at_ns: u64) -> Option<u64> {
    let steps = history.of(Track::Step).flat_map(|series| series.within(at_ns, at_ns + 1));
    steps.map(|step| step.begin_ns).max()
}

fn layers_ui(ui: &mut Ui, layers: &[MassKept], promised: Option<f64>) {
    let t = theme::tokens(ui);
    charts::heading(ui, "By layer, newest answer", "kept, of what as many tokens could have kept");
    ui.add_space(GRID);
    for (layer, mass) in layers.iter().enumerate() {
        let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), 20.0), Sense::hover());
        let label = format!("Layer {layer}: {:.3} kept, {:.3} at best", mass.kept, mass.best);
        response.widget_info(|| WidgetInfo::labeled(Role::Label, true, &label));
        let painter = ui.painter();
        let (names, figures) = (36.0, 48.0);
        charts::right(painter, pos2(rect.left() + names - 2.0 * GRID, rect.center().y), &layer.to_string(), t.weak);
        let bar = Rect::from_min_max(
            pos2(rect.left() + names, rect.center().y - 4.0),
            pos2(rect.right() - figures, rect.center().y + 4.0),
        );
        let to = |share: f64| bar.with_max_x(bar.left() + bar.width() * share.clamp(0.0, 1.0) as f32);
        painter.rect_filled(bar, 2.0, t.idle.gamma_multiply(0.5));
        painter.rect_filled(to(mass.kept), 2.0, ink(t, mass.kept, promised));
        painter.vline(to(mass.best).right(), bar.y_range().expand(3.0), Stroke::new(1.5, t.text));
        charts::right(painter, rect.right_center(), &format!("{:.3}", mass.kept), t.strong);
        response.on_hover_text(label);
    }
}

fn checks_ui(ui: &mut Ui, view: &ViewState) {
    let t = theme::tokens(ui);
    let checks: Vec<(&Exchange, Verdict)> = view.chat().exchanges.iter().filter_map(|e| Some((e, verdict(e)?))).collect();
    let same = checks.iter().filter(|(_, verdict)| *verdict == Verdict::Same).count();
    let note = match checks.len() {
        0 => "none yet".to_owned(),
        n => format!("{same} of {n} word for word the same"),
    };
    charts::heading(ui, "Exact checks in this chat", &note);
    ui.add_space(GRID);
    if checks.is_empty() {
        caption(ui, "“Check exactly” under a selective answer asks the same once more with everything read.");
    }
    for (exchange, verdict) in checks {
        let (words, icon) = match verdict {
            Verdict::Same => ("the same, word for word".to_owned(), crate::app::ui::icon::Icon::Tick),
            Verdict::SameSoFar => ("the same as far as it was checked".to_owned(), crate::app::ui::icon::Icon::Tick),
            Verdict::Differs(difference) => {
                let n = difference.common.split_whitespace().count();
                (format!("parts after {} words", format::count(n)), crate::app::ui::icon::Icon::Fork)
            }
        };
        let title = format::title(&exchange.question, 48);
        let label = format!("Exact check of “{title}”: {words}");
        let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), 24.0), Sense::hover());
        response.widget_info(|| WidgetInfo::labeled(Role::Label, true, &label));
        let square = Rect::from_center_size(rect.left_center() + vec2(8.0, 0.0), vec2(14.0, 14.0));
        crate::app::ui::icon::paint(ui.painter(), icon, square, t.text);
        let left = charts::right(ui.painter(), rect.right_center(), &words, t.strong).left();
        let room = Rect::from_min_max(rect.min + vec2(24.0, 0.0), pos2(left - 2.0 * GRID, rect.bottom()));
        widgets::text_in(ui, room, &title, theme::small(), t.text);
    }
}

fn verdict(exchange: &Exchange) -> Option<Verdict<'_>> {
    let check = exchange.check.as_ref()?;
    match &check.outcome {
        Outcome::Done(exact) => Some(compare(&exchange.answer, &check.answer, exact.stop)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    #[test]
    fn samples_are_steps_with_their_mean_their_least_layer_and_their_best() {
        let mass = |at: u64, layer, kept_ppm, best_ppm| Event {
            begin_ns: at,
            duration_ns: 0,
            kind: EventKind::Mass { layer, kept_ppm, best_ppm },
        };
        let mut history = History::default();
        assert_eq!(samples(&history), []);
        let events = [mass(10, 0, 900_000, 950_000), mass(11, 1, 700_000, 1_000_000), mass(50, 0, 980_000, 990_000)];
        history.add_events(&Cow::Borrowed("engine"), &events);
        let got = samples(&history);
        assert_eq!(got.len(), 2);
        assert_eq!((got[0].at_ns, got[0].least), (10, 0.7));
        assert!((got[0].kept - 0.8).abs() < 1e-9 && (got[0].best - 0.975).abs() < 1e-9);
        assert!((got[1].kept - 0.98).abs() < 1e-9);
        assert_eq!((floor_of(&got, None), floor_of(&got[1..], None), floor_of(&[], Some(0.55))), (0.7, 0.9, 0.5));
    }
}
