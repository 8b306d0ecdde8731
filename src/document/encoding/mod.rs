//! Text encoding: decodes the bytes of a text file of any common encoding.
//!
//! ```text
//! bytes ─► BOM? ─► declared? ─► UTF-16/32? ─► ISO-2022-JP? ─► UTF-8, with a few bad bytes? ─► a guess (chardetng) ─► Decoded
//! ```
//! Invariants: 1. Valid UTF-8 without control characters is used unchanged. 2. No letter is dropped silently: bytes that fit
//! no encoding are rejected, and a few bad bytes are counted. Limits: the guess reads [`GUESS_BYTES`].

mod controls;
mod declared;
mod wide;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, GB18030, ISO_2022_JP, UTF_8};

use controls::clean;
use wide::Wide;

/// Bytes that the guess reads.
const GUESS_BYTES: usize = 1 << 20;
/// Fewest characters per control character, or per byte that decodes to no letter.
const CHARS_PER_CONTROL: usize = 50;
/// Letters of UTF-8 beyond ASCII that overrule the declaration of another encoding.
const UTF8_LETTERS: usize = 4;
/// Bad bytes that a letter of three or four bytes outweighs: in another encoding, bytes are hardly ever such a letter.
const BAD_BYTES_PER_LONG_LETTER: usize = 4;
const UTF8_BOM: &[u8] = b"\xEF\xBB\xBF";
const GB18030_BOM: &[u8] = b"\x84\x31\x95\x33";

/// Decoded text with its encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// text without a byte order mark, NULs and terminal colors
    pub text: String,
    /// name of the encoding; None for UTF-8
    pub encoding: Option<&'static str>,
    /// true if the encoding is a guess
    pub is_guess: bool,
    /// bytes that are no letters, each replaced by U+FFFD
    pub n_bad_bytes: usize,
    /// control characters that were left out; colors of a terminal do not count
    pub n_controls: usize,
}

impl Decoded {
    /// Notice of what was guessed, replaced or left out; None if nothing.
    pub fn notice(&self) -> Option<String> {
        let mut notices = Vec::new();
        match (self.encoding, self.is_guess) {
            (Some(label), true) => {
                notices.push(format!("It is not UTF-8 and was decoded as {label}, by a guess from its letters."));
            }
            (Some(label), false) => notices.push(format!("Its encoding is {label}.")),
            (None, _) => {}
        }
        if self.n_bad_bytes > 0 {
            let place = self.text.find('\u{FFFD}').map_or("", |at| self.text.get(..at).unwrap_or_default());
            let line = place.matches('\n').count() + 1;
            let n = self.n_bad_bytes;
            notices.push(format!(
                "{n} damaged letter(s) are shown as \u{FFFD}, the first in line {line}: their bytes are not valid."
            ));
        }
        if self.n_controls > 0 {
            notices.push(format!("{} control character(s) were left out.", self.n_controls));
        }
        (!notices.is_empty()).then(|| notices.join(" "))
    }
}

/// Text before the control characters are removed.
struct Raw {
    text: String,
    encoding: Option<&'static str>,
    is_guess: bool,
    n_bad_bytes: usize,
}

/// Decodes a file. With `declares` the file may name its encoding, as HTML does.
///
/// # Errors
/// A description of the bytes, if they are not text.
pub fn decode(bytes: &[u8], declares: bool) -> Result<Decoded, &'static str> {
    let raw = raw(bytes, declares)?;
    let is_mostly_bad = raw.n_bad_bytes * CHARS_PER_CONTROL > raw.text.len().max(CHARS_PER_CONTROL);
    if is_mostly_bad && (raw.encoding.is_some() || !is_mostly_utf8(bytes)) {
        return Err("in an unknown encoding");
    }
    let n_nul = raw.text.bytes().filter(|b| *b == 0).count();
    let (text, n_controls) = clean(raw.text);
    if n_controls.saturating_sub(n_nul) * CHARS_PER_CONTROL > text.len().max(CHARS_PER_CONTROL) {
        return Err("full of control characters");
    }
    if text.len() < n_nul.min(CHARS_PER_CONTROL) {
        return Err("a binary file");
    }
    Ok(Decoded { text, encoding: raw.encoding, is_guess: raw.is_guess, n_bad_bytes: raw.n_bad_bytes, n_controls })
}

