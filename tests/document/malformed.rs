//! Files that are made to do harm, or are damaged: one sentence each, and soon.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use strata::document::{DocumentError, Progress, Reader};

use crate::make_files::{docx, docx_with, epub, para, pdf, read, reader, refusal, zip};

#[test]
fn zip_bomb_is_refused_by_what_it_unpacks_to() {
    let zeros = vec![b' '; 140 << 20];
    let bomb = zip(&[("word/document.xml", &zeros)]);
    assert!(bomb.len() < 1 << 20);
    let sentence = refusal("bomb.docx", &bomb);
    assert!(sentence.contains("decompresses to more than 128 MiB"), "{sentence}");
}

#[cfg(target_os = "linux")]
#[test]
fn reader_has_a_limit_of_memory_and_opens_nothing_before_it_has_the_file() {
    use std::process::{Command, Stdio};
    use strata::base::limits::READER_MEMORY_BYTES;
    use strata::document::FileFormat;
    use strata::document::sandbox::ARGUMENT;
    let mut reader = Command::new(env!("CARGO_BIN_EXE_strata"));
    let mut reader = reader.args([ARGUMENT, FileFormat::Pdf.name()]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let limit = |what: &str| {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", reader.id())).unwrap();
        let line = limits.lines().find_map(|line| line.strip_prefix(what)).unwrap();
        line.split_whitespace().next().unwrap().to_owned()
    };
    let began = Instant::now();
    // It comes after the others, and nothing was written to the reader yet.
    while limit("Max file size") != "0" {
        assert!(began.elapsed() < Duration::from_secs(20), "no limits");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(limit("Max address space"), READER_MEMORY_BYTES.to_string());
    assert_eq!(limit("Max open files"), "3");
    drop(reader.stdin.take());
    assert!(reader.wait().unwrap().success(), "an empty file is answered");
}

#[test]
fn xml_entities_are_not_expanded() {
    let mut entities = String::from("<!DOCTYPE d [<!ENTITY a0 'lol'>");
    (1..30).for_each(|i| entities += &format!("<!ENTITY a{i} '&a{};&a{};&a{};&a{};'>", i - 1, i - 1, i - 1, i - 1));
    let document = format!(
        "{entities}<!ENTITY f SYSTEM 'file:///etc/passwd'>]><w:document><w:body><w:p><w:r><w:t>Only &a29;&f;this.</w:t></w:r></w:p></w:body></w:document>"
    );
    assert_eq!(read("a.docx", &docx_with(&document, &[])).unwrap().text, "Only this.");
}

#[test]
fn nesting_without_end_is_refused_or_read_but_ends() {
    let deep = docx(&"<w:p>".repeat(200_000));
    assert!(refusal("deep.docx", &deep).contains("nested too deeply"));
    let html = format!("{}deep{}", "<div><b>".repeat(50_000), "</b></div>".repeat(50_000));
    if let Err(error) = read("deep.html", html.as_bytes()) {
        assert!(error.to_string().starts_with("deep.html "), "{error}");
    }
}

#[test]
fn damaged_archives_are_said_to_be_damaged() {
    let whole = docx(&para("Words."));
    for (name, bytes) in [("cut.docx", &whole[..whole.len() / 2]), ("empty.epub", b"PK\x03\x04".as_slice())] {
        assert!(refusal(name, bytes).contains("is corrupt"), "{}", refusal(name, bytes));
    }
    let none = zip(&[("word/documents.txt", b"x")]);
    assert!(refusal("none.docx", &none).contains("no word/document.xml"), "{}", refusal("none.docx", &none));
}

#[cfg(unix)]
#[test]
fn reader_that_ends_without_an_answer_is_a_sentence() {
    let answer = |program: &str| Reader::with_sandbox(program).read("a.pdf", &pdf(&[&["x"]]), &Progress::default()).unwrap_err();
    assert!(matches!(answer("/bin/false"), DocumentError::Crashed { .. }));
    assert!(matches!(answer("/bin/echo"), DocumentError::Crashed { .. }), "it talks nonsense");
    let sentence = answer("/no/such/program").to_string();
    assert!(sentence.contains("no process can be started"), "{sentence}");
}

/// A program that takes its time.
#[cfg(unix)]
fn sleeper(folder: &std::path::Path) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join("sleeper");
    std::fs::write(&path, "#!/bin/sh\nexec sleep 100\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    path
}

#[cfg(unix)]
#[test]
fn reading_that_was_cancelled_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (reader, watch) = (Reader::with_sandbox(sleeper(folder.path())), Progress::default());
    let began = Instant::now();
    let answer = std::thread::scope(|scope| {
        let reading = scope.spawn(|| reader.read("a.pdf", &pdf(&[&["x"]]), &watch));
        std::thread::sleep(Duration::from_millis(100));
        watch.cancel();
        reading.join().unwrap()
    });
    assert!(matches!(answer, Err(DocumentError::Cancelled { .. })));
    assert!(began.elapsed() < Duration::from_secs(5), "the child is not waited for");
}

#[cfg(unix)]
#[test]
fn reader_that_makes_no_progress_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let answer = Reader::with_sandbox(sleeper(folder.path())).read("a.pdf", &pdf(&[&["x"]]), &Progress::default());
    assert!(matches!(answer, Err(DocumentError::Stalled { .. })), "{answer:?}");
}

#[test]
fn progress_of_a_long_pdf_is_told_page_by_page() {
    let lines: &[&str] = &["Some words on a page."];
    let watch = Progress::default();
    assert_eq!(watch.progress(), None);
    reader().read("long.pdf", &pdf(&[lines; 50]), &watch).unwrap();
    assert_eq!(watch.progress(), Some((49, 50)));
}

/// Files of every format that are read.
fn good() -> Vec<(&'static str, Vec<u8>)> {
    let chapters = [("one.xhtml", "<html><body><h1>One</h1><p>Words of a chapter.</p></body></html>")];
    vec![
        ("a.pdf", pdf(&[&["The harbour was", "built in stone."], &["Second page."]])),
        ("a.docx", docx(&(para("One.") + &para("Two.")))),
        ("a.epub", epub(&chapters, &[])),
        ("a.html", b"<!doctype html><title>T</title><body><p>Some <b>words</b><table><tr><td>x</table>".to_vec()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn files_with_bytes_changed_are_read_or_refused_with_a_sentence(
        which in 0usize..4,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let (name, mut bytes) = good().swap_remove(which);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()).max(8));
        }
        match read(name, &bytes) {
            Ok(document) => {
                prop_assert!(!document.text.trim().is_empty());
                let joined: String = (0..document.pages.len()).map(|i| document.page_text(i).unwrap()).collect();
                prop_assert_eq!(joined, document.text);
            }
            Err(error) => {
                let sentence = error.to_string();
                prop_assert!(sentence.starts_with(name) && !sentence.contains('\n'), "{}", sentence);
                let crashed = matches!(error, DocumentError::Crashed { .. } | DocumentError::Stalled { .. });
                prop_assert!(!crashed, "{}", sentence);
            }
        }
    }
}
