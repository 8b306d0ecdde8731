//! Text strings of PDF dictionaries: PDFDocEncoding, UTF-16 or UTF-8.
//!
//! Source: ISO 32000-2, 7.9.2.2 and annex D.2.

/// PDFDocEncoding from 0x18 to 0x1F.
const LOW: &str = "˘ˇˆ˙˝˛˚˜";
/// PDFDocEncoding from 0x80 to 0xA0.
const HIGH: &str = "•†‡…—–ƒ⁄‹›−‰„“”‘’‚™ﬁﬂŁŒŠŸŽıłœšž\u{FFFD}€";

/// Characters of a text string, with line ends as `\n`.
pub fn text_string(bytes: &[u8]) -> String {
    let utf16 = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes.as_chunks::<2>().0.iter().map(|pair| unit(*pair)).collect();
        String::from_utf16_lossy(&units)
    };
    let text = match bytes {
        [0xFE, 0xFF, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [0xFF, 0xFE, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xEF, 0xBB, 0xBF, rest @ ..] => String::from_utf8_lossy(rest).into_owned(),
        _ => bytes.iter().map(|byte| pdf_doc_char(*byte)).collect(),
    };
    without_language(&text).replace("\r\n", "\n").replace('\r', "\n")
}

fn pdf_doc_char(byte: u8) -> char {
    let nth = |table: &str, first: u8| table.chars().nth(usize::from(byte - first));
    match byte {
        0x18..=0x1F => nth(LOW, 0x18),
        0x80..=0xA0 => nth(HIGH, 0x80),
        _ => None,
    }
    .unwrap_or(char::from(byte))
}

/// Text without the language codes that escape characters enclose.
fn without_language(text: &str) -> String {
    let outside = text.split('\u{1B}').step_by(2);
    if text.contains('\u{1B}') { outside.collect() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::text_string;

    #[test]
    fn every_encoding_of_a_text_string_is_read() {
        assert_eq!(text_string(b"M\xFChle \x8D12\x8E \x84 \xA05"), "Mühle “12” — €5");
        assert_eq!(text_string(b"\xFE\xFF\x00M\x00\xFC\x00\x1B\x00e\x00n\x00\x1B\x00h"), "Müh");
        assert_eq!(text_string(b"\xFF\xFEM\x00\r\x00\n\x00h\x00"), "M\nh");
        assert_eq!(text_string(b"\xEF\xBB\xBFM\xC3\xBCh"), "Müh");
    }
}
