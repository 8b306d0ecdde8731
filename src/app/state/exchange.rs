//! Exchange: a question and its answer, with data derived from the answer.

use crate::app::answer::citations::Citation;
use crate::app::answer::page_attention::AttendedPages;
use crate::engine::{RequestSummary, Sampling};

/// Outcome of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// not finished
    Running,
    /// finished or stopped
    Done(Box<RequestSummary>),
    /// an error: one sentence with what to do
    Failed(String),
    /// restored from an earlier session without its cost: a note on how it ended, or an empty text
    Restored(String),
}

/// A question and its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Exchange {
    /// its id, which is also that of its answer
    pub id: u64,
    /// id of its question; other answers to the question have the same
    pub question_id: u64,
    /// the exchange before it
    pub parent: Option<u64>,
    /// text of the question
    pub question: String,
    /// the answer so far
    pub answer: String,
    /// outcome of the answer
    pub outcome: Outcome,
    /// times the answer was regenerated; offsets the seed
    pub attempt: u64,
    /// end of each token in the answer, bytes
    pub token_ends: Vec<u32>,
    /// tokens that were loaded from the library instead of prefilled
    pub resumed_tokens: usize,
    /// the original request, while it can be repeated unchanged
    pub original_request: Option<OriginalRequest>,
    /// the exact check
    pub check: Option<ExactCheck>,
    /// citations of the answer; None before they are looked up
    pub quotes: Option<Vec<Citation>>,
    /// pages that it attended to most, if measured
    pub attended_pages: Option<AttendedPages>,
}

impl Exchange {
    /// A question without an answer.
    pub fn new(id: u64, question: String) -> Exchange {
        let (answer, outcome, token_ends) = (String::new(), Outcome::Running, Vec::new());
        let (question_id, parent) = (id, None);
        let (attempt, resumed_tokens) = (0, 0);
        Exchange {
            id,
            question_id,
            parent,
            question,
            answer,
            outcome,
            attempt,
            token_ends,
            resumed_tokens,
            original_request: None,
            check: None,
            quotes: None,
            attended_pages: None,
        }
    }
}

/// Sampling and length limit of a request.
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
    /// the text so far
    pub answer: String,
    /// its outcome
    pub outcome: Outcome,
}
