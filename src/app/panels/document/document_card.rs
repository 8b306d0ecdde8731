//! Document card: cost of prefilling, tiers of the KV cache, and progress, before the first question. Afterwards, only what
//! does not fit.

use egui::{Sense, Ui, Vec2};

use crate::app::panels::tiers::{TierBar, tiers_columns_ui};
use crate::app::panels::{Action, attention_label};
use crate::app::state::resume_estimate::{self, Placement};
use crate::app::state::saved_prefix::SavedPrefix;
use crate::app::state::{Phase, Running, ViewState, sample_document};
use crate::app::ui::format;
use crate::app::ui::icon::{self, Icon};
use crate::app::ui::theme::{self, GRID, GUTTER};
use crate::app::ui::widgets::{self, Weight};
use crate::base::Tiers;
use crate::engine::{AttentionKind, ModelInfo, PolicySpec};

/// Cost, progress and suggested questions.
pub fn document_card_ui(ui: &mut Ui, state: &ViewState) -> Vec<Action> {
    let mut actions = Vec::new();
    let t = theme::tokens(ui);
    let chat = state.chat();
    let names: Vec<&str> = chat.docs(&state.documents.list).map(|d| d.name.as_str()).collect();
    let heading = match names.as_slice() {
        [one] => (*one).to_owned(),
        many => format!("{} documents", many.len()),
    };
    ui.label(egui::RichText::new(heading).font(theme::title()).color(t.strong));
    ui.add_space(GUTTER);
    widgets::card(ui, |ui| {
        facts_ui(ui, state);
        if let Some(info) = state.info() {
            ui.add_space(GUTTER);
            actions.extend(room_ui(ui, state, info));
        }
        ui.add_space(GUTTER);
        match state.running_here() {
            Some(running) => actions.extend(progress_ui(ui, running, "Reading")),
            None => actions.extend(read_ui(ui, state)),
        }
    });
    if state.engine.running.is_none() && chat.docs(&state.documents.list).any(|d| d.sample) {
        ui.add_space(theme::SECTION);
        actions.extend(questions_ui(ui).map(Action::Ask));
    }
    actions
}

/// By how much the documents of a conversation exceed the limits, and a range of pages that fits. Draws nothing if they fit.
pub fn misfit_ui(ui: &mut Ui, state: &ViewState) -> Option<Action> {
    let info = state.info().filter(|_| !fits(state))?;
    ui.add_space(theme::SECTION);
    let mut taken = None;
    widgets::card(ui, |ui| taken = room_ui(ui, state, info));
    taken
}

/// The button that prefills, and its effect.
fn read_ui(ui: &mut Ui, state: &ViewState) -> Option<Action> {
    let share = state.chat().read_share(&state.documents.list);
    let saved = state.saved_prefix();
    if share >= 1.0 {
        let note = match saved.is_some_and(|saved| saved.is_complete) {
            _ if !state.chat().approximate.is_empty() => {
                " Answers are approximate: what was saved at another position is reused."
            }
            true => " It is saved in the library.",
            false => "",
        };
        widgets::caption(ui, format!("Read, so every question starts at once.{note}"));
        return None;
    }
    if !fits(state) {
        return None;
    }
    let (label, hint) = match saved {
        _ if share > 0.0 => ("Continue reading", "What was read stays read.".to_owned()),
        Some(saved) => ("Resume", resume_label(&saved, state)),
        None => ("Read now", "Or just ask: it is read with the first question.".to_owned()),
    };
    let mut clicked = false;
    ui.horizontal(|ui| {
        let idle = state.engine.running.is_none() && state.info().is_some();
        ui.add_enabled_ui(idle, |ui| clicked = widgets::button(ui, Weight::Primary, None, label).clicked());
        widgets::caption(ui, hint);
    });
    clicked.then_some(Action::PrefillDocuments)
}

/// True if the documents fit into the model's window and the budgets, as far as these are known.
fn fits(state: &ViewState) -> bool {
    let (n, _) = state.chat().document_tokens(&state.documents.list);
    let Some(info) = state.info() else { return true };
    let kv = (n as u64).saturating_mul(info.kv_bytes_per_token);
    let has_room = state.budgets().is_none_or(|budgets| matches!(resume_estimate::place(kv, budgets), Placement::Fits(_)));
    n < info.context_limit && has_room
}

/// `Read before: resumes in ~3 s.`
fn resume_label(saved: &SavedPrefix, state: &ViewState) -> String {
    let time = format::about_seconds(resume_estimate::resume_seconds(saved.kv_bytes, state.measured.disk_speed));
    if saved.is_complete {
        return format!("Read before: resumes in {time}.");
    }
    let (n_tokens, _) = state.chat().document_tokens(&state.documents.list);
    let rest = resume_estimate::rest_seconds(saved, n_tokens, state.measured.last_prefill);
    let rest = rest.map_or_else(|| "N/A".to_owned(), format::about_seconds);
    let share = format::percent(saved.n_tokens.min(n_tokens), n_tokens);
    format!("Read before to {share}: resumes in {time}, the rest takes {rest}.")
}

