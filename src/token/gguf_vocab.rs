//! GGUF vocabulary: the tokenizer keys of a GGUF header as plain data, and their validation.
//!
//! ```text
//! tokenizer.ggml.* (read by the model module) ──► GgufVocab ──check──► Tokenizer::from_gguf
//! ```
//! Invariants after [`GgufVocab::check`]: 1. Every per-token array is empty or as long as `tokens`. 2. Every special id is a
//! token.
//! Limits: [`limits::MAX_VOCAB`] tokens, [`MAX_MERGES`] merges, [`MAX_TEXT_BYTES`] of text.
//! Source: the key list of the GGUF specification (`tokenizer.ggml.*`).

use std::collections::HashSet;

use super::TokenError;
use crate::base::limits;

/// Largest number of merges.
pub const MAX_MERGES: usize = 1 << 22;
/// Largest size of token text, and of merge text, bytes.
pub const MAX_TEXT_BYTES: usize = 256 << 20;

/// `tokenizer.ggml.*` of a GGUF file. Missing arrays are empty, missing keys are None.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GgufVocab {
    /// `tokenizer.ggml.model`: `gpt2` (byte-level BPE), `llama` (SentencePiece), `bert`, ...
    pub model: String,
    /// `tokenizer.ggml.pre`: name of the pre-tokenizer of a byte-level BPE
    pub pre: Option<String>,
    /// `tokenizer.ggml.tokens`, by id
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.scores`, by id; SentencePiece merges the best score first
    pub scores: Vec<f32>,
    /// `tokenizer.ggml.token_type`, by id: see [`token_type`]
    pub token_types: Vec<u32>,
    /// `tokenizer.ggml.merges`: `left right`, best first
    pub merges: Vec<String>,
    /// `tokenizer.ggml.bos_token_id`
    pub bos: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`
    pub eos: Option<u32>,
    /// `tokenizer.ggml.eot_token_id`: ends a turn
    pub eot: Option<u32>,
    /// `tokenizer.ggml.unknown_token_id`
    pub unk: Option<u32>,
    /// `tokenizer.ggml.padding_token_id`
    pub pad: Option<u32>,
    /// `tokenizer.ggml.add_bos_token`
    pub add_bos: Option<bool>,
    /// `tokenizer.ggml.add_eos_token`
    pub add_eos: Option<bool>,
    /// `tokenizer.ggml.add_space_prefix`
    pub add_space_prefix: Option<bool>,
}

/// Values of `tokenizer.ggml.token_type`.
pub mod token_type {
    /// ordinary text
    pub const NORMAL: u32 = 1;
    /// the token for unknown text
    pub const UNKNOWN: u32 = 2;
    /// never part of a text: `<s>`, `<|im_end|>`
    pub const CONTROL: u32 = 3;
    /// matched in the text before anything else
    pub const USER_DEFINED: u32 = 4;
    /// reserved
    pub const UNUSED: u32 = 5;
    /// one byte, `<0x0A>`
    pub const BYTE: u32 = 6;
}

impl GgufVocab {
    /// Validates the vocabulary.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn check(&self) -> Result<(), TokenError> {
        let n = self.tokens.len();
        if n == 0 {
            return Err(TokenError::NoTokens);
        }
        at_most("tokens", n, limits::MAX_VOCAB)?;
        at_most("merges", self.merges.len(), MAX_MERGES)?;
        at_most("bytes of token text", total_bytes(&self.tokens), MAX_TEXT_BYTES)?;
        at_most("bytes of merge text", total_bytes(&self.merges), MAX_TEXT_BYTES)?;
        for (what, got) in [("scores", self.scores.len()), ("token types", self.token_types.len())] {
            if got != 0 && got != n {
                return Err(TokenError::Mismatch { what, got, tokens: n });
            }
        }
        let ids = [("bos", self.bos), ("eos", self.eos), ("eot", self.eot), ("unknown", self.unk), ("padding", self.pad)];
        for (what, id) in ids {
            check_id(what, id, n)?;
        }
        Ok(())
    }

    /// The merges that join two tokens into a third. Others are skipped, with a line in the log.
    pub(super) fn usable_merges(&self) -> Vec<(&str, &str)> {
        let known: HashSet<&str> = self.tokens.iter().map(String::as_str).collect();
        let is_usable = |(left, right): &(&str, &str)| {
            known.contains(left) && known.contains(right) && known.contains(format!("{left}{right}").as_str())
        };
        let merges = self.merges.iter().filter_map(|merge| split_merge(merge));
        let usable: Vec<(&str, &str)> = merges.filter(is_usable).collect();
        if let n_skipped @ 1.. = self.merges.len() - usable.len() {
            log::warn!("{n_skipped} merges of the tokenizer are skipped, because they do not join two tokens into a third");
        }
        usable
    }
}

/// The two sides of `left right`. The separator is the first space after the first character, because a side may begin with
/// a space.
fn split_merge(merge: &str) -> Option<(&str, &str)> {
    let first = merge.chars().next()?.len_utf8();
    let at = first + merge.get(first..)?.find(' ')?;
    let (left, right) = (merge.get(..at)?, merge.get(at + 1..)?);
    (!right.is_empty()).then_some((left, right))
}

fn at_most(what: &'static str, got: usize, max: usize) -> Result<(), TokenError> {
    if got > max { Err(TokenError::TooMany { what, got, max }) } else { Ok(()) }
}

fn check_id(what: &'static str, id: Option<u32>, vocab_size: usize) -> Result<(), TokenError> {
    match id {
        Some(id) if usize::try_from(id).map_or(true, |i| i >= vocab_size) => {
            Err(TokenError::IdOutOfRange { what, id, vocab_size })
        }
        _ => Ok(()),
    }
}

fn total_bytes(strings: &[String]) -> usize {
    strings.iter().map(String::len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valid() -> GgufVocab {
        GgufVocab {
            model: "gpt2".into(),
            tokens: ["a", "b", "ab", "<s>"].map(String::from).to_vec(),
            merges: vec!["a b".into()],
            bos: Some(3),
            ..GgufVocab::default()
        }
    }

    #[test]
    fn valid_vocab_passes_and_each_corruption_is_named() {
        assert!(valid().check().is_ok());
        type Corruption = fn(&mut GgufVocab);
        let corruptions: [(&str, Corruption); 4] = [
            ("has no tokenizer", |v| v.tokens.clear()),
            ("4 tokens but 1 scores", |v| v.scores = vec![0.0]),
            ("4 tokens but 2 token types", |v| v.token_types = vec![1, 1]),
            ("eot id is 4", |v| v.eot = Some(4)),
        ];
        for (message, corrupt) in corruptions {
            let mut vocab = valid();
            corrupt(&mut vocab);
            let sentence = vocab.check().unwrap_err().to_string();
            assert!(sentence.contains(message), "{sentence}");
        }
    }

    #[test]
    fn merges_of_unknown_tokens_are_skipped() {
        let mut vocab = valid();
        vocab.merges.extend(["b a", "ab", "c a", ""].map(String::from));
        assert_eq!(vocab.usable_merges(), [("a", "b")]);
    }

    #[test]
    fn merge_is_split_at_the_separator() {
        assert_eq!(split_merge("Ġ t"), Some(("Ġ", "t")));
        assert_eq!(split_merge("  x"), Some((" ", "x")));
        for bad in ["", " ", "a", "a ", "ab"] {
            assert_eq!(split_merge(bad), None, "{bad:?}");
        }
    }
}
