//! Signs of symbol fonts, whose codes lie in the private-use area U+F000 to U+F0FF.
//!
//! Source: Adobe Glyph List (corporate use).

use super::super::symbol_fonts::{symbol, wingdings};

/// Signs of Adobe's corporate use, which the names of glyphs lead to.
const ADOBE: [(char, char); 9] = [
    ('\u{F8E5}', '‾'),
    ('\u{F8E6}', '⏐'),
    ('\u{F8E7}', '⎯'),
    ('\u{F8E8}', '®'),
    ('\u{F8E9}', '©'),
    ('\u{F8EA}', '™'),
    ('\u{F6D9}', '©'),
    ('\u{F6DA}', '®'),
    ('\u{F6DB}', '™'),
];
/// The same from U+F8EB to U+F8FE: parts of tall brackets.
const ADOBE_BRACKETS: &str = "⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭";

/// True if the meaning of a character depends on its font.
pub fn is_private(c: char) -> bool {
    matches!(c, '\u{E000}'..='\u{F8FF}' | '\u{F0000}'..='\u{FFFFD}' | '\u{100000}'..='\u{10FFFD}' | '\u{FFFD}')
}

/// True if a character cannot be a letter that is read: a private one or a control character.
pub fn is_unknown(c: char) -> bool {
    is_private(c) || c.is_control()
}

/// Sign of a private character in a font of this name.
pub fn sign(c: char, font: Option<&str>) -> Option<char> {
    adobe_sign(c).or_else(|| font_sign(c, font))
}

fn adobe_sign(c: char) -> Option<char> {
    let listed = || ADOBE.iter().find(|(from, _)| *from == c).map(|(_, sign)| *sign);
    match c {
        // Old-style digits and small capitals.
        '\u{F730}'..='\u{F739}' | '\u{F761}'..='\u{F77A}' => {
            char::from_u32(u32::from(c) - 0xF700).map(|c| c.to_ascii_uppercase())
        }
        '\u{F8EB}'..='\u{F8FE}' => ADOBE_BRACKETS.chars().nth((u32::from(c) - 0xF8EB) as usize),
        _ => listed(),
    }
}

fn font_sign(c: char, font: Option<&str>) -> Option<char> {
    let code = u8::try_from(u32::from(c).checked_sub(0xF000)?).ok()?;
    let is = |part: &str| font.is_some_and(|name| name.to_ascii_lowercase().contains(part));
    match code {
        0x20 => Some(' '),
        _ if is("wingdings") || is("webdings") => wingdings(code),
        _ if is("symbol") => symbol(code),
        // Without a name only the usual marks of lists are sure.
        0xB7 => Some('•'),
        0xA7 | 0xD8 | 0xFC | 0x76 | 0x71 | 0xA8 | 0xE0 => wingdings(code),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bullets_and_greek_letters_have_their_signs() {
        assert_eq!(sign('\u{F0B7}', None), Some('•'));
        assert_eq!(sign('\u{F0B7}', Some("SymbolMT")), Some('•'));
        assert_eq!(sign('\u{F061}', Some("SymbolMT")), Some('α'));
        assert_eq!(sign('\u{F0A3}', Some("Symbol")), Some('≤'));
        assert_eq!(sign('\u{F0B1}', Some("Symbol")), Some('±'));
        assert_eq!(sign('\u{F0E5}', Some("Symbol")), Some('∑'));
        assert_eq!(sign('\u{F0FC}', Some("Wingdings-Regular")), Some('✓'));
        assert_eq!(sign('\u{E123}', None), None);
        assert!(is_private('\u{F0B7}') && is_private('\u{FFFD}') && !is_private('•'));
    }
}
