//! The composer: the question, how full the context is, and send or stop.
//!
//! Enter sends, Shift+Enter breaks the line, Escape stops. Enter while an input method composes belongs to it.

use egui::{CornerRadius, Event, EventFilter, Frame, Id, ImeEvent, Margin, Panel, Stroke};
use egui::{ScrollArea, TextEdit, Ui};

use crate::app::panels::Action;
use crate::app::panels::chat::instructions::instructions_ui;
use crate::app::state::{ModelState, Task, ViewState};
use crate::app::ui::icon::Icon;
use crate::app::ui::theme::{self, GRID, GUTTER};
use crate::app::ui::{format, shortcuts, widgets};

/// The question field.
pub fn composer_id() -> Id {
    Id::unique("strata composer")
}

/// Tracks the composition of an input method between frames.
#[derive(Debug, Default)]
pub struct Composition {
    active: bool,
    height: f32,
}

impl Composition {
    /// Handles the events of a frame. True if an Enter among them sends the question.
    pub fn enter_sends<'a>(&mut self, events: impl Iterator<Item = &'a Event>) -> bool {
        // An Enter that confirms a candidate may arrive before or after the commit within one frame.
        let mut composed = self.active;
        let mut enter = false;
        for event in events {
            match event {
                Event::Ime(ImeEvent::Preedit { text, .. }) => {
                    composed |= self.active || !text.is_empty();
                    self.active = !text.is_empty();
                }
                Event::Ime(ImeEvent::Commit(_)) => {
                    composed = true;
                    self.active = false;
                }
                Event::Key { key, pressed: true, modifiers, .. } if *key == shortcuts::SEND.first().logical_key => {
                    enter |= !modifiers.any();
                }
                _ => {}
            }
        }
        enter && !composed
    }
}

/// The panel under the chat.
pub fn composer_ui(ui: &mut Ui, state: &mut ViewState, composition: &mut Composition) -> Vec<Action> {
    let mut actions = Vec::new();
    let page = theme::tokens(ui).page;
    let frame = Frame::NONE.fill(page).inner_margin(Margin { left: 0, right: 0, top: 8, bottom: 16 });
    Panel::bottom("composer").resizable(false).show_separator_line(false).frame(frame).show(ui, |ui| {
        widgets::column(ui, |ui| actions.extend(box_ui(ui, state, composition)));
    });
    actions
}

fn box_ui(ui: &mut Ui, state: &mut ViewState, composition: &mut Composition) -> Vec<Action> {
    let mut actions = Vec::new();
    let t = theme::tokens(ui);
    let focused = ui.memory(|m| m.has_focus(composer_id()));
    let enter = ui.input(|i| composition.enter_sends(i.events.iter()));
    let edge = if focused { t.accent } else { t.line };
    let frame = Frame::NONE
        .fill(t.raised)
        .stroke(Stroke::new(1.0, edge))
        .corner_radius(CornerRadius::same(theme::RADIUS_LARGE))
        .inner_margin(Margin { left: 16, right: 8, top: 12, bottom: 8 });
    let shown = frame.show(ui, |ui| {
        ui.spacing_mut().item_spacing.y = 2.0 * GRID;
        let hint = hint(state);
        let (busy, can_send) = (state.engine.running.is_some(), state.can_send());
        ScrollArea::vertical().max_height(180.0).auto_shrink([false, true]).show(ui, |ui| {
            let field = TextEdit::multiline(&mut state.chat_mut().draft)
                .id(composer_id())
                .hint_text(hint)
                .desired_width(f32::INFINITY)
                .desired_rows(1)
                .frame(Frame::NONE)
                .return_key(shortcuts::LINE_BREAK.first())
                .event_filter(EventFilter {
                    horizontal_arrows: true,
                    vertical_arrows: true,
                    escape: true,
                    ..EventFilter::default()
                });
            ui.add(field).accessible_name("Question");
        });
        if focused && enter && can_send {
            actions.push(Action::Send);
        }
        ui.horizontal(|ui| {
            meter_ui(ui, state);
            ui.add_space(GRID);
            instructions_ui(ui, state);
            ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
                if busy && !can_send {
                    if widgets::round_button(ui, Icon::Stop, "Stop", true).clicked() {
                        actions.push(Action::Stop);
                    }
                } else if widgets::round_button(ui, Icon::Send, "Send", can_send).clicked() {
                    actions.push(Action::Send);
                }
                ui.add_space(GRID);
                let keys = match (busy, can_send) {
                    (false, _) => "Enter sends",
                    (true, false) => "Esc stops",
                    (true, true) if state.is_checking() => "Enter stops the check and sends",
                    (true, true) => "Enter stops reading and sends",
                };
                // Left out if it would cover what stands at the left of the row.
                let width = ui.painter().layout_no_wrap(keys.to_owned(), theme::small(), t.weak).size().x;
                if width <= ui.available_width() {
                    widgets::caption(ui, keys);
                }
            });
        });
    });
    let height = shown.response.rect.height();
    if (height - composition.height).abs() > 0.5 {
        composition.height = height;
        // The panel still has the height of the previous pass.
        ui.ctx().request_discard("composer height");
    }
    actions
}