/// Three questions to click.
pub fn questions_ui(ui: &mut Ui) -> Option<String> {
    ui.spacing_mut().item_spacing.y = 0.0;
    widgets::caption(ui, "TRY ASKING THE SAMPLE");
    ui.add_space(2.0 * GRID);
    let mut asked = None;
    for question in sample_document::questions() {
        if widgets::offer(ui, question).clicked() {
            asked = Some(question.to_owned());
        }
    }
    asked
}

/// Facts: pages, characters, tokens, KV size, time.
fn facts_ui(ui: &mut Ui, state: &ViewState) {
    let chat = state.chat();
    let (n, exact) = chat.document_tokens(&state.documents.list);
    let mark = estimate_mark(exact);
    let n_chars: usize = chat.docs(&state.documents.list).map(|d| d.n_chars).sum();
    let tokens = if exact { format::count(n) } else { format::short_count(n) };
    let n_pages: usize = chat.docs(&state.documents.list).map(|d| d.pages.len()).sum();
    let mut facts =
        vec![("Pages", format::count(n_pages)), ("Characters", format::count(n_chars)), ("Tokens", format!("{mark}{tokens}"))];
    let dtype = state.engine.load.kv_dtype.name();
    let kv_name = format!("KV cache, {dtype}");
    if let Some(info) = state.info() {
        let kv = (n as u64).saturating_mul(info.kv_bytes_per_token);
        facts.push((&kv_name, format!("{mark}{}", format::bytes(kv))));
        facts.push(time_fact(state, n));
    }
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = theme::SECTION + GUTTER;
        for (name, value) in facts {
            widgets::figure(ui, name, &value);
        }
    });
    for note in chat.docs(&state.documents.list).flat_map(|d| &d.notes) {
        ui.add_space(GRID);
        widgets::caption(ui, note);
    }
}

/// Time to prefill, or for the rest if a part is saved.
fn time_fact(state: &ViewState, n_tokens: usize) -> (&'static str, String) {
    let (name, time) = match state.saved_prefix() {
        Some(saved) if saved.is_complete => {
            ("Time to resume", Some(resume_estimate::resume_seconds(saved.kv_bytes, state.measured.disk_speed)))
        }
        Some(saved) => ("Time to read the rest", resume_estimate::rest_seconds(&saved, n_tokens, state.measured.last_prefill)),
        None => {
            let library = state.library.as_deref().unwrap_or_default();
            let before = || resume_estimate::speed_before(library, state.info()?, state.engine.load.kv_dtype);
            ("Time to read", state.measured.last_prefill.or_else(before).map(|speed| n_tokens as f64 / speed))
        }
    };
    (name, time.map_or_else(|| "N/A".to_owned(), format::about_seconds))
}

/// `~` before an estimate.
fn estimate_mark(exact: bool) -> &'static str {
    if exact { "" } else { "~" }
}

/// The tiers that the KV cache needs or uses, and whether it fits.
fn room_ui(ui: &mut Ui, state: &ViewState, info: &ModelInfo) -> Option<Action> {
    let (n, exact) = state.chat().document_tokens(&state.documents.list);
    let mark = estimate_mark(exact);
    if n >= info.context_limit {
        let over = format::count(n - info.context_limit + 1);
        let (n, limit) = (format::count(n), format::count(info.context_limit));
        let sentence = format!(
            "Does not fit: {mark}{n} tokens, and this model's window holds {limit}: {mark}{over} too many. Read some of its pages, \
             or use a model with a longer window."
        );
        widgets::error_sentence(ui, &sentence);
        return range_ui(ui, state);
    }
    let window = window_label(n, info.context_limit);
    let Some(budgets) = state.budgets() else {
        fits_ui(ui, &format!("Fits: {window}"));
        return None;
    };
    let kv = (n as u64).saturating_mul(info.kv_bytes_per_token);
    match resume_estimate::place(kv, budgets) {
        Placement::TooLarge { room } => {
            let sentence = format!(
                "Does not fit: its KV cache needs {mark}{}, and the budgets hold {}. Raise a budget or choose a smaller KV type in the settings.",
                format::bytes(kv),
                format::bytes(room)
            );
            widgets::error_sentence(ui, &sentence);
        }
        Placement::Fits(at) => {
            let t = theme::tokens(ui);
            let reads = state.chat().cached_tokens > 0;
            let (used, mark, what) = match state.measured.kv.filter(|_| reads) {
                Some(kv) => (kv.used, "", "KV cache"),
                None => (at, mark, "KV cache of the document"),
            };
            tiers_columns_ui(ui, &TierBar::all(t, Some(used), Some(budgets)), mark, what);
            ui.add_space(GUTTER);
            fits_ui(ui, &format!("Fits {} · {window}", tier_label(at, mark)));
            widgets::caption(ui, attention_expected(at, state.engine.load.policy));
        }
    }
    None
}

