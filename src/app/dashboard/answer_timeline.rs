//! Answer timeline: the phases of an answer as a bar, from file to last token, and its tokens to click.
//!
//! ```text
//! Phases ─► ▇ tokenize ▇ restore ▇▇▇▇ prefill ▇ first token ▇▇▇▇▇▇▇ decode      a click on a token ─► Action::ShowToken
//! ```
//! 1. The width of a part is its share of the time, and at least two points. 2. A phase without a measurement has no part.

use egui::text::{LayoutJob, TextFormat};
use egui::{Color32, EventFilter, Role, Sense, Ui, WidgetInfo, vec2};

use crate::app::dashboard::charts::{self, Entry, Part};
use crate::app::panels::Action;
use crate::app::state::chat::Exchange;
use crate::app::ui::theme::{self, GRID, Tokens};
use crate::app::ui::{format, shortcuts};
use crate::engine::{Phases, RequestSummary};

/// Height of the bar, points.
const BAR: f32 = 10.0;

/// A phase of an answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// name of the phase
    pub name: &'static str,
    /// duration, milliseconds
    pub ms: f64,
}

/// Phases of an answer in order, without those that took no time. `ingest_ms` is the time to turn the file into text,
/// if this answer waited for it.
pub fn spans(ingest_ms: Option<f64>, phases: &Phases) -> Vec<Span> {
    let all = [
        ("ingest", ingest_ms.unwrap_or(0.0)),
        ("tokenize", phases.tokenize_ms),
        ("restore", phases.restore_ms),
        ("prefill", phases.prefill_ms),
        ("first token", phases.first_token_ms),
        ("decode", phases.decode_ms),
    ];
    all.into_iter().filter(|(_, ms)| *ms > 0.0).map(|(name, ms)| Span { name, ms }).collect()
}

/// Color of a phase, and whether it is hatched. Neighbors differ without color too.
fn style(t: &Tokens, name: &str) -> (Color32, bool) {
    match name {
        "ingest" => (t.weak, true),
        "tokenize" => (t.weak, false),
        "restore" => (t.disk, true),
        "prefill" => (t.accent, false),
        "first token" => (t.accent, true),
        _ => (t.ram, false),
    }
}

/// The bar, its legend and the tokens below a finished answer.
pub fn strip_ui(ui: &mut Ui, exchange: &Exchange, summary: &RequestSummary, ingest_ms: Option<f64>) -> Vec<Action> {
    let spans = spans(ingest_ms, &summary.phases);
    if spans.is_empty() {
        return Vec::new();
    }
    let t = theme::tokens(ui);
    ui.add_space(2.0 * GRID);
    let parts: Vec<Part> = spans
        .iter()
        .map(|span| {
            let (color, hatched) = style(t, span.name);
            Part { amount: span.ms, color, hatched }
        })
        .collect();
    let (rect, places) = charts::parts_bar(ui, &parts, BAR);
    let total: f64 = spans.iter().map(|span| span.ms).sum();
    for (span, place) in spans.iter().zip(places) {
        let response = ui.interact(place.expand2(vec2(0.0, 4.0)), ui.scope_id().with((exchange.id, span.name)), Sense::hover());
        let label = format!("{}: {}, {:.0} % of the answer", span.name, format::took(span.ms), span.ms / total * 100.0);
        response.widget_info(|| WidgetInfo::labeled(Role::Label, true, &label));
        response.on_hover_text(label);
    }
    debug_assert!(rect.is_positive());
    ui.add_space(GRID);
    let entry = |span: &Span| {
        let (color, hatched) = style(t, span.name);
        Entry { color, hatched, text: format!("{} {}", span.name, format::took(span.ms)) }
    };
    charts::keys(ui, &spans.iter().map(entry).collect::<Vec<_>>());
    tokens_ui(ui, exchange)
}

