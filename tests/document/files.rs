//! Text files: decoding, pages, and rejected content.

use std::path::Path;

use proptest::prelude::*;
use strata::base::limits;
use strata::document::{Document, DocumentError, documents_in, join_for_prompt, locate};

fn document(text: &str) -> Document {
    Document::from_bytes("a.txt", text.as_bytes()).unwrap()
}

fn refusal(bytes: &[u8]) -> String {
    Document::from_bytes("a.txt", bytes).unwrap_err().to_string()
}

#[test]
fn text_bom_and_line_ends_are_normalized_and_do_not_change_the_hash() {
    let unix = document("One\n\nTwo é\n");
    for other in ["\u{FEFF}One\n\nTwo é\n", "One\r\n\r\nTwo é\r\n", "One\r\rTwo é\r"] {
        let other = document(other);
        assert_eq!(other.text, unix.text);
        assert_eq!(other.content_hash, unix.content_hash);
    }
    assert_eq!(document("\u{FEFF}a").bytes, 4);
    assert_ne!(document("One\n\nTwo e\n").content_hash, unix.content_hash);
    assert_eq!(unix.content_hash.to_string().len(), 64);
}

#[test]
fn unusable_content_is_rejected_with_a_remedy() {
    for (bytes, expected) in [
        (b"".as_slice(), "has no text"),
        (b"\xEF\xBB\xBF \r\n\t", "has no text"),
        (b"\xE9abc\0", "a binary file, not readable text"),
        (b"\x89PNG\r\n", "a picture, not readable text. Choose text, Markdown, HTML, PDF, DOCX or EPUB"),
        (b"PK\x03\x04rest", "a ZIP archive (extract its files first)"),
        (b"\xD0\xCF\x11\xE0rest", "save it as DOCX without a password"),
        (b"\x01\x02\x03\x04 a few words \x05\x06", "full of control characters"),
    ] {
        let sentence = refusal(bytes);
        assert!(sentence.starts_with("a.txt ") && sentence.contains(expected), "{sentence}");
    }
    let large = vec![b'a'; usize::try_from(limits::MAX_DOCUMENT_BYTES).unwrap() + 1];
    assert!(refusal(&large).contains("at most 64.0 MiB are supported"), "{}", refusal(&large));
}

#[test]
fn text_in_an_old_encoding_is_decoded_with_a_note() {
    let old =
        Document::from_bytes("a.txt", b"Der K\xF6nig gr\xFC\xDFte die G\xE4ste, und sp\xE4ter fuhr er \xFCber die Br\xFCcke.")
            .unwrap();
    assert_eq!(old.text, "Der König grüßte die Gäste, und später fuhr er über die Brücke.");
    assert!(old.notes[0].contains("windows-1252"), "{:?}", old.notes);
    let wide: Vec<u8> = std::iter::once(0xFEFF).chain("海 text".encode_utf16()).flat_map(u16::to_le_bytes).collect();
    assert_eq!(Document::from_bytes("a.txt", &wide).unwrap().text, "海 text");
    assert_eq!(document("naïve").notes, Vec::<String>::new());
}

#[test]
fn plain_text_keeps_the_hash_of_its_saved_kv() {
    // The hash of a version that read text only: a change here invalidates saved KV of users.
    let text = document("# Title\n\nThe harbour was built in 1704, they say.\u{0C}Second page — é 海\n");
    assert_eq!(text.content_hash.to_string(), "ce8135854383b4bb6887837139535621ea347758751d4405618726e4917410c1");
}

#[test]
fn excerpt_keeps_the_numbers_of_its_pages() {
    let whole = document("One.\u{0C}Two.\u{0C}Three.\u{0C}Four.");
    let part = whole.excerpt(1..3).unwrap();
    assert_eq!((part.name.as_str(), part.text.as_str()), ("a.txt (pages 2–3)", "Two.\nThree.\n"));
    assert_eq!((part.page_text(1), part.page_number(1)), (Some("Three.\n"), 3));
    assert_ne!(part.content_hash, whole.content_hash);
    assert_eq!(part.excerpt(1..2).unwrap().name, "a.txt (pages 2–3) (pages 3–3)");
    assert!(whole.excerpt(7..9).is_err() && whole.excerpt(2..2).is_err());
}

#[test]
fn folder_lists_its_documents_in_order() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["b.md", "a.txt", "photo.jpg", ".hidden.txt", "deep/c.pdf", "deep/.git/d.txt", "main.rs"] {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "x").unwrap();
    }
    #[cfg(unix)]
    std::os::unix::fs::symlink(folder.path(), folder.path().join("deep/circle")).unwrap();
    let (found, has_more) = documents_in(folder.path());
    let names: Vec<_> = found.iter().map(|p| p.strip_prefix(folder.path()).unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!((names, has_more), (["a.txt", "b.md", "deep/c.pdf", "main.rs"].map(str::to_owned).to_vec(), false));
    for i in 0..limits::MAX_FOLDER_FILES {
        std::fs::write(folder.path().join(format!("{i}.txt")), "x").unwrap();
    }
    let (found, has_more) = documents_in(folder.path());
    assert_eq!((found.len(), has_more), (limits::MAX_FOLDER_FILES, true));
}

