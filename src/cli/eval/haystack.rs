//! Haystack: a document of a given length with facts planted at given depths.
//!
//! ```text
//! paragraphs (synthetic, or of a text) ─► sentences that fit ─┐
//! facts ─► index of the next sentence, by depth ──────────────┴► Haystack { text, needles }
//! ```
//! Invariants: 1. The text has at most the requested tokens, and at most a sentence or two fewer. 2. Depth 0 is before the
//! first sentence, depth 100 after the last. 3. The same plan and paragraphs give the same text.
//! Units: depth in percent of the sentences; `at` as a share of the text's bytes.

use serde::Serialize;

use super::synthetic_text::Fact;

/// Sentences between two facts of the same depth.
const GAP: usize = 3;

/// Plan of a haystack.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a> {
    /// length of the text, tokens
    pub n_tokens: usize,
    /// depths in percent, ascending
    pub depths: &'a [u32],
    /// facts to plant, the same number at each depth, in order
    pub facts: &'a [Fact],
}

/// A planted fact.
#[derive(Debug, Clone, PartialEq)]
pub struct Needle {
    /// requested depth, percent
    pub depth: u32,
    /// share of the text before it
    pub at: f64,
    /// planted fact
    pub fact: Fact,
}

/// A document with facts in it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Haystack {
    /// text for the model
    pub text: String,
    /// length of the text, tokens
    pub n_tokens: usize,
    /// needles in order of depth
    #[serde(skip)]
    pub needles: Vec<Needle>,
}

/// Error of building a haystack.
#[derive(Debug, thiserror::Error)]
pub enum HaystackError {
    /// the facts leave no room for text
    #[error("{n_tokens} tokens have no room for {n_facts} facts and text between them. Give a longer length or fewer facts")]
    TooShort {
        /// requested tokens
        n_tokens: usize,
        /// number of facts
        n_facts: usize,
    },
    /// the paragraphs ended too early
    #[error("the text ends after {got} of {wanted} tokens. Give a longer one, or none for synthetic text")]
    TextEnds {
        /// available tokens
        got: usize,
        /// requested tokens
        wanted: usize,
    },
}

/// A sentence of the document; `begins` is true for the first of a paragraph.
struct Sentence {
    text: String,
    begins: bool,
    n_tokens: usize,
}

/// Builds a document from `paragraphs`, sentence by sentence; `count` returns the number of tokens of a text.
///
/// # Errors
/// [`HaystackError`], or an error of `count`.
pub fn build<E: From<HaystackError>>(
    plan: Plan,
    paragraphs: impl Iterator<Item = Vec<String>>,
    count: impl Fn(&str) -> Result<usize, E>,
) -> Result<Haystack, E> {
    let mut room = plan.n_tokens;
    for fact in plan.facts {
        let n_tokens = count(&spaced(&fact.sentence))?;
        room = room.checked_sub(n_tokens).ok_or_else(|| too_short(plan))?;
    }
    let mut sentences = gather(room, paragraphs, &count)?;
    // Tokens of the whole may differ from the sum over sentences; the excess is removed from the end.
    loop {
        if sentences.len() < plan.facts.len() {
            return Err(too_short(plan).into());
        }
        let (text, needles) = assemble(plan, &sentences);
        let n_tokens = count(&text)?;
        let mut excess = n_tokens.saturating_sub(plan.n_tokens);
        if excess == 0 {
            return Ok(Haystack { text, n_tokens, needles });
        }
        while excess > 0 {
            let Some(last) = sentences.pop() else { break };
            excess = excess.saturating_sub(last.n_tokens);
        }
    }
}

/// Sentences that fit the room, in order.
fn gather<E: From<HaystackError>>(
    room: usize,
    paragraphs: impl Iterator<Item = Vec<String>>,
    count: &impl Fn(&str) -> Result<usize, E>,
) -> Result<Vec<Sentence>, E> {
    let (mut sentences, mut used) = (Vec::new(), 0);
    for paragraph in paragraphs {
        for (i, text) in paragraph.into_iter().enumerate() {
            let n_tokens = count(&spaced(&text))?.max(1);
            if used + n_tokens > room {
                return Ok(sentences);
            }
            used += n_tokens;
            sentences.push(Sentence { text, begins: i == 0, n_tokens });
        }
    }
    Err(HaystackError::TextEnds { got: used, wanted: room }.into())
}

/// The text with the facts at their positions.
fn assemble(plan: Plan, sentences: &[Sentence]) -> (String, Vec<Needle>) {
    let per_depth = plan.facts.len().checked_div(plan.depths.len()).unwrap_or(0);
    let depths = plan.depths.iter().flat_map(|depth| (0..per_depth).map(move |k| (*depth, k)));
    let mut pending: Vec<(usize, u32, &Fact)> =
        depths.zip(plan.facts).map(|((depth, k), fact)| (position(depth, k, per_depth, sentences.len()), depth, fact)).collect();
    pending.sort_by_key(|(position, ..)| *position);
    let mut pending = pending.into_iter().peekable();
    let (mut text, mut placed) = (String::new(), Vec::new());
    for i in 0..=sentences.len() {
        while let Some((_, depth, fact)) = pending.next_if(|(position, ..)| *position == i) {
            push(&mut text, " ", &fact.sentence);
            placed.push((depth, text.len() - fact.sentence.len(), fact));
        }
        if let Some(sentence) = sentences.get(i) {
            push(&mut text, if sentence.begins { "\n\n" } else { " " }, &sentence.text);
        }
    }
    let n_bytes = text.len().max(1) as f64;
    let needles = placed.into_iter().map(|(depth, byte, fact)| Needle { depth, at: byte as f64 / n_bytes, fact: fact.clone() });
    (text, needles.collect())
}

