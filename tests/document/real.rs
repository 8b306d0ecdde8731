//! Real files under STRATA_DATA: how much of the expected text is read, and that malformed files end well.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use similar::{Algorithm, capture_diff_slices, diff_ratio};
use strata::document::{DocumentError, Progress};

use crate::make_files::reader;

/// A folder under STRATA_DATA (default `../shared/data` beside the repository), or None with a line that says so.
fn data(test: &str, path: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    let folder = std::env::var_os("STRATA_DATA").map_or_else(beside, PathBuf::from).join(path);
    if !folder.is_dir() {
        eprintln!("skipped: {test}: no STRATA_DATA");
        return None;
    }
    Some(folder)
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// Words without their punctuation.
fn words(text: &str) -> Vec<&str> {
    let bare = |word: &str| !word.is_empty();
    text.split_whitespace().map(|w| w.trim_matches(|c: char| !c.is_alphanumeric())).filter(|w| bare(w)).collect()
}

/// Twice the words in common, in order, over all words: 1 where both are the same.
fn similarity(expected: &str, found: &str) -> f64 {
    let (expected, found) = (words(expected), words(found));
    let ops = capture_diff_slices(Algorithm::Myers, &expected, &found);
    f64::from(diff_ratio(&ops, expected.len(), found.len()))
}

/// Text of HTML by another way than the reader's.
fn plain(html: &str) -> String {
    let dom = dom_query::Document::from(html);
    dom.formatted_text().to_string()
}

fn mean(scores: &[(String, f64)]) -> f64 {
    scores.iter().for_each(|(name, score)| eprintln!("{score:.4} {name}"));
    let mean = scores.iter().map(|(_, score)| score).sum::<f64>() / scores.len() as f64;
    eprintln!("mean of {}: {mean:.4}", scores.len());
    mean
}

#[test]
fn main_content_of_web_pages_is_what_readability_expects() {
    let Some(folder) = data("web pages", "docs/html/readability") else { return };
    let mut scores = Vec::new();
    for page in entries(&folder).into_iter().filter(|page| page.is_dir()) {
        let expected = plain(&std::fs::read_to_string(page.join("expected.html")).unwrap());
        let document = reader().open(&page.join("source.html"), &Progress::default()).unwrap();
        // The title stands over the content; what is expected has none.
        let title = document.text.split("\n\n").next().filter(|t| !expected.contains(t.trim())).unwrap_or_default();
        let score = similarity(&expected, document.text.strip_prefix(title).unwrap());
        scores.push((page.file_name().unwrap().to_string_lossy().into_owned(), score));
    }
    assert!(mean(&scores) >= 0.95);
}

#[test]
fn text_of_word_documents_is_what_their_text_elements_hold() {
    let Some(folder) = data("word documents", "docs/docx") else { return };
    let mut scores = Vec::new();
    for path in entries(&folder).into_iter().filter(|path| path.extension().is_some_and(|e| e == "docx")) {
        let mut archive = zip::ZipArchive::new(std::fs::File::open(&path).unwrap()).unwrap();
        let xml = std::io::read_to_string(archive.by_name("word/document.xml").unwrap()).unwrap();
        let texts = xml.split("<w:t>").skip(1).chain(xml.split("<w:t xml:space=\"preserve\">").skip(1));
        let n_chars: usize = texts.map(|t| t.split("</w:t>").next().unwrap().split_whitespace().collect::<String>().len()).sum();
        match reader().open(&path, &Progress::default()) {
            Ok(document) => {
                let read = document.text.split_whitespace().collect::<String>().len();
                let score = 1.0 - read.abs_diff(n_chars) as f64 / n_chars.max(read) as f64;
                scores.push((path.file_name().unwrap().to_string_lossy().into_owned(), score));
            }
            Err(error) => assert_eq!(n_chars, 0, "{error}"),
        }
    }
    assert!(mean(&scores) >= 0.95);
}

#[test]
fn malformed_and_protected_files_end_soon_and_with_a_sentence() {
    let Some(folder) = data("malformed files", "docs/pdf/malformed-or-protected") else { return };
    for path in entries(&folder) {
        let began = Instant::now();
        let answer = reader().open(&path, &Progress::default());
        let took = began.elapsed();
        let outcome = answer.as_ref().map_or_else(ToString::to_string, |d| format!("{} characters", d.text.len()));
        eprintln!("{:5} ms {outcome}", took.as_millis());
        assert!(took < Duration::from_secs(10), "{}", path.display());
        assert!(!matches!(answer, Err(DocumentError::Crashed { .. } | DocumentError::Stalled { .. })), "{outcome}");
    }
}

#[test]
fn good_files_of_every_format_are_read_or_have_nothing_to_read() {
    for folder in ["docs/pdf/good", "docs/epub", "docs/html/gutenberg"] {
        let Some(folder) = data("good files", folder) else { return };
        for path in entries(&folder).into_iter().filter(|path| path.extension().is_some_and(|e| e != "md")) {
            if let Err(error) = reader().open(&path, &Progress::default()) {
                let named = matches!(error, DocumentError::Refused { .. });
                assert!(named, "{error}");
                eprintln!("{error}");
            }
        }
    }
}
