//! Characters of a glyph as typed text.

/// Characters of a glyph as typed text: ligatures split, invisible characters removed.
pub fn readable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\u{FB00}' => out.push_str("ff"),
            '\u{FB01}' => out.push_str("fi"),
            '\u{FB02}' => out.push_str("fl"),
            '\u{FB03}' => out.push_str("ffi"),
            '\u{FB04}' => out.push_str("ffl"),
            '\u{FB05}' | '\u{FB06}' => out.push_str("st"),
            // A soft hyphen that is drawn is a hyphen.
            '\u{AD}' => out.push('-'),
            '\u{A0}' | '\u{2000}'..='\u{200A}' | '\u{202F}' | '\u{3000}' | '\t' | '\n' | '\r' => out.push(' '),
            '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}' => {}
            // Variation selectors choose a drawing of the same letter.
            '\u{FE00}'..='\u{FE0F}' | '\u{E0100}'..='\u{E01EF}' => {}
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ligatures_and_invisible_marks_become_plain_letters() {
        assert_eq!(readable("\u{FB01}n\u{200B}e\u{A0}so\u{AD}"), "fine so-");
    }
}
