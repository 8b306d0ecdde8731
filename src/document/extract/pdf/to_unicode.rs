//! ToUnicode tables, read as far as they can be read: a stray bracket or an open dictionary costs nothing but itself.
//!
//! Source: ISO 32000-2, 9.10.3; Adobe Technical Notes 5014 and 5411, by which a text may be the name of a glyph.

use std::collections::BTreeMap;

/// Largest number of codes of a table.
const MAX_CODES: usize = 1 << 17;
/// Largest number of long ranges, and codes of a short one.
const MAX_RANGES: usize = 1 << 12;
const SHORT_RANGE: u32 = 256;

/// Texts of character codes.
#[derive(Debug, Default)]
pub struct ToUnicode {
    texts: BTreeMap<u32, String>,
    /// first code, last code and text of the first one
    ranges: Vec<(u32, u32, Vec<u16>)>,
}

impl ToUnicode {
    /// Reads a table.
    pub fn parse(data: &[u8]) -> ToUnicode {
        let mut table = ToUnicode::default();
        let mut section = Section::None;
        let mut operands: Vec<Operand> = Vec::new();
        for token in (Tokens { data }) {
            match token {
                Token::Word(b"beginbfchar") => (section, operands) = (Section::Chars, Vec::new()),
                Token::Word(b"beginbfrange") => (section, operands) = (Section::Ranges, Vec::new()),
                Token::Word(word) if word.starts_with(b"end") || word.starts_with(b"begin") => {
                    table.flush(&mut operands);
                    section = Section::None;
                }
                Token::Word([b'/', name @ ..]) if !matches!(section, Section::None) => {
                    let text = name_text(name).unwrap_or_default();
                    operands.push(Operand::Bytes(text.encode_utf16().flat_map(u16::to_be_bytes).collect()));
                    table.take(&section, &mut operands);
                }
                Token::Word(_) => {}
                Token::Open => {
                    // A list that was not closed ends before the two codes of the next one.
                    let next = operands.split_off(operands.len().saturating_sub(2));
                    if operands.iter().any(|o| matches!(o, Operand::Open)) {
                        table.flush(&mut operands);
                    }
                    operands.extend(next);
                    operands.push(Operand::Open);
                }
                Token::Close if operands.iter().any(|o| matches!(o, Operand::Open)) => table.flush(&mut operands),
                Token::Close => {}
                Token::Bytes(bytes) => {
                    operands.push(Operand::Bytes(bytes));
                    table.take(&section, &mut operands);
                }
            }
        }
        table
    }

    /// Text of a code.
    pub fn get(&self, code: u32) -> Option<String> {
        if let Some(text) = self.texts.get(&code) {
            return Some(text.clone());
        }
        let (first, _, units) = self.ranges.iter().rev().find(|(first, last, _)| (*first..=*last).contains(&code))?;
        text_of(units, code - first)
    }

    /// True if it has no code.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.ranges.is_empty()
    }

    fn take(&mut self, section: &Section, operands: &mut Vec<Operand>) {
        match (section, operands.as_slice()) {
            (Section::Chars, [Operand::Bytes(code), Operand::Bytes(text)]) => self.add(code_of(code), text),
            (Section::Ranges, [Operand::Bytes(first), Operand::Bytes(last), Operand::Bytes(text)]) => {
                let (first, last, text) = (code_of(first), code_of(last), units(text));
                // Short ranges go into the map, so that the search for a code stays short.
                if last.saturating_sub(first) < SHORT_RANGE {
                    let texts = (first..=last).filter_map(|code| Some((code, text_of(&text, code - first)?)));
                    self.texts.extend(texts.take(MAX_CODES.saturating_sub(self.texts.len())));
                } else if self.ranges.len() < MAX_RANGES {
                    self.ranges.push((first, last, text));
                }
            }
            (Section::None, _) => {}
            _ => return,
        }
        operands.clear();
    }

    /// Ends a list of texts: one for each code of a range.
    fn flush(&mut self, operands: &mut Vec<Operand>) {
        let bytes: Vec<(bool, &[u8])> = operands
            .iter()
            .scan(false, |in_list, operand| {
                *in_list |= matches!(operand, Operand::Open);
                Some((*in_list, operand))
            })
            .filter_map(|(in_list, operand)| match operand {
                Operand::Bytes(bytes) => Some((in_list, bytes.as_slice())),
                Operand::Open => None,
            })
            .collect();
        let codes: Vec<u32> = bytes.iter().filter(|(in_list, _)| !in_list).map(|(_, bytes)| code_of(bytes)).collect();
        let texts: Vec<Vec<u8>> = bytes.iter().filter(|(in_list, _)| *in_list).map(|(_, bytes)| bytes.to_vec()).collect();
        if let [first, last, ..] = codes.as_slice() {
            texts.iter().zip(*first..=*last).for_each(|(text, code)| self.add(code, text));
        }
        operands.clear();
    }

    fn add(&mut self, code: u32, text: &[u8]) {
        if self.texts.len() < MAX_CODES
            && let Ok(text) = String::from_utf16(&units(text))
        {
            self.texts.insert(code, text);
        }
    }
}

/// Text of a code of a range, by its distance from the first one. A range ends with the last byte, but some programs count on.
fn text_of(units: &[u16], distance: u32) -> Option<String> {
    let (last, head) = units.split_last()?;
    let unit = last.checked_add(u16::try_from(distance).ok()?)?;
    String::from_utf16(&[head, &[unit]].concat()).ok()
}

