//! Letters of symbol fonts: Symbol and Wingdings to Unicode.
//!
//! ```text
//! Symbol, U+F0B0 or 0xB0 ──► °      Wingdings, U+F0FC ──► ✓
//! ```
//! Source: Unicode's mapping of Wingdings 2 (L2/11-052R).

use super::super::symbol_fonts::{in_table, symbol, wingdings};

/// Wingdings 2: check marks.
const WINGDINGS_2: [(u8, char); 8] =
    [(0x4F, '✗'), (0x50, '✓'), (0x51, '☒'), (0x52, '☑'), (0x53, '☒'), (0x54, '☒'), (0xA3, '◻'), (0x97, '●')];

/// True for a font whose letters are signs.
pub fn is_symbol_font(font: &str) -> bool {
    let font = font.to_ascii_lowercase();
    font == "symbol" || font.starts_with("wingdings") || font.starts_with("webdings")
}

/// Unicode character of a letter of a font; None if it is unknown.
pub fn character(font: &str, code: u32) -> Option<char> {
    let is_private = (0xF000..=0xF0FF).contains(&code);
    let byte = u8::try_from(if is_private { code - 0xF000 } else { code }).ok();
    let found = match font.to_ascii_lowercase().as_str() {
        "symbol" => byte.and_then(symbol),
        "wingdings" => byte.and_then(wingdings),
        "wingdings 2" => byte.and_then(|byte| in_table(&WINGDINGS_2, byte)),
        _ => None,
    };
    // A font without table may still be one of letters.
    found.or_else(|| char::from_u32(code).filter(|_| !is_private && !is_symbol_font(font)))
}

#[cfg(test)]
mod tests {
    use super::character;

    #[test]
    fn signs_of_symbol_fonts_are_letters_of_unicode() {
        for (font, code, expected) in [
            ("Symbol", 0xF0B0, Some('°')),
            ("Symbol", 0xB3, Some('≥')),
            ("symbol", 0xF061, Some('α')),
            ("Symbol", 0xF0A3, Some('≤')),
            ("Symbol", 0xF0B4, Some('×')),
            ("Symbol", 0xF0B7, Some('•')),
            ("Symbol", 0xF0D6, Some('√')),
            ("Symbol", 0xF0E5, Some('∑')),
            ("Symbol", 0xF0F2, Some('∫')),
            ("Symbol", 0xF057, Some('Ω')),
            ("Symbol", 0xF0FE, Some('⎭')),
            ("Symbol", 0xF07E, Some('∼')),
            ("Wingdings", 0xF0FC, Some('✓')),
            ("Wingdings", 0xF020, None),
            ("Arial", 0x263A, Some('☺')),
            ("Arial", 0xF0FC, None),
        ] {
            assert_eq!(character(font, code), expected, "{font} {code:X}");
        }
    }
}
