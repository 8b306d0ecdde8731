//! Document text as stored in the database, and its conversion back to a [`Document`]. Pure.
//!
//! Invariant: a restored document has the hash it was saved under, and pages within its text; otherwise there is none.

use crate::document::{ContentHash, Document, FileFormat, PageSpan, Section};

/// A stored document before validation.
pub(super) struct StoredText {
    pub name: String,
    pub bytes: u64,
    pub text: String,
    /// [`Parts`] as JSON
    pub parts: String,
}

/// All of a document but its text.
#[derive(serde::Serialize, serde::Deserialize)]
struct Parts {
    kind: FileFormat,
    page_ends: Vec<usize>,
    first_page: usize,
    sections: Vec<(String, usize)>,
    notes: Vec<String>,
}

pub(super) fn parts_of(document: &Document) -> String {
    let parts = Parts {
        kind: document.kind,
        page_ends: document.pages.iter().map(|page| page.end_byte).collect(),
        first_page: document.first_page,
        sections: document.sections.iter().map(|s| (s.title.clone(), s.first_byte)).collect(),
        notes: document.notes.clone(),
    };
    serde_json::to_string(&parts).unwrap_or_default()
}

impl StoredText {
    /// None if text or parts do not match the saved document.
    pub(super) fn document(self, content_hash: &str) -> Option<Document> {
        let hash = ContentHash::of(&self.text);
        let parts: Parts = serde_json::from_str(&self.parts).ok()?;
        let starts = std::iter::once(0).chain(parts.page_ends.iter().copied());
        let spans = starts.zip(parts.page_ends.iter().copied());
        let pages: Vec<PageSpan> = spans.map(|(first_byte, end_byte)| PageSpan { first_byte, end_byte }).collect();
        let is_whole = hash.to_string() == content_hash
            && pages.iter().all(|page| self.text.get(page.first_byte..page.end_byte).is_some())
            && parts.sections.iter().all(|(_, first_byte)| self.text.is_char_boundary(*first_byte));
        is_whole.then(|| Document {
            name: self.name,
            kind: parts.kind,
            text: self.text,
            bytes: self.bytes,
            content_hash: hash,
            pages,
            first_page: parts.first_page,
            sections: parts.sections.into_iter().map(|(title, first_byte)| Section { title, first_byte }).collect(),
            notes: parts.notes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(document: &Document) -> StoredText {
        let Document { name, bytes, text, .. } = document.clone();
        StoredText { name, bytes, text, parts: parts_of(document) }
    }

    #[test]
    fn stored_document_is_restored_unchanged() {
        let document = Document::from_bytes("a.txt", "One.\u{c}Zwei üben.\n".as_bytes()).unwrap();
        assert_eq!(stored(&document).document(&document.content_hash.to_string()), Some(document));
    }

    #[test]
    fn changed_stored_document_is_rejected() {
        let document = Document::from_bytes("a.txt", "One ü two.".as_bytes()).unwrap();
        let hash = document.content_hash.to_string();
        assert_eq!(StoredText { text: "Other.".into(), ..stored(&document) }.document(&hash), None);
        for parts in ["", "{}", &parts_of(&document).replace("[11]", "[5]"), &parts_of(&document).replace("[11]", "[99]")] {
            assert_eq!(StoredText { parts: parts.into(), ..stored(&document) }.document(&hash), None, "{parts}");
        }
        let with_section = |first_byte| {
            let sections = vec![Section { title: "Two".into(), first_byte }];
            stored(&Document { sections, ..document.clone() }).document(&hash)
        };
        assert!(with_section(4).is_some() && with_section(5).is_none(), "inside a character");
    }
}
