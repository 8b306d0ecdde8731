//! Control characters: removes colors of terminals, overstrikes and NULs from a text.
//!
//! ```text
//! ESC [ 31 m E R R ESC [ 0 m  ──► E R R          N BS N A BS A ──► N A          _ BS a ──► a
//! ```
//! Invariant: text without control characters is returned unchanged. Source: ECMA-48; nroff's overstrikes.

use std::iter::Peekable;
use std::str::Chars;

const ESC: char = '\u{1B}';
const BELL: char = '\u{07}';
const BACKSPACE: char = '\u{08}';
/// Longest command string of a terminal, characters; a longer one is text.
const MAX_COMMAND_CHARS: usize = 4096;

/// Number of bytes that are control characters which text files do not use.
pub fn n_odd(bytes: &[u8]) -> usize {
    bytes.iter().filter(|b| b.is_ascii_control() && !matches!(b, b'\t' | b'\n' | b'\r' | 0x0C | 0x1B | 0x08)).count()
}

/// Text without control characters, and the number of those that have no meaning in a text.
pub fn clean(text: String) -> (String, usize) {
    if !text.contains(is_odd) {
        return (text, 0);
    }
    let (mut out, mut n_odd) = (String::with_capacity(text.len()), 0);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ESC => skip_escape(&mut chars),
            '\u{9B}' => skip_sequence(&mut chars),
            BACKSPACE => overstrike(&mut out, &mut chars),
            BELL => {}
            c if is_odd(c) => n_odd += 1,
            c => out.push(c),
        }
    }
    (out, n_odd)
}

/// True for a control character that text files do not use.
fn is_odd(c: char) -> bool {
    c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{0C}' | '\u{85}')
}

/// Skips the rest of an escape, whose first character was read. Source: ECMA-48 §5.
fn skip_escape(chars: &mut Peekable<Chars<'_>>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            skip_sequence(chars);
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
}

/// Skips parameters, intermediate characters and the final one.
fn skip_sequence(chars: &mut Peekable<Chars<'_>>) {
    while chars.next_if(|c| matches!(c, '0'..='?')).is_some() {}
    while chars.next_if(|c| matches!(c, ' '..='/')).is_some() {}
    chars.next_if(|c| matches!(c, '@'..='~'));
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

/// Prints the characters after a run of backspaces over those before it.
fn overstrike(out: &mut String, chars: &mut Peekable<Chars<'_>>) {
    let mut n_back = 1;
    while chars.next_if_eq(&BACKSPACE).is_some() {
        n_back += 1;
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
            ("one\0 two\x01\x7f", "one two", 3),
            ("\x1b", "", 0),
            ("\x1b[", "", 0),
        ] {
            assert_eq!(clean(text.to_owned()), (expected.to_owned(), n_odd), "{text:?}");
        }
    }
}
