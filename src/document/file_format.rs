//! File format, detected from first bytes and name.
//!
//! ```text
//! name, bytes ──► FileFormat: text │ html │ pdf │ docx │ epub          or a description: "a picture"
//! ```
//! Invariants: 1. A text extension keeps a file verbatim: the tags of HTML in `page.txt` stay. 2. First letters decide
//! nothing if the whole file is text: a note about PDF may begin with `%PDF-`.

use std::path::Path;

use aho_corasick::AhoCorasick;

use super::encoding;

/// Bytes in which the marks of PDF and HTML must occur.
const HEAD_BYTES: usize = 1024;
/// Last bytes, in which a PDF has its end mark.
const TAIL_BYTES: usize = 2048;
/// Extensions of files that are text, whatever their first letters are.
const TEXT_EXTENSIONS: [&str; 14] =
    ["txt", "text", "md", "markdown", "mdown", "rst", "adoc", "org", "tex", "log", "csv", "tsv", "srt", "vtt"];

/// Format of a document file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum FileFormat {
    /// plain text, Markdown, source code
    Text,
    /// a web page
    Html,
    /// PDF
    Pdf,
    /// a Word document
    Docx,
    /// a book in chapters
    Epub,
}

impl FileFormat {
    /// Format of a file called `name`.
    ///
    /// # Errors
    /// A description of the content, if it is no supported format.
    pub fn of(name: &str, bytes: &[u8]) -> Result<FileFormat, &'static str> {
        let head = bytes.get(..HEAD_BYTES).unwrap_or(bytes);
        if has_extension(name, &TEXT_EXTENSIONS) && is_text(bytes) {
            return Ok(FileFormat::Text);
        }
        if head.starts_with(b"%PDF-") || (has_extension(name, &["pdf"]) && contains(head, "%PDF-")) {
            return Ok(FileFormat::Pdf);
        }
        if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
            return of_archive(name, bytes);
        }
        if let Some(what) = binary_kind(head) {
            return Err(what);
        }
        let is_html = has_extension(name, &["html", "htm", "xhtml", "xht", "mhtml", "mht"]);
        let is_named = Path::new(name).extension().is_some();
        Ok(if is_html || (!is_named && begins_as_html(head)) { FileFormat::Html } else { FileFormat::Text })
    }

    /// True if the sandboxed process reads it.
    pub fn needs_sandbox(self) -> bool {
        self != FileFormat::Text
    }

    /// Name to show.
    pub fn name(self) -> &'static str {
        match self {
            FileFormat::Text => "text",
            FileFormat::Html => "HTML",
            FileFormat::Pdf => "PDF",
            FileFormat::Docx => "DOCX",
            FileFormat::Epub => "EPUB",
        }
    }
}

/// True if the whole file is text: it begins as no other format does, or only its first letters do.
fn is_text(bytes: &[u8]) -> bool {
    let head = bytes.get(..HEAD_BYTES).unwrap_or(bytes);
    let begins_as_other = head.starts_with(b"%PDF-") || head.starts_with(b"PK\x03\x04") || binary_kind(head).is_some();
    // Marks with other bytes than letters and signs begin no text.
    let has_readable_mark = bytes.iter().take(4).all(u8::is_ascii_graphic);
    let is_other = || !has_readable_mark || is_whole_pdf(bytes) || is_whole_rtf(bytes);
    !begins_as_other || (!is_other() && encoding::decode(bytes, false).is_ok())
}

/// True if the bytes begin as a PDF, have objects, and end with the place of its table of them.
fn is_whole_pdf(bytes: &[u8]) -> bool {
    let tail = bytes.get(bytes.len().saturating_sub(TAIL_BYTES)..).unwrap_or(bytes);
    let last_lines = tail.trim_ascii_end().strip_suffix(b"%%EOF").map(<[u8]>::trim_ascii_end);
    let ends_as_pdf = last_lines.is_some_and(|lines| {
        let n_digits = lines.iter().rev().take_while(|b| b.is_ascii_digit()).count();
        let (before, place) = lines.split_at(lines.len() - n_digits);
        !place.is_empty() && before.trim_ascii_end().ends_with(b"startxref")
    });
    ends_as_pdf && bytes.starts_with(b"%PDF-") && contains(bytes, " obj")
}

