//! Generators of small files in every format.

use std::io::{Cursor, Write};

use strata::document::{Document, DocumentError, Progress, Reader};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// Reader with the program that was built for this test.
pub fn reader() -> Reader {
    Reader::with_sandbox(env!("CARGO_BIN_EXE_strata"))
}

pub fn read(name: &str, bytes: &[u8]) -> Result<Document, DocumentError> {
    reader().read(name, bytes, &Progress::default())
}

/// Error message of a rejected file.
#[track_caller]
pub fn refusal(name: &str, bytes: &[u8]) -> String {
    match read(name, bytes) {
        Ok(document) => panic!("{name} was read: {:?}", document.text.get(..100)),
        Err(error) => error.to_string(),
    }
}

pub fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in files {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// A DOCX file with this body.
pub fn docx(body: &str) -> Vec<u8> {
    docx_with(&format!("<w:document xmlns:w='w'><w:body>{body}</w:body></w:document>"), &[])
}

/// A DOCX file with this main part and more parts. Parts called `*.dat` are web pages by their content type.
pub fn docx_with(document: &str, more: &[(&str, &[u8])]) -> Vec<u8> {
    let types = b"<Types><Default Extension='dat' ContentType='text/html'/></Types>".as_slice();
    zip(&[&[("[Content_Types].xml", types), ("word/document.xml", document.as_bytes())], more].concat())
}

/// A paragraph of a DOCX file.
pub fn para(text: &str) -> String {
    format!("<w:p><w:pPr><w:tabs><w:tab w:val='left'/></w:tabs></w:pPr><w:r><w:t xml:space='preserve'>{text}</w:t></w:r></w:p>")
}

/// An EPUB file with these chapters: file names and XHTML.
pub fn epub(chapters: &[(&str, &str)], more: &[(&str, &[u8])]) -> Vec<u8> {
    let item =
        |(i, (name, _)): (usize, &(&str, &str))| format!("<item id='c{i}' href='{name}' media-type='application/xhtml+xml'/>");
    let items: String = chapters.iter().enumerate().map(item).collect();
    let refs: String = (0..chapters.len()).map(|i| format!("<itemref idref='c{i}'/>")).collect();
    let nav = "<item id='nav' href='nav.xhtml' properties='nav' media-type='application/xhtml+xml'/>";
    let package = format!("<package><manifest>{nav}{items}</manifest><spine>{refs}</spine></package>");
    let links: String = chapters.iter().map(|(name, _)| format!("<li><a href='{name}'>About {name}</a></li>")).collect();
    let nav = format!("<html><body><nav><ol>{links}</ol></nav></body></html>");
    let container = b"<container><rootfiles><rootfile full-path='OPS/book.opf'/></rootfiles></container>".as_slice();
    let mut files = vec![
        ("mimetype".to_owned(), b"application/epub+zip".to_vec()),
        ("META-INF/container.xml".to_owned(), container.to_vec()),
        ("OPS/book.opf".to_owned(), package.into_bytes()),
        ("OPS/nav.xhtml".to_owned(), nav.into_bytes()),
    ];
    files.extend(chapters.iter().map(|(name, html)| (format!("OPS/{name}"), html.as_bytes().to_vec())));
    files.extend(more.iter().map(|(name, content)| ((*name).to_owned(), content.to_vec())));
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, content)| (name.as_str(), content.as_slice())).collect();
    zip(&files)
}

/// A PDF file with these pages, each a content stream, and `trailer` in its trailer.
pub fn pdf_of(streams: &[String], trailer: &str) -> Vec<u8> {
    let n = streams.len();
    let kids: String = (0..n).map(|i| format!("{} 0 R ", 4 + 2 * i)).collect();
    let mut objects = vec![
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        format!("<< /Type /Pages /Kids [{kids}] /Count {n} >>"),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>".to_owned(),
    ];
    for (i, stream) in streams.iter().enumerate() {
        let resources = "/Resources << /Font << /F1 3 0 R >> >>";
        let contents = 5 + 2 * i;
        objects.push(format!("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] {resources} /Contents {contents} 0 R >>"));
        objects.push(format!("<< /Length {} >>\nstream\n{stream}\nendstream", stream.len()));
    }
    let mut out = String::from("%PDF-1.4\n");
    let mut offsets = Vec::new();
    for (i, object) in objects.iter().enumerate() {
        offsets.push(out.len());
        out += &format!("{} 0 obj\n{object}\nendobj\n", i + 1);
    }
    let xref = out.len();
    out += &format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
    offsets.iter().for_each(|at| out += &format!("{at:010} 00000 n \n"));
    out += &format!("trailer\n<< /Size {} /Root 1 0 R {trailer} >>\nstartxref\n{xref}\n%%EOF\n", objects.len() + 1);
    out.into_bytes()
}

/// A PDF file with these pages, each of lines.
pub fn pdf(pages: &[&[&str]]) -> Vec<u8> {
    let page = |lines: &&[&str]| {
        let shown: String = lines.iter().map(|line| format!("({line}) Tj 0 -14 Td ")).collect();
        format!("BT /F1 12 Tf 72 700 Td {shown}ET")
    };
    pdf_of(&pages.iter().map(page).collect::<Vec<_>>(), "")
}
