//! The documents in front of a chat: chips at the top, and before reading what it will cost.

use egui::{CornerRadius, Frame, Margin, Panel, Rect, Role, Sense, Stroke, StrokeKind, Ui, Vec2, WidgetInfo, pos2, vec2};

use super::Action;
use crate::app::chat::Doc;
use crate::app::icon::{self, Icon};
use crate::app::state::{Phase, Running, ViewState};
use crate::app::theme::{self, GRID, GUTTER};
use crate::app::widgets::{self, Weight};
use crate::app::{format, sample};

/// The strip over the chat. Nothing is drawn where the chat has no document.
pub fn documents_ui(ui: &mut Ui, state: &ViewState) -> Vec<Action> {
    let mut actions = Vec::new();
    if state.chat().documents.is_empty() {
        return actions;
    }
    let t = theme::tokens(ui);
    let frame = Frame::NONE.fill(t.page).inner_margin(Margin::symmetric(0, 8));
    Panel::top("documents").resizable(false).frame(frame).show(ui, |ui| {
        widgets::column(ui, |ui| {
            ui.horizontal_wrapped(|ui| {
                ui.spacing_mut().item_spacing = vec2(2.0 * GRID, GRID);
                let share = state.chat().read_share(&state.documents);
                for doc in state.chat().docs(&state.documents) {
                    if ui.push_id(doc.id, |ui| chip_ui(ui, doc, share)).inner {
                        actions.push(Action::Detach(doc.id));
                    }
                }
                if widgets::icon_button_sized(ui, Icon::Plus, "Add another document", theme::CONTROL).clicked() {
                    actions.push(Action::OpenDocuments);
                }
            });
        });
    });
    actions
}

fn read_word(share: f32) -> String {
    match share {
        s if s <= 0.0 => "not read".to_owned(),
        s if s >= 1.0 => "read".to_owned(),
        s => format!("{:.0} % read", (s * 100.0).floor()),
    }
}

/// One document. True when it is to be taken away.
fn chip_ui(ui: &mut Ui, doc: &Doc, share: f32) -> bool {
    let t = theme::tokens(ui);
    let (n, exact) = doc.tokens();
    let note = format!("{} · {}", format::tokens(n, exact), read_word(share));
    let name = format::title(&doc.name, 36);
    let name_galley = ui.painter().layout_no_wrap(name.clone(), theme::body(), t.strong);
    let note_galley = ui.painter().layout_no_wrap(note.clone(), theme::small(), t.weak);
    let text_left = 8.0 + 16.0 + 8.0;
    let width = text_left + name_galley.size().x + 8.0 + note_galley.size().x + 4.0 + 28.0;
    let (rect, response) = ui.allocate_exact_size(vec2(width, theme::CONTROL), Sense::hover());
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, format!("{name}, {note}")));
    ui.painter().rect_stroke(rect, CornerRadius::same(theme::RADIUS), Stroke::new(1.0, t.line), StrokeKind::Inside);
    read_mark(ui, pos2(rect.left() + 16.0, rect.center().y), share);
    let at = pos2(rect.left() + text_left, rect.center().y - name_galley.size().y / 2.0);
    let note_x = at.x + name_galley.size().x + 8.0;
    ui.painter().galley(at, name_galley, t.strong);
    let y = rect.center().y - note_galley.size().y / 2.0 + 1.0;
    ui.painter().galley(pos2(note_x, y), note_galley, t.weak);
    let cross = Rect::from_center_size(pos2(rect.right() - 16.0, rect.center().y), Vec2::splat(24.0));
    let layout = egui::Layout::left_to_right(egui::Align::Center);
    let builder = egui::UiBuilder::new().max_rect(cross).layout(layout);
    let mut child = ui.new_child(builder);
    widgets::icon_button_sized(&mut child, Icon::Cross, &format!("Remove {}", doc.name), 24.0).clicked()
}

/// A circle, filled as far as the document is read; a tick when it all is.
fn read_mark(ui: &Ui, centre: egui::Pos2, share: f32) {
    let t = theme::tokens(ui);
    let square = Rect::from_center_size(centre, Vec2::splat(14.0));
    if share >= 1.0 {
        ui.painter().circle_filled(centre, 7.0, t.vram);
        icon::paint(ui.painter(), Icon::Tick, square.shrink(2.0), egui::Color32::WHITE);
        return;
    }
    ui.painter().circle_stroke(centre, 6.0, Stroke::new(1.5, if share > 0.0 { t.vram } else { t.weak }));
    if share > 0.0 {
        let filled = Rect::from_min_max(pos2(square.left(), square.bottom() - square.height() * share), square.max);
        ui.painter().with_clip_rect(filled).circle_filled(centre, 6.0, t.vram);
    }
}

