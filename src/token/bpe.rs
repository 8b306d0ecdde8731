//! Byte-level BPE through the `tokenizers` crate: encodes one fragment of text, in parts, so that memory stays bounded.
//!
//! ```text
//! GgufVocab (gpt2) ─┐
//! tokenizer.json  ──┴─► Bpe ──encode──► ids
//! ```
//! Invariants: 1. The crate never truncates, pads or adds special tokens. 2. Special tokens were split off before, so the
//! crate treats their text as text. 3. Only the first part of a fragment gets a prefix space.

use serde_json::Value;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior::Isolated;
use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, Tokenizer as Library};

use super::TokenError;
use super::gguf_vocab::GgufVocab;
use super::pre_tokenizer::PreTokenizerKind;
use super::safe_split::{SplitRule, parts};

/// Words that the crate caches per thread.
const CACHED_WORDS: usize = 1 << 16;

/// Neighbor before a fragment of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// nothing: it begins the text
    Nothing,
    /// a special token
    Token,
    /// the rest of a text that was divided
    Text,
}

/// The crate's tokenizer, with a second one if the start of a text is special.
pub(super) struct Bpe {
    first: Library,
    /// `first` without its prefix space; None if it adds none
    later: Option<Library>,
    /// true if a special token is not followed by a prefix space
    prefix_only_at_start: bool,
    rule: SplitRule,
}

impl Bpe {
    /// Byte-level BPE of a checked GGUF vocabulary.
    pub fn from_gguf(vocab: &GgufVocab, pre: &PreTokenizerKind) -> Result<Self, TokenError> {
        let ids: Vocab = vocab.tokens.iter().cloned().zip(0u32..).collect();
        let merges = vocab.usable_merges().into_iter().map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
        let model = BPE::builder()
            .vocab_and_merges(ids, merges)
            .ignore_merges(pre.ignore_merges)
            .cache_capacity(CACHED_WORDS)
            .build()
            .map_err(encode_error)?;
        let mut steps = Vec::new();
        for pattern in &pre.patterns {
            let split = Split::new(SplitPattern::Regex((*pattern).to_owned()), Isolated, false).map_err(encode_error)?;
            steps.push(PreTokenizerWrapper::Split(split));
        }
        steps.push(PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, false, false)));
        let mut first = Library::new(model);
        first.with_pre_tokenizer(Some(Sequence::new(steps)));
        Ok(Bpe::new(first, None, false))
    }

    /// A `tokenizer.json`, already parsed.
    pub fn from_json(json: Value) -> Result<Self, TokenError> {
        let mut plain = json.clone();
        let prefix = remove_prefix(&mut plain);
        let first = library(json)?;
        let later = if prefix.any { Some(library(plain)?) } else { None };
        Ok(Bpe::new(first, later, prefix.only_at_start))
    }

    fn new(first: Library, later: Option<Library>, prefix_only_at_start: bool) -> Self {
        let rule = split_rule(later.as_ref().unwrap_or(&first));
        Bpe { first, later, prefix_only_at_start, rule }
    }

    /// The crate's tokenizer, which has the vocabulary.
    pub fn library(&self) -> &Library {
        &self.first
    }

    /// Appends the ids of `fragment`.
    pub fn encode(&self, fragment: &str, before: Before, out: &mut Vec<u32>) -> Result<(), TokenError> {
        let mut prefixed = before == Before::Nothing || (before == Before::Token && !self.prefix_only_at_start);
        for part in parts(fragment, self.rule) {
            let library = if prefixed { &self.first } else { self.later.as_ref().unwrap_or(&self.first) };
            out.extend_from_slice(library.encode_fast(part, false).map_err(encode_error)?.get_ids());
            prefixed = false;
        }
        Ok(())
    }

    /// The special token that the file's post-processor puts first; None if it adds none.
    pub fn first_added(&self) -> Option<u32> {
        let plain = self.first.encode_fast("a", false).ok()?;
        let with = self.first.encode_fast("a", true).ok()?;
        (with.len() > plain.len()).then(|| with.get_ids().first().copied()).flatten().filter(|id| !plain.get_ids().contains(id))
    }
}

impl std::fmt::Debug for Bpe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bpe").field("rule", &self.rule).field("later", &self.later.is_some()).finish_non_exhaustive()
    }
}

