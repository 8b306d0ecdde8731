//! Exact check below a selective answer: attention mass, the offer to check, its progress and its result.
//!
//! ```text
//! Exchange { answer, check } ─► offer │ progress │ same │ the difference, side by side
//! ```

use egui::text::{LayoutJob, TextFormat};
use egui::{Color32, Label, RichText, Sense, Ui, Vec2, vec2};

use crate::app::answer::exact_check::{Difference, Verdict, compare, mass_kept};
use crate::app::answer::question_scope::asks_about_whole_document;
use crate::app::panels::{Action, attention_label};
use crate::app::state::chat::{Exchange, Outcome};
use crate::app::state::exchange::ExactCheck;
use crate::app::state::{Phase, Running};
use crate::app::ui::format;
use crate::app::ui::icon::{self, Icon};
use crate::app::ui::theme::{self, GRID, GUTTER};
use crate::app::ui::widgets::{self, Weight};
use crate::engine::{AttentionKind, RequestSummary};

/// Common words before the difference, at most.
const SHOWN_WORDS: usize = 8;

/// `mass kept ~0.98`: sampled, and rounded down
pub fn mass_label(kept: f64) -> String {
    format!("mass kept ~{}", hundredths(kept))
}

fn hundredths(share: f64) -> String {
    format!("{:.2}", (share * 100.0 + 1e-9).floor() / 100.0)
}

/// Share of the context that an answer read, and the attention mass kept: a few lines.
pub fn attention_note(summary: &RequestSummary) -> String {
    let Some(selection) = &summary.selection else {
        return format!(
            "{}: every token of the context was read for every token of the answer.",
            attention_label(summary.attention)
        );
    };
    let read =
        format!("{:.0} % of the context was read for a token of the answer, on average.", (selection.share_read * 100.0).ceil());
    let layers = selection.mass.as_deref().unwrap_or_default();
    let least = layers.iter().enumerate().min_by(|(_, a), (_, b)| a.kept.total_cmp(&b.kept));
    let (Some(mean), Some((layer, least))) = (mass_kept(summary), least) else {
        return format!("{read}\nThe attention mass kept was not measured: the answer is too short.");
    };
    let best = layers.iter().map(|m| m.best).sum::<f64>() / layers.len() as f64;
    format!(
        "{read}\n\
         Attention mass kept: {} on average over {} layers, {} in layer {layer}, which kept least.\n\
         As many tokens could keep {} at best.\n\
         Measured at {} of {} tokens; those steps read everything.",
        hundredths(mean),
        layers.len(),
        hundredths(least.kept),
        hundredths(best),
        selection.mass_steps,
        format::count(summary.generated_tokens),
    )
}

/// Check of a finished answer. `running` is its check; `idle` if nothing runs.
pub fn check_ui(
    ui: &mut Ui,
    exchange: &Exchange,
    summary: &RequestSummary,
    running: Option<&Running>,
    idle: bool,
) -> Vec<Action> {
    if summary.attention != AttentionKind::Selective {
        return Vec::new();
    }
    match (&exchange.check, running) {
        (Some(_), Some(running)) => running_ui(ui, running, summary),
        (Some(check), None) => match &check.outcome {
            Outcome::Done(exact) => done_ui(ui, exchange, check, [summary, exact], idle),
            Outcome::Failed(sentence) => {
                ui.add_space(GRID);
                widgets::error_sentence(ui, sentence);
                offer_ui(ui, exchange, idle)
            }
            Outcome::Running | Outcome::Restored(_) => Vec::new(),
        },
        (None, _) => offer_ui(ui, exchange, idle),
    }
}