fn raw(bytes: &[u8], declares: bool) -> Result<Raw, &'static str> {
    if let Some(body) = bytes.strip_prefix(UTF8_BOM) {
        return Ok(utf8_with_bad_bytes(body));
    }
    if let Some((wide, body)) = Wide::by_bom(bytes) {
        return Ok(wide_text(wide, body, false));
    }
    if let Some(body) = bytes.strip_prefix(GB18030_BOM) {
        return Ok(by_table(body, GB18030, false));
    }
    let utf8 = std::str::from_utf8(bytes).ok();
    let declared = declares.then(|| declared::encoding(bytes)).flatten();
    let is_surely_utf8 = || utf8.is_some_and(|text| n_letters_beyond_ascii(text) >= UTF8_LETTERS);
    if let Some(encoding) = declared.filter(|e| *e == UTF_8 || !is_surely_utf8()) {
        let raw = if encoding == UTF_8 { utf8_with_bad_bytes(bytes) } else { by_table(bytes, encoding, false) };
        if raw.n_bad_bytes * CHARS_PER_CONTROL <= raw.text.len() {
            return Ok(raw);
        }
    }
    if (utf8.is_none() || controls::n_odd(bytes) * CHARS_PER_CONTROL > bytes.len())
        && let Some(wide) = Wide::by_statistics(bytes, utf8.is_some())
    {
        return Ok(wide_text(wide, bytes, true));
    }
    if let Some(raw) = iso_2022_jp(bytes) {
        return Ok(raw);
    }
    if let Some(text) = utf8 {
        return Ok(Raw { text: text.to_owned(), encoding: None, is_guess: false, n_bad_bytes: 0 });
    }
    if is_mostly_utf8(bytes) {
        return Ok(utf8_with_bad_bytes(bytes));
    }
    if bytes.iter().filter(|b| **b == 0).count() * CHARS_PER_CONTROL > bytes.len() {
        return Err("a binary file");
    }
    Ok(by_table(bytes, guess(bytes), true))
}

fn n_letters_beyond_ascii(text: &str) -> usize {
    text.chars().filter(|c| !c.is_ascii()).take(UTF8_LETTERS).count()
}

fn wide_text(wide: Wide, bytes: &[u8], is_guess: bool) -> Raw {
    let (text, n_bad_bytes) = wide.decode(bytes);
    Raw { text, encoding: Some(wide.name()), is_guess, n_bad_bytes }
}

fn by_table(bytes: &[u8], encoding: &'static Encoding, is_guess: bool) -> Raw {
    let (text, had_errors) = encoding.decode_without_bom_handling(bytes);
    let n_bad_bytes = if had_errors { text.matches('\u{FFFD}').count() } else { 0 };
    Raw { text: text.into_owned(), encoding: Some(encoding.name()).filter(|_| encoding != UTF_8), is_guess, n_bad_bytes }
}

fn utf8_with_bad_bytes(bytes: &[u8]) -> Raw {
    let (mut text, mut n_bad_bytes) = (String::with_capacity(bytes.len()), 0);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            n_bad_bytes += 1;
            text.push('\u{FFFD}');
        }
    }
    Raw { text, encoding: None, is_guess: false, n_bad_bytes }
}

/// True if the letters of UTF-8 outweigh the bad bytes, or the only bad ones are a cut letter at the end.
fn is_mostly_utf8(bytes: &[u8]) -> bool {
    let weight = |c: char| if c.len_utf8() > 2 { BAD_BYTES_PER_LONG_LETTER } else { usize::from(!c.is_ascii()) };
    let (mut n_letters, mut n_bad, mut ends_cut) = (0, 0, false);
    for chunk in bytes.utf8_chunks() {
        n_letters += chunk.valid().chars().map(weight).sum::<usize>();
        n_bad += usize::from(!chunk.invalid().is_empty());
        ends_cut = chunk.invalid().len() > 1 || matches!(chunk.invalid(), [0xC2 | 0xC3]);
    }
    n_letters >= n_bad || (n_bad == 1 && ends_cut && bytes.utf8_chunks().count() == 1)
}

