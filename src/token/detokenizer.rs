//! Turns the ids of an answer into text as they come, whole code points only.
//!
//! ```text
//! id ──► bytes ──► [held back: the start of a code point] ──► String
//! ```
//! Invariants: 1. the pieces of [`Detokenizer::push`] and [`Detokenizer::finish`] join up to [`Tokenizer::decode`] of
//! all ids; 2. U+FFFD appears only when no later byte could make sense of the bytes before; 3. at most 3 bytes are held.

use std::sync::Arc;

use super::{TokenError, Tokenizer};

/// The decoder of one answer.
#[derive(Debug, Clone)]
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    held: Vec<u8>,
    first: bool,
}

impl Detokenizer {
    /// For an answer that begins now.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Self {
        Detokenizer { tokenizer, held: Vec::new(), first: true }
    }

    /// The text that `id` completes; often empty.
    ///
    /// # Errors
    /// An id outside the vocabulary.
    pub fn push(&mut self, id: u32) -> Result<String, TokenError> {
        self.held.extend_from_slice(self.tokenizer.shown_bytes(id, &mut self.first)?);
        let mut text = String::new();
        let mut at = 0;
        while let Some(rest) = self.held.get(at..).filter(|r| !r.is_empty()) {
            let Some(chunk) = rest.utf8_chunks().next() else { break };
            text.push_str(chunk.valid());
            at += chunk.valid().len();
            let bad = chunk.invalid();
            let may_go_on = at + bad.len() == self.held.len() && is_prefix_of_a_code_point(bad);
            if bad.is_empty() || may_go_on {
                break;
            }
            text.push(char::REPLACEMENT_CHARACTER);
            at += bad.len();
        }
        self.held.drain(..at);
        Ok(text)
    }

    /// What is left at the end of the answer: a code point that was never completed, as U+FFFD.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned()
    }
}

/// More bytes could make `bytes` a code point.
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

    /// The same in SentencePiece's spelling: byte tokens, then the space and some letters.
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
    fn push_holds_a_code_point_back_until_it_is_whole() {
        let tokenizer = bytes_tokenizer();
        assert_eq!(stream(&tokenizer, &[0xE6, 0xB5, 256, 0xB7, 0x21]), ["", "", "", "海", "!", ""]);
        assert_eq!(stream(&tokenizer, &[0xE6, 0x41]), ["", "\u{FFFD}A", ""]);
        assert_eq!(stream(&tokenizer, &[0xFF]), ["\u{FFFD}", ""]);
        assert_eq!(stream(&tokenizer, &[0xF0, 0x9F]), ["", "", "\u{FFFD}"]);
        assert!(Detokenizer::new(tokenizer).push(257).is_err());
    }

    #[test]
    fn push_sentence_piece_loses_one_leading_space_only() {
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
