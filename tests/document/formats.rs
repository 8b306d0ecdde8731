//! Document formats: extracted text, pages and sections of each.

use strata::document::{Document, FileFormat, find_quotes};

use crate::make_files::{docx, docx_with, epub, para, pdf, pdf_of, read, refusal};

fn pages(document: &Document) -> Vec<&str> {
    (0..document.pages.len()).map(|i| document.page_text(i).unwrap().trim()).collect()
}

#[test]
fn pdf_pages_keep_their_numbers_and_lines() {
    let document = read("a.pdf", &pdf(&[&["The harbour was", "built in stone."], &[], &["Third page."]])).unwrap();
    assert_eq!(document.kind, FileFormat::Pdf);
    assert_eq!(pages(&document), ["The harbour was\nbuilt in stone.", "", "Third page."]);
    assert_eq!(document.page_of(document.text.find("Third").unwrap()), 2);
    assert_eq!(document.notes, ["1 of 3 pages have no text: they are empty or images."]);
    let quotes = find_quotes("It says \u{201C}harbour was built in stone\u{201D}.", &[document]);
    assert_eq!(quotes[0].found.as_ref().unwrap().page, 0);
}

#[test]
fn pdf_without_text_is_rejected_as_images() {
    let sentence = refusal("scan.pdf", &pdf(&[&[], &[]]));
    assert!(sentence.contains("no text on its 2 page(s)") && sentence.contains("OCR"), "{sentence}");
}

#[test]
fn pdf_with_a_password_is_rejected_as_such() {
    let zeros = "0".repeat(64);
    let trailer = format!("/ID [<00><00>] /Encrypt << /Filter /Standard /V 1 /R 2 /Length 40 /P -4 /O <{zeros}> /U <{zeros}> >>");
    let sentence = refusal("secret.pdf", &pdf_of(&["BT /F1 12 Tf (x) Tj ET".to_owned()], &trailer));
    assert!(sentence.contains("protected (by a password). Save a copy without"), "{sentence}");
}

#[test]
fn docx_paragraphs_tables_and_notes_are_read() {
    let table = format!(
        "<w:tbl><w:tr><w:tc>{}</w:tc><w:tc>{}</w:tc></w:tr><w:tr><w:tc>{}</w:tc></w:tr></w:tbl>",
        para("a1"),
        para("b1"),
        para("a2")
    );
    let noted = "<w:p><w:r><w:t>See</w:t><w:footnoteReference w:id='2'/></w:r></w:p>";
    let document = format!("<w:document><w:body>{}{table}{noted}</w:body></w:document>", para("One &amp; two, caf&#233;."));
    let notes = "<w:footnotes><w:footnote w:type='separator' w:id='0'><w:p><w:r><w:t>no</w:t></w:r></w:p></w:footnote>\
                 <w:footnote w:id='2'><w:p><w:r><w:t>A note.</w:t></w:r></w:p></w:footnote></w:footnotes>";
    let bytes = docx_with(&document, &[("word/footnotes.xml", notes.as_bytes())]);
    let read = read("a.docx", &bytes).unwrap();
    assert_eq!(read.text, "One & two, café.\n\na1\tb1\na2\n\nSee[1]\n\n[1] A note.");
}

#[test]
fn docx_pages_follow_the_breaks_of_word() {
    let broken = "<w:p><w:r><w:t>End of one.</w:t><w:lastRenderedPageBreak/><w:t>Page two.</w:t></w:r></w:p>";
    let hard = "<w:p><w:r><w:br w:type='page'/><w:t>Page three.</w:t></w:r></w:p>";
    let document = read("a.docx", &docx(&format!("{}{broken}{hard}", para("Page one.")))).unwrap();
    assert_eq!(pages(&document), ["Page one.\n\nEnd of one.", "Page two.", "Page three."]);
}

