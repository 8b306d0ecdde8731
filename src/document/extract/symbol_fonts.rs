//! Signs of the fonts Symbol and Wingdings, by their codes.
//!
//! ```text
//! Symbol, 0xB0 ──► °      Wingdings, 0xFC ──► ✓
//! ```
//! Source: ISO 32000-2 annex D.6 (Symbol); Unicode's mapping of Wingdings (L2/11-052R).

/// Symbol, 0x20 to 0x7E.
const SYMBOL_LOW: &str = " !∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_\u{203E}αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼";
/// Symbol, 0xA0 to 0xFE; `\0` has no sign.
const SYMBOL_HIGH: &str = "€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊⟨®©™∑⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪\0⟩∫⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭";
/// Wingdings: the signs that texts use.
const WINGDINGS: [(u8, char); 77] = [
    (0x22, '✂'),
    (0x24, '👓'),
    (0x28, '☎'),
    (0x29, '✆'),
    (0x2A, '✉'),
    (0x36, '⌛'),
    (0x3C, '💾'),
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
    (0x70, '◻'),
    (0x71, '❑'),
    (0x72, '❒'),
    (0x73, '⬧'),
    (0x74, '⧫'),
    (0x75, '◆'),
    (0x76, '❖'),
    (0x77, '⬥'),
    (0x78, '⌧'),
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
    (0xA0, '▪'),
    (0xA1, '○'),
    (0xA2, '⭕'),
    (0xA4, '◉'),
    (0xA7, '▪'),
    (0xA8, '◻'),
    (0xAB, '★'),
    (0xB2, '⟡'),
    (0xB7, '•'),
    (0xD5, '⌫'),
    (0xD8, '➢'),
    (0xDC, '➲'),
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
    (0xFF, '⊞'),
];

/// Sign of a code of Symbol; None if it has none.
pub fn symbol(code: u8) -> Option<char> {
    let sign = match code {
        0x20..=0x7E => SYMBOL_LOW.chars().nth(usize::from(code) - 0x20),
        0xA0..=0xFE => SYMBOL_HIGH.chars().nth(usize::from(code) - 0xA0),
        _ => None,
    };
    sign.filter(|sign| *sign != '\0')
}

/// Sign of a code of Wingdings; None if it has none that is known here.
pub fn wingdings(code: u8) -> Option<char> {
    in_table(&WINGDINGS, code)
}

/// Sign of a code in a table of a font.
pub fn in_table(table: &[(u8, char)], code: u8) -> Option<char> {
    table.iter().find(|(own, _)| *own == code).map(|(_, sign)| *sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_signs_of_their_font() {
        assert_eq!([0x20, 0x61, 0xB0, 0xE1, 0xF1, 0xFE].map(symbol), [' ', 'α', '°', '⟨', '⟩', '⎭'].map(Some));
        assert_eq!([0x00, 0x7F, 0xF0, 0xFF].map(symbol), [None; 4]);
        assert_eq!([0x6C, 0xFC, 0x20].map(wingdings), [Some('●'), Some('✓'), None]);
    }
}