/// The button, and the reason for it if the question is about the whole document.
fn offer_ui(ui: &mut Ui, exchange: &Exchange, idle: bool) -> Vec<Action> {
    let mut actions = Vec::new();
    if !exchange.can_check() {
        return actions;
    }
    ui.add_space(GRID);
    let mut button = |ui: &mut Ui, weight, text: &str, why: &str| {
        ui.add_enabled_ui(idle, |ui| {
            if widgets::button(ui, weight, Some(Icon::Search), text).on_hover_text(why).clicked() {
                actions.push(Action::Check(exchange.id));
            }
        });
    };
    const WHY: &str = "Answers again with everything read, in the background, and shows the difference. The document is not \
                       read again.";
    if exchange.check.is_none() && asks_about_whole_document(&exchange.question) {
        note_ui(ui, "The question seems to be about the whole document; this answer read a part of it for each word.");
        button(ui, Weight::Plain, "Answer exactly", WHY);
    } else {
        ui.horizontal(|ui| {
            // Aligns the icon, not its margin, with the text.
            ui.add_space(-GUTTER);
            button(ui, Weight::Quiet, "Check exactly", WHY);
        });
    }
    actions
}

fn note_ui(ui: &mut Ui, text: &str) {
    let t = theme::tokens(ui);
    ui.add(Label::new(RichText::new(text).font(theme::small()).color(t.weak)).wrap());
    ui.add_space(GRID);
}

fn running_ui(ui: &mut Ui, running: &Running, given: &RequestSummary) -> Vec<Action> {
    let mut actions = Vec::new();
    let t = theme::tokens(ui);
    let (share, text) = match running.phase {
        _ if running.stopping => (0.0, "Stopping the check…".to_owned()),
        Phase::Waiting => (0.0, "Checking exactly".to_owned()),
        Phase::Prefill { done, total, .. } => {
            (0.0, format!("Checking exactly · reading the question, {} left", format::tokens(total.saturating_sub(done), true)))
        }
        Phase::Decode { n, tokens_per_s } => (
            n as f32 / given.generated_tokens.max(1) as f32,
            format!("Checking exactly · {} · {}", format::tokens(n, true), format::speed(tokens_per_s)),
        ),
    };
    ui.add_space(2.0 * GRID);
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = GUTTER;
        widgets::meter(ui, share, t.accent, 120.0, &text);
        widgets::caption(ui, &text);
        ui.add_enabled_ui(!running.stopping, |ui| {
            if widgets::button(ui, Weight::Quiet, Some(Icon::Stop), "Stop checking").clicked() {
                actions.push(Action::Stop);
            }
        });
    });
    actions
}

fn done_ui(
    ui: &mut Ui,
    exchange: &Exchange,
    check: &ExactCheck,
    [given, exact]: [&RequestSummary; 2],
    idle: bool,
) -> Vec<Action> {
    let t = theme::tokens(ui);
    ui.add_space(2.0 * GRID);
    let cost = format!("{} · {}", attention_label(exact.attention), format::speed(exact.tokens_per_s));
    match compare(&exchange.answer, &check.answer, exact.stop) {
        Verdict::Same => {
            headline_ui(ui, Some((Icon::Tick, t.ram)), "Checked: the same answer, word for word", &cost);
            Vec::new()
        }
        Verdict::SameSoFar => {
            let n = format::tokens(exact.generated_tokens, true);
            headline_ui(ui, None, &format!("The check was stopped; the same for {n}"), &cost);
            offer_ui(ui, exchange, idle)
        }
        Verdict::Differs(difference) => {
            let n_words = difference.common.split_whitespace().count();
            let headline = match n_words {
                0 => "Checked: another answer when everything is read".to_owned(),
                1 => "Checked: another answer after the first word".to_owned(),
                n => format!("Checked: another answer after {} words", format::count(n)),
            };
            headline_ui(ui, Some((Icon::Fork, t.accent)), &headline, &cost);
            difference_ui(ui, &difference, &check.answer, given)
        }
    }
}

fn headline_ui(ui: &mut Ui, mark: Option<(Icon, Color32)>, text: &str, cost: &str) {
    let t = theme::tokens(ui);
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 2.0 * GRID;
        ui.set_height(20.0);
        if let Some((icon, color)) = mark {
            let (square, _) = ui.allocate_exact_size(Vec2::splat(16.0), Sense::hover());
            icon::paint(ui.painter(), icon, square, color);
        }
        ui.label(RichText::new(text).color(t.strong));
        widgets::caption(ui, cost);
    });
}

