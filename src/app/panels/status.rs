//! Status line: device, kind of attention, speed, and KV bytes per tier against the budgets. Missing values are written N/A.

use egui::{Frame, Margin, Panel, Ui, vec2};

use crate::app::panels::chat::exact_check::mass_label;
use crate::app::panels::tiers::{TierBar, tiers_line_ui};
use crate::app::panels::{Action, attention_label};
use crate::app::state::{ModelState, Phase, ViewState};
use crate::app::ui::theme::{self, GUTTER};
use crate::app::ui::{format, widgets};
use crate::engine::AttentionKind;

/// Least width of the line for figures beside the bars, points.
const WIDE: f32 = 1000.0;

/// The line at the foot of the window.
pub fn status_ui(ui: &mut Ui, state: &ViewState) -> Vec<Action> {
    let t = theme::tokens(ui);
    let frame = Frame::NONE.fill(t.panel).inner_margin(Margin::symmetric(16, 0));
    Panel::bottom("status").exact_size(theme::STATUS_HEIGHT).resizable(false).frame(frame).show(ui, |ui| {
        ui.horizontal_centered(|ui| {
            ui.spacing_mut().item_spacing.x = GUTTER;
            let wide = ui.available_width() > WIDE;
            let mut first = true;
            for part in parts(state) {
                if !std::mem::take(&mut first) {
                    dot(ui);
                }
                widgets::caption(ui, part);
            }
            ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
                let used = state.measured.kv.map(|kv| kv.used);
                tiers_line_ui(ui, &TierBar::all(t, used, state.budgets()), wide);
                widgets::caption(ui, "KV");
            });
        });
    });
    Vec::new()
}

fn dot(ui: &mut Ui) {
    let t = theme::tokens(ui);
    let (rect, _) = ui.allocate_exact_size(vec2(3.0, 3.0), egui::Sense::hover());
    ui.painter().circle_filled(rect.center(), 1.5, t.idle);
}

/// `reading b.txt by itself, 41 %`
fn alone_label(state: &ViewState, phase: Phase) -> String {
    let name = state.prefilling_alone().map_or("a document", |doc| doc.name.as_str());
    match phase {
        Phase::Prefill { done, total, .. } => format!("reading {name} by itself, {}", format::percent(done, total)),
        _ => format!("reading {name} by itself"),
    }
}

fn parts(state: &ViewState) -> Vec<String> {
    let device = match (&state.engine.model, state.info()) {
        (_, Some(info)) if info.software => format!("{} (software)", info.adapter),
        (_, Some(info)) => info.adapter.clone(),
        (ModelState::Loading { what, .. }, _) => format!("Loading: {what}"),
        (ModelState::Failed(_), _) => "No model loaded".to_owned(),
        _ => "Starting".to_owned(),
    };
    let speed = match state.engine.running.map(|r| r.phase) {
        Some(phase) if state.prefilling_alone().is_some() => alone_label(state, phase),
        Some(Phase::Decode { tokens_per_s, .. }) => format::speed(tokens_per_s),
        Some(Phase::Prefill { tokens_per_s, .. }) => format!("reading {}", format::speed(tokens_per_s)),
        Some(Phase::Waiting) => "waiting".to_owned(),
        None => state.measured.last_speed.map_or_else(|| "N/A tok/s".to_owned(), format::speed),
    };
    // Both kinds there are leave nothing out; which it is shows with the first answer.
    let expected = if state.engine.load.policy.is_some() { attention_label(AttentionKind::Selective) } else { "exact" };
    let mut attention = state.measured.attention.map_or(expected, attention_label).to_owned();
    if state.is_checking() {
        attention = "checking exactly".to_owned();
    } else if let Some(mass) = state.measured.mass_kept {
        attention += &format!(" ({})", mass_label(mass));
    }
    if state.chats.list.iter().any(|chat| !chat.approximate.is_empty()) {
        attention += ", approximate";
    }
    vec![device, attention, speed]
}
