//! Encodings: any text in any of them is read as it was written, and damaged bytes are counted.

use encoding_rs::Encoding;
use proptest::prelude::*;
use strata::document::{Document, DocumentError};

use crate::make_files::read;

const LEGACY: [&str; 9] =
    ["windows-1252", "windows-1251", "iso-8859-2", "koi8-r", "shift_jis", "euc-jp", "gbk", "euc-kr", "iso-2022-jp"];
const WIDE: [&str; 5] = ["utf-8", "utf-16le", "utf-16be", "utf-32le", "utf-32be"];

/// Characters that an encoding has, and decodes as they were.
fn alphabet(label: &str) -> Vec<char> {
    let encoding = Encoding::for_label(label.as_bytes()).unwrap();
    let has = |c: &char| {
        let text = c.to_string();
        let (bytes, _, is_unmappable) = encoding.encode(&text);
        !is_unmappable && encoding.decode_without_bom_handling(&bytes).0 == text
    };
    (' '..='\u{FFEF}').filter(|c| !c.is_control() && !('\u{E000}'..='\u{F8FF}').contains(c)).filter(has).collect()
}

fn legacy(label: &str, text: &str) -> Vec<u8> {
    Encoding::for_label(label.as_bytes()).unwrap().encode(text).0.into_owned()
}

/// Bytes of a text in a Unicode encoding, with or without its mark.
fn wide(label: &str, text: &str) -> Vec<u8> {
    match label {
        "utf-16le" => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        "utf-16be" => text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
        "utf-32le" => text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect(),
        "utf-32be" => text.chars().flat_map(|c| u32::from(c).to_be_bytes()).collect(),
        _ => text.as_bytes().to_vec(),
    }
}

fn text_of(name: &str, bytes: &[u8]) -> String {
    read(name, bytes).unwrap_or_else(|error| panic!("{error}")).text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_with_a_mark_is_read_as_it_was_written(
        which in 0..WIDE.len(),
        text in "[a-zà-ÿ а-я\u{5D0}-\u{5EA}一-丏ぁ-ゖ가-갏🌀-🌏\\n\\t]{0,200}",
    ) {
        let text = format!("x{text}x");
        let bytes = wide(WIDE[which], &format!("\u{FEFF}{text}"));
        prop_assert_eq!(Document::from_bytes("a.txt", &bytes).unwrap().text, text);
    }
}

#[test]
fn any_text_in_a_declared_encoding_is_read_as_it_was_written() {
    let mut rng = strata::base::Rng::new(41);
    for label in LEGACY {
        let letters = alphabet(label);
        assert!(letters.len() > 90, "{label}");
        for round in 0..4 {
            let n = 1 + rng.uniform(150 << round) as usize;
            let any = (0..n).map(|_| letters[rng.uniform(letters.len() as u32) as usize]).filter(|c| !matches!(c, '<' | '&'));
            let text = format!("x{}x", any.collect::<String>());
            let page = format!("<!doctype html><meta charset='{label}'><pre>{text}</pre>");
            assert_eq!(text_of("a.html", &legacy(label, &page)), text, "{label}");
        }
    }
}

#[test]
fn texts_without_mark_or_declaration_are_known_by_their_letters() {
    let western =
        "Die Mühle am oberen Bach gehörte drei Brüdern. Der älteste führte die Bücher, und später kam die Brücke dazu.\n";
    let russian =
        "Верхняя мельница принадлежала трём братьям. Старший вёл книги, младший носил мешки, а весной поднималась вода.\n";
    let japanese = "山の上の水車は三人の兄弟のものだった。長男は帳簿をつけ、末の弟は袋を運んだ。春になると水が野原にあふれた。\n";
    let chinese = "山上的水车属于三个兄弟。大哥管账，小弟扛袋子。春天一到，水就漫过草地，轮子转得飞快。\n";
    let korean = "위쪽 물방앗간은 세 형제의 것이었다. 맏이는 장부를 적고 막내는 자루를 날랐다. 봄이면 물이 불었다.\n";
    for (label, text) in [
        ("windows-1252", western),
        ("windows-1251", russian),
        ("koi8-r", russian),
        ("shift_jis", japanese),
        ("euc-jp", japanese),
        ("iso-2022-jp", japanese),
        ("gbk", chinese),
        ("euc-kr", korean),
    ] {
        assert_eq!(text_of("a.txt", &legacy(label, text)), text, "{label}");
    }
    for label in WIDE {
        for text in [western, russian, japanese, chinese, korean] {
            assert_eq!(text_of("a.txt", &wide(label, text)), text, "{label}");
        }
    }
}

#[test]
fn damaged_bytes_of_utf8_are_counted_and_the_rest_is_read() {
    let text = "Верхняя мельница принадлежала трём братьям.\nСтарший вёл книги.";
    let mut bytes = text.as_bytes().to_vec();
    bytes.insert(0, 0xFF);
    bytes.truncate(bytes.len() - 2);
    let document = Document::from_bytes("a.txt", &bytes).unwrap();
    assert_eq!(document.text, format!("\u{FFFD}{}\u{FFFD}", text.strip_suffix("и.").unwrap()));
    assert!(document.notes[0].contains("2 damaged letter(s)") && document.notes[0].contains("in line 1"), "{:?}", document.notes);
    let page = read("a.html", &[b"<p>".as_slice(), &bytes].concat()).unwrap();
    assert!(page.text.contains("Старший") && page.notes[0].contains("2 damaged letter(s)"), "{:?}", page.notes);
}

#[test]
fn logs_of_terminals_are_text() {
    let log = "\u{1B}[32;1mOK\u{1B}[0m \u{1B}[2m02:15\u{1B}[0m step\u{1B}[K\r\nN\u{8}NA\u{8}AM\u{8}ME\r\n\u{7}end\0\0\0\0";
    let document = Document::from_bytes("a.log", log.as_bytes()).unwrap();
    assert_eq!(document.text, "OK 02:15 step\nNAME\nend");
    let refused = Document::from_bytes("a.bin", &[b"ab\0\x02".as_slice(); 40].concat());
    assert!(matches!(refused, Err(DocumentError::Binary { .. })), "{refused:?}");
}

#[test]
fn first_letters_do_not_make_a_text_another_format() {
    for text in [
        "%PDF-1.7 is how such a file begins.",
        "GIF89a is a format.",
        "{\\rtf1 begins RTF.",
        "Rar! rief er.",
        "GGUF holds weights.",
    ] {
        assert_eq!(text_of("note.md", text.as_bytes()), text);
    }
}
