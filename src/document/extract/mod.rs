//! Extraction: formats that need a parser (PDF, DOCX, EPUB, HTML) to text, in the sandboxed process.
//!
//! ```text
//! bytes, FileFormat ──► pdf │ docx │ epub │ html ──► Extracted { parts: [title, text] } ──► Document
//!                      └── zip_archive, text_flow ──┘
//! ```
//! Invariants: 1. Nothing is truncated silently: content above a limit is rejected. 2. The result is deterministic.
//! 3. Files are untrusted, so this runs in a process of its own (see [`super::sandbox`]).
//! Limits: all in [`crate::base::limits`].

mod docx;
mod epub;
mod extracted;
mod html;
mod layout;
mod list_number;
mod pdf;
mod scripts;
mod symbol_fonts;
mod table_rows;
mod text_flow;
mod xml;
mod zip_archive;

pub use extracted::{ExtractError, Extracted, Part, ReportProgress};

use super::file_format::FileFormat;

/// Extracts the content of a file.
///
/// # Errors
/// The file cannot be read; the error has the reason and the remedy.
pub fn extract(kind: FileFormat, bytes: &[u8], progress: ReportProgress<'_>) -> Result<Extracted, ExtractError> {
    let extracted = match kind {
        FileFormat::Text | FileFormat::Html => html::extract(bytes),
        FileFormat::Pdf => pdf::extract(bytes, progress),
        FileFormat::Docx => docx::extract(bytes),
        FileFormat::Epub => epub::extract(bytes, progress),
    }?;
    match (extracted.parts.iter().any(|p| !p.text.trim().is_empty()), kind) {
        (true, _) => Ok(extracted),
        (false, FileFormat::Pdf) => Err(ExtractError::NoText { n_pages: extracted.parts.len() }),
        (false, _) => Err(ExtractError::Empty),
    }
}
