//! Instructions and sampling of one chat, and presets of both, behind a button in the composer.
//!
//! Invariant: a chat without values of its own follows the settings, which follow the model until the user changes them.

use egui::{DragValue, Frame, Margin, Popup, PopupCloseBehavior, RichText, ScrollArea, TextEdit, Ui, vec2};

use crate::app::state::ViewState;
use crate::app::ui::icon::Icon;
use crate::app::ui::theme::{self, GRID, GUTTER};
use crate::app::ui::widgets::{self, Weight};
use crate::chats::{Change, Preset};
use crate::engine::Sampling;

const WIDTH: f32 = 380.0;

/// Built-in presets: name and instructions.
const BUNDLED: [(&str, &str); 3] = [
    ("Short answers", "Answer in one to three sentences. Give numbers and names exactly as the document has them."),
    ("Quotes first", "Begin with the passage that answers the question, word for word in quotation marks, then explain it."),
    ("Plain words", "Explain as to a reader who does not know the field. Define every technical word at its first use."),
];

/// The button and its popup.
pub fn instructions_ui(ui: &mut Ui, state: &mut ViewState) {
    let chat = state.chat();
    let is_set = !chat.instructions.trim().is_empty() || chat.sampling.is_some();
    let label = if is_set { "Instructions and sampling, set" } else { "Instructions and sampling" };
    let button = widgets::icon_button(ui, Icon::Sliders, label);
    if is_set {
        let dot = button.rect.right_top() + vec2(-6.0, 6.0);
        ui.painter().circle_filled(dot, 3.0, theme::tokens(ui).accent);
    }
    let popup = Popup::from_toggle_button_response(&button).close_behavior(PopupCloseBehavior::CloseOnClickOutside).width(WIDTH);
    popup.accessible_name("Instructions and sampling of this chat").show(|ui| {
        Frame::NONE.inner_margin(8).show(ui, |ui| {
            ui.set_width(WIDTH - 16.0);
            ui.spacing_mut().item_spacing.y = 2.0 * GRID;
            let before = (state.chat().instructions.clone(), state.chat().sampling);
            presets_ui(ui, state);
            text_ui(ui, state);
            sampling_ui(ui, state);
            if before != (state.chat().instructions.clone(), state.chat().sampling) {
                state.save_chat(state.chats.current);
            }
        });
    });
}

fn presets_ui(ui: &mut Ui, state: &mut ViewState) {
    widgets::list_heading(ui, "PRESETS");
    let bundled = BUNDLED.iter().map(|(name, text)| (Preset::of(name, text), false));
    let presets: Vec<(Preset, bool)> =
        state.chats.persistence.presets.iter().cloned().map(|p| (p, true)).chain(bundled).collect();
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing = vec2(GRID, GRID);
        for (preset, is_own) in presets {
            let used = state.chat().instructions == preset.instructions;
            let weight = if used { Weight::Primary } else { Weight::Plain };
            if widgets::button(ui, weight, None, &preset.name).clicked() {
                let chat = state.chat_mut();
                chat.instructions = preset.instructions.clone();
                chat.sampling = serde_json::from_str(&preset.sampling).ok();
            }
            if is_own
                && widgets::icon_button_sized(ui, Icon::Cross, &format!("Delete the preset {}", preset.name), 24.0).clicked()
            {
                state.chats.persistence.presets.retain(|p| p.name != preset.name);
                state.chats.persistence.queue(Change::ForgetPreset(preset.name));
            }
        }
    });
}

impl Preset {
    fn of(name: &str, instructions: &str) -> Preset {
        Preset { name: name.to_owned(), instructions: instructions.to_owned(), sampling: String::new() }
    }
}

