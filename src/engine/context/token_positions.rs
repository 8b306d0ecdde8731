//! Token positions: offsets of the first user message as positions in the tokens of its prompt.
//!
//! ```text
//! messages ─► prompt tokens ─► bytes of each token ─► tokens that begin before each offset
//! ```

use crate::engine::EngineError;
use crate::engine::api::{Message, Role};
use crate::engine::context::page_view::find_text;
use crate::engine::runner::ModelRunner;
use crate::token::Tokenizer;

impl ModelRunner {
    /// Token count of a conversation, and token position of each of `offsets` (bytes of the first user message, ascending).
    ///
    /// # Errors
    /// The model has no tokenizer, or its chat template rejects the conversation.
    pub(in crate::engine) fn count(&self, messages: &[Message], offsets: &[usize]) -> Result<(usize, Vec<usize>), EngineError> {
        let prompt = self.encode(messages, true)?.tokens;
        let text = messages.iter().find(|m| m.role == Role::User).map_or("", |m| m.content.as_str());
        let positions = match offsets.is_empty() {
            true => Vec::new(),
            false => token_positions(&self.text()?.tokenizer, &prompt, text, offsets).unwrap_or_default(),
        };
        Ok((prompt.len(), positions))
    }
}

/// Tokens of `prompt` that begin before each of `offsets`, bytes of `text`. None if the prompt does not contain the text.
fn token_positions(tokenizer: &Tokenizer, prompt: &[u32], text: &str, offsets: &[usize]) -> Option<Vec<usize>> {
    let head = find_text(tokenizer, prompt, text)?;
    let mut positions = Vec::with_capacity(offsets.len());
    let (mut n_tokens, mut begin) = (0, 0);
    for offset in offsets {
        while begin < head + offset && n_tokens < prompt.len() {
            begin += tokenizer.token_bytes(*prompt.get(n_tokens)?).map_or(0, |bytes| bytes.len());
            n_tokens += 1;
        }
        positions.push(n_tokens);
    }
    Some(positions)
}
