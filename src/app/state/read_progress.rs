//! Read progress: how much of each document of a chat is prefilled or saved.
//!
//! ```text
//! prompt   [template][document 1][blank line][document 2] ... [question][template]
//! held     ───────────────────────────────────►                 tokens in the context, or saved in the library
//! shares             [   1.0    ]            [0.4       ]
//! ```
//! Invariants: 1. Tokens of the chat template and of blank lines belong to no document. 2. The context and a saved document
//! hold a prefix of the prompt. 3. Ranges that the engine did not count yet are estimates. Units: tokens; shares 0 to 1.

use std::ops::Range;

use crate::app::state::chat::{Chat, DocId, OpenDocument};
use crate::app::state::engine_state::CountTarget;
use crate::app::state::saved_prefix::SavedPrefix;
use crate::app::state::{ModelState, ViewState};
use crate::document::BLANK_LINE;
use crate::engine::{EngineCommand, Message, READ_MARGIN, RequestId, Role};

impl Chat {
    /// Range of each document among the tokens of the prompt.
    fn ranges(&self, documents: &[OpenDocument]) -> Vec<Range<usize>> {
        let docs: Vec<&OpenDocument> = self.docs(documents).collect();
        if !docs.is_empty() && self.token_ranges.len() == docs.len() {
            return self.token_ranges.clone();
        }
        let first = docs.first().and_then(|doc| doc.token_range.clone());
        if let (Some(range), [_]) = (&first, docs.as_slice()) {
            return vec![range.clone()];
        }
        let mut end = first.map_or(0, |range| range.start);
        let after = |doc: &&OpenDocument| {
            let begin = end;
            end += doc.tokens().0;
            begin..end
        };
        docs.iter().map(after).collect()
    }

    /// Share of each document that the first `held` tokens of the prompt hold. The tokens at the end of the last document
    /// that are prefilled with the question do not count.
    fn shares(&self, ranges: &[Range<usize>], held: usize) -> Vec<f32> {
        let has_prompt = self.prompt_tokens > 0 && self.cached_tokens >= self.prompt_tokens;
        let share = |(i, range): (usize, &Range<usize>)| {
            let margin = if i + 1 == ranges.len() { READ_MARGIN } else { 0 };
            match held.saturating_sub(range.start) {
                _ if has_prompt || (held > range.start && held.saturating_add(margin) >= range.end) => 1.0,
                n => (n as f64 / range.len().max(1) as f64).min(1.0) as f32,
            }
        };
        ranges.iter().enumerate().map(share).collect()
    }

    /// Share of each document, in order, that is in the context or saved.
    pub fn read_shares(&self, documents: &[OpenDocument], saved: Option<SavedPrefix>) -> Vec<f32> {
        let n_saved = saved.map_or(0, |saved| if saved.is_complete { usize::MAX } else { saved.n_tokens });
        self.shares(&self.ranges(documents), self.cached_tokens.max(n_saved))
    }

    /// Share of all documents together that is in the context.
    pub fn read_share(&self, documents: &[OpenDocument]) -> f32 {
        let ranges = self.ranges(documents);
        let total: usize = ranges.iter().map(Range::len).sum();
        let shares = self.shares(&ranges, self.cached_tokens);
        let read: f64 = shares.iter().zip(&ranges).map(|(share, range)| f64::from(*share) * range.len() as f64).sum();
        if total == 0 { 0.0 } else { (read / total as f64) as f32 }
    }
}

impl ViewState {
    /// Requests the tokens of a document, once a model is loaded.
    pub(in crate::app) fn count_document(&mut self, id: DocId) {
        let Some(doc) = self.documents.list.iter().find(|d| d.id == id) else { return };
        let (text, offsets) = (doc.text.clone(), vec![0, doc.text.len()]);
        self.count(CountTarget::Document(id), text, offsets);
    }

    /// Requests the token ranges of the documents of the current chat. One document has its own count.
    pub(in crate::app) fn count_chat(&mut self) {
        let chat = self.chat();
        let target = CountTarget::Chat(chat.id, chat.documents.clone());
        let is_known = chat.documents.len() < 2 || chat.token_ranges.len() == chat.documents.len();
        if is_known || self.engine.counting.values().any(|counting| *counting == target) {
            return;
        }
        let mut offsets = Vec::new();
        let mut begin = 0;
        for doc in chat.docs(&self.documents.list) {
            offsets.extend([begin, begin + doc.text.len()]);
            begin += doc.text.len() + BLANK_LINE.len();
        }
        let text = chat.document_text(&self.documents.list);
        self.count(target, text, offsets);
    }

