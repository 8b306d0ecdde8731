//! Text to token ids and back, and chat templates.
//!
//! ```text
//! [ChatMessage] ──ChatTemplate::prompt──► ids ──► engine ──► ids ──Detokenizer::push──► text
//!                 (escape_special, render, encode, BOS)
//! ```
//! `tokenizer` is the public interface. `bpe` (byte-level BPE, `tokenizer.json`) and `spm` merge text; `special_tokens` finds
//! special tokens before either; `piece_bytes` has the bytes of every id. `gguf_vocab` and `hf_json` read files. `reasoning`
//! separates a model's reasoning from its answer.

mod bpe;
mod chat_message;
mod chat_template;
mod detokenizer;
mod error;
pub mod gguf_vocab;
mod hf_json;
mod jinja;
mod piece_bytes;
mod pre_tokenizer;
mod prompt_check;
mod reasoning;
mod reasoning_marks;
mod safe_split;
mod special_tokens;
mod spm;
mod template_family;
mod template_program;
mod tokenizer;

pub use chat_message::ChatMessage;
pub(crate) use chat_template::template_of_config;
pub use chat_template::{ChatTemplate, Prompt, Rendered};
pub use detokenizer::Detokenizer;
pub use error::TokenError;
pub use gguf_vocab::GgufVocab;
pub use reasoning::{ReasoningFilter, split_reasoning, without_reasoning};
pub(crate) use tokenizer::is_end_name;
pub use tokenizer::{SpecialIds, Tokenizer};

#[cfg(test)]
mod tests {
    #[test]
    fn tokenizer_and_template_are_send_and_sync() {
        fn assert_shared<T: Send + Sync>() {}
        assert_shared::<super::Tokenizer>();
        assert_shared::<super::ChatTemplate>();
        assert_shared::<super::Detokenizer>();
    }
}
