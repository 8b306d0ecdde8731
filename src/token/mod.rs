//! Text to token ids and back, and chat templates.
//!
//! ```text
//! [ChatMessage] ──ChatTemplate::prompt──► ids ──► engine ──► ids ──StreamDecoder::push──► text
//!                 (shield, render, encode, BOS)
//! ```
//! `tokenizer` is the public face; `pipeline` (byte-level BPE, `tokenizer.json`) and `spm` do the merging, `special` finds
//! special tokens before either, `pieces` holds the bytes of every id. `vocab` and `json` are where files come in.

mod cut;
mod error;
mod jinja;
mod json;
mod pieces;
mod pipeline;
mod pre;
mod special;
mod spm;
mod stream;
mod template;
mod tokenizer;
pub mod vocab;

pub use error::TokenError;
pub use stream::StreamDecoder;
pub use template::{ChatMessage, ChatTemplate, Prompt, Rendered};
pub use tokenizer::{SpecialIds, Tokenizer};
pub use vocab::GgufVocab;

#[cfg(test)]
mod tests {
    #[test]
    fn tokenizer_and_template_may_move_between_threads() {
        fn assert_shared<T: Send + Sync>() {}
        assert_shared::<super::Tokenizer>();
        assert_shared::<super::ChatTemplate>();
        assert_shared::<super::StreamDecoder>();
    }
}