/// What reading will cost, a bar while it is read, and what may be asked.
pub fn document_card_ui(ui: &mut Ui, state: &ViewState) -> Vec<Action> {
    let mut actions = Vec::new();
    let t = theme::tokens(ui);
    let chat = state.chat();
    let names: Vec<&str> = chat.docs(&state.documents).map(|d| d.name.as_str()).collect();
    let heading = match names.as_slice() {
        [one] => (*one).to_owned(),
        many => format!("{} documents", many.len()),
    };
    ui.label(egui::RichText::new(heading).font(theme::title()).color(t.strong));
    ui.add_space(GUTTER);
    widgets::card(ui, |ui| {
        facts_ui(ui, state);
        ui.add_space(GUTTER);
        if let Some(running) = state.running_here() {
            actions.extend(progress_ui(ui, running, "Reading"));
            return;
        }
        let share = chat.read_share(&state.documents);
        if share >= 1.0 {
            widgets::caption(ui, "Read. It stays in VRAM, so every question starts at once.");
            return;
        }
        ui.horizontal(|ui| {
            let label = if share > 0.0 { "Continue reading" } else { "Read now" };
            let idle = state.running.is_none() && state.info().is_some();
            ui.add_enabled_ui(idle, |ui| {
                if widgets::button(ui, Weight::Primary, None, label).clicked() {
                    actions.push(Action::Read);
                }
            });
            let hint = if share > 0.0 { "What was read stays read." } else { "Or just ask: it is read with the first question." };
            widgets::caption(ui, hint);
        });
    });
    if state.running.is_none() && chat.docs(&state.documents).any(|d| d.sample) {
        ui.add_space(theme::SECTION);
        actions.extend(questions_ui(ui).map(Action::Ask));
    }
    actions
}

/// Three questions to click.
pub fn questions_ui(ui: &mut Ui) -> Option<String> {
    ui.spacing_mut().item_spacing.y = 0.0;
    widgets::caption(ui, "TRY ASKING THE SAMPLE");
    ui.add_space(2.0 * GRID);
    let mut asked = None;
    for question in sample::questions() {
        if widgets::offer(ui, question).clicked() {
            asked = Some(question.to_owned());
        }
    }
    asked
}

fn facts_ui(ui: &mut Ui, state: &ViewState) {
    let chat = state.chat();
    let (n, exact) = chat.document_tokens(&state.documents);
    let mark = if exact { "" } else { "~" };
    let n_chars: usize = chat.docs(&state.documents).map(|d| d.n_chars).sum();
    let tokens = if exact { format::count(n) } else { format::short_count(n) };
    let mut facts = vec![("Characters", format::count(n_chars)), ("Tokens", format!("{mark}{tokens}"))];
    if let Some(info) = state.info() {
        let kv = (n as u64).saturating_mul(info.kv_bytes_per_token);
        facts.push(("KV cache in VRAM", format!("{mark}{}", format::bytes(kv))));
        let time = state.last_prefill.map_or_else(|| "N/A".to_owned(), |v| format!("~{}", format::seconds(n as f64 / v)));
        facts.push(("Time to read", time));
    }
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = theme::SECTION + GUTTER;
        for (name, value) in facts {
            widgets::figure(ui, name, &value);
        }
    });
    let Some(info) = state.info() else { return };
    ui.add_space(GUTTER);
    fit_ui(ui, n, mark, info.context_limit);
}

fn fit_ui(ui: &mut Ui, n: usize, mark: &str, limit: usize) {
    if n >= limit {
        let (n, limit) = (format::count(n), format::count(limit));
        let sentence = format!(
            "Does not fit: {mark}{n} tokens, and this model's window holds {limit}. Use a shorter document or a model with a longer window."
        );
        widgets::error_sentence(ui, &sentence);
        return;
    }
    let t = theme::tokens(ui);
    let share = if n * 100 < limit { "under 1 %".to_owned() } else { format::percent(n, limit) };
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 2.0 * GRID;
        ui.set_height(20.0);
        let (square, _) = ui.allocate_exact_size(Vec2::splat(16.0), Sense::hover());
        icon::paint(ui.painter(), Icon::Tick, square, t.ram);
        ui.label(format!("Fits: {share} of the model's {} window", format::window(limit)));
    });
}

/// How far the prompt is read: share, tokens, speed, time left, and stop.
pub fn progress_ui(ui: &mut Ui, running: &Running, verb: &str) -> Vec<Action> {
    let mut actions = Vec::new();
    let t = theme::tokens(ui);
    let (share, text) = match running.phase {
        Phase::Prefill { done, total, tokens_per_s } => (
            done as f32 / total.max(1) as f32,
            vec![
                format!("{verb} {}", format::percent(done, total)),
                format!("{} of {} tokens", format::count(done), format::count(total)),
                format::speed(tokens_per_s),
                format::time_left(total.saturating_sub(done), tokens_per_s),
            ],
        ),
        _ => (0.0, vec!["Waiting for the model".to_owned()]),
    };
    let label = text.join(" · ");
    let narrow = ui.available_width() < 560.0;
    let shown = text.iter().enumerate().filter(|(i, _)| !(narrow && *i == 1)).map(|(_, t)| t.as_str());
    let shown = shown.collect::<Vec<_>>().join(" · ");
    ui.horizontal(|ui| {
        let stop = if running.stopping { "Stopping…" } else { "Stop reading" };
        ui.vertical(|ui| {
            ui.set_width(ui.available_width() - 140.0);
            ui.add_space(2.0);
            widgets::caption(ui, shown);
            ui.add_space(GRID);
            let width = ui.available_width();
            widgets::meter(ui, share, t.vram, width, &label);
        });
        ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
            ui.add_enabled_ui(!running.stopping, |ui| {
                if widgets::button(ui, Weight::Plain, Some(Icon::Stop), stop).clicked() {
                    actions.push(Action::Stop);
                }
            });
        });
    });
    actions
}