fn library(json: Value) -> Result<Library, TokenError> {
    let mut library: Library = serde_json::from_value(json).map_err(|e| encode_error(Box::new(e)))?;
    library.with_truncation(None).map_err(encode_error)?;
    library.with_padding(None);
    library.set_encode_special_tokens(true);
    Ok(library)
}

fn encode_error(error: Box<dyn std::error::Error + Send + Sync>) -> TokenError {
    TokenError::Encode { reason: error.to_string() }
}

/// Prefix space of a `tokenizer.json`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Prefix {
    any: bool,
    only_at_start: bool,
}

/// Removes every step of a parsed `tokenizer.json` that puts a space before a text.
fn remove_prefix(json: &mut Value) -> Prefix {
    let mut prefix = Prefix::default();
    for part in ["normalizer", "pre_tokenizer"] {
        if let Some(step) = json.get_mut(part) {
            remove_prefix_of_step(step, &mut prefix);
        }
    }
    prefix
}

fn remove_prefix_of_step(step: &mut Value, prefix: &mut Prefix) {
    for list in ["normalizers", "pretokenizers"] {
        if let Some(steps) = step.get_mut(list).and_then(Value::as_array_mut) {
            steps.iter_mut().for_each(|s| remove_prefix_of_step(s, prefix));
        }
    }
    match step.get("type").and_then(Value::as_str) {
        Some("Prepend") => {
            prefix.any = true;
            *step = serde_json::json!({"type": "Sequence", "normalizers": []});
        }
        Some("Metaspace") => {
            let scheme = step.get("prepend_scheme").and_then(Value::as_str).map(str::to_owned);
            let never = scheme.as_deref() == Some("never") || step.get("add_prefix_space") == Some(&Value::Bool(false));
            prefix.any |= !never;
            prefix.only_at_start |= scheme.as_deref() == Some("first");
            if let Some(step) = step.as_object_mut() {
                step.remove("add_prefix_space");
                step.insert("prepend_scheme".into(), "never".into());
            }
        }
        Some("ByteLevel") if step.get("add_prefix_space") == Some(&Value::Bool(true)) => {
            prefix.any = true;
            if let Some(flag) = step.get_mut("add_prefix_space") {
                *flag = Value::Bool(false);
            }
        }
        _ => {}
    }
}

/// Finds safe places to split a text for `library`: no word and no token spans them.
fn split_rule(library: &Library) -> SplitRule {
    let mut rule = SplitRule { before_space: is_boundary(library, "ab cd", 2), after_newline: is_boundary(library, "ab\ncd", 3) };
    for token in library.get_vocab(true).keys() {
        for (a, b) in token.chars().zip(token.chars().skip(1)) {
            rule.before_space &= !(a.is_ascii_alphabetic() && matches!(b, ' ' | 'Ġ' | '\u{2581}'));
            rule.after_newline &= !(matches!(a, '\n' | 'Ċ') && b.is_ascii_alphabetic());
        }
    }
    rule
}

/// True if byte `at` of `sample` begins a word, or if there is no pre-tokenizer.
fn is_boundary(library: &Library, sample: &str, at: usize) -> bool {
    let Some(pre_tokenizer) = library.get_pre_tokenizer() else { return true };
    let mut words = PreTokenizedString::from(sample);
    if pre_tokenizer.pre_tokenize(&mut words).is_err() {
        return false;
    }
    let words = words.get_splits(OffsetReferential::Original, OffsetType::Byte);
    words.len() == 1 || words.iter().any(|(_, (start, _), _)| *start == at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn remove_prefix_covers_every_kind_of_prefix_space() {
        let cases = [
            (json!({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "_"}]}}), true, false),
            (json!({"pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}}), true, true),
            (json!({"pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "never"}}), false, false),
            (json!({"pre_tokenizer": {"type": "Metaspace", "replacement": "_", "add_prefix_space": false}}), false, false),
            (json!({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true}}), true, false),
            (json!({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "normalizer": null}), false, false),
        ];
        for (mut json, any, only_at_start) in cases {
            assert_eq!(remove_prefix(&mut json), Prefix { any, only_at_start }, "{json}");
            assert_eq!(remove_prefix(&mut json), Prefix::default(), "{json}");
        }
    }
}