/// The answer token by token. A click, or the arrow keys and Enter, select one.
fn tokens_ui(ui: &mut Ui, exchange: &Exchange) -> Vec<Action> {
    let t = theme::tokens(ui);
    let ends: Vec<usize> = exchange.token_ends.iter().map(|end| *end as usize).collect();
    if ends.is_empty() {
        return Vec::new();
    }
    let id = ui.scope_id().with(("tokens", exchange.id));
    let chosen = ui.data(|data| data.get_temp::<usize>(id));
    let job = tokens_job(&exchange.answer, &ends, chosen, ui.available_width(), t);
    ui.add_space(GRID);
    let galley = ui.painter().layout_job(job);
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), galley.size().y), Sense::click());
    let label = format!("Tokens of the answer, {}: a click shows the step of one", format::count(ends.len()));
    response.widget_info(|| WidgetInfo::labeled(Role::Button, true, &label));
    ui.painter().galley(rect.min, galley.clone(), t.text);
    crate::app::ui::widgets::focus_ring(ui, &response, rect.expand(3.0), 4);
    let token_at = |at: egui::Pos2| {
        let index = galley.cursor_from_pos(at - rect.min).index.0;
        let byte = exchange.answer.char_indices().nth(index).map_or(exchange.answer.len(), |(byte, _)| byte);
        ends.partition_point(|end| *end <= byte).min(ends.len() - 1)
    };
    let mut picked = response.clicked().then(|| response.interact_pointer_pos()).flatten().map(token_at);
    if response.has_focus() {
        let arrows = EventFilter { horizontal_arrows: true, ..EventFilter::default() };
        ui.memory_mut(|m| m.set_focus_lock_filter(response.id, arrows));
        let last = ends.len() - 1;
        if shortcuts::TOKEN_AFTER.is_pressed(ui) {
            picked = Some(chosen.map_or(0, |n| (n + 1).min(last)));
        } else if shortcuts::TOKEN_BEFORE.is_pressed(ui) {
            picked = Some(chosen.map_or(last, |n| n.saturating_sub(1)));
        }
    }
    response.on_hover_ui_at_pointer(|ui| {
        if let Some(at) = ui.ctx().pointer_hover_pos() {
            let token = token_at(at);
            ui.label(format!("token {} of {}", format::count(token + 1), format::count(ends.len())));
        }
    });
    let Some(token) = picked else { return Vec::new() };
    ui.data_mut(|data| data.insert_temp(id, token));
    vec![Action::ShowToken { exchange: exchange.id, token }]
}

/// Lays out the tokens, with alternating backgrounds so that each is visible.
fn tokens_job(answer: &str, ends: &[usize], chosen: Option<usize>, width: f32, t: &Tokens) -> LayoutJob {
    let mut job = LayoutJob::default();
    job.wrap.max_width = width;
    let mut begin = 0;
    for (i, end) in ends.iter().enumerate() {
        let background = match (chosen == Some(i), i % 2) {
            (true, _) => t.accent_soft,
            (false, 0) => t.raised,
            _ => Color32::TRANSPARENT,
        };
        let color = if chosen == Some(i) { t.strong } else { t.text };
        let format = TextFormat { font_id: theme::small(), color, background, ..TextFormat::default() };
        job.append(answer.get(begin..*end).unwrap_or_default(), 0.0, format);
        begin = *end;
    }
    job
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_an_answer_come_in_order_and_only_where_they_took_time() {
        let phases = Phases { tokenize_ms: 2.0, prefill_ms: 120.0, decode_ms: 900.0, ..Phases::default() };
        let names = |ingest| spans(ingest, &phases).iter().map(|s| s.name).collect::<Vec<_>>();
        assert_eq!(names(None), ["tokenize", "prefill", "decode"]);
        assert_eq!(names(Some(5.0))[0], "ingest");
        assert_eq!(spans(None, &Phases::default()), []);
    }

    #[test]
    fn neighboring_phases_differ_without_color() {
        let names = ["ingest", "tokenize", "restore", "prefill", "first token", "decode"];
        for is_dark in [true, false] {
            let is_hatched = names.map(|name| style(theme::of(is_dark), name).1);
            assert!(is_hatched.windows(2).all(|pair| pair[0] != pair[1]), "{is_hatched:?}");
        }
    }

    #[test]
    fn tokens_make_up_the_answer() {
        let job = tokens_job("Pudding Lane", &[7, 12], Some(1), 100.0, theme::of(true));
        assert_eq!((job.text.as_str(), job.sections.len()), ("Pudding Lane", 2));
        assert_eq!(job.sections[1].format.background, theme::of(true).accent_soft);
    }
}
