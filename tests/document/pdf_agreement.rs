//! Agreement of PDF text with MuPDF over the files under STRATA_DATA, file by file.
//!
//! MuPDF is used through Python (`pip install pymupdf`; STRATA_PYTHON names the interpreter). Comments, form values and text
//! that is not painted are left out of its text: comments and values are compared by tests of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use similar::{Algorithm, capture_diff_slices};
use strata::document::Progress;

use crate::make_files::reader;

/// Share of common words, of 1, by this test: with the program of 27 November 2026, and the least share now.
const AGREEMENT: [(&str, f64, f64); 21] = [
    ("160F-2019.pdf", 0.9988, 0.9988),
    // Reads no page: hayro does not decompress Brotli.
    ("Brotli-Prototype-FileA.pdf", 0.0, 0.0),
    // Rejected before. MuPDF gives letters without characters by their numbers, and they are marked here.
    ("TAMReview.pdf", 0.0, 0.5),
    ("basicapi.pdf", 0.9167, 1.0),
    ("bug1937438_from_word.pdf", 1.0, 1.0),
    ("cid_cff.pdf", 1.0, 1.0),
    ("copy_paste_ligatures.pdf", 1.0, 1.0),
    ("freeculture.pdf", 0.9291, 0.998),
    ("hello_world_rotated.pdf", 1.0, 1.0),
    ("mixedfonts.pdf", 0.9231, 1.0),
    ("nested_outline.pdf", 1.0, 1.0),
    ("outlines_se.pdf", 1.0, 1.0),
    ("pdfjs_wikipedia.pdf", 1.0, 1.0),
    ("pr20043.pdf", 1.0, 1.0),
    ("prefilled_f1040.pdf", 0.9986, 0.9986),
    ("standard_fonts.pdf", 0.9677, 0.968),
    ("structure_simple.pdf", 1.0, 1.0),
    ("tracemonkey_a11y.pdf", 0.9952, 0.9952),
    ("two_pages.pdf", 1.0, 1.0),
    ("two_paragraphs.pdf", 1.0, 1.0),
    ("multiline.pdf", 1.0, 1.0),
];

/// Prints the pages of a file, each ended by a form feed.
const SCRIPT: &str = r"
import sys, pymupdf
for page in pymupdf.open(sys.argv[1]):
    text = pymupdf.TextPage(page.get_displaylist(annots=0).get_textpage(3)).extractText()
    for span in page.get_texttrace():
        hidden = ''.join(chr(c[0]) for c in span['chars']).strip() if span['type'] == 3 else ''
        text = text.replace(hidden, '', 1) if hidden else text
    sys.stdout.buffer.write((text + '\f').encode('utf-8', 'replace'))
";

fn python() -> String {
    std::env::var("STRATA_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

/// The folder of PDF files; None with a message if it or MuPDF is missing.
fn folder() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    let folder = std::env::var_os("STRATA_DATA").map_or_else(beside, PathBuf::from).join("docs/pdf/good");
    let has_mupdf = Command::new(python()).args(["-c", "import pymupdf"]).output().is_ok_and(|out| out.status.success());
    if !folder.is_dir() || !has_mupdf {
        eprintln!("skipped: agreement with MuPDF: {}", if has_mupdf { "no STRATA_DATA" } else { "no pymupdf" });
        return None;
    }
    Some(folder)
}

/// Letters and digits of each word, without the marks of raised letters and of check boxes.
fn words(text: &str) -> Vec<String> {
    let ligatures = [
        ("\u{FB00}", "ff"),
        ("\u{FB01}", "fi"),
        ("\u{FB02}", "fl"),
        ("\u{FB03}", "ffi"),
        ("\u{FB04}", "ffl"),
        ("\u{FB05}", "st"),
        ("\u{FB06}", "st"),
    ];
    let text = ligatures.iter().fold(text.replace("[x]", "").replace("[ ]", ""), |text, (from, to)| text.replace(from, to));
    let bare = |word: &str| word.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
    text.split_whitespace().map(bare).filter(|word| !word.is_empty()).collect()
}

fn body(page: &str) -> &str {
    page.split("[Note").next().unwrap_or_default()
}

#[test]
fn text_agrees_with_mupdf_at_least_as_well_as_before() {
    let Some(folder) = folder() else { return };
    let mut worse = Vec::new();
    for (name, before, least) in AGREEMENT {
        let path = folder.join(name);
        let output = Command::new(python()).args(["-c", SCRIPT]).arg(&path).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let expected = String::from_utf8_lossy(&output.stdout).into_owned();
        let expected: Vec<&str> = expected.split('\u{C}').collect();
        let document = reader().open(&path, &Progress::default()).ok();
        let page = |i: usize| document.as_ref().and_then(|d| d.page_text(i)).map_or("", body);
        let (mut n_common, mut n_words) = (0, 0);
        for (i, expected) in expected.iter().enumerate() {
            let (expected, found) = (words(expected), words(page(i)));
            let same = capture_diff_slices(Algorithm::Myers, &expected, &found);
            n_common +=
                same.iter().filter(|op| op.tag() == similar::DiffTag::Equal).map(|op| op.old_range().len()).sum::<usize>();
            n_words += expected.len() + found.len();
        }
        let share = if n_words == 0 { 1.0 } else { 2.0 * n_common as f64 / n_words as f64 };
        eprintln!("{share:.4} (before {before:.4}) {name}");
        if share < least - 1e-4 {
            worse.push(format!("{name}: {share:.4}, at least {least:.4}"));
        }
    }
    assert!(worse.is_empty(), "{worse:#?}");
}

#[test]
fn table_of_agreement_asks_for_no_less_than_before() {
    assert!(AGREEMENT.iter().all(|(_, before, least)| least >= before));
}