#[test]
fn docx_deleted_text_field_codes_and_copies_are_skipped() {
    let body = "<w:p><w:ins><w:r><w:t>New </w:t></w:r></w:ins><w:del><w:r><w:delText>old</w:delText><w:t>old</w:t></w:r></w:del>\
                <w:r><w:instrText>PAGEREF</w:instrText></w:r><mc:AlternateContent><mc:Choice><w:r><w:t>text</w:t></w:r></mc:Choice>\
                <mc:Fallback><w:r><w:t>copy</w:t></w:r></mc:Fallback></mc:AlternateContent></w:p>";
    assert_eq!(read("a.docx", &docx(body)).unwrap().text, "New text");
}

#[test]
fn epub_chapters_follow_the_spine_under_their_titles() {
    let long = format!("<html><body><h1>Two</h1>{}</body></html>", "<p>A chapter of some length, word by word.</p>".repeat(200));
    let chapters =
        [("one.xhtml", "<html><head><title>x</title></head><body><p>First&#160;words.</p></body></html>"), ("two.xhtml", &long)];
    let document = read("book.epub", &epub(&chapters, &[])).unwrap();
    assert!(document.text.starts_with("First words.\n\nTwo\n\nA chapter of"), "{}", &document.text[..60]);
    let titles: Vec<_> = document.sections.iter().map(|s| s.title.as_str()).collect();
    assert_eq!(titles, ["About one.xhtml", "About two.xhtml"]);
    assert_eq!(document.section_of(5).unwrap().title, "About one.xhtml");
    assert_eq!(document.section_of(document.text.len() - 1).unwrap().title, "About two.xhtml");
    assert!(document.pages.len() > 3, "a long chapter has several pages, and a chapter begins a page");
    assert_eq!(pages(&document)[0], "First words.");
}

#[test]
fn epub_with_rights_management_is_rejected_but_not_for_obfuscated_fonts() {
    let locked = |uri: &str| {
        format!("<encryption><EncryptedData><CipherData><CipherReference URI='{uri}'/></CipherData></EncryptedData></encryption>")
    };
    let chapters = [("one.xhtml", "<p>Words.</p>")];
    let book = |uri: &str| epub(&chapters, &[("META-INF/encryption.xml", locked(uri).as_bytes())]);
    let sentence = refusal("book.epub", &book("OPS/one.xhtml"));
    assert!(sentence.contains("digital rights management"), "{sentence}");
    assert_eq!(read("book.epub", &book("OPS/font.otf")).unwrap().text, "Words.");
}

#[test]
fn missing_epub_chapter_is_noted() {
    let mut chapters = vec![("one.xhtml", "<p>Words.</p>"), ("one.xhtml", "<p>again</p>")];
    chapters.pop();
    let package = b"<package><manifest><item id='a' href='one.xhtml'/><item id='b' href='gone.xhtml'/></manifest>\
        <spine><itemref idref='a'/><itemref idref='b'/><itemref idref='a'/></spine></package>";
    let container = b"<container><rootfile full-path='OPS/other.opf'/></container>".as_slice();
    let files: [(&str, &[u8]); 3] =
        [("META-INF/container.xml", container), ("OPS/other.opf", package), ("OPS/one.xhtml", b"<p>Words.</p>")];
    let document = read("book.epub", &crate::make_files::zip(&files)).unwrap();
    assert_eq!((document.text.as_str(), document.notes.len()), ("Words.", 1));
    assert!(document.notes[0].starts_with("1 of 2 chapters are missing"), "{:?}", document.notes);
}

#[test]
fn html_in_an_old_encoding_is_decoded_as_declared() {
    let page = b"<html><head><meta charset='windows-1251'></head><body><p>\xCF\xF0\xE8\xE2\xE5\xF2</p></body></html>";
    assert_eq!(read("a.html", page).unwrap().text, "Привет");
    assert_eq!(read("a.htm", b" \n\t ").unwrap_err().to_string(), "a.htm has no text. Choose another file");
}
