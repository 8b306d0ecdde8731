//! Answers of the needle test, and the documents that they are about.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::cli::eval::haystack::{Haystack, Needle};
use crate::document::mentions_of;
use crate::engine::RequestSummary;
use crate::token::without_reasoning;

/// One question with its answer: a line of `--json`, and a part of `needle.json`.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Answer {
    pub event: &'static str,
    pub length: usize,
    pub depth: u32,
    pub seed: u64,
    /// 1 for the first question of a conversation, 2 for the second
    pub order: usize,
    /// share of the document before the fact
    pub at: f64,
    pub question: String,
    pub expected: String,
    pub answer: String,
    pub hit: bool,
    pub cost: RequestSummary,
}

/// A document of the grid.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    pub length: usize,
    pub seed: u64,
    #[serde(flatten)]
    pub hay: Haystack,
}

impl Answer {
    pub fn new(document: &Document, needle: &Needle, order: usize, answer: String, cost: RequestSummary) -> Answer {
        Answer {
            event: "answer",
            length: document.length,
            depth: needle.depth,
            seed: document.seed,
            order,
            at: needle.at,
            question: needle.fact.question.clone(),
            expected: needle.fact.value.clone(),
            hit: has_value(&answer, &needle.fact.value),
            answer,
            cost,
        }
    }
}

/// True if the answer has the value as words of its own, not as a part of a longer number or word.
pub(super) fn has_value(answer: &str, value: &str) -> bool {
    !mentions_of(&without_reasoning(answer), value).is_empty()
}

/// Distinct values, ascending.
pub(super) fn ascending<T: Ord + Copy>(list: &[T]) -> Vec<T> {
    list.iter().copied().collect::<BTreeSet<T>>().into_iter().collect()
}
