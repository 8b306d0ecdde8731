//! Page text: the document text behind a page of the KV cache.
//!
//! ```text
//! byte range of the joined documents ─► place() ─► source_location(): document, its page, its bytes
//! ```

use std::ops::Range;

use crate::app::answer::citations::SourceLocation;
use crate::app::state::ViewState;
use crate::app::state::chat::{Chat, OpenDocument};
use crate::document::BLANK_LINE;

/// The chat whose context the engine has.
pub fn cached_chat(view: &ViewState) -> &Chat {
    view.chats.list.iter().find(|chat| chat.cached_tokens > 0).unwrap_or(view.chat())
}

/// The document that has a byte of the joined documents of `chat`, and the byte in it.
pub fn place<'a>(chat: &Chat, documents: &'a [OpenDocument], byte: usize) -> Option<(&'a OpenDocument, usize)> {
    let mut begin = 0;
    for id in &chat.documents {
        let doc = documents.iter().find(|doc| doc.id == *id)?;
        let end = begin + doc.text.len();
        if byte < end {
            return Some((doc, byte.saturating_sub(begin)));
        }
        begin = end + BLANK_LINE.len();
    }
    None
}

/// Location of bytes `range` of the joined documents. None outside them, for example in a question.
pub fn source_location(chat: &Chat, documents: &[OpenDocument], range: Range<usize>) -> Option<SourceLocation> {
    let (doc, first) = place(chat, documents, range.start)?;
    let bytes = to_char(&doc.text, first)..to_char(&doc.text, first + range.len());
    Some(SourceLocation { doc: doc.id, page: doc.page_of(bytes.start), bytes })
}

/// The code point that begins at or before `byte`.
fn to_char(text: &str, byte: usize) -> usize {
    let byte = byte.min(text.len());
    (0..=byte).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::state::chat::DocId;
    use crate::document::Document;

    fn doc(id: DocId, text: &str) -> OpenDocument {
        let document = Document::from_bytes(&format!("{id}.txt"), text.as_bytes()).unwrap().into();
        OpenDocument {
            id,
            document,
            n_chars: text.chars().count(),
            n_tokens: None,
            token_range: None,
            ingest_ms: None,
            sample: false,
            path: None,
        }
    }

    #[test]
    fn bytes_of_joined_documents_are_found_in_the_one_that_has_them() {
        let docs = [doc(1, "Alpha\u{0C}beta."), doc(2, "Gämma\u{0C}delta.")];
        let chat = Chat { documents: vec![1, 2], ..Chat::default() };
        let spot = |range| source_location(&chat, &docs, range);
        assert_eq!(spot(6..10), Some(SourceLocation { doc: 1, page: 1, bytes: 6..10 }));
        // 11 bytes, and a blank line.
        assert_eq!(spot(13..18), Some(SourceLocation { doc: 2, page: 0, bytes: 0..5 }));
        assert_eq!(spot(15..20).unwrap().bytes, 1..7, "from the beginning of a code point");
        assert_eq!(spot(500..510), None, "the question is no document");
    }
}
