//! Text to token ids and back, and chat templates.

mod cut;
mod error;
mod json;
mod pieces;
mod pipeline;
mod pre;
mod special;
mod spm;
mod stream;
mod tokenizer;
pub mod vocab;

pub use error::TokenError;
pub use stream::StreamDecoder;
pub use tokenizer::{SpecialIds, Tokenizer};
pub use vocab::GgufVocab;
