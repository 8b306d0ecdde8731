//! Text to token ids and back, and chat templates.

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
