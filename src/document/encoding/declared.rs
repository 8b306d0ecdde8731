//! Declared encoding: the one that an HTML or XML file names in its first bytes.
//!
//! ```text
//! <!-- charset=koi8-r --> <meta charset="windows-1251"> ──► windows-1251
//! ```
//! Source: HTML standard, "prescan a byte stream to determine its encoding"; XML 1.0, 4.3.3.
//! Limits: [`DECLARED_BYTES`].

use encoding_rs::{Encoding, REPLACEMENT, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252, X_USER_DEFINED};

/// Bytes in which a file must declare its encoding. The standard requires 1024; browsers accept later ones too.
const DECLARED_BYTES: usize = 16 << 10;

/// Encoding that the file declares. UTF-16 is UTF-8, because its bytes could be read so far.
pub fn encoding(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = bytes.get(..DECLARED_BYTES).unwrap_or(bytes);
    let found = prescan(head).or_else(|| xml_declaration(head))?;
    match found {
        e if e == UTF_16LE || e == UTF_16BE => Some(UTF_8),
        e if e == X_USER_DEFINED => Some(WINDOWS_1252),
        // Encodings that no browser decodes any more.
        e if e == REPLACEMENT => None,
        e => Some(e),
    }
}

/// `<?xml version="1.0" encoding="…"?>`
fn xml_declaration(head: &[u8]) -> Option<&'static Encoding> {
    let head = head.trim_ascii_start().strip_prefix(b"<?xml")?;
    let end = head.iter().position(|b| *b == b'>')?;
    let text = String::from_utf8_lossy(head.get(..end)?).into_owned();
    let (_, value) = text.split_once("encoding")?;
    let value = value.trim_start().strip_prefix('=')?.trim_start();
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    Encoding::for_label(value.get(1..)?.split(quote).next()?.as_bytes())
}

fn prescan(head: &[u8]) -> Option<&'static Encoding> {
    let mut scan = Scan { rest: head };
    while !scan.rest.is_empty() {
        if scan.skip(b"<!--") {
            // The two dashes of the start may be those of the end.
            scan.rest = head.get(head.len() - scan.rest.len() - 2..)?;
            scan.skip_past(b"-->");
        } else if scan.starts_tag(b"<meta") {
            scan.advance(5);
            if let Some(found) = scan.meta() {
                return Some(found);
            }
        } else if scan.starts_any_tag() {
            scan.skip_name();
            while scan.attribute().is_some() {}
        } else if [b"<!".as_slice(), b"</", b"<?"].iter().any(|mark| scan.rest.starts_with(mark)) {
            scan.skip_past(b">");
        } else {
            scan.advance(1);
        }
    }
    None
}

/// Position in the first bytes of a file.
struct Scan<'a> {
    rest: &'a [u8],
}