/// Letter of a glyph's name if the name has it: `A`, `uni0041`. Other names are left to the font.
fn name_text(name: &[u8]) -> Option<String> {
    let name = str::from_utf8(name).ok()?;
    let letter = match name.strip_prefix("uni").filter(|digits| digits.len() == 4) {
        Some(digits) => char::from_u32(u32::from_str_radix(digits, 16).ok()?)?,
        None => name.parse().ok().filter(char::is_ascii_alphabetic)?,
    };
    Some(letter.to_string())
}

enum Section {
    None,
    Chars,
    Ranges,
}

enum Operand {
    Bytes(Vec<u8>),
    Open,
}

fn code_of(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).fold(0, |code, byte| code << 8 | u32::from(*byte))
}

/// UTF-16; an odd first byte is a unit of its own.
fn units(bytes: &[u8]) -> Vec<u16> {
    let (head, pairs) = bytes.split_at(bytes.len() % 2);
    let head = head.iter().map(|byte| u16::from(*byte));
    head.chain(pairs.chunks_exact(2).map(|pair| pair.iter().fold(0, |unit, byte| unit << 8 | u16::from(*byte)))).collect()
}

enum Token<'a> {
    Word(&'a [u8]),
    Bytes(Vec<u8>),
    Open,
    Close,
}

struct Tokens<'a> {
    data: &'a [u8],
}

impl<'a> Tokens<'a> {
    fn skip(&mut self, n: usize) -> &'a [u8] {
        let (head, rest) = self.data.split_at(n.min(self.data.len()));
        self.data = rest;
        head
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            let n_blank = self.data.iter().take_while(|b| b.is_ascii_whitespace() || **b == 0).count();
            self.skip(n_blank);
            match (self.data.first()?, self.data.get(1)) {
                (b'%', _) => {
                    let n = self.data.iter().take_while(|b| !matches!(b, b'\n' | b'\r')).count();
                    self.skip(n);
                }
                (b'<', Some(b'<')) => {
                    self.skip(2);
                }
                (b'<', _) => {
                    let n = self.data.iter().skip(1).take_while(|b| b.is_ascii_hexdigit() || b.is_ascii_whitespace()).count();
                    let digits = self.skip(n + 1);
                    if self.data.first() == Some(&b'>') {
                        self.skip(1);
                        return Some(Token::Bytes(hex(digits)));
                    }
                }
                (b'[', _) => {
                    self.skip(1);
                    return Some(Token::Open);
                }
                (b']', _) => {
                    self.skip(1);
                    return Some(Token::Close);
                }
                (b'(', _) => {
                    // A name of the head ends on its line; an open bracket costs only itself.
                    let line = self.data.iter().take_while(|b| !matches!(b, b'\n' | b'\r'));
                    let end = line.into_iter().position(|b| *b == b')');
                    self.skip(end.unwrap_or(0) + 1);
                }
                (b'>' | b')' | b'{' | b'}', _) => {
                    self.skip(1);
                }
                _ => {
                    let is_part = |b: &u8| {
                        !b.is_ascii_whitespace() && !matches!(b, 0 | b'<' | b'>' | b'[' | b']' | b'(' | b')' | b'%' | b'{' | b'}')
                    };
                    let n = self.data.iter().take_while(|b| is_part(b)).count();
                    return Some(Token::Word(self.skip(n.max(1))));
                }
            }
        }
    }
}

/// Bytes of hexadecimal digits; a last digit alone is followed by 0.
fn hex(text: &[u8]) -> Vec<u8> {
    let digits: Vec<u32> = text.iter().filter_map(|b| char::from(*b).to_digit(16)).collect();
    digits.chunks(2).map(|pair| pair.iter().chain(&[0]).take(2).fold(0, |byte, digit| byte << 4 | *digit as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(table: &str, codes: &[u32]) -> Vec<Option<String>> {
        let table = ToUnicode::parse(table.as_bytes());
        codes.iter().map(|code| table.get(*code)).collect()
    }

    fn some(texts: &[&str]) -> Vec<Option<String>> {
        texts.iter().map(|text| Some((*text).to_owned())).collect()
    }

    #[test]
    fn characters_ranges_and_lists_are_read() {
        let table = "/CMapName /X def 1 begincodespacerange <0000> <FFFF> endcodespacerange\n\
            2 beginbfchar <0001> <0041> <02> <00660066> endbfchar\n\
            3 beginbfrange <10> <12> <0061> <0020><0021>[<0058> <D83DDE00>] <30> <30> <31> endbfrange endcmap";
        assert_eq!(text(table, &[1, 2, 0x11, 0x20, 0x21, 0x30]), some(&["A", "ff", "b", "X", "\u{1F600}", "1"]));
        assert_eq!(text(table, &[3, 0x13]), [None, None]);
    }

    #[test]
    fn names_of_glyphs_are_texts() {
        let table = "3 beginbfchar <01> /A <02> /period <03> /uni00E9 endbfchar 1 beginbfrange <10> <11> [/a /period] endbfrange";
        assert_eq!(text(table, &[1, 2, 3, 0x10, 0x11]), some(&["A", "", "é", "a", ""]));
    }

    #[test]
    fn broken_tables_lose_only_what_is_broken() {
        let stray = "1 beginbfrange <01> <01> [<0041>] <02> <02> <0042>] <03> <03> [<0043>] endbfrange";
        assert_eq!(text(stray, &[1, 2, 3]), some(&["A", "B", "C"]));
        let open =
            "/CIDSystemInfo << /Registry (Adobe) /Ordering (UCS) > def 1 beginbfchar <01> <0041> <02> <zz> <03> <0043> endbfchar";
        assert_eq!(text(open, &[1]), some(&["A"]));
        let unclosed = "2 beginbfrange <01> <03> [<0041> <0042> <0043> endbfrange 1 beginbfchar <09> <005A>";
        assert_eq!(text(unclosed, &[1, 3, 9]), some(&["A", "C", "Z"]));
    }
}
