//! Chat panel: questions, streaming answers and their cost; the first-run page if the chat is empty.
//!
//! Only exchanges in view are laid out. An exchange, or a block of a long answer, outside the view has its last height.
//! Limits: a block of Markdown ends at a blank line after [`BLOCK_BYTES`].

pub mod citations;
pub mod composer;
pub mod document_chips;
pub mod exact_check;
pub mod instructions;
mod memory;
pub mod page_attention;
pub mod user_message;

pub use memory::ChatMemory;

use egui::{CornerRadius, Popup, Rect, RichText, ScrollArea, Sense, Ui, UiBuilder, pos2, vec2};
use egui_commonmark::CommonMarkViewer;

use crate::app::answer;
use crate::app::answer::exact_check::mass_kept;
use crate::app::dashboard::answer_timeline::strip_ui;
use crate::app::panels::chat::citations::citations_ui;
use crate::app::panels::chat::exact_check::{attention_note, check_ui, mass_label};
use crate::app::panels::chat::user_message::{alternatives_ui, question_ui, rest_ui};
use crate::app::panels::document::document_card::{document_card_ui, misfit_ui, progress_ui, questions_ui};
use crate::app::panels::menu_row::entry_ui;
use crate::app::panels::{Action, attention_label};
use crate::app::state::chat::{Chat, Exchange, Outcome, Stored};
use crate::app::state::{Phase, Running, Task, ViewState, stop_note};
use crate::app::ui::icon::{self, Icon};
use crate::app::ui::theme::{self, GRID};
use crate::app::ui::widgets::{self, Weight};
use crate::app::ui::{format, markdown};
use crate::engine::{ModelSource, RequestSummary};
use crate::token::{split_reasoning, without_reasoning};

/// A block of a long answer is at least this long, bytes.
pub const BLOCK_BYTES: usize = 2000;

/// Width of the menu of an answer, points.
const MENU_WIDTH: f32 = 260.0;

/// Height of the first-run page, an estimate, points.
const EMPTY_HEIGHT: f32 = 360.0;

/// The middle of the window.
pub fn chat_ui(ui: &mut Ui, state: &ViewState, memory: &mut ChatMemory) -> Vec<Action> {
    let mut actions = Vec::new();
    memory.drawn = 0;
    let jump = std::mem::take(&mut memory.jump_to_end);
    let area = ScrollArea::vertical().id_salt(state.chats.current).auto_shrink(false).stick_to_bottom(true);
    area.show(ui, |ui| {
        ui.add_space(theme::SECTION);
        widgets::column(ui, |ui| {
            let chat = state.chat();
            if chat.stored != Stored::Loaded {
                widgets::caption(ui, "Opening the chat…");
            } else if chat.is_blank() {
                actions.extend(empty_ui(ui, state));
            } else if chat.exchanges.is_empty() {
                actions.extend(document_card_ui(ui, state));
            } else {
                actions.extend(exchanges_ui(ui, state, memory));
                actions.extend(misfit_ui(ui, state));
            }
        });
        ui.add_space(theme::SECTION);
        if jump {
            ui.scroll_to_cursor(Some(egui::Align::BOTTOM));
        }
    });
    actions
}

fn empty_ui(ui: &mut Ui, state: &ViewState) -> Vec<Action> {
    let mut actions = Vec::new();
    let t = theme::tokens(ui);
    // A third of the room that is left over goes above.
    ui.add_space(((ui.clip_rect().height() - EMPTY_HEIGHT) / 3.0).max(0.0).round());
    ui.label(RichText::new("Ask a document").font(theme::title()).color(t.strong));
    ui.add_space(GRID);
    ui.label("Drop a book, a PDF, a web page or a folder anywhere in this window. It is read on this machine and stays here.");
    ui.add_space(theme::SECTION);
    ui.horizontal(|ui| {
        if widgets::button(ui, Weight::Primary, Some(Icon::Page), "Open a document…").clicked() {
            actions.push(Action::OpenDocuments);
        }
        if widgets::button(ui, Weight::Plain, None, "Use the sample document").clicked() {
            actions.push(Action::Sample(None));
        }
    });
    ui.add_space(theme::SECTION + GRID);
    if state.documents.list.is_empty() {
        let asked = questions_ui(ui);
        actions.extend(asked.map(|q| Action::Sample(Some(q))));
        ui.add_space(theme::SECTION);
    }
    let built_in = match state.info() {
        Some(info) => info.built_in,
        None => state.engine.source == ModelSource::BuiltIn,
    };
    if built_in {
        widgets::caption(
            ui,
            "The built-in model finds and quotes passages and facts in your document. It does not converse and knows \
             nothing of the world: for that, open a GGUF model of your own from the model menu.",
        );
    }
    actions
}

