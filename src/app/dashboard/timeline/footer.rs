//! Timeline footer: attribution of the time in the ruler, the selected step or the view, part by part.

use egui::{Color32, Role, Sense, Ui, WidgetInfo, vec2};

use crate::app::dashboard::charts::{Part, parts_bar};
use crate::app::dashboard::timeline::labels;
use crate::app::dashboard::timeline::paint::Source;
use crate::app::dashboard::timeline::state::TimelineState;
use crate::app::dashboard::timeline::view::View;
use crate::app::ui::theme::{self, GRID, Tokens};
use crate::app::ui::widgets;
use crate::telemetry::{Attribution, Event, EventKind, TimeCategory};

/// Height of the footer, points.
pub const HEIGHT: f32 = 116.0;
/// Events of a window that is attributed anew in every frame, at most.
const MAX_EVENTS: usize = 60_000;
/// Categories with a label; the bar has all.
const MAX_NAMED: usize = 6;

/// Draws the footer.
pub fn footer_ui(ui: &mut Ui, timeline: &mut TimelineState, view: View, sources: &[Source<'_>], step: Option<&Event>) {
    let (title, shown) = match (timeline.measured, step) {
        (Some(measured), _) => ("Measured".to_owned(), measured),
        (None, Some(step)) => (step_title(step), (step.begin_ns, step.end_ns())),
        (None, None) => ("In view".to_owned(), (view.from_ns, view.to_ns)),
    };
    ui.add_space(GRID);
    let Some(source) = sources.first() else { return };
    let window = (source.own_ns(shown.0), source.own_ns(shown.1));
    let n_events: usize = source.run.series().iter().map(|s| s.sum(window.0, window.1).n_events).sum();
    let title = format!("{title}: {}", labels::duration(shown.1 - shown.0));
    if n_events > MAX_EVENTS {
        widgets::caption(ui, format!("{title}, {n_events} events. Zoom in or select a step to take its time apart."));
        return;
    }
    let version = source.run.version();
    let is_stale = timeline.attribution.as_ref().is_none_or(|(v, w, _)| (*v, *w) != (version, window));
    if is_stale {
        timeline.attribution = Some((version, window, Attribution::of(source.run, window.0, window.1)));
    }
    let Some((_, _, attribution)) = &timeline.attribution else { return };
    attribution_ui(ui, &title, attribution);
    for other in sources.iter().skip(1) {
        let other_window = (other.own_ns(shown.0), other.own_ns(shown.1));
        let account = other.run.account(other_window.0, other_window.1);
        let accounted = labels::share_of(account.accounted_ns, shown.1 - shown.0);
        widgets::caption(ui, format!("{}: accounted for {accounted}", other.name));
    }
}

fn step_title(step: &Event) -> String {
    match step.kind {
        EventKind::Step { kind, first_token, n_tokens: 1 } => format!("{} step at position {first_token}", kind.name()),
        EventKind::Step { kind, first_token, n_tokens } => {
            format!("{} step, positions {first_token} to {}", kind.name(), first_token.saturating_add(n_tokens))
        }
        _ => "Step".to_owned(),
    }
}

fn attribution_ui(ui: &mut Ui, title: &str, attribution: &Attribution) {
    let t = theme::tokens(ui);
    let share = attribution.attributed_share().map_or_else(|| "N/A".to_owned(), |s| format!("{:.1} %", 100.0 * s));
    let sentence = format!("{title}, accounted for {share}");
    ui.label(egui::RichText::new(&sentence).font(theme::small()).color(t.strong));
    let parts: Vec<Part> = attribution
        .parts
        .iter()
        .filter(|(what, _)| *what != TimeCategory::Idle)
        .map(|(what, ns)| Part { amount: *ns as f64, color: color(t, *what), hatched: is_hatched(*what) })
        .collect();
    parts_bar(ui, &parts, 12.0);
    let named: Vec<String> = attribution
        .parts
        .iter()
        .take(MAX_NAMED)
        .map(|(what, ns)| format!("{} {}", labels::category(*what), labels::share_of(*ns, attribution.wall_ns)))
        .collect();
    ui.add_space(GRID);
    let response = ui.add(egui::Label::new(egui::RichText::new(named.join("  ")).font(theme::small()).color(t.text)).wrap());
    let all = ui.interact(response.rect, ui.scope_id().with("attribution"), Sense::hover());
    all.widget_info(|| WidgetInfo::labeled(Role::Label, true, format!("Attribution: {sentence}: {}", named.join(", "))));
    all.on_hover_ui(|ui| {
        for (what, ns) in &attribution.parts {
            ui.horizontal(|ui| {
                let (rect, _) = ui.allocate_exact_size(vec2(8.0, 16.0), Sense::hover());
                ui.painter().rect_filled(rect.shrink2(vec2(0.0, 4.0)), 0.0, color(t, *what));
                ui.label(format!("{} {}", labels::category(*what), labels::share_of(*ns, attribution.wall_ns)));
            });
        }
    });
}

fn color(t: &Tokens, what: TimeCategory) -> Color32 {
    match what {
        TimeCategory::Compute(_) => t.vram,
        TimeCategory::Recompute => t.recomputed,
        TimeCategory::Encode | TimeCategory::Select | TimeCategory::Phase(_) => t.text,
        TimeCategory::Wait(_) | TimeCategory::Unattributed | TimeCategory::Idle => t.weak,
    }
}

fn is_hatched(what: TimeCategory) -> bool {
    matches!(what, TimeCategory::Wait(_) | TimeCategory::Unattributed)
}