/// Both answers, from shortly before the difference.
fn difference_ui(ui: &mut Ui, difference: &Difference, exact: &str, given: &RequestSummary) -> Vec<Action> {
    let mut actions = Vec::new();
    let t = theme::tokens(ui);
    let read = given.selection.as_ref().map_or(0.0, |c| (c.share_read * 100.0).ceil());
    let lead = lead(difference.common);
    ui.add_space(2.0 * GRID);
    let area = ui.available_rect_before_wrap();
    let columns = ui.scope(|ui| {
        ui.spacing_mut().item_spacing.x = 2.0 * theme::SECTION;
        ui.columns_const(|[left, right]| {
            side_ui(left, &format!("AS GIVEN · {read:.0} % READ"), &lead, difference.given, None);
            let copied = side_ui(right, "EXACT · ALL READ", &lead, difference.exact, Some("Copy the exact answer"));
            if copied {
                actions.push(Action::Copy(exact.to_owned()));
            }
        });
    });
    let rect = columns.response.rect;
    ui.painter().vline(area.center().x.round(), rect.y_range(), egui::Stroke::new(1.0, t.line));
    actions
}

/// One answer below its heading. True if the user copies it.
fn side_ui(ui: &mut Ui, name: &str, lead: &str, rest: &str, copy: Option<&str>) -> bool {
    let t = theme::tokens(ui);
    ui.spacing_mut().item_spacing.x = GRID;
    let copied = ui
        .horizontal(|ui| {
            ui.set_height(28.0);
            widgets::list_heading(ui, name);
            copy.is_some_and(|label| widgets::icon_button(ui, Icon::Copy, label).clicked())
        })
        .inner;
    let plain = |color| TextFormat { font_id: theme::body(), color, ..TextFormat::default() };
    let mut job = LayoutJob::default();
    job.append(lead, 0.0, plain(t.weak));
    let rest = if rest.is_empty() { "(ends here)" } else { rest };
    let (word, after) = rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len()));
    let space = if lead.is_empty() { 0.0 } else { GRID };
    job.append(word, space, TextFormat { background: t.accent_soft, ..plain(t.strong) });
    job.append(after, 0.0, plain(t.text));
    ui.add(Label::new(job).wrap());
    ui.allocate_space(vec2(0.0, GRID));
    copied
}

/// The last common words.
fn lead(common: &str) -> String {
    let words: Vec<&str> = common.split_whitespace().collect();
    match words.len().checked_sub(SHOWN_WORDS) {
        None | Some(0) => words.join(" "),
        Some(n_left_out) => format!("… {}", words.iter().skip(n_left_out).copied().collect::<Vec<_>>().join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::test_support::{selective_summary, summary};

    #[test]
    fn mass_is_never_said_to_be_more_than_it_is() {
        assert_eq!(mass_label(0.98), "mass kept ~0.98");
        assert_eq!(mass_label(0.9999), "mass kept ~0.99");
        assert_eq!(mass_label(1.0), "mass kept ~1.00");
    }

    #[test]
    fn note_names_mean_least_and_how_many_tokens_were_measured() {
        let note = attention_note(&selective_summary());
        for part in ["12 %", "0.95 on average over 2 layers", "0.92 in layer 1", "0.99 at best", "at 3 of 20 tokens"] {
            assert!(note.contains(part), "{part}: {note}");
        }
        let mut short = selective_summary();
        if let Some(selection) = &mut short.selection {
            (selection.mass, selection.mass_steps) = (None, 0);
        }
        assert!(attention_note(&short).contains("not measured"));
        assert!(attention_note(&summary()).contains("every token of the context was read"));
    }

    #[test]
    fn lead_is_the_last_words_before_the_difference() {
        assert_eq!(lead("one two"), "one two");
        assert_eq!(lead("a b c d e f g h i j"), "… c d e f g h i j");
        assert_eq!(lead(""), "");
    }
}
