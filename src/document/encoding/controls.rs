//! Control characters: removes colors of terminals, overstrikes and NULs from a text. Those that separate words or lines are spaces
//! or line ends.
//!
//! ```text
//! ESC [ 31 m E R R ESC [ 0 m  ──► E R R          N BS N A BS A ──► N A          _ BS a ──► a          x BS ESC [ K ──► nothing
//! ```
//! Invariant: text without control characters is returned unchanged. Source: ECMA-48; nroff's overstrikes.

use std::iter::Peekable;
use std::str::Chars;

const ESC: char = '\u{1B}';
const BELL: char = '\u{07}';
const BACKSPACE: char = '\u{08}';
/// Longest command string of a terminal, characters; a longer one is text.
const MAX_COMMAND_CHARS: usize = 4096;

/// Fewest NULs, each by itself between letters, that separate records; fewer are damage.
const MIN_RECORDS: usize = 3;

/// Number of bytes that are control characters which text files do not use.
pub fn n_odd(bytes: &[u8]) -> usize {
    bytes.iter().filter(|b| b.is_ascii_control() && !matches!(b, b'\t' | b'\n' | b'\r' | 0x0C | 0x1B | 0x08)).count()
}

/// Text without control characters, and the number of those that have no meaning in a text.
pub fn clean(text: String) -> (String, usize) {
    if !text.contains(is_odd) {
        return (text, 0);
    }
    let has_records = separates_records(&text);
    let (mut out, mut n_odd) = (String::with_capacity(text.len()), 0);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ESC => out.extend(skip_escape(&mut chars)),
            '\u{9B}' => out.extend(skip_sequence(&mut chars)),
            BACKSPACE => overstrike(&mut out, &mut chars),
            BELL => {}
            '\0' if has_records => {
                n_odd += 1;
                out.push('\n');
            }
            '\u{0B}' => out.push('\n'),
            c if is_separator(c) => out.push(' '),
            c if is_odd(c) => n_odd += 1,
            c => out.push(c),
        }
    }
    (out, n_odd)
}

/// True if NULs are the ends of records: each is by itself.
fn separates_records(text: &str) -> bool {
    let text = text.trim_matches('\0');
    text.matches('\0').take(MIN_RECORDS).count() == MIN_RECORDS && !text.contains("\0\0")
}

/// True for the separators of fields, records, groups and files, and the start of a heading, which ends fields in some logs.
fn is_separator(c: char) -> bool {
    matches!(c, '\u{01}' | '\u{1C}'..='\u{1F}')
}

/// True for a control character that text files do not use.
fn is_odd(c: char) -> bool {
    c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{0C}' | '\u{85}')
}

