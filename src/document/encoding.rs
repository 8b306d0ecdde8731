//! Text encoding: decodes the bytes of a text file of any common encoding.
//!
//! ```text
//! bytes ──► BOM? ──► UTF-8? ──► what HTML declares ──► a guess from the bytes (chardetng) ──► text, encoding
//! ```
//! Invariants: 1. Valid UTF-8 is used unchanged. 2. No byte is dropped silently: bytes that fit no encoding are rejected.
//! Limits: the guess reads [`GUESS_BYTES`].

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8};

/// Bytes that the guess reads.
const GUESS_BYTES: usize = 1 << 20;
/// Bytes in which HTML must declare its encoding.
const DECLARED_BYTES: usize = 4096;
/// Fewest characters per control character, or per byte that decodes to no letter.
const CHARS_PER_CONTROL: usize = 50;

/// Decoded text with its encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// text without a byte order mark
    pub text: String,
    /// name of the encoding; None for UTF-8
    pub encoding: Option<&'static str>,
}

/// Decodes a file. With `declares` the file may name its encoding, as HTML does.
///
/// # Errors
/// A description of the bytes, if they are not text.
pub fn decode(bytes: &[u8], declares: bool) -> Result<Decoded, &'static str> {
    let (encoding, bom_bytes) = Encoding::for_bom(bytes).unwrap_or((UTF_8, 0));
    let body = bytes.get(bom_bytes..).unwrap_or_default();
    if encoding == UTF_8
        && let Ok(text) = std::str::from_utf8(body)
    {
        return checked(text.to_owned(), None);
    }
    if bom_bytes == 0 && bytes.contains(&0) {
        return Err("a binary file");
    }
    let encoding = match bom_bytes {
        0 => declared(bytes).filter(|_| declares).unwrap_or_else(|| guess(bytes)),
        _ => encoding,
    };
    let (text, had_errors) = encoding.decode_without_bom_handling(body);
    let n_bad = if had_errors { text.matches('\u{FFFD}').count() } else { 0 };
    if n_bad * CHARS_PER_CONTROL > text.len() {
        return Err("in an unknown encoding");
    }
    checked(text.into_owned(), Some(encoding.name()).filter(|_| encoding != UTF_8))
}

fn checked(text: String, encoding: Option<&'static str>) -> Result<Decoded, &'static str> {
    if text.contains('\0') {
        return Err("a binary file");
    }
    let n_control = text.chars().filter(|&c| is_odd_control(c)).count();
    if n_control * CHARS_PER_CONTROL > text.len().max(CHARS_PER_CONTROL) {
        return Err("full of control characters");
    }
    Ok(Decoded { text, encoding })
}

/// True for a control character that text files do not use.
fn is_odd_control(c: char) -> bool {
    c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{0C}' | '\u{85}')
}

fn guess(bytes: &[u8]) -> &'static Encoding {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    let head = bytes.get(..GUESS_BYTES).unwrap_or(bytes);
    // Long files may be plain ASCII up to the first accent, so the guess starts there.
    let first_non_ascii = bytes.iter().position(|b| !b.is_ascii()).filter(|&at| at >= head.len()).unwrap_or(0);
    let sample = bytes
        .get(first_non_ascii..)
        .and_then(|rest| rest.get(..GUESS_BYTES))
        .or_else(|| bytes.get(first_non_ascii..))
        .unwrap_or(head);
    detector.feed(sample, true);
    // Valid UTF-8 was handled before; a long text with one bad byte is still UTF-8 to the detector.
    detector.guess(None, Utf8Detection::Allow)
}

/// `<meta charset="…">`, `<meta … content="…charset=…">` or `<?xml … encoding="…"?>`.
fn declared(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = String::from_utf8_lossy(bytes.get(..DECLARED_BYTES).unwrap_or(bytes)).to_ascii_lowercase();
    ["charset=", "encoding="].iter().find_map(|mark| {
        let (_, after) = head.split_once(mark)?;
        let label = after.trim_start_matches(['"', '\'', ' ']);
        let end = label.find(|c: char| !(c.is_ascii_alphanumeric() || "-_:".contains(c)))?;
        Encoding::for_label(label.get(..end)?.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> (String, Option<&'static str>) {
        let decoded = decode(bytes, false).unwrap();
        (decoded.text, decoded.encoding)
    }

    #[test]
    fn utf8_is_unchanged_and_byte_order_marks_are_removed() {
        assert_eq!(read("naïve 海".as_bytes()), ("naïve 海".into(), None));
        assert_eq!(read(b"\xEF\xBB\xBFab"), ("ab".into(), None));
        assert_eq!(read(b"\xFF\xFEa\0\xE9\0"), ("aé".into(), Some("UTF-16LE")));
        assert_eq!(read(b"\xFE\xFF\0a\0b"), ("ab".into(), Some("UTF-16BE")));
    }

    #[test]
    fn old_encodings_are_recognized_by_their_letters() {
        for (label, text) in [
            ("windows-1252", "Der König grüßte die Gäste und ließ “Wein” für alle bringen; später fuhr er über die Brücke."),
            ("windows-1251", "Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему."),
            ("Shift_JIS", "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。"),
            ("GBK", "道可道，非常道。名可名，非常名。无名天地之始；有名万物之母。"),
        ] {
            let (bytes, ..) = Encoding::for_label(label.as_bytes()).unwrap().encode(text);
            assert_eq!(read(&bytes), (text.into(), Some(label)), "{label}");
        }
    }

    #[test]
    fn late_accent_in_a_long_ascii_text_is_decoded() {
        let mut bytes = b"plain words \n".repeat(100_000);
        bytes.extend_from_slice(b"und dann: K\xF6nig, gr\xFC\xDFte die G\xE4ste");
        assert!(read(&bytes).0.ends_with("König, grüßte die Gäste"));
    }

    #[test]
    fn html_may_declare_its_encoding() {
        let page = b"<meta charset=\"koi8-r\"><p>\xF7\xD3\xC5";
        assert!(decode(page, true).unwrap().text.ends_with("Все"));
        let xml = b"<?xml version='1.0' encoding='iso-8859-1'?><p>\xE9";
        assert!(decode(xml, true).unwrap().text.ends_with('é'));
    }

    #[test]
    fn binary_data_is_rejected() {
        assert_eq!(decode(b"abc\0def", false), Err("a binary file"));
        assert_eq!(decode(b"\x01\x02\x03\x04 a few words \x05\x06", false), Err("full of control characters"));
        assert_eq!(decode(b"\xE9abc\0", false), Err("a binary file"));
    }
}