impl Scan<'_> {
    fn advance(&mut self, n: usize) {
        self.rest = self.rest.get(n..).unwrap_or_default();
    }

    fn skip(&mut self, mark: &[u8]) -> bool {
        let is_there = self.rest.starts_with(mark);
        self.advance(if is_there { mark.len() } else { 0 });
        is_there
    }

    fn skip_past(&mut self, mark: &[u8]) {
        let end = self.rest.windows(mark.len()).position(|window| window == mark);
        self.advance(end.map_or(self.rest.len(), |at| at + mark.len()));
    }

    fn starts_tag(&self, mark: &[u8]) -> bool {
        let after = self.rest.get(mark.len());
        let is_name_end = after.is_some_and(|b| b.is_ascii_whitespace() || *b == b'/');
        is_name_end && self.rest.get(..mark.len()).is_some_and(|own| own.eq_ignore_ascii_case(mark))
    }

    fn starts_any_tag(&self) -> bool {
        let name = self.rest.strip_prefix(b"</").or_else(|| self.rest.strip_prefix(b"<"));
        name.and_then(<[u8]>::first).is_some_and(u8::is_ascii_alphabetic)
    }

    fn skip_name(&mut self) {
        let end = self.rest.iter().position(|b| b.is_ascii_whitespace() || *b == b'>');
        self.advance(end.unwrap_or(self.rest.len()));
    }

    /// Encoding of a `meta` element, whose name was skipped.
    fn meta(&mut self) -> Option<&'static Encoding> {
        let (mut is_pragma, mut needs_pragma, mut found) = (false, None, None);
        let mut seen: Vec<Vec<u8>> = Vec::new();
        while let Some((name, value)) = self.attribute() {
            if seen.contains(&name) {
                continue;
            }
            match name.as_slice() {
                b"http-equiv" => is_pragma = value == b"content-type",
                b"content" if found.is_none() => {
                    if let Some(encoding) = in_content(&value) {
                        (found, needs_pragma) = (Some(encoding), Some(true));
                    }
                }
                b"charset" => (found, needs_pragma) = (Encoding::for_label(&value), Some(false)),
                _ => {}
            }
            seen.push(name);
        }
        found.filter(|_| needs_pragma.is_some_and(|needs| is_pragma || !needs))
    }

    /// Next attribute of a tag, with name and value in lower case; None at its end.
    fn attribute(&mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        let blank = self.rest.iter().position(|b| !(b.is_ascii_whitespace() || *b == b'/')).unwrap_or(self.rest.len());
        self.advance(blank);
        if self.rest.is_empty() || self.skip(b">") {
            return None;
        }
        // A `=` in front belongs to the name.
        let ends_name = |&(i, b): &(usize, &u8)| b.is_ascii_whitespace() || matches!(b, b'/' | b'>') || (*b == b'=' && i > 0);
        let end = self.rest.iter().enumerate().find(ends_name).map_or(self.rest.len(), |(i, _)| i);
        let name = self.rest.get(..end)?.to_ascii_lowercase();
        self.advance(end);
        self.rest = self.rest.trim_ascii_start();
        if !self.skip(b"=") {
            return Some((name, Vec::new()));
        }
        self.rest = self.rest.trim_ascii_start();
        let quote = self.rest.first().copied().filter(|b| matches!(b, b'"' | b'\''));
        let end = match quote {
            Some(quote) => {
                self.advance(1);
                self.rest.iter().position(|b| *b == quote)
            }
            None => self.rest.iter().position(|b| b.is_ascii_whitespace() || *b == b'>'),
        };
        let value = self.rest.get(..end.unwrap_or(self.rest.len()))?.to_ascii_lowercase();
        self.advance(value.len() + usize::from(quote.is_some()));
        Some((name, value))
    }
}

/// Encoding in `text/html; charset=…`. Source: HTML standard, "extracting a character encoding from a meta element".
fn in_content(value: &[u8]) -> Option<&'static Encoding> {
    let mut rest = value;
    loop {
        let at = rest.windows(7).position(|window| window == b"charset")?;
        rest = rest.get(at + 7..)?.trim_ascii_start();
        if let Some(label) = rest.strip_prefix(b"=") {
            let label = label.trim_ascii_start();
            let quote = label.first().copied().filter(|b| matches!(b, b'"' | b'\''));
            let label = label.get(usize::from(quote.is_some())..)?;
            let ends = |b: &u8| quote.map_or(b.is_ascii_whitespace() || *b == b';', |quote| *b == quote);
            let end = label.iter().position(ends);
            // A quotation mark without its end is an error.
            let end = if quote.is_some() { end? } else { end.unwrap_or(label.len()) };
            return Encoding::for_label(label.get(..end)?);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::encoding;

    fn name(html: &str) -> Option<&'static str> {
        encoding(html.as_bytes()).map(encoding_rs::Encoding::name)
    }

    #[test]
    fn declared_encoding_is_that_of_a_meta_element_only() {
        for (html, expected) in [
            ("<meta charset=koi8-r>", Some("KOI8-R")),
            ("<META\nCHARSET = 'Windows-1251' >", Some("windows-1251")),
            ("<meta http-equiv=Content-Type content='text/html; charset=iso-8859-2'>", Some("ISO-8859-2")),
            ("<meta content='text/html;charset=\"big5\"' http-equiv='content-type'/>", Some("Big5")),
            ("<meta name=description content='text/html; charset=big5'>", None),
            ("<!-- charset=koi8-r <meta charset=big5> --><meta charset=gbk>", Some("GBK")),
            ("<!--><meta charset=gbk>", Some("GBK")),
            ("<script>var a = 'charset=big5';</script><a title='<meta charset=big5>'><meta charset=gbk>", Some("GBK")),
            ("<metadata charset=big5><meta charset=gbk>", Some("GBK")),
            ("<meta charset=none-such><meta charset=gbk>", Some("GBK")),
            ("<meta charset=utf-16le>", Some("UTF-8")),
            ("<?xml version='1.0' encoding='shift_jis'?><html>", Some("Shift_JIS")),
            ("<?xml version='1.0' encoding='shift_jis'?><meta charset=gbk>", Some("GBK")),
            ("<meta charset=hz-gb-2312>", None),
            ("<p>charset=koi8-r encoding='koi8-r'", None),
            ("<meta charset", None),
            ("<meta charset='gbk", Some("GBK")),
        ] {
            assert_eq!(name(html), expected, "{html}");
        }
    }
}
