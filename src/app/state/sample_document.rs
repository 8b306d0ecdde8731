//! Sample document and its questions, bundled for a first try without a file.

use crate::document::{Document, DocumentError};

const NAME: &str = "sample-document.md";
const TEXT: &str = include_str!("../../../assets/sample-document.md");
const QUESTIONS: &str = include_str!("../../../assets/sample-questions.txt");

/// The sample document.
///
/// # Errors
/// Never for the bundled text; a test reads it.
pub fn document() -> Result<Document, DocumentError> {
    Document::from_bytes(NAME, TEXT.as_bytes())
}

/// Three questions that it answers.
pub fn questions() -> impl Iterator<Item = &'static str> {
    QUESTIONS.lines().map(str::trim).filter(|q| !q.is_empty()).take(3)
}

#[cfg(test)]
mod tests {
    #[test]
    fn sample_is_a_document_with_three_questions() {
        assert!(super::document().unwrap().text.len() > 200);
        assert_eq!(super::questions().count(), 3);
    }
}
