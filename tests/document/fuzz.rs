//! Mutated files of every format: read or rejected, under the limits of the sandboxed reader.
//!
//! `STRATA_FUZZ` number of mutations of each format (default 80).

use std::io::{Cursor, Read};

use strata::base::Rng;
use strata::document::DocumentError;
use zip::ZipArchive;

use crate::make_files::{docx_with, epub, para, read, zip};

/// Mutations of each format without `STRATA_FUZZ`.
const N_MUTATIONS: u32 = 80;

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let html = "<!doctype html><meta charset=utf-8><title>T</title><ol start=5><li>a<li value=9>b</ol><table><tr><td rowspan=2>x<td colspan=3>y\
        </table><ruby>水<rt>すい</ruby><p>10<sup>6</sup><a href='#n'><sup>4</sup></a><details><summary>Q</summary>A</details>\
        <x-y><template shadowrootmode=open><slot></slot></template>light</x-y><math><msup><mi>x</mi><mn>2</mn></msup></math>";
    let xhtml = "<?xml version='1.0'?><!DOCTYPE html [<!ENTITY e 'x'>]><html xmlns='http://www.w3.org/1999/xhtml'><head><title/></head><body>\
        <p>One &e; &amp; <![CDATA[<]]> two<br/></p><table><tr><td/><td>1</td></tr></table></body></html>";
    let list = "<w:pPr><w:pStyle w:val='S'/><w:numPr><w:ilvl w:val='1'/><w:numId w:val='1'/></w:numPr></w:pPr>";
    let document = format!(
        "<w:document><w:body><w:p>{list}<w:r><w:rPr><w:vertAlign w:val='superscript'/></w:rPr><w:t>1</w:t><w:footnoteReference w:id='1'/>\
         </w:r></w:p><w:tbl><w:tr><w:tc><w:tcPr><w:gridSpan w:val='2'/></w:tcPr>{}</w:tc></w:tr></w:tbl><mc:AlternateContent><mc:Choice>\
         <w:txbxContent>{}</w:txbxContent></mc:Choice><mc:Fallback/></mc:AlternateContent></w:body></w:document>",
        para("a"),
        para("b")
    );
    let numbering = "<w:numbering><w:abstractNum w:abstractNumId='0'><w:lvl w:ilvl='1'><w:start w:val='3'/><w:numFmt w:val='lowerRoman'/>\
        <w:lvlText w:val='%1.%2'/></w:lvl></w:abstractNum><w:num w:numId='1'><w:abstractNumId w:val='0'/></w:num></w:numbering>";
    let notes = format!("<w:footnotes><w:footnote w:id='1'>{}</w:footnote></w:footnotes>", para("n"));
    let mhtml = "From: x\r\nMIME-Version: 1.0\r\nContent-Type: multipart/related; boundary=b\r\n\r\n--b\r\nContent-Type: text/html\r\n\
        Content-Transfer-Encoding: quoted-printable\r\n\r\n<p>A=E2=80=94b</p>\r\n--b--\r\n";
    let parts: [(&str, &[u8]); 2] = [("word/numbering.xml", numbering.as_bytes()), ("word/footnotes.xml", notes.as_bytes())];
    vec![
        ("a.html", html.as_bytes().to_vec()),
        ("a.mhtml", mhtml.as_bytes().to_vec()),
        ("a.txt", "\u{1B}[31mplain\u{1B}[0m te\u{8}ext Grüße 水車\n".as_bytes().to_vec()),
        ("a.epub", epub(&[("one.xhtml", xhtml)], &[])),
        ("a.docx", docx_with(&document, &parts)),
    ]
}

/// Files of an archive; None if it is none.
fn files_of(archive: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let mut from = ZipArchive::new(Cursor::new(archive)).ok()?;
    let mut files = Vec::new();
    for i in 0..from.len() {
        let mut file = from.by_index(i).unwrap();
        let mut content = Vec::new();
        file.read_to_end(&mut content).unwrap();
        files.push((file.name().unwrap().into_owned(), content));
    }
    Some(files)
}

/// A file of the archive mutated, sometimes its name, or the bytes of the archive themselves.
fn mutated_seed(seed: &[u8], rng: &mut Rng) -> Vec<u8> {
    let Some(mut files) = files_of(seed).filter(|_| rng.uniform(8) > 0) else { return mutated(seed, rng) };
    let at = rng.uniform(files.len() as u32) as usize;
    let (name, content) = &mut files[at];
    match rng.uniform(10) {
        0 => *name = String::from_utf8_lossy(&mutated(name.as_bytes(), rng)).into_owned(),
        _ => *content = mutated(content, rng),
    }
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, content)| (name.as_str(), content.as_slice())).collect();
    // Two files of one name make no archive.
    let is_first = |i: usize| files.iter().take(i).all(|(name, _)| *name != files[i].0);
    if (0..files.len()).all(is_first) { zip(&files) } else { mutated(seed, rng) }
}

/// The bytes with a few of them changed, cut out, repeated or moved.
fn mutated(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..=rng.uniform(6) {
        let at = rng.uniform(out.len().max(1) as u32) as usize;
        let end = (at + 1 + rng.uniform(40) as usize).min(out.len());
        match rng.uniform(6) {
            0 if at < out.len() => out[at] = rng.uniform(256) as u8,
            1 if at < out.len() => out[at] ^= 1 << rng.uniform(8),
            2 => drop(out.drain(at.min(end)..end)),
            3 => {
                let copy = out.get(at..end).unwrap_or_default().repeat(1 + rng.uniform(20) as usize);
                out.splice(at..at, copy);
            }
            4 => out.truncate(at.max(8)),
            _ => {
                const MARKS: [&[u8]; 8] = [b"<", b"/>", b"&#x0;", b"]]>", b"<table>", b"<w:tbl>", b"\xFF\xFE", b"</w:p>"];
                let mark = MARKS[rng.uniform(MARKS.len() as u32) as usize];
                out.splice(at.min(out.len())..at.min(out.len()), mark.iter().copied());
            }
        }
    }
    out
}

#[test]
fn mutated_files_of_each_format_never_crash_their_reader() {
    let n_mutations = std::env::var("STRATA_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(N_MUTATIONS);
    for (name, seed) in seeds() {
        let whole = read(name, &seed).unwrap_or_else(|error| panic!("{error}"));
        assert!(!whole.text.is_empty());
        let (mut rng, mut n_read) = (Rng::new(1662), 0);
        for i in 0..n_mutations {
            let bytes = mutated_seed(&seed, &mut rng);
            match read(name, &bytes) {
                Ok(document) => {
                    n_read += 1;
                    assert!(!document.text.trim().is_empty() && !document.text.contains('\0'), "{name} {i}");
                    assert_eq!(document.pages.last().map(|page| page.end_byte), Some(document.text.len()), "{name} {i}");
                }
                Err(DocumentError::Crashed { .. } | DocumentError::Stalled { .. }) => {
                    panic!("{name}: mutation {i} ends the reader")
                }
                Err(error) => assert!(!error.to_string().contains("its reader crashed"), "{name} {i}: {error}"),
            }
        }
        assert!(n_read > n_mutations / 8, "{name}: only {n_read} of {n_mutations} are read");
    }
}
