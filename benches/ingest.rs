//! How fast files become documents: plain text, PDF, EPUB, HTML.
//!
//! `cargo bench --bench ingest` · `STRATA_DATA` folder with real files (`../shared/data` otherwise); without it, files made here.
//!
//! Every text is checked before it is timed. Goals: 5 MB/s of plain text, 50 pages/s of ordinary PDF, the 6 MB diary in 2 s.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a bench prints, and ends where it fails")]

use std::path::{Path, PathBuf};
use std::time::Instant;

use strata::document::{Document, Progress, Reader};

/// Repetitions of each.
const N_ROUNDS: usize = 5;

/// Seconds of each round, and the document.
fn timed(name: &str, bytes: &[u8]) -> (Vec<f64>, Document) {
    let reader = Reader::with_sandbox(env!("CARGO_BIN_EXE_strata"));
    let read = || reader.read(name, bytes, &Progress::default()).unwrap();
    // Checks and warms up.
    let document = read();
    assert!(!document.text.trim().is_empty());
    let seconds = (0..N_ROUNDS).map(|_| {
        let began = Instant::now();
        assert_eq!(read().content_hash, document.content_hash, "the same file gives the same text");
        began.elapsed().as_secs_f64()
    });
    (seconds.collect(), document)
}

fn report(name: &str, bytes: &[u8]) {
    let (seconds, document) = timed(name, bytes);
    let n = seconds.len() as f64;
    let mean = seconds.iter().sum::<f64>() / n;
    let sd = (seconds.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    println!(
        "| {name} | {} | {} | {N_ROUNDS} | {:.0} \u{B1} {:.0} ms | {:.1} MB/s of text | {:.0} pages/s |",
        document.pages.len(),
        document.text.len(),
        mean * 1e3,
        sd * 1e3,
        document.text.len() as f64 / mean / 1e6,
        document.pages.len() as f64 / mean,
    );
}

fn main() {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    let data = std::env::var_os("STRATA_DATA").map_or_else(beside, PathBuf::from);
    println!("| file | pages | bytes of text | n | mean \u{B1} sd | text | pages |\n|---|---|---|---|---|---|---|");
    let sample = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/sample-document.md")).unwrap();
    report("sample x 600.txt", sample.repeat(600).as_bytes());
    let paragraphs: String = sample.split("\n\n").map(|p| format!("<p>{p}</p>\n")).collect();
    report("sample x 60.html", format!("<html><body>{}</body></html>", paragraphs.repeat(60)).as_bytes());
    for path in [
        "texts/pepys-diary.txt",
        "docs/epub/pepys-diary.epub",
        "docs/pdf/good/freeculture.pdf",
        "docs/html/gutenberg/18304-h.htm",
    ] {
        match std::fs::read(data.join(path)) {
            Ok(bytes) => report(path.rsplit('/').next().unwrap(), &bytes),
            Err(_) => println!("| {path} | | | | not there: no STRATA_DATA | | |"),
        }
    }
}