/// True if the bytes are one RTF group from the first to the last.
fn is_whole_rtf(bytes: &[u8]) -> bool {
    let (mut depth, mut bytes_left) = (0usize, bytes.iter());
    while let Some(b) = bytes_left.next() {
        match b {
            b'\\' => drop(bytes_left.next()),
            b'{' => depth += 1,
            b'}' if depth == 1 => return bytes.starts_with(b"{\\rtf1") && bytes_left.all(|b| *b == 0 || b.is_ascii_whitespace()),
            b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

fn has_extension(name: &str, extensions: &[&str]) -> bool {
    let extension = Path::new(name).extension().and_then(|e| e.to_str());
    extension.is_some_and(|own| extensions.iter().any(|e| own.eq_ignore_ascii_case(e)))
}

/// Format of a ZIP archive, by the file names in it, which are not compressed.
fn of_archive(name: &str, bytes: &[u8]) -> Result<FileFormat, &'static str> {
    const MARKS: [(&str, Result<FileFormat, &str>); 6] = [
        ("application/epub+zip", Ok(FileFormat::Epub)),
        ("META-INF/container.xml", Ok(FileFormat::Epub)),
        ("word/document", Ok(FileFormat::Docx)),
        ("application/vnd.oasis.opendocument.text", Err("an OpenDocument text (save it as DOCX)")),
        ("xl/workbook", Err("a spreadsheet (save the sheet as CSV text)")),
        ("ppt/presentation", Err("a presentation (save it as PDF)")),
    ];
    let found = MARKS.iter().find(|(mark, _)| contains(bytes, mark)).map(|(_, kind)| *kind);
    match found {
        Some(kind) => kind,
        // Possibly corrupt, which its reader then reports.
        None if has_extension(name, &["docx"]) => Ok(FileFormat::Docx),
        None if has_extension(name, &["epub"]) => Ok(FileFormat::Epub),
        None => Err("a ZIP archive (extract its files first)"),
    }
}

fn contains(bytes: &[u8], mark: &str) -> bool {
    AhoCorasick::new([mark]).is_ok_and(|search| search.is_match(bytes))
}

fn begins_as_html(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head).trim_start_matches(['\u{FEFF}', ' ', '\t', '\r', '\n']).to_ascii_lowercase();
    text.starts_with("<!doctype html") || text.starts_with("<html") || (text.starts_with("<?xml") && text.contains("<html"))
}

/// Description of a binary file.
fn binary_kind(head: &[u8]) -> Option<&'static str> {
    const KINDS: [(&[u8], &str); 12] = [
        (b"\xD0\xCF\x11\xE0", "an old Office file, or one with a password (save it as DOCX without a password)"),
        (b"{\\rtf", "an RTF file (save it as DOCX)"),
        (b"\x89PNG", "a picture"),
        (b"\xFF\xD8\xFF", "a picture"),
        (b"GIF8", "a picture"),
        (b"\x1F\x8B", "a compressed file (decompress it first)"),
        (b"7z\xBC\xAF", "a compressed file (decompress it first)"),
        (b"Rar!", "a compressed file (decompress it first)"),
        (b"GGUF", "a model (open it from the model menu)"),
        (b"ITOLITLS", "an old Microsoft Reader book (convert it to EPUB)"),
        (b"\x7FELF", "a program"),
        (b"SQLite format 3", "a database"),
    ];
    let known = KINDS.iter().find(|(mark, _)| head.starts_with(mark)).map(|(_, what)| *what);
    let is_mobi = || head.get(60..68) == Some(b"BOOKMOBI".as_slice());
    known.or_else(|| is_mobi().then_some("a Kindle book (convert it to EPUB)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_follows_the_content_unless_the_extension_is_text() {
        for (name, bytes, kind) in [
            ("a.txt", b"plain".as_slice(), FileFormat::Text),
            ("a.txt", b"<!DOCTYPE html><p>kept as it is", FileFormat::Text),
            ("main.rs", b"fn main() {}", FileFormat::Text),
            ("a.HTM", b"no tags at all", FileFormat::Html),
            ("page", b"\xEF\xBB\xBF \n<!doctype HTML>", FileFormat::Html),
            ("page", b"<?xml version='1.0'?><html xmlns='x'/>", FileFormat::Html),
            ("report", b"%PDF-1.7", FileFormat::Pdf),
            ("report.pdf", b"junk in front\n%PDF-1.4", FileFormat::Pdf),
            ("report.txt", b"junk in front\n%PDF-1.4", FileFormat::Text),
            ("note.md", b"%PDF-1.7 is how such a file begins", FileFormat::Text),
            ("note.txt", b"{\\rtf1 begins an RTF file", FileFormat::Text),
            ("note.log", b"GGUF is the format of a model", FileFormat::Text),
            ("note.txt", "Rar! rief er über den Hof".as_bytes(), FileFormat::Text),
            ("note.txt", b"GIF89a is a format. Gr\xFC\xDFe aus K\xF6ln, sagte der M\xFCller zu den Br\xFCdern", FileFormat::Text),
            ("note.md", b"%PDF-1.7 begins it.\n    1 0 obj\n    endobj\nand `startxref` ends it.", FileFormat::Text),
            ("note.txt", b"%PDF-1.4\n1 0 obj\nendobj\nstartxref\n9\n%%EOF\n\nThis is the smallest one.", FileFormat::Text),
            ("note.md", b"{\\rtf1 a {\\b word} \\} } is a group, and so is {this}", FileFormat::Text),
            ("note.txt", b"PK\x03\x04....word/document.xml", FileFormat::Docx),
            ("real.txt", b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\nstartxref\n9\n%%EOF", FileFormat::Pdf),
            ("page.mhtml", b"MIME-Version: 1.0", FileFormat::Html),
            ("b", b"PK\x03\x04....word/document.xml", FileFormat::Docx),
            ("b.zip", b"PK\x03\x04....mimetypeapplication/epub+zip", FileFormat::Epub),
            ("broken.docx", b"PK\x03\x04", FileFormat::Docx),
        ] {
            assert_eq!(FileFormat::of(name, bytes), Ok(kind), "{name}");
        }
        for (bytes, what) in [
            (b"PK\x03\x04 holiday.jpg".as_slice(), "ZIP"),
            (b"PK\x03\x04 xl/workbook.xml", "spreadsheet"),
            (b"\x89PNG\r\n", "picture"),
            (b"\xD0\xCF\x11\xE0", "password"),
            (b"{\\rtf1 a {\\b word} \\} }\n\0", "RTF"),
            (b"GIF89a\x01\0\x01\0\0\xFF\0,\0\0\0\0\x01\0\x01\0\0\x02\0;", "picture"),
        ] {
            assert!(FileFormat::of("x.txt", bytes).unwrap_err().contains(what), "{what}");
            assert!(FileFormat::of("x.bin", bytes).unwrap_err().contains(what), "{what}");
        }
    }
}
