//! Model bar at the foot of the sidebar: name, size and memory of the model, and a menu to change it.

use egui::{CornerRadius, Popup, Rect, Role, Sense, Ui, WidgetInfo, pos2, vec2};

use crate::app::panels::{Action, model_name};
use crate::app::state::{MainView, ModelState, ViewState};
use crate::app::ui::icon::{self, Icon};
use crate::app::ui::theme::{self, GRID};
use crate::app::ui::{format, widgets};
use crate::engine::ModelSource;

const LINE: f32 = 18.0;

/// Height of [`model_bar_ui`], points.
pub fn model_bar_height(state: &ViewState) -> f32 {
    12.0 + 22.0 + LINE * lines(state).len() as f32 + 12.0
}

/// Name, size, quantization, window and VRAM; a click opens the menu.
pub fn model_bar_ui(ui: &mut Ui, state: &ViewState) -> Vec<Action> {
    let lines = lines(state);
    let name = model_name(&state.engine.model, &state.engine.source);
    let size = vec2(ui.available_width(), model_bar_height(state));
    let (rect, response) = ui.allocate_exact_size(size, Sense::click());
    let said = format!("Model: {name}, {}", lines.join(", "));
    response.widget_info(|| WidgetInfo::labeled(Role::Button, true, &said));
    let t = theme::tokens(ui);
    if response.hovered() || response.has_focus() {
        ui.painter().rect_filled(rect, CornerRadius::same(theme::RADIUS), t.hover);
    }
    let failed = matches!(state.engine.model, ModelState::Failed(_));
    let square = Rect::from_min_size(rect.min + vec2(2.0 * GRID, 15.0), vec2(16.0, 16.0));
    let (mark, ink) = if failed { (Icon::Warning, t.error_text) } else { (Icon::Layers, t.accent) };
    icon::paint(ui.painter(), mark, square, ink);
    let left = square.right() + 2.0 * GRID;
    let chevron = Rect::from_center_size(pos2(rect.right() - 14.0, square.center().y), vec2(12.0, 12.0));
    icon::paint(ui.painter(), Icon::Chevron, chevron, t.weak);
    let name_rect = Rect::from_min_max(pos2(left, rect.top() + 12.0), pos2(chevron.left() - GRID, rect.top() + 34.0));
    widgets::text_in(ui, name_rect, &name, theme::body(), t.strong);
    for (i, line) in lines.iter().enumerate() {
        let top = name_rect.bottom() + LINE * i as f32;
        let line_rect = Rect::from_min_max(pos2(left, top), pos2(rect.right() - GRID, top + LINE));
        widgets::text_in(ui, line_rect, line, theme::small(), if failed { t.error_text } else { t.weak });
    }
    if let ModelState::Loading { share, .. } = &state.engine.model {
        let bar = Rect::from_min_size(pos2(left, rect.bottom() - 10.0), vec2(rect.right() - left - 2.0 * GRID, 3.0));
        ui.painter().rect_filled(bar, CornerRadius::same(2), t.idle);
        let filled = Rect::from_min_size(bar.min, vec2(bar.width() * share, bar.height()));
        ui.painter().rect_filled(filled, CornerRadius::same(2), t.accent);
    }
    widgets::focus_ring(ui, &response, rect, theme::RADIUS);
    let response = response.on_hover_text("Change the model");
    Popup::menu(&response)
        .accessible_name("Model menu")
        .width(300.0)
        .show(|ui| menu_ui(ui, state))
        .map(|shown| shown.inner)
        .unwrap_or_default()
}

fn lines(state: &ViewState) -> Vec<String> {
    match &state.engine.model {
        ModelState::Absent => vec!["not loaded".to_owned()],
        ModelState::Loading { share, what } => {
            vec![format!("Loading {:.0} % · {what}", (share * 100.0).floor())]
        }
        ModelState::Ready(info) => vec![
            format!("{} · {}", format::parameters(info.n_params), info.quantization),
            format!("{} context · {} file", format::window(info.context_limit), format::bytes(info.file_bytes)),
            format!("{} VRAM in use", format::bytes(info.vram_bytes)),
        ],
        ModelState::Failed(_) => vec!["could not be loaded".to_owned()],
    }
}

fn menu_ui(ui: &mut Ui, state: &ViewState) -> Vec<Action> {
    let mut actions = Vec::new();
    ui.set_width(300.0);
    ui.spacing_mut().item_spacing.y = 2.0;
    let built_in = matches!((&state.engine.model, &state.engine.source), (ModelState::Ready(_), ModelSource::BuiltIn));
    let note = if built_in { "in use" } else { "built in" };
    if widgets::row(ui, Some(Icon::Layers), crate::app::panels::BUILT_IN_NAME, note, false, "Use the built-in model").clicked() {
        actions.push(Action::LoadModel(ModelSource::BuiltIn));
    }
    if widgets::row(ui, Some(Icon::Search), "Models on this machine…", "Ctrl+M", false, "Models on this machine…").clicked() {
        actions.push(Action::Show(MainView::Models));
    }
    if widgets::row(ui, Some(Icon::Page), "Open a GGUF file…", "", false, "Open a GGUF file…").clicked() {
        actions.push(Action::OpenModelFile);
    }
    if widgets::row(ui, Some(Icon::Folder), "Open a model folder…", "", false, "Open a model folder…").clicked() {
        actions.push(Action::OpenModelFolder);
    }
    if matches!(state.engine.model, ModelState::Ready(_))
        && widgets::row(ui, Some(Icon::Cross), "Unload", "frees its memory", false, "Unload the model").clicked()
    {
        actions.push(Action::UnloadModel);
    }
    ui.with_layout(egui::Layout::top_down(egui::Align::Min), |ui| {
        egui::Frame::NONE.inner_margin(8).show(ui, |ui| {
            widgets::caption(
                ui,
                "A folder holds config.json, tokenizer.json and *.safetensors. A model can also be dropped here.",
            );
        });
    });
    if !actions.is_empty() {
        ui.close();
    }
    actions
}