    fn count(&mut self, target: CountTarget, text: String, offsets: Vec<usize>) {
        if matches!(self.engine.model, ModelState::Ready(_)) {
            let request = self.fresh_id();
            self.engine.counting.insert(request, target);
            let messages = vec![Message { role: Role::User, content: text }];
            self.engine.outbox.push(EngineCommand::Count { request, messages, offsets });
        }
    }

    /// Records the result of a count.
    pub(in crate::app) fn counted(&mut self, request: RequestId, tokens: usize, positions: &[usize]) {
        let ranges: Vec<Range<usize>> = positions.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect();
        match self.engine.counting.remove(&request) {
            Some(CountTarget::Document(id)) => {
                let range = ranges.first().cloned();
                for doc in self.documents.list.iter_mut().filter(|d| d.id == id) {
                    doc.n_tokens = Some(range.as_ref().map_or(tokens, Range::len));
                    doc.token_range = range.clone();
                }
            }
            Some(CountTarget::Chat(id, docs)) => {
                let is_it = |chat: &&mut Chat| chat.id == id && chat.documents == docs;
                self.chats.list.iter_mut().filter(is_it).for_each(|chat| chat.token_ranges.clone_from(&ranges));
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Document;

    fn doc(id: DocId, n_tokens: usize, range: Option<Range<usize>>) -> OpenDocument {
        let document = Document::from_bytes(&format!("{id}.txt"), b"Text.").unwrap().into();
        let (n_tokens, token_range) = (Some(n_tokens), range);
        OpenDocument { id, document, n_chars: 5, n_tokens, token_range, ingest_ms: None, sample: false, path: None }
    }

    /// Documents of 100 and 200 tokens behind 30 of the template.
    fn chat(cached_tokens: usize) -> (Chat, [OpenDocument; 2]) {
        let chat = Chat { documents: vec![1, 2], cached_tokens, token_ranges: vec![30..130, 131..331], ..Chat::default() };
        (chat, [doc(1, 100, Some(30..130)), doc(2, 200, None)])
    }

    #[test]
    fn each_document_has_the_share_of_its_own_tokens() {
        for (held, shares) in
            [(0, [0.0, 0.0]), (30, [0.0, 0.0]), (80, [0.5, 0.0]), (130, [1.0, 0.0]), (231, [1.0, 0.5]), (323, [1.0, 1.0])]
        {
            let (chat, docs) = chat(held);
            assert_eq!(chat.read_shares(&docs, None), shares, "{held}");
        }
        let (chat, docs) = chat(80);
        assert!((chat.read_share(&docs) - 50.0 / 300.0).abs() < 1e-6);
    }

    #[test]
    fn saved_tokens_count_as_those_of_the_context() {
        let (chat, docs) = chat(80);
        let partial = SavedPrefix { n_tokens: 231, ..SavedPrefix::default() };
        assert_eq!(chat.read_shares(&docs, Some(partial)), [1.0, 0.5]);
        assert_eq!(chat.read_shares(&docs, Some(SavedPrefix { is_complete: true, ..partial })), [1.0, 1.0]);
    }

    #[test]
    fn documents_are_read_with_the_prompt_that_begins_with_them() {
        // Counts that are too high, as an estimate may be.
        let docs = [doc(1, 400, None), doc(2, 400, None)];
        let chat = Chat { documents: vec![1, 2], cached_tokens: 350, prompt_tokens: 350, ..Chat::default() };
        assert_eq!(chat.read_shares(&docs, None), [1.0, 1.0]);
        let chat = Chat { prompt_tokens: 360, ..chat };
        assert_eq!(chat.read_shares(&docs, None), [0.875, 0.0]);
        let chat = Chat { documents: vec![1], cached_tokens: 5, ..Chat::default() };
        assert_eq!(chat.read_shares(&[doc(1, 3, Some(4..7))], None), [1.0], "shorter than the margin");
        assert_eq!(Chat { cached_tokens: 4, ..chat }.read_shares(&[doc(1, 3, Some(4..7))], None), [0.0]);
    }
}
