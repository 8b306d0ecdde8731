//! Chat list in the sidebar: pinned chats first, a menu for each, renaming in place, and search results.

use egui::{Margin, Rect, TextEdit, Ui, vec2};

use crate::app::panels::Action;
use crate::app::panels::menu_row::{entry_ui, menu_row_ui};
use crate::app::state::chat::Chat;
use crate::app::state::{MainView, ViewState};
use crate::app::ui::icon::Icon;
use crate::app::ui::{shortcuts, theme, widgets};
use crate::chats::{ExportFormat, SearchHit};

/// The list, or the search results.
pub fn chats_ui(ui: &mut Ui, state: &mut ViewState) -> Vec<Action> {
    let mut actions = Vec::new();
    if crate::app::panels::sidebar::heading_with_button(ui, "CHATS", "New chat") {
        actions.push(Action::NewChat);
    }
    let query = state.chats.search.trim().to_owned();
    if query.is_empty() {
        let ids: Vec<u64> = state.listed_chats().iter().map(|c| c.id).collect();
        let size = vec2(ui.available_width(), theme::CONTROL);
        for id in ids {
            // Only chats in view are laid out, and the next one for the Tab key.
            let row = Rect::from_min_size(ui.cursor().min, size);
            if ui.is_rect_visible(row.expand(theme::CONTROL)) {
                actions.extend(ui.push_id(id, |ui| chat_ui(ui, state, id)).inner);
            } else {
                ui.allocate_space(size);
            }
        }
        return actions;
    }
    match state.chats.persistence.hits(&query) {
        None => crate::app::panels::sidebar::note(ui, "Searching…"),
        Some([]) => crate::app::panels::sidebar::note(ui, "No chat holds these words."),
        Some(hits) => {
            for hit in hits {
                let Some(chat) = state.chats.list.iter().find(|c| c.id == hit.chat) else { continue };
                actions.extend(ui.push_id(hit.chat, |ui| hit_ui(ui, state, chat, hit)).inner);
            }
        }
    }
    actions
}

fn chat_ui(ui: &mut Ui, state: &mut ViewState, id: u64) -> Vec<Action> {
    if state.chats.persistence.renaming.as_ref().is_some_and(|(renamed, _)| *renamed == id) {
        return title_ui(ui, state);
    }
    let Some(chat) = state.chats.list.iter().find(|c| c.id == id) else { return Vec::new() };
    let title = chat.title(&state.documents.list);
    let note = match state.engine.running.is_some_and(|r| r.chat == id) {
        true => "busy",
        false => "",
    };
    let selected = id == state.chats.current && state.page == MainView::Chat;
    let mark = if chat.pinned { Icon::Pin } else { Icon::Chat };
    let draw = |ui: &mut Ui, near: bool| {
        ui.scope(|ui| {
            let note = if near { "        " } else { note };
            widgets::row(ui, Some(mark), &title, note, selected, &format!("Chat: {title}"))
        })
        .inner
    };
    let shown = menu_row_ui(ui, theme::CONTROL, &format!("More about the chat {title}"), draw, |ui| menu_ui(ui, chat, &title));
    let mut actions = shown.actions;
    if shown.response.double_clicked() {
        actions.push(Action::BeginRename(id, title));
    } else if shown.response.clicked() {
        actions.push(Action::SelectChat(id));
    }
    actions
}

fn menu_ui(ui: &mut Ui, chat: &Chat, title: &str) -> Vec<Action> {
    let mut actions = Vec::new();
    if entry_ui(ui, Icon::Pencil, "Rename") {
        actions.push(Action::BeginRename(chat.id, title.to_owned()));
    }
    if entry_ui(ui, Icon::Pin, if chat.pinned { "Unpin" } else { "Pin" }) {
        actions.push(Action::Pin(chat.id));
    }
    if entry_ui(ui, Icon::Copy, "Copy as Markdown") {
        actions.push(Action::CopyChat(chat.id));
    }
    if entry_ui(ui, Icon::Page, "Export as Markdown…") {
        actions.push(Action::ExportChat(chat.id, ExportFormat::Markdown));
    }
    if entry_ui(ui, Icon::Page, "Export as JSON…") {
        actions.push(Action::ExportChat(chat.id, ExportFormat::Json));
    }
    if entry_ui(ui, Icon::Trash, "Delete") {
        actions.push(Action::DeleteChat(chat.id));
    }
    actions
}

/// Field that edits a title: Enter accepts, Escape cancels.
fn title_ui(ui: &mut Ui, state: &mut ViewState) -> Vec<Action> {
    let Some((id, title)) = &mut state.chats.persistence.renaming else { return Vec::new() };
    let field = TextEdit::singleline(title)
        .id_salt("title")
        .desired_width(f32::INFINITY)
        .min_size(vec2(0.0, theme::CONTROL))
        .align(egui::Align2::LEFT_CENTER)
        .background_color(theme::tokens(ui).raised)
        .margin(Margin::symmetric(8, 4));
    let response = ui.add(field).accessible_name("Title of the chat");
    let (enter, escape) = (shortcuts::SEND.is_pressed(ui), shortcuts::LEAVE.is_pressed(ui));
    if escape {
        return vec![Action::EndRename];
    }
    if enter || response.lost_focus() {
        return vec![Action::Rename(*id, title.clone())];
    }
    if !response.has_focus() {
        response.request_focus();
    }
    Vec::new()
}

fn hit_ui(ui: &mut Ui, state: &ViewState, chat: &Chat, hit: &SearchHit) -> Option<Action> {
    let title = chat.title(&state.documents.list);
    let selected = chat.id == state.chats.current && state.page == MainView::Chat;
    let clicked = widgets::row(ui, Some(Icon::Chat), &title, "", selected, &format!("Chat: {title}")).clicked();
    if !hit.around.is_empty() {
        crate::app::panels::sidebar::note(ui, &hit.around);
    }
    clicked.then_some(Action::ShowHit(chat.id, hit.message))
}
