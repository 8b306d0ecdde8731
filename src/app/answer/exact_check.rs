//! Check exactly: a selective answer given again with everything read, and what differs.
//!
//! ```text
//! exchange, as it was asked ─► EngineCommand::Generate, exact ─► Check ─► compare() ─► Verdict
//! ```
//! Invariants: 1. Same prompt, same sampling, same model, or it is not offered. 2. The answer that was given stays the one that
//! later questions build on. 3. A question never waits for a check: the check stops for it.

use crate::app::state::chat::{Chat, Exchange, Outcome};
use crate::app::state::{Phase, Running, Task, ViewState};
use crate::engine::{AttentionKind, AttentionMode, EngineCommand, RequestSummary, Sampling, StopReason};

/// How a question was asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OriginalRequest {
    /// how tokens were chosen
    pub sampling: Sampling,
    /// the answer ended after so many tokens at the latest
    pub max_tokens: usize,
}

/// The same question answered from everything.
#[derive(Debug, Clone, PartialEq)]
pub struct ExactCheck {
    /// what came so far
    pub answer: String,
    /// how it stands
    pub outcome: Outcome,
}

/// Where two answers part. Both are `common` and then their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference<'a> {
    /// what both begin with, in whole words
    pub common: &'a str,
    /// how the answer that was given goes on
    pub given: &'a str,
    /// how the exact one does
    pub exact: &'a str,
}

/// What a check came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// word for word
    Same,
    /// the check was stopped, and had come so far without a difference
    SameSoFar,
    /// two answers
    Parts(Difference<'a>),
}

/// Compares an answer with an exact one, which was perhaps stopped.
pub fn compare<'a>(given: &'a str, exact: &'a str, stop: StopReason) -> Verdict<'a> {
    let (given, exact) = (given.trim_end(), exact.trim_end());
    if given == exact {
        return Verdict::Same;
    }
    if stop == StopReason::Cancelled && given.starts_with(exact) {
        return Verdict::SameSoFar;
    }
    let same: usize = given.chars().zip(exact.chars()).take_while(|(a, b)| a == b).map(|(c, _)| c.len_utf8()).sum();
    let ends_word = |text: &str| text.get(same..).is_none_or(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
    let common = given.get(..same).unwrap_or_default();
    let cut = match ends_word(given) && ends_word(exact) {
        true => same,
        false => common.rfind(char::is_whitespace).unwrap_or(0),
    };
    let (common, given) = given.split_at(cut);
    let exact = exact.get(cut..).unwrap_or_default();
    Verdict::Parts(Difference { common, given: given.trim_start(), exact: exact.trim_start() })
}

impl Exchange {
    /// Its answer can be checked: a policy chose what it read, and the same can be asked again.
    pub fn can_check(&self) -> bool {
        let Outcome::Done(summary) = &self.outcome else { return false };
        self.asked.is_some() && summary.attention == AttentionKind::Selective && !self.answer.is_empty()
    }

    /// As long as the answer that was given, where that was cut short.
    fn check_tokens(&self, asked: &OriginalRequest) -> usize {
        match &self.outcome {
            Outcome::Done(summary) if summary.stop == StopReason::Cancelled => summary.generated_tokens.max(1),
            _ => asked.max_tokens,
        }
    }
}

impl ViewState {
    /// Asks a question of the chat on screen again, exactly as it was asked but with everything read.
    pub fn check(&mut self, exchange_id: u64) {
        let turn = self.fresh_id();
        let chat = self.chat();
        let Some(index) = chat.exchanges.iter().position(|e| e.id == exchange_id && e.can_check()) else { return };
        let Some(exchange) = chat.exchanges.get(index).filter(|_| self.running.is_none()) else { return };
        let Some(asked) = exchange.asked else { return };
        let max_tokens = exchange.check_tokens(&asked);
        let messages = chat.messages(&self.documents, index);
        let document = chat.document_ref(&self.documents, self.settings.keep_read);
        let (sampling, policy, task) = (asked.sampling, AttentionMode::Exact, Task::Check(exchange_id));
        self.running = Some(Running { turn, chat: chat.id, task, phase: Phase::Waiting, stopping: false });
        self.outbox.push(EngineCommand::Generate { turn, messages, document, sampling, max_tokens, policy });
        if let Some(exchange) = self.chat_mut().exchanges.get_mut(index) {
            exchange.check = Some(ExactCheck { answer: String::new(), outcome: Outcome::Running });
        }
    }

    /// A check runs, which a question may stop.
    pub fn is_checking(&self) -> bool {
        self.running.is_some_and(|r| matches!(r.task, Task::Check(_)))
    }

    /// Stops the check for the question in the composer, which is asked when it has ended.
    pub(in crate::app) fn send_after_check(&mut self) {
        self.stopping();
        self.stop_due = true;
        self.send_due = Some(self.current);
    }

    /// Nothing runs any more: asks what waited for the check to end, if its chat is still on screen.
    pub(in crate::app) fn send_waiting(&mut self) {
        if self.send_due.take() == Some(self.current) {
            self.send();
        }
    }
}

impl Chat {
    /// What was asked cannot be asked in the same way again.
    pub(in crate::app) fn forget_asked(&mut self) {
        for exchange in self.all_exchanges_mut() {
            exchange.asked = None;
        }
    }
}

/// Share of the attention that an answer's choices kept, mean over layers, 0 to 1, where it was measured.
pub fn mass_kept(summary: &RequestSummary) -> Option<f64> {
    let layers = summary.chosen.as_ref()?.mass.as_ref().filter(|layers| !layers.is_empty())?;
    Some(layers.iter().map(|m| m.kept).sum::<f64>() / layers.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts<'a>(given: &'a str, exact: &'a str) -> (&'a str, &'a str, &'a str) {
        match compare(given, exact, StopReason::Eos) {
            Verdict::Parts(d) => (d.common, d.given, d.exact),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_part_at_a_whole_word() {
        assert_eq!(parts("It weighs 412 kg.", "It weighs 418 kg."), ("It weighs", "412 kg.", "418 kg."));
        assert_eq!(parts("Yes.", "No."), ("", "Yes.", "No."));
        assert_eq!(parts("One two", "One two three"), ("One two", "", "three"));
        assert_eq!(parts("One two", "One twofold"), ("One", "two", "twofold"));
        assert_eq!(parts("Über allen", "Über öden"), ("Über", "allen", "öden"));
        assert_eq!(parts("日本語", "日本人"), ("", "日本語", "日本人"));
    }

    #[test]
    fn same_answer_is_the_same_whatever_space_it_ends_with() {
        assert_eq!(compare("A b.\n", "A b.", StopReason::Eos), Verdict::Same);
        assert_eq!(compare("A b.", "A", StopReason::Cancelled), Verdict::SameSoFar);
        assert!(matches!(compare("A b.", "A", StopReason::Eos), Verdict::Parts(_)), "the exact answer is shorter");
        assert!(matches!(compare("A b.", "A c", StopReason::Cancelled), Verdict::Parts(_)));
    }
}