#[test]
fn unusable_paths_are_rejected_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let refusal = |path: &Path| Document::open(path).unwrap_err();
    assert!(matches!(refusal(&at("none.txt")), DocumentError::Missing { .. }));
    assert!(matches!(refusal(folder.path()), DocumentError::NotAFile { what: "a folder", .. }));
    #[cfg(unix)]
    assert!(matches!(refusal(Path::new("/dev/zero")), DocumentError::NotAFile { .. }));
    std::fs::write(at("empty.txt"), "").unwrap();
    assert_eq!(refusal(&at("empty.txt")), DocumentError::Empty { name: "empty.txt".into() });
    let large = std::fs::File::create(at("large.txt")).unwrap();
    large.set_len(limits::MAX_FILE_BYTES + 1).unwrap();
    assert!(matches!(refusal(&at("large.txt")), DocumentError::TooLarge { .. }));
    std::fs::write(at("note.md"), "# Title\r\n\r\nText.").unwrap();
    let note = Document::open(&at("note.md")).unwrap();
    assert_eq!((note.name.as_str(), note.text.as_str(), note.bytes), ("note.md", "# Title\n\nText.", 16));
}

#[test]
fn pages_follow_form_feeds_if_there_are_any() {
    let paged = document("One\n\u{0C}Two\u{0C}\u{0C}Four");
    let texts: Vec<_> = (0..paged.pages.len()).map(|i| paged.page_text(i).unwrap()).collect();
    assert_eq!(texts, ["One\n\n", "Two\n", "\n", "Four"]);
    assert_eq!(paged.page_of(paged.text.find("Four").unwrap()), 3);
    assert_eq!(paged.page_of(0), 0);
    assert_eq!(paged.page_of(usize::MAX), 3);
}

#[test]
fn pages_without_form_feeds_end_at_paragraphs() {
    let paragraph = "The harbour was built in stone. ".repeat(20);
    let long = document(&vec![paragraph.trim(); 30].join("\n\n\n"));
    assert!(long.pages.len() >= 5);
    for (i, page) in long.pages.iter().enumerate() {
        let text = long.page_text(i).unwrap();
        assert!(text.starts_with("The harbour") && text.trim_end().ends_with("stone."), "page {i}");
        assert!(page.end_byte == long.text.len() || (1500..=4600).contains(&text.chars().count()), "page {i}");
    }
    let wall = document(&"海".repeat(20_000));
    assert_eq!(wall.pages.len(), 7);
}

#[test]
fn join_for_prompt_puts_each_text_a_blank_line_and_the_question() {
    let (a, b) = (document("One.\n"), document("Two."));
    assert_eq!(join_for_prompt(std::slice::from_ref(&a), "Why?"), "One.\n\n\nWhy?");
    assert_eq!(join_for_prompt(&[b, a], "Why?"), "Two.\n\nOne.\n\n\nWhy?");
    assert_eq!(join_for_prompt(&[], "Why?"), "Why?");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pages_cover_any_text_in_order(parts in prop::collection::vec("[a-é海 .\\n\\r\u{0C}]{0,900}", 0..12)) {
        if let Ok(document) = Document::from_bytes("a.txt", parts.concat().as_bytes()) {
            let joined: String = (0..document.pages.len()).map(|i| document.page_text(i).unwrap()).collect();
            prop_assert_eq!(&joined, &document.text);
            prop_assert!(document.pages.iter().all(|p| p.first_byte < p.end_byte));
            let kept = document.text.contains(['\r', '\u{0C}']);
            prop_assert!(!kept);
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(document) = Document::from_bytes("a.txt", &bytes) {
            prop_assert!(!document.text.trim().is_empty());
            // Text in another encoding has a note.
            prop_assert!(std::str::from_utf8(&bytes).is_ok() || !document.notes.is_empty());
        }
    }
}

#[test]
fn sample_document_has_several_pages_and_the_answers() {
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
    let sample = Document::open(&assets.join("sample-document.md")).unwrap();
    assert!((9_000..12_000).contains(&sample.text.chars().count()));
    assert!(sample.pages.len() >= 3);
    let questions = std::fs::read_to_string(assets.join("sample-questions.txt")).unwrap();
    assert_eq!(questions.lines().count(), 3);
    for (question, answer) in questions.lines().zip([
        "The annual budget of Somiko is 48210.",
        "passengers walked beside her and still paid the fare, since they felt that the crew should not suffer for the weather.",
        "Every seventh stone carries a carved fish, so that carriers could count the miles at night with their fingers.",
    ]) {
        assert!(locate(answer, std::slice::from_ref(&sample)).is_some(), "{question}");
    }
}