/// Draws an item in view; outside it, only allocates its height.
fn item(ui: &mut Ui, memory: &mut ChatMemory, key: (u64, usize), guess: f32, add: impl FnOnce(&mut Ui, &mut ChatMemory)) {
    let height = memory.heights.get(&key).copied().unwrap_or(guess);
    let rect = Rect::from_min_size(ui.cursor().min, vec2(ui.available_width(), height));
    if !ui.clip_rect().expand(64.0).intersects(rect) {
        ui.allocate_space(rect.size());
        return;
    }
    memory.drawn += 1;
    let response = ui.push_id(key, |ui| add(ui, memory)).response;
    memory.heights.insert(key, response.rect.height());
}

/// Height of text of so many bytes, an estimate, points.
fn guessed_height(bytes: usize, width: f32) -> f32 {
    let per_line = (width / (theme::BODY * 0.5)).max(8.0);
    ((bytes as f32 / per_line).ceil() + 1.0) * theme::BODY * 1.5
}

fn exchanges_ui(ui: &mut Ui, state: &ViewState, memory: &mut ChatMemory) -> Vec<Action> {
    let mut actions = Vec::new();
    if (memory.width - ui.available_width()).abs() > 0.5 {
        memory.width = ui.available_width();
        memory.heights.clear();
    }
    ui.spacing_mut().item_spacing.y = 0.0;
    let exchanges = &state.chat().exchanges;
    for (i, exchange) in exchanges.iter().enumerate() {
        let last = i + 1 == exchanges.len();
        if memory.jump_to == Some(exchange.id) {
            memory.jump_to = None;
            ui.scroll_to_cursor(Some(egui::Align::TOP));
        }
        let guess = 120.0 + guessed_height(exchange.question.len() + exchange.answer.len(), memory.width);
        item(ui, memory, (exchange.id, usize::MAX), guess, |ui, memory| {
            let running = state.running_here().filter(|r| r.is_for(exchange.id));
            let idle = state.engine.running.is_none();
            actions.extend(question_ui(ui, state.chat(), exchange, idle, memory));
            actions.extend(exchange_ui(ui, state.chat(), exchange, running, [last, idle], memory));
            actions.extend(citations_ui(ui, state.chat(), exchange, &state.documents.list));
            if let Outcome::Done(summary) = &exchange.outcome {
                if memory.shows_parts {
                    // The files were turned into text for the first answer; the others found them there.
                    let ingest_ms = if i == 0 { state.chat().ingest_ms(&state.documents.list) } else { None };
                    actions.extend(strip_ui(ui, exchange, summary, ingest_ms));
                }
                actions.extend(check_ui(ui, exchange, summary, running, idle));
            }
            ui.add_space(theme::SECTION + GRID);
        });
    }
    if let Some(running) = state.running_here().filter(|r| r.task == Task::Prefill) {
        actions.extend(progress_ui(ui, running, "Reading"));
    }
    actions.extend(rest_ui(ui, state.chat()));
    actions
}

fn exchange_ui(
    ui: &mut Ui,
    chat: &Chat,
    exchange: &Exchange,
    running: Option<&Running>,
    [last, idle]: [bool; 2],
    memory: &mut ChatMemory,
) -> Vec<Action> {
    let mut actions = Vec::new();
    let (reasoning, answer) = split_reasoning(&exchange.answer);
    if !reasoning.is_empty() {
        egui::CollapsingHeader::new("Reasoning").id_salt(("reasoning", exchange.id)).show(ui, |ui| ui.label(&reasoning));
    }
    for (i, range) in markdown::blocks(&answer, BLOCK_BYTES).into_iter().enumerate() {
        let Some(text) = answer.get(range) else { continue };
        item(ui, memory, (exchange.id, i), guessed_height(text.len(), memory.width), |ui, memory| {
            markdown_spacing(ui);
            actions.extend(markdown_ui(ui, text, exchange, memory));
        });
        ui.add_space(2.0 * GRID);
    }
    ui.spacing_mut().item_spacing.y = GRID;
    match (&exchange.outcome, running) {
        (Outcome::Running, Some(running)) => running_ui(ui, running),
        (Outcome::Running, None) => Vec::new(),
        (Outcome::Failed(sentence), _) => failed_ui(ui, exchange.id, sentence, last && idle),
        (Outcome::Done(summary), _) => {
            let answer = Ended { words: cost(summary), hint: attention_note(summary), last, idle };
            let left = done_ui(ui, chat, exchange, &answer, &mut actions);
            if let Some(moved) = moved(summary, exchange.resumed_tokens) {
                // Close below the line that it continues.
                ui.add_space(-2.0 * GRID);
                ui.scope_builder(UiBuilder::new().max_rect(ui.available_rect_before_wrap().with_min_x(left)), |ui| {
                    widgets::caption(ui, moved);
                });
            }
            actions
        }
        (Outcome::Restored(note), _) => {
            done_ui(ui, chat, exchange, &Ended { words: note.clone(), hint: String::new(), last, idle }, &mut actions);
            actions
        }
    }
}