fn hint(state: &ViewState) -> String {
    let chat = state.chat();
    match (state.engine.running.map(|r| r.task), state.running_here().is_some()) {
        (Some(Task::Check(_)), _) => "Ask the next question; the check stops for it…".to_owned(),
        (Some(Task::PrefillAlone(_)), _) => {
            let name = state.prefilling_alone().map_or("a document", |doc| doc.name.as_str());
            format!("Ask the next question; reading {name} by itself stops for it…")
        }
        (Some(Task::Prefill), true) => "Reading; you can ask when it is done…".to_owned(),
        (Some(Task::Answer(_)), true) => "Answering…".to_owned(),
        (Some(_), false) => "Another chat is busy…".to_owned(),
        (None, _) if !chat.missing.is_empty() => "A document of this chat is missing: open it, or remove it…".to_owned(),
        (None, _) => match chat.documents.len() {
            0 => "Ask a question, or drop a document here".to_owned(),
            1 => "Ask about the document…".to_owned(),
            n => format!("Ask about the {n} documents…"),
        },
    }
}

fn meter_ui(ui: &mut Ui, state: &ViewState) {
    let t = theme::tokens(ui);
    let (used, exact) = state.chat().context_tokens(&state.documents.list);
    let Some(info) = state.info() else {
        let what = if matches!(state.engine.model, ModelState::Loading { .. }) { "model is loading" } else { "no model" };
        widgets::caption(ui, what);
        return;
    };
    let limit = info.context_limit.max(1);
    let mark = if exact { "" } else { "~" };
    let text = format!("{mark}{}", format::context(used, limit));
    ui.spacing_mut().item_spacing.x = GUTTER;
    let over = used > limit;
    let fill = if over { t.error } else { t.vram };
    widgets::meter(ui, used as f32 / limit as f32, fill, 120.0, &format!("Context: {text}"));
    if over {
        ui.label(egui::RichText::new(format!("{text}: does not fit")).font(theme::small()).color(t.error_text));
    } else {
        widgets::caption(ui, text);
    }
}

#[cfg(test)]
mod tests {
    use egui::{Key, Modifiers};

    use super::*;

    fn enter(modifiers: Modifiers) -> Event {
        Event::Key { key: Key::Enter, physical_key: None, pressed: true, repeat: false, modifiers }
    }

    fn preedit(text: &str) -> Event {
        Event::Ime(ImeEvent::Preedit { text: text.into(), active_range_chars: None })
    }

    #[test]
    fn enter_alone_sends_and_with_a_modifier_does_not() {
        assert!(Composition::default().enter_sends([enter(Modifiers::NONE)].iter()));
        assert!(!Composition::default().enter_sends([enter(Modifiers::SHIFT)].iter()));
        assert!(!Composition::default().enter_sends([].iter()));
    }

    #[test]
    fn enter_during_a_composition_does_not_send_until_it_is_over() {
        let mut c = Composition::default();
        assert!(!c.enter_sends([preedit("ni")].iter()));
        assert!(!c.enter_sends([enter(Modifiers::NONE)].iter()), "composition goes on");
        let commit = Event::Ime(ImeEvent::Commit("你".into()));
        assert!(!c.enter_sends([enter(Modifiers::NONE), commit].iter()), "this Enter chose the candidate");
        assert!(c.enter_sends([enter(Modifiers::NONE)].iter()), "this one sends");
    }

    #[test]
    fn enter_in_the_frame_of_the_commit_does_not_send_in_either_order() {
        let commit = || Event::Ime(ImeEvent::Commit("字".into()));
        assert!(!Composition::default().enter_sends([preedit("zi"), commit(), enter(Modifiers::NONE)].iter()));
        assert!(!Composition::default().enter_sends([commit(), enter(Modifiers::NONE)].iter()));
    }

    #[test]
    fn empty_preedit_without_a_composition_does_not_swallow_enter() {
        assert!(Composition::default().enter_sends([preedit(""), enter(Modifiers::NONE)].iter()));
    }
}