/// Index of the sentence after the `k`th of `per_depth` facts of a depth, among `n` sentences.
fn position(depth: u32, k: usize, per_depth: usize, n: usize) -> usize {
    let gap = GAP.min(n / per_depth.max(1));
    let span = per_depth.saturating_sub(1) * gap;
    (n.saturating_sub(span) * depth as usize + 50) / 100 + k * gap
}

fn push(text: &mut String, separator: &str, what: &str) {
    if !text.is_empty() {
        text.push_str(separator);
    }
    text.push_str(what);
}

fn spaced(sentence: &str) -> String {
    format!(" {sentence}")
}

fn too_short(plan: Plan) -> HaystackError {
    HaystackError::TooShort { n_tokens: plan.n_tokens, n_facts: plan.facts.len() }
}

/// Paragraphs of a text as sentences on one line each, rotated to begin with the paragraph at `first`.
pub fn paragraphs_of(text: &str, first: usize) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = text
        .split("\n\n")
        .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|paragraph| !paragraph.is_empty())
        .map(|paragraph| sentences_of(&paragraph))
        .collect();
    let n = all.len().max(1);
    all.rotate_left(first % n);
    all
}

/// Splits a paragraph after sentence ends that are followed by a capital or a quotation mark.
fn sentences_of(paragraph: &str) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut begin = 0;
    for (at, _) in paragraph.match_indices(' ') {
        let (before, after) = (paragraph.get(begin..at).unwrap_or_default(), paragraph.get(at + 1..).unwrap_or_default());
        let begins_one = after.starts_with(|c: char| c.is_uppercase() || "\"'“‘(".contains(c));
        if before.ends_with(['.', '!', '?', ';', '”', '"']) && begins_one {
            sentences.push(before.to_owned());
            begin = at + 1;
        }
    }
    sentences.extend(paragraph.get(begin..).map(str::to_owned));
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Rng;
    use crate::cli::eval::synthetic_text;

    /// Counts words as tokens.
    fn words(text: &str) -> Result<usize, HaystackError> {
        Ok(text.split_whitespace().count())
    }

    fn synthetic(seed: u64) -> impl Iterator<Item = Vec<String>> {
        let mut rng = Rng::new(seed);
        std::iter::from_fn(move || Some(synthetic_text::paragraph(&mut rng)))
    }

    #[test]
    fn haystack_has_its_length_and_needles_at_their_depths() {
        for (n_tokens, per_depth) in [(400, 1), (2000, 1), (2000, 3), (20_000, 2)] {
            let depths = [0, 25, 50, 75, 100];
            let facts = synthetic_text::facts(depths.len() * per_depth, &mut Rng::new(9));
            let plan = Plan { n_tokens, depths: &depths, facts: &facts };
            let hay = build(plan, synthetic(4), words).unwrap();
            assert!(hay.n_tokens <= n_tokens && hay.n_tokens + 60 > n_tokens, "{} of {n_tokens}", hay.n_tokens);
            assert_eq!(hay.needles.len(), facts.len());
            for (needle, fact) in hay.needles.iter().zip(&facts) {
                assert_eq!(&needle.fact, fact, "the facts of a depth keep their order");
                assert_eq!(hay.text.matches(&fact.sentence).count(), 1);
                let slack = 0.1 + 8.0 * per_depth as f64 / (n_tokens as f64 / 20.0);
                assert!((needle.at - f64::from(needle.depth) / 100.0).abs() < slack, "{} % at {}", needle.depth, needle.at);
            }
            assert!(hay.text.starts_with(&facts[0].sentence) && hay.text.ends_with(&facts[facts.len() - 1].sentence));
            assert_eq!(hay, build(plan, synthetic(4), words).unwrap());
        }
    }

    #[test]
    fn haystack_without_room_or_text_is_rejected_with_numbers() {
        let facts = synthetic_text::facts(8, &mut Rng::new(1));
        let plan = Plan { n_tokens: 60, depths: &[0, 100], facts: &facts };
        let error = build(plan, synthetic(1), words).unwrap_err();
        assert!(error.to_string().contains("60") && error.to_string().contains('8'), "{error}");
        let plan = Plan { n_tokens: 500, ..plan };
        let short = paragraphs_of("Only a few words. They end soon.", 0).into_iter();
        assert!(matches!(build(plan, short, words), Err(HaystackError::TextEnds { got: 7, .. })));
    }

    #[test]
    fn haystack_with_more_tokens_than_its_parts_still_fits() {
        // A tokenizer for which the whole is longer than its parts.
        let count = |text: &str| Ok::<_, HaystackError>(words(text)? + text.len() / 100);
        let facts = synthetic_text::facts(2, &mut Rng::new(1));
        let hay = build(Plan { n_tokens: 600, depths: &[0, 100], facts: &facts }, synthetic(1), count).unwrap();
        assert!(hay.n_tokens <= 600 && hay.n_tokens > 540, "{}", hay.n_tokens);
    }

    #[test]
    fn paragraphs_of_a_text_are_unwrapped_sentences_from_any_place() {
        let text = "One line\nwrapped here. And Mr. Hale\nleft.\n\n\n\n“Why?” asked he. Nobody knew; no one\ncared.\n";
        let all = paragraphs_of(text, 0);
        assert_eq!(all[0], ["One line wrapped here.", "And Mr.", "Hale left."]);
        assert_eq!(all[1], ["“Why?” asked he.", "Nobody knew; no one cared."]);
        assert_eq!(paragraphs_of(text, 3)[0], all[1]);
        assert!(paragraphs_of("", 5).is_empty());
    }
}