/// Markdown, with links from citations to their pages.
fn markdown_ui(ui: &mut Ui, text: &str, exchange: &Exchange, memory: &mut ChatMemory) -> Option<Action> {
    let quotes = exchange.quotes.as_deref().unwrap_or_default();
    let (text, links) = answer::citations::linked(text, quotes);
    links.iter().for_each(|i| memory.markdown.add_link_hook(answer::citations::link_of(*i)));
    CommonMarkViewer::new().show(ui, &mut memory.markdown, &text);
    let clicked = links.iter().find(|i| memory.markdown.get_link_hook(&answer::citations::link_of(**i)) == Some(true));
    let spot = clicked.and_then(|i| quotes.get(*i)?.found.clone());
    memory.markdown.link_hooks_clear();
    spot.map(|spot| Action::ShowSource(spot, exchange.id))
}

/// Line height of running text instead of that of controls.
fn markdown_spacing(ui: &mut Ui) {
    let height = ui.text_style_height(&egui::TextStyle::Body);
    let spacing = ui.spacing_mut();
    spacing.item_spacing.y = 2.0 * GRID;
    spacing.interact_size = vec2(24.0, height);
    spacing.button_padding = vec2(GRID, 2.0);
}

fn running_ui(ui: &mut Ui, running: &Running) -> Vec<Action> {
    match running.phase {
        Phase::Decode { n, tokens_per_s } => {
            let text = format!("{} · {} tokens", format::speed(tokens_per_s), format::count(n));
            widgets::caption(ui, if running.stopping { "Stopping…".to_owned() } else { text });
            Vec::new()
        }
        _ => progress_ui(ui, running, "Reading"),
    }
}

fn failed_ui(ui: &mut Ui, exchange: u64, sentence: &str, may_ask_again: bool) -> Vec<Action> {
    let mut actions = Vec::new();
    widgets::error_sentence(ui, sentence);
    ui.add_space(2.0 * GRID);
    if may_ask_again && widgets::button(ui, Weight::Plain, Some(Icon::Redo), "Ask again").clicked() {
        actions.push(Action::Regenerate(exchange));
    }
    actions
}

/// A finished answer.
struct Ended {
    words: String,
    hint: String,
    /// no exchange follows it
    last: bool,
    /// nothing runs
    idle: bool,
}

/// Buttons of an answer, and its cost. Returns the left edge of the cost, points.
fn done_ui(ui: &mut Ui, chat: &Chat, exchange: &Exchange, ended: &Ended, actions: &mut Vec<Action>) -> f32 {
    let (t, answer) = (theme::tokens(ui), exchange.answer.as_str());
    if answer.is_empty() {
        ui.label(RichText::new("Stopped before the first word.").color(t.weak));
    }
    // Aligns the icons, not their margins, with the text.
    const ROOM: f32 = 6.0;
    let (row, _) = ui.allocate_exact_size(vec2(ui.available_width(), 28.0), Sense::hover());
    let rect = Rect::from_min_max(pos2(row.left() - ROOM, row.top()), row.max);
    let layout = egui::Layout::left_to_right(egui::Align::Center);
    let mut row = ui.new_child(UiBuilder::new().max_rect(rect).layout(layout));
    row.spacing_mut().item_spacing.x = GRID;
    actions.extend(alternatives_ui(&mut row, &chat.answers_beside(exchange), "answer"));
    if !answer.is_empty() && widgets::icon_button(&mut row, Icon::Copy, "Copy answer").clicked() {
        actions.push(Action::Copy(without_reasoning(answer).into_owned()));
    }
    row.add_enabled_ui(ended.idle, |row| {
        let name = if ended.last { "Regenerate" } else { "Regenerate this answer" };
        if widgets::icon_button(row, Icon::Redo, name).clicked() {
            actions.push(Action::Regenerate(exchange.id));
        }
        if !ended.last && widgets::icon_button(row, Icon::Fork, "Branch from here").clicked() {
            actions.push(Action::BranchFrom(exchange.id));
        }
    });
    if !answer.is_empty() {
        actions.extend(more_ui(&mut row, chat, exchange));
    }
    row.add_space(GRID);
    let left = row.cursor().left();
    let words = widgets::caption(&mut row, ended.words.as_str());
    if !ended.hint.is_empty() {
        words.on_hover_text(&ended.hint);
    }
    left
}

