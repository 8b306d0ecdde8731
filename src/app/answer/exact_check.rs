//! Exact check: a selective answer generated again with full attention, and the difference between the two.
//!
//! ```text
//! original request ─► EngineCommand::Generate, exact ─► ExactCheck ─► compare() ─► Verdict
//! ```
//! Invariants: 1. Same prompt, same sampling, same model, or it is not offered. 2. The answer that was given stays the one that
//! later questions build on. 3. A question never waits for a check: the check stops for it.

use crate::app::state::chat::{Chat, Exchange, Outcome};
use crate::app::state::exchange::{ExactCheck, OriginalRequest};
use crate::app::state::{Phase, Running, Task, ViewState};
use crate::engine::{AttentionKind, AttentionMode, EngineCommand, RequestSummary, StopReason};

/// Two answers that differ: a common beginning, then each one's own rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference<'a> {
    /// common beginning, in whole words
    pub common: &'a str,
    /// rest of the given answer
    pub given: &'a str,
    /// rest of the exact answer
    pub exact: &'a str,
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// word for word
    Same,
    /// the check was stopped before any difference
    SameSoFar,
    /// two answers
    Differs(Difference<'a>),
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
    Verdict::Differs(Difference { common, given: given.trim_start(), exact: exact.trim_start() })
}

impl Exchange {
    /// True if the answer can be checked: a policy selected what it read, and the original request is unchanged.
    pub fn can_check(&self) -> bool {
        let Outcome::Done(summary) = &self.outcome else { return false };
        self.original_request.is_some() && summary.attention == AttentionKind::Selective && !self.answer.is_empty()
    }

    /// Length limit of the check: the length of the given answer if that was stopped, else the original limit.
    fn check_tokens(&self, original: &OriginalRequest) -> usize {
        match &self.outcome {
            Outcome::Done(summary) if summary.stop == StopReason::Cancelled => summary.generated_tokens.max(1),
            _ => original.max_tokens,
        }
    }
}

impl ViewState {
    /// Sends the original request of an exchange again, with full attention.
    pub fn check(&mut self, exchange_id: u64) {
        let request = self.fresh_id();
        let chat = self.chat();
        let Some(index) = chat.exchanges.iter().position(|e| e.id == exchange_id && e.can_check()) else { return };
        let Some(exchange) = chat.exchanges.get(index).filter(|_| self.engine.running.is_none()) else { return };
        let Some(original) = exchange.original_request else { return };
        let max_tokens = exchange.check_tokens(&original);
        let messages = chat.messages(&self.documents.list, index);
        let documents = chat.document_refs(&self.documents.list, self.settings.values.keep_read);
        let (sampling, policy, task) = (original.sampling, AttentionMode::Exact, Task::Check(exchange_id));
        self.engine.running = Some(Running { request, chat: chat.id, task, phase: Phase::Waiting, stopping: false });
        self.engine.outbox.push(EngineCommand::Generate { request, messages, documents, sampling, max_tokens, policy });
        if let Some(exchange) = self.chat_mut().exchanges.get_mut(index) {
            exchange.check = Some(ExactCheck { answer: String::new(), outcome: Outcome::Running });
        }
    }

    /// A check runs, which a question may stop.
    pub fn is_checking(&self) -> bool {
        self.engine.running.is_some_and(|r| matches!(r.task, Task::Check(_)))
    }

    /// True if the running task stops for a question: a check, or a prefill for later chats.
    pub fn yields_to_question(&self) -> bool {
        self.engine.running.is_some_and(|r| matches!(r.task, Task::Check(_) | Task::PrefillAlone(_)))
    }

    /// Stops the running task for the question in the composer, which is sent when the task has stopped.
    pub(in crate::app) fn send_after_stop(&mut self) {
        self.request_stop();
        self.engine.pending_stop = true;
        self.engine.deferred_send = Some(self.chats.current);
    }

    /// Sends the deferred question when the running task has stopped, if its chat is still on screen.
    pub(in crate::app) fn send_deferred(&mut self) {
        if self.engine.deferred_send.take() == Some(self.chats.current) {
            self.send();
        }
    }
}

impl Chat {
    /// Drops the original requests: a document or the model has changed, so a check would compare different prompts.
    pub(in crate::app) fn clear_original_requests(&mut self) {
        for exchange in self.all_exchanges_mut() {
            exchange.original_request = None;
        }
    }
}

/// Attention mass that an answer kept: mean over layers, 0 to 1. None if it was not measured.
pub fn mass_kept(summary: &RequestSummary) -> Option<f64> {
    let layers = summary.selection.as_ref()?.mass.as_ref().filter(|layers| !layers.is_empty())?;
    Some(layers.iter().map(|m| m.kept).sum::<f64>() / layers.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts<'a>(given: &'a str, exact: &'a str) -> (&'a str, &'a str, &'a str) {
        match compare(given, exact, StopReason::Eos) {
            Verdict::Differs(d) => (d.common, d.given, d.exact),
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
        assert!(matches!(compare("A b.", "A", StopReason::Eos), Verdict::Differs(_)), "the exact answer is shorter");
        assert!(matches!(compare("A b.", "A c", StopReason::Cancelled), Verdict::Differs(_)));
    }
}