fn text_ui(ui: &mut Ui, state: &mut ViewState) {
    widgets::list_heading(ui, "INSTRUCTIONS");
    let t = theme::tokens(ui);
    Frame::NONE.fill(t.raised).corner_radius(theme::RADIUS).inner_margin(Margin::same(8)).show(ui, |ui| {
        ScrollArea::vertical().max_height(140.0).show(ui, |ui| {
            let field = TextEdit::multiline(&mut state.chat_mut().instructions)
                .hint_text("Such as: answer in French, and quote the passage.")
                .desired_width(f32::INFINITY)
                .desired_rows(3)
                .frame(Frame::NONE);
            ui.add(field).accessible_name("Instructions");
        });
    });
    widgets::caption(ui, "They follow the documents, so a change does not read the documents again.");
    if state.info().is_some_and(|info| info.built_in) {
        widgets::caption(ui, "The built-in model only finds and quotes; instructions do not change how.");
    }
    let name_id = ui.scope_id().with("name of a preset");
    let mut name: String = ui.data(|d| d.get_temp(name_id)).unwrap_or_default();
    ui.horizontal(|ui| {
        let size = vec2(160.0, theme::CONTROL);
        let field = TextEdit::singleline(&mut name).hint_text("Name").desired_width(size.x).min_size(size);
        let field = field.align(egui::Align2::LEFT_CENTER).margin(Margin::symmetric(8, 4));
        ui.add(field).accessible_name("Name of the preset");
        let can_keep = !name.trim().is_empty();
        if ui.add_enabled_ui(can_keep, |ui| widgets::button(ui, Weight::Plain, None, "Save as a preset").clicked()).inner {
            let chat = state.chat();
            let sampling = chat.sampling.and_then(|s| serde_json::to_string(&s).ok()).unwrap_or_default();
            let preset = Preset { sampling, ..Preset::of(name.trim(), &chat.instructions) };
            state.chats.persistence.presets.retain(|p| p.name != preset.name);
            state.chats.persistence.presets.push(preset.clone());
            state.chats.persistence.queue(Change::Preset(preset));
            name.clear();
        }
    });
    ui.data_mut(|d| d.insert_temp(name_id, name));
}

fn sampling_ui(ui: &mut Ui, state: &mut ViewState) {
    widgets::list_heading(ui, "SAMPLING");
    let settings = state.settings.values.sampling;
    let mut own = state.chat().sampling.is_some();
    if ui.checkbox(&mut own, "Set for this chat").changed() {
        state.chat_mut().sampling = own.then_some(settings);
    }
    if let Some(sampling) = &mut state.chat_mut().sampling {
        numbers_ui(ui, sampling);
    } else {
        let from = if state.has_own_sampling() { "as in the settings" } else { "as the model recommends" };
        widgets::caption(ui, format!("{from}: {}", words(&settings)));
    }
    if let (Some(advice), Some(own)) = (state.info().map(|info| info.sampling), state.chat().sampling)
        && advice != own
        && widgets::button(ui, Weight::Plain, None, "Use what the model recommends").clicked()
    {
        state.chat_mut().sampling = Some(advice);
    }
}

/// `temperature 0.7, top-k 40, top-p 0.95, min-p 0.05`
fn words(s: &Sampling) -> String {
    match s.temperature {
        0.0 => "temperature 0, always the likeliest token".to_owned(),
        t => format!("temperature {t}, top-k {}, top-p {}, min-p {}", s.top_k, s.top_p, s.min_p),
    }
}

fn numbers_ui(ui: &mut Ui, s: &mut Sampling) {
    egui::Grid::new("sampling").num_columns(4).spacing(vec2(GUTTER, GRID)).show(ui, |ui| {
        number_ui(ui, "Temperature", DragValue::new(&mut s.temperature).range(0.0..=5.0).speed(0.02).max_decimals(2));
        number_ui(ui, "Top-k", DragValue::new(&mut s.top_k));
        ui.end_row();
        number_ui(ui, "Top-p", DragValue::new(&mut s.top_p).range(0.01..=1.0).speed(0.01).max_decimals(2));
        number_ui(ui, "Min-p", DragValue::new(&mut s.min_p).range(0.0..=1.0).speed(0.01).max_decimals(2));
        ui.end_row();
        number_ui(ui, "Repetition", DragValue::new(&mut s.repetition_penalty).range(0.5..=2.0).speed(0.01).max_decimals(2));
        number_ui(ui, "Seed", DragValue::new(&mut s.seed));
        ui.end_row();
    });
}

fn number_ui(ui: &mut Ui, name: &str, value: DragValue<'_>) {
    ui.label(RichText::new(name).font(theme::small()));
    ui.add(value).accessible_name(name);
}