/// Menu of an answer.
fn more_ui(ui: &mut Ui, chat: &Chat, exchange: &Exchange) -> Option<Action> {
    let button = widgets::icon_button(ui, Icon::More, "More about this answer");
    let menu = Popup::menu(&button).id(ui.scope_id().with(("answer menu", exchange.id))).width(MENU_WIDTH);
    let chosen = menu.show(|ui| {
        ui.set_width(MENU_WIDTH);
        let copied = entry_ui(ui, Icon::Copy, "Copy with question, as Markdown");
        let copied = copied.then(|| Action::Copy(exchange.markdown()));
        let shows = !chat.documents.is_empty() && entry_ui(ui, Icon::Page, "Pages most read");
        let chosen = copied.or(shows.then_some(Action::ShowAttendedPages(exchange.id)));
        if chosen.is_some() {
            ui.close();
        }
        chosen
    });
    chosen?.inner
}

/// `exact dense · 31.2 tok/s · 2.1 s to first token · 128 tokens`
pub fn cost(summary: &RequestSummary) -> String {
    let mut parts = vec![attention_label(summary.attention).to_owned()];
    if let Some(selection) = &summary.selection {
        parts.push(format!("{}, {:.0} % read", selection.spec.kind, (selection.share_read * 100.0).ceil()));
    }
    parts.extend(mass_kept(summary).map(mass_label));
    if summary.approximate_tokens > 0 {
        parts.push(format!("approximate, {} reused at another position", format::tokens(summary.approximate_tokens, true)));
    }
    if summary.generated_tokens > 0 {
        parts.push(format::speed(summary.tokens_per_s));
        parts.push(format!("{} to first token", format::seconds(summary.first_token_ms / 1000.0)));
        parts.push(format::tokens(summary.generated_tokens, true));
    }
    parts.extend(stop_note(summary.stop).map(str::to_owned));
    parts.join(" · ")
}

/// `resumed 16,000 tokens · moved 1.21 GiB · overlap 91 %`; None if all of it was in VRAM
pub fn moved(summary: &RequestSummary, resumed_tokens: usize) -> Option<String> {
    let mut parts = Vec::new();
    if resumed_tokens > 0 {
        parts.push(format!("resumed {}", format::tokens(resumed_tokens, true)));
    }
    let m = &summary.moved_bytes;
    let n_bytes = m.disk_to_ram + m.ram_to_vram + m.vram_to_ram + m.ram_to_disk;
    if n_bytes > 0 {
        parts.push(format!("moved {}", format::bytes(n_bytes)));
        let overlap = summary.overlap.map(|share| format!("{:.0} %", (share * 100.0).floor()));
        parts.push(format!("overlap {}", overlap.as_deref().unwrap_or("N/A")));
    }
    (!parts.is_empty()).then(|| parts.join(" · "))
}

/// Drop target of a dragged file.
pub fn drop_target_ui(ui: &Ui, rect: Rect, text: &str) {
    let t = theme::tokens(ui);
    let layer = egui::LayerId::new(egui::Order::Foreground, egui::Id::unique("strata drop"));
    let painter = ui.ctx().layer_painter(layer).with_clip_rect(rect);
    painter.rect_filled(rect, 0.0, t.page.gamma_multiply(0.92));
    let inner = rect.shrink(theme::SECTION);
    painter.rect_filled(inner, CornerRadius::same(theme::RADIUS_LARGE), t.accent_soft);
    let corners = [inner.left_top(), inner.right_top(), inner.right_bottom(), inner.left_bottom(), inner.left_top()];
    painter.extend(egui::Shape::dashed_line(&corners, egui::Stroke::new(2.0, t.accent), 8.0, 6.0));
    let square = Rect::from_center_size(inner.center() - vec2(0.0, 24.0), vec2(32.0, 32.0));
    icon::paint(&painter, Icon::Page, square, t.accent);
    painter.text(inner.center() + vec2(0.0, 16.0), egui::Align2::CENTER_CENTER, text, theme::title(), t.strong);
}
