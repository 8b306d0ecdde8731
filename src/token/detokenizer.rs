//! Detokenizer: turns the ids of an answer into text as they arrive, in whole code points.
//!
//! ```text
//! id ──► bytes ──► [pending: the start of a code point] ──► String
//! ```
//! Invariants: 1. After [`Detokenizer::new`] the pieces of [`Detokenizer::push`] and [`Detokenizer::finish`] join to [`Tokenizer::decode`] of all ids.
//! 2. U+FFFD appears only if no later byte could complete the code point. 3. At most 3 bytes are pending.

use std::sync::Arc;

use super::reasoning_marks::opening_at_end;
use super::{TokenError, Tokenizer};

/// Longest beginning of reasoning at the end of a prompt, tokens.
const MAX_OPENING_TOKENS: usize = 32;

/// Detokenizer of one answer.
#[derive(Debug, Clone)]
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    pending: Vec<u8>,
    first: bool,
}

impl Detokenizer {
    /// Begins an answer.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Self {
        Detokenizer { tokenizer, pending: Vec::new(), first: true }
    }

    /// Begins an answer to a prompt. If the prompt ends with the beginning of the model's reasoning, the answer begins with it.
    ///
    /// # Errors
    /// An id outside the vocabulary.
    pub fn after(tokenizer: Arc<Tokenizer>, prompt: &[u32]) -> Result<Self, TokenError> {
        let end = prompt.get(prompt.len().saturating_sub(MAX_OPENING_TOKENS)..).unwrap_or_default();
        let mut text = Vec::new();
        for &id in end {
            text.extend(tokenizer.token_bytes(id)?);
        }
        let opening = opening_at_end(&String::from_utf8_lossy(&text)).map(|open| format!("{open}\n"));
        Ok(Detokenizer { pending: opening.unwrap_or_default().into_bytes(), ..Detokenizer::new(tokenizer) })
    }

    /// Text completed by `id`; often empty.
    ///
    /// # Errors
    /// An id outside the vocabulary.
    pub fn push(&mut self, id: u32) -> Result<String, TokenError> {
        self.pending.extend_from_slice(self.tokenizer.shown_bytes(id, &mut self.first)?);
        let mut text = String::new();
        let mut at = 0;
        while let Some(rest) = self.pending.get(at..).filter(|r| !r.is_empty()) {
            let Some(chunk) = rest.utf8_chunks().next() else { break };
            text.push_str(chunk.valid());
            at += chunk.valid().len();
            let bad = chunk.invalid();
            let may_go_on = at + bad.len() == self.pending.len() && is_prefix_of_a_code_point(bad);
            if bad.is_empty() || may_go_on {
                break;
            }
            text.push(char::REPLACEMENT_CHARACTER);
            at += bad.len();
        }
        self.pending.drain(..at);
        Ok(text)
    }

    /// Ends the answer: an incomplete code point becomes U+FFFD.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}

/// True if more bytes could complete a code point.
fn is_prefix_of_a_code_point(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|e| e.valid_up_to() == 0 && e.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::GgufVocab;
    use crate::token::piece_bytes::char_of_byte;
    use proptest::prelude::*;

    /// One token per byte, and one control token (256).
    fn bytes_tokenizer() -> Arc<Tokenizer> {
        let mut tokens: Vec<String> = (0..=255).map(|b| char_of_byte(b).to_string()).collect();
        tokens.push("<|im_end|>".into());
        let vocab = GgufVocab { model: "gpt2".into(), pre: Some("gpt-2".into()), tokens, ..GgufVocab::default() };
        Arc::new(Tokenizer::from_gguf(&vocab).unwrap())
    }

    /// The same in SentencePiece's form: byte tokens, then the space and some letters.
    fn spm_tokenizer() -> Arc<Tokenizer> {
        let mut tokens: Vec<String> = (0..=255).map(|b: u8| format!("<0x{b:02X}>")).collect();
        tokens.extend(["\u{2581}", "\u{2581}a", "a", "\u{2581}\u{2581}"].map(String::from));
        let vocab = GgufVocab { model: "llama".into(), tokens, ..GgufVocab::default() };
        Arc::new(Tokenizer::from_gguf(&vocab).unwrap())
    }

    fn stream(tokenizer: &Arc<Tokenizer>, ids: &[u32]) -> Vec<String> {
        let mut decoder = Detokenizer::new(Arc::clone(tokenizer));
        let mut pieces: Vec<String> = ids.iter().map(|&id| decoder.push(id).unwrap()).collect();
        pieces.push(decoder.finish());
        pieces
    }

    #[test]
    fn push_waits_for_a_complete_code_point() {
        let tokenizer = bytes_tokenizer();
        assert_eq!(stream(&tokenizer, &[0xE6, 0xB5, 256, 0xB7, 0x21]), ["", "", "", "海", "!", ""]);
        assert_eq!(stream(&tokenizer, &[0xE6, 0x41]), ["", "\u{FFFD}A", ""]);
        assert_eq!(stream(&tokenizer, &[0xFF]), ["\u{FFFD}", ""]);
        assert_eq!(stream(&tokenizer, &[0xF0, 0x9F]), ["", "", "\u{FFFD}"]);
        assert!(Detokenizer::new(tokenizer).push(257).is_err());
    }

    #[test]
    fn push_sentence_piece_drops_one_leading_space_only() {
        let tokenizer = spm_tokenizer();
        assert_eq!(stream(&tokenizer, &[257, 257]), ["a", " a", ""]);
        assert_eq!(stream(&tokenizer, &[256, 258]), ["", "a", ""]);
        assert_eq!(stream(&tokenizer, &[259, 258]), [" ", "a", ""]);
    }

    proptest! {
        #[test]
        fn pieces_join_up_to_the_decoded_whole(ids in prop::collection::vec(0u32..257, 0..60)) {
            let tokenizer = bytes_tokenizer();
            prop_assert_eq!(stream(&tokenizer, &ids).concat(), tokenizer.decode(&ids).unwrap());
        }

        #[test]
        fn text_round_trips_in_either_spelling(text in "[ aé海🚀\\n]{0,40}") {
            for tokenizer in [bytes_tokenizer(), spm_tokenizer()] {
                let ids = tokenizer.encode(&text, true).unwrap();
                let pieces = stream(&tokenizer, &ids);
                prop_assert!(!pieces.concat().contains(char::REPLACEMENT_CHARACTER));
                prop_assert_eq!(pieces.concat(), text.as_str());
                prop_assert_eq!(tokenizer.decode(&ids).unwrap(), text.as_str());
            }
        }
    }
}