/// Japanese mail text: 7-bit bytes, but for a few bad ones, that switch between ASCII and JIS X 0208 by escapes.
fn iso_2022_jp(bytes: &[u8]) -> Option<Raw> {
    const ESCAPES: [&[u8]; 4] = [b"\x1B$B", b"\x1B$@", b"\x1B(J", b"\x1B(I"];
    let n_high = || bytes.iter().filter(|b| !b.is_ascii()).count();
    let has_escape =
        bytes.contains(&0x1B) && n_high() * CHARS_PER_CONTROL <= bytes.len() && ESCAPES.iter().any(|e| contains(bytes, e));
    let raw = has_escape.then(|| by_table(bytes, ISO_2022_JP, false))?;
    let is_japanese = raw.text.contains(|c| matches!(c, '\u{3000}'..='\u{9FFF}' | '\u{FF61}'..='\u{FF9F}'));
    (is_japanese && raw.n_bad_bytes * CHARS_PER_CONTROL <= raw.text.len()).then_some(raw)
}

fn contains(bytes: &[u8], mark: &[u8]) -> bool {
    bytes.windows(mark.len()).any(|window| window == mark)
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
    detector.guess(None, Utf8Detection::Deny)
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
        assert_eq!(read(b"\xFF\xFE\0\0a\0\0\0\xE9\0\0\0"), ("aé".into(), Some("UTF-32LE")));
        assert_eq!(read(b"\0\0\xFE\xFF\0\0\0a"), ("a".into(), Some("UTF-32BE")));
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
        let wrong = "<meta charset=iso-8859-1><p>Grüße aus Köln, Größe zählt".as_bytes();
        assert!(decode(wrong, true).unwrap().text.ends_with("Grüße aus Köln, Größe zählt"), "it is UTF-8, whatever it declares");
    }

    #[test]
    fn a_few_bad_bytes_in_utf8_are_replaced_and_counted() {
        let decoded = decode(b"Gr\xC3\xBC\xC3\x9Fe\xFF, und Gr\xC3\xB6\xC3\x9Fe: \xE2\x82", false).unwrap();
        assert_eq!(
            (decoded.text.as_str(), decoded.encoding, decoded.n_bad_bytes),
            ("Grüße\u{FFFD}, und Größe: \u{FFFD}", None, 2)
        );
        assert!(decoded.notice().unwrap().starts_with("2 damaged letter(s)"), "{:?}", decoded.notice());
        let mixed =
            decode("12 € — \u{201C}".as_bytes().iter().chain(b" \x93so\x94").copied().collect::<Vec<u8>>().as_slice(), false);
        assert_eq!(mixed.unwrap().text, "12 € — \u{201C} \u{FFFD}so\u{FFFD}");
        assert_eq!(decode(b"caf\xC3\xA9 and caf\xE9", false).unwrap().text, "café and caf\u{FFFD}");
        let cut = decode(b"plain words, and then one letter: \xE2\x82", false).unwrap();
        assert_eq!((cut.encoding, cut.n_bad_bytes), (None, 1));
        assert_eq!(decode(b"a caf\xC3", false).unwrap().encoding, None);
        assert_eq!(decode(b"a caf\xE9", false).unwrap().text, "a café");
        let old = decode(b"Gr\xFC\xDFe, und Gr\xF6\xDFe, \xC4\xBChnlich", false).unwrap();
        assert_eq!(old.encoding, Some("windows-1252"));
    }

    #[test]
    fn japanese_mail_text_is_known_by_its_escapes() {
        let text = "山の上の水車は三人の兄弟のものだった。\nplain\n";
        let (bytes, ..) = Encoding::for_label(b"shift_jis").unwrap().encode(text);
        assert_eq!(read(&bytes).0, text);
        let mail = b"\x1B$B;3$N>e$N?e<V\x1B(B, plain";
        assert_eq!(read(mail), ("山の上の水車, plain".into(), Some("ISO-2022-JP")));
        let damaged = [mail.as_slice(), &b" and more plain words".repeat(3), b"\xA0"].concat();
        assert!(read(&damaged).0.starts_with("山の上の水車"));
        assert_eq!(read(b"\x1B(B\x1B[mplain \x1B[1mbold\x1B(B\x1B[m"), ("plain bold".into(), None), "a terminal's");
    }

    #[test]
    fn binary_data_is_rejected() {
        assert_eq!(
            decode(b"abc\0\0\0\0def", false),
            Ok(decode(b"abcdef", false).unwrap()).map(|d| Decoded { n_controls: 4, ..d })
        );
        assert_eq!(decode(b"\0\0\0\0\0\0\0\0\0\0ab", false), Err("a binary file"));
        assert_eq!(decode(b"\x01\x02\x03\x04 a few words \x05\x06", false), Err("full of control characters"));
        assert_eq!(decode(b"\xE9abc\0", false), Err("a binary file"));
    }
}
