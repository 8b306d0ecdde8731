//! Letters of symbol fonts: Symbol and Wingdings to Unicode.
//!
//! ```text
//! Symbol, U+F0B0 or 0xB0 ──► °      Wingdings, U+F0FC ──► ✓
//! ```
//! Source: Adobe's Symbol encoding; Unicode's mapping of Wingdings (L2/11-052R).

/// Symbol, 0x20 to 0x7E.
const SYMBOL_LOW: &str = " !∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_\u{203E}αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼";
/// Symbol, 0xA0 to 0xFE.
const SYMBOL_HIGH: &str = "€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊⟨®©™∑⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪ ⟩∫⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭";
/// Wingdings: the signs that texts use.
const WINGDINGS: [(u8, char); 66] = [
    (0x22, '✂'),
    (0x24, '👓'),
    (0x28, '☎'),
    (0x29, '✆'),
    (0x2A, '✉'),
    (0x36, '⌛'),
    (0x3F, '✍'),
    (0x41, '✌'),
    (0x43, '👍'),
    (0x44, '👎'),
    (0x45, '☜'),
    (0x46, '☞'),
    (0x47, '☝'),
    (0x48, '☟'),
    (0x4A, '☺'),
    (0x4B, '😐'),
    (0x4C, '☹'),
    (0x4E, '☠'),
    (0x51, '✈'),
    (0x52, '☼'),
    (0x54, '❄'),
    (0x58, '✠'),
    (0x59, '✡'),
    (0x5A, '☪'),
    (0x5B, '☯'),
    (0x5D, '☸'),
    (0x6C, '●'),
    (0x6D, '❍'),
    (0x6E, '■'),
    (0x6F, '□'),
    (0x71, '❑'),
    (0x72, '❒'),
    (0x74, '⧫'),
    (0x75, '◆'),
    (0x76, '❖'),
    (0x77, '⬥'),
    (0x7B, '❀'),
    (0x80, '⓪'),
    (0x81, '①'),
    (0x82, '②'),
    (0x83, '③'),
    (0x84, '④'),
    (0x85, '⑤'),
    (0x86, '⑥'),
    (0x87, '⑦'),
    (0x88, '⑧'),
    (0x89, '⑨'),
    (0x8A, '⑩'),
    (0x9E, '·'),
    (0x9F, '•'),
    (0xA7, '▪'),
    (0xA8, '◻'),
    (0xAB, '★'),
    (0xD8, '➢'),
    (0xDF, '←'),
    (0xE0, '→'),
    (0xE1, '↑'),
    (0xE2, '↓'),
    (0xE8, '➔'),
    (0xF0, '⇨'),
    (0xFB, '✗'),
    (0xFC, '✓'),
    (0xFD, '☒'),
    (0xFE, '☑'),
    (0xA1, '○'),
    (0xD5, '⌫'),
];
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
    let in_table = |table: &[(u8, char)]| table.iter().find(|(own, _)| Some(*own) == byte).map(|(_, c)| *c);
    let found = match font.to_ascii_lowercase().as_str() {
        "symbol" => byte.and_then(|byte| match byte {
            0x20..=0x7E => SYMBOL_LOW.chars().nth(usize::from(byte) - 0x20),
            0xA0..=0xFE => SYMBOL_HIGH.chars().nth(usize::from(byte) - 0xA0),
            _ => None,
        }),
        "wingdings" => in_table(&WINGDINGS),
        "wingdings 2" => in_table(&WINGDINGS_2),
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