/// Skips the rest of an escape, whose first character was read. Returns the white space that it stands for. Source: ECMA-48 §5.
fn skip_escape(chars: &mut Peekable<Chars<'_>>) -> Option<char> {
    match chars.peek() {
        Some('[') => {
            chars.next();
            return skip_sequence(chars);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => skip_command(chars),
        Some(' '..='/') => {
            while chars.next_if(|c| matches!(c, ' '..='/')).is_some() {}
            chars.next_if(|c| matches!(c, '0'..='~'));
        }
        Some('0'..='~') => {
            chars.next();
        }
        _ => {}
    }
    None
}

/// Skips parameters, intermediate characters and the final one. Returns the white space that a movement of the cursor stands for:
/// along the line, or to another. Source: ECMA-48 §8.3.
fn skip_sequence(chars: &mut Peekable<Chars<'_>>) -> Option<char> {
    while chars.next_if(|c| matches!(c, '0'..='?')).is_some() {}
    while chars.next_if(|c| matches!(c, ' '..='/')).is_some() {}
    match chars.next_if(|c| matches!(c, '@'..='~'))? {
        'C' | 'G' | '`' | 'a' => Some(' '),
        'B' | 'E' | 'H' | 'd' | 'e' | 'f' => Some('\n'),
        _ => None,
    }
}

/// Skips a command string with its end (`BEL` or `ESC \`), or its first character only if it has no end on its line.
fn skip_command(chars: &mut Peekable<Chars<'_>>) {
    chars.next();
    let mut ahead = chars.clone();
    for _ in 0..MAX_COMMAND_CHARS {
        match ahead.next() {
            Some(BELL | '\u{9C}') => break,
            Some(ESC) if ahead.peek() == Some(&'\\') => {
                ahead.next();
                break;
            }
            None | Some('\n') => return,
            Some(_) => {}
        }
    }
    *chars = ahead;
}

/// Prints the characters after a run of backspaces over those before it. Spaces that are passed back again, and the rest of a line
/// that is cleared, erase them.
fn overstrike(out: &mut String, chars: &mut Peekable<Chars<'_>>) {
    let mut n_back = 1;
    while chars.next_if_eq(&BACKSPACE).is_some() {
        n_back += 1;
    }
    if erases(n_back, chars) {
        let erased = out.chars().rev().take(n_back).take_while(|c| *c != '\n').map(char::len_utf8).sum::<usize>();
        return out.truncate(out.len() - erased);
    }
    let mut below = Vec::new();
    while below.len() < n_back && out.chars().next_back().is_some_and(|c| c != '\n') {
        below.extend(out.pop());
    }
    while let Some(under) = below.pop() {
        let over = chars.next_if(|c| !c.is_control());
        // An underline keeps the letter, on whichever side it is.
        out.push(over.filter(|over| !matches!(over, '_' | ' ')).unwrap_or(under));
        if over.is_none() {
            out.extend(below.drain(..).rev());
        }
    }
}

/// Skips what erases the last `n` characters, if that comes next: as many spaces and backspaces, or `ESC [ K`.
fn erases(n: usize, chars: &mut Peekable<Chars<'_>>) -> bool {
    let mut ahead = chars.clone();
    let clears_line = ahead.by_ref().take(3).eq([ESC, '[', 'K']);
    if !clears_line {
        ahead = chars.clone();
        let is = |c: char, ahead: &mut Peekable<Chars<'_>>| (0..n).all(|_| ahead.next_if_eq(&c).is_some());
        if !is(' ', &mut ahead) || !is(BACKSPACE, &mut ahead) {
            return false;
        }
    }
    *chars = ahead;
    true
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn colors_and_overstrikes_leave_the_letters() {
        for (text, expected, n_odd) in [
            ("plain\ttext\r\n\u{0C}\u{85}", "plain\ttext\r\n\u{0C}\u{85}", 0),
            ("\x1b[31;1mERROR\x1b[0m \x1b[38:5:1mx\x1b[K\x1b[?25h", "ERROR x", 0),
            ("\x1b(B\x1b[m\x1b=a\x1b7b\u{9B}1mc", "abc", 0),
            ("\x1b]8;;http://a.b/\x1b\\link\x1b]8;;\x1b\\ \x1b]0;title\x07end", "link end", 0),
            ("\x1b]no end\nnext", "no end\nnext", 0),
            ("N\x08NA\x08AM\x08ME", "NAME", 0),
            ("_\x08a_\x08b c\x08_", "ab c", 0),
            ("____\x08\x08\x08\x08word", "word", 0),
            ("abc\x08\x08", "abc", 0),
            ("\x08\n\x08x", "\nx", 0),
            ("one\0 two\x02\x7f", "one two", 3),
            ("one\0two\0three\0four\0\0", "one\ntwo\nthree\nfour\n\n", 5),
            ("8=FIX\x019=148\x01", "8=FIX 9=148 ", 0),
            ("First line\x0Bsecond", "First line\nsecond", 0),
            ("the wheel\x1b[60G[ OK ]\x1b[5;1HName\x1b[10CValue", "the wheel [ OK ]\nName Value", 0),
            ("lsx\x08\x1b[K -l, cats\x08 \x08, abc\x08\x08  \x08\x08d", "ls -l, cat, ad", 0),
            ("\x1b", "", 0),
            ("\x1b[", "", 0),
        ] {
            assert_eq!(clean(text.to_owned()), (expected.to_owned(), n_odd), "{text:?}");
        }
    }
}
