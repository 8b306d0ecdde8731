//! Page view: positions of a prompt's text in its pages, kept from one page map to the next.

use std::time::Instant;

use crate::base::limits::KV_PAGE_TOKENS;
use crate::token::Tokenizer;

/// Maximum offset in the prompt at which the text of the first user message may begin, bytes.
const HEAD_BYTES: usize = 8192;
/// Bytes of the text that are searched for.
const KEY_BYTES: usize = 48;

/// State between two maps.
#[derive(Debug, Default)]
pub(in crate::engine) struct PageView {
    /// bytes of the prompt before the first user message; None if not found
    head_bytes: Option<usize>,
    /// tokens of those bytes
    n_head: usize,
    /// end of each page so far, bytes of the prompt
    ends: Vec<usize>,
    pub(super) shown: Option<Instant>,
}

impl PageView {
    /// Begins another prompt, whose first user message is `text`.
    pub(in crate::engine) fn begin(&mut self, tokenizer: &Tokenizer, prompt: &[u32], text: &str) {
        self.ends.clear();
        self.head_bytes = find_text(tokenizer, prompt, text);
        let mut left = self.head_bytes.unwrap_or(0);
        let is_head = |id: &&u32| {
            let n_bytes = tokenizer.token_bytes(**id).map_or(0, |bytes| bytes.len());
            let fits = left > 0 && n_bytes <= left;
            left = left.saturating_sub(n_bytes);
            fits
        };
        self.n_head = prompt.iter().take_while(is_head).count();
    }

    /// Tokens of the prompt before the first user message.
    pub(in crate::engine) fn n_head(&self) -> usize {
        self.n_head
    }

    /// Byte offsets of `n_pages` pages in the first user message, and the end of the last.
    pub(super) fn first_bytes(&mut self, tokenizer: &Tokenizer, tokens: &[u32], n_pages: usize) -> Vec<u32> {
        let Some(head) = self.head_bytes else { return Vec::new() };
        let mut end = self.ends.last().copied().unwrap_or(0);
        for page in tokens.chunks_exact(KV_PAGE_TOKENS).take(n_pages).skip(self.ends.len()) {
            end += page.iter().map(|id| tokenizer.token_bytes(*id).map_or(0, |bytes| bytes.len())).sum::<usize>();
            self.ends.push(end);
        }
        let ends = std::iter::once(0).chain(self.ends.iter().copied()).take(n_pages + 1);
        ends.map(|byte| u32::try_from(byte.saturating_sub(head)).unwrap_or(u32::MAX)).collect()
    }
}

/// Bytes of the prompt before `text`. None if it does not begin near the start of the prompt.
pub(super) fn find_text(tokenizer: &Tokenizer, prompt: &[u32], text: &str) -> Option<usize> {
    let mut head = Vec::new();
    for id in prompt {
        if head.len() > HEAD_BYTES {
            break;
        }
        head.extend(tokenizer.token_bytes(*id).ok()?);
    }
    let key = text.as_bytes().get(..KEY_BYTES.min(text.len())).filter(|key| !key.is_empty())?;
    head.windows(key.len()).position(|window| window == key)
}
