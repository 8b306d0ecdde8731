//! Characters: the classes that make spellings of the same words equal. Pure.
//!
//! Source: the Unicode character database; UAX #14 for scripts without spaces (classes ID and SA).

/// True for hyphens, also one that shows only at a line end.
pub fn is_hyphen(c: char) -> bool {
    matches!(c, '-' | '\u{AD}' | '\u{2010}' | '\u{2011}' | '\u{FE63}' | '\u{FF0D}')
}

/// True for characters without a width, which change no word: soft hyphens, joiners, marks of direction, variation selectors.
pub fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{E0100}'..='\u{E01EF}')
}

/// True for letters of scripts that put no spaces between words.
pub fn is_unspaced(c: char) -> bool {
    matches!(c,
        // Thai, Lao, Myanmar, Khmer
        '\u{E00}'..='\u{EFF}' | '\u{1000}'..='\u{109F}' | '\u{1780}'..='\u{17FF}'
        // kana, bopomofo
        | '\u{3005}'..='\u{3007}' | '\u{3031}'..='\u{3035}' | '\u{3040}'..='\u{312F}' | '\u{31A0}'..='\u{31FF}'
        // Han
        | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}' | '\u{F900}'..='\u{FAFF}' | '\u{FF66}'..='\u{FF9F}'
        | '\u{20000}'..='\u{3FFFD}')
}

/// True for letters of another shape that are the same letters: ligatures, Arabic forms within words, full-width letters.
/// Superscripts, fractions and circled numbers are not: they mean something else.
pub fn is_presentation_form(c: char) -> bool {
    matches!(c, '\u{FB00}'..='\u{FDFF}' | '\u{FE70}'..='\u{FEFC}' | '\u{FF01}'..='\u{FFEF}' | '\u{132}' | '\u{133}')
}

/// The common form of a quotation mark, a dash or an ellipsis; None for other characters.
pub fn unified(c: char) -> Option<&'static str> {
    Some(match c {
        '\u{2018}'..='\u{201B}' | '\u{2BC}' | '\u{B4}' | '\u{60}' | '\u{2032}' | '\u{2039}' | '\u{203A}' | '\u{FF07}' => "'",
        '\u{201C}'..='\u{201F}' | '\u{AB}' | '\u{BB}' | '\u{2033}' | '\u{300C}'..='\u{300F}' | '\u{301D}'..='\u{301F}' => "\"",
        '\u{FE41}'..='\u{FE44}' | '\u{FF02}' | '\u{FF62}' | '\u{FF63}' => "\"",
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{2E3A}' | '\u{2E3B}' | '\u{FE58}' | '\u{FE63}' | '\u{FF0D}' => "-",
        '\u{2026}' => "...",
        _ => return None,
    })
}