/// Range of pages of the longest document that is read instead of all; at first, as many as fit.
fn range_ui(ui: &mut Ui, state: &ViewState) -> Option<Action> {
    let doc = state.chat().docs(&state.documents.list).max_by_key(|d| d.text.len())?;
    let (n_pages, n_fit) = (doc.pages.len(), state.pages_that_fit(doc.id));
    if n_pages < 2 || n_fit == 0 {
        return None;
    }
    let id = ui.scope_id().with(("pages", doc.id));
    let (mut first, mut last) = ui.data(|d| d.get_temp(id)).unwrap_or((1, n_fit));
    ui.add_space(GUTTER);
    let mut taken = None;
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 2.0 * GRID;
        ui.label("Pages");
        let mut is_chosen =
            ui.add(egui::DragValue::new(&mut first).range(1..=last)).accessible_name("First page to read").changed();
        ui.label("to");
        is_chosen |=
            ui.add(egui::DragValue::new(&mut last).range(first..=n_pages)).accessible_name("Last page to read").changed();
        widgets::caption(ui, format!("of {}", format::count(n_pages)));
        if widgets::button(ui, Weight::Plain, None, "Read only these pages").clicked() {
            taken = Some(Action::TakePages(doc.id, first.saturating_sub(1)..last));
        }
        // A range that the user did not change follows the token count.
        if is_chosen {
            ui.data_mut(|d| d.insert_temp(id, (first, last)));
        }
    });
    let name = state.chat().document_name(&state.documents.list, doc);
    let fitting = match n_fit {
        1 => format!("The first page of {name} fits."),
        n => format!("The first {} pages of {name} fit.", format::count(n)),
    };
    widgets::caption(ui, fitting);
    taken
}

/// `VRAM`, or `VRAM 2.00 GiB + RAM 1.10 GiB`
pub(in crate::app) fn tier_label(at: Tiers<u64>, mark: &str) -> String {
    let tiers = [("VRAM", at.vram), ("RAM", at.ram), ("disk", at.disk)];
    let used: Vec<(&str, u64)> = tiers.into_iter().filter(|(_, n)| *n > 0).collect();
    match used.as_slice() {
        [] => "VRAM".to_owned(),
        [(one, _)] => (*one).to_owned(),
        many => many.iter().map(|(name, n)| format!("{name} {mark}{}", format::bytes(*n))).collect::<Vec<_>>().join(" + "),
    }
}

fn attention_expected(at: Tiers<u64>, policy: Option<PolicySpec>) -> String {
    if let Some(policy) = policy {
        let words = attention_label(AttentionKind::Selective);
        format!(
            "Attention will be {words} ({}): the document is read whole, and answers read the parts that matter.",
            policy.kind
        )
    } else if at.ram == 0 && at.disk == 0 {
        format!("Attention will be {}: everything stays in VRAM.", attention_label(AttentionKind::Dense))
    } else {
        let words = attention_label(AttentionKind::ExactOffload);
        format!("Attention will be {words}: every token is still read, from any tier; answers are slower.")
    }
}

/// `12 % of the model's 128k window`
fn window_label(n: usize, limit: usize) -> String {
    let share = if n * 100 < limit { "under 1 %".to_owned() } else { format::percent(n, limit) };
    format!("{share} of the model's {} window", format::window(limit))
}

fn fits_ui(ui: &mut Ui, sentence: &str) {
    let t = theme::tokens(ui);
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 2.0 * GRID;
        ui.set_height(20.0);
        let (square, _) = ui.allocate_exact_size(Vec2::splat(16.0), Sense::hover());
        icon::paint(ui.painter(), Icon::Tick, square, t.ram);
        ui.add(egui::Label::new(sentence).wrap());
    });
}

/// Progress of a prefill: share, tokens, speed, time left, and stop.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_that_a_document_needs_are_named_with_their_bytes() {
        let at = |vram, ram, disk| tier_label(Tiers { vram, ram, disk }, "");
        assert_eq!(at(1 << 30, 0, 0), "VRAM");
        assert_eq!(at(2 << 30, 3 << 29, 0), "VRAM 2.00 GiB + RAM 1.50 GiB");
        assert_eq!(at(2 << 30, 8 << 30, 1 << 30), "VRAM 2.00 GiB + RAM 8.00 GiB + disk 1.00 GiB");
    }
}
