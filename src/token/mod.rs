//! Text to token ids and back, and chat templates.

mod error;
pub mod vocab;

pub use error::TokenError;
pub use vocab::GgufVocab;
