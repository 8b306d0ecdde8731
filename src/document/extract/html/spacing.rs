//! Letter-spaced headings: single letters with spaces between them become words.
//!
//! ```text
//! "C H A P T E R   O N E" ──► "CHAPTER ONE"         "A B C D" stays: it is the alphabet
//! ```

/// Fewest letters of a line that is spaced.
const MIN_LETTERS: usize = 4;

/// Text of a line whose letters stand apart; None if they do not.
pub fn joined(text: &str) -> Option<String> {
    let (mut words, mut n_letters, mut gap) = (vec![String::new()], 0, 0);
    for c in text.trim().chars() {
        if c.is_whitespace() {
            // Wide spaces are gaps between words by themselves.
            gap += if matches!(c, '\u{2001}' | '\u{2003}' | '\u{3000}' | '\n') { 2 } else { 1 };
            continue;
        }
        let is_mark = !c.is_alphanumeric();
        if gap == 0 && n_letters > 0 && !is_mark {
            return None;
        }
        if gap > 1 {
            words.push(String::new());
        }
        gap = 0;
        n_letters += usize::from(!is_mark);
        words.last_mut()?.push(c);
    }
    let letters: Vec<u32> = words.concat().chars().filter(|c| c.is_alphanumeric()).map(u32::from).collect();
    let is_alphabet = letters.windows(2).all(|pair| matches!(pair, [a, b] if a + 1 == *b));
    (n_letters >= MIN_LETTERS && !is_alphabet).then(|| words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::joined;

    #[test]
    fn spaced_letters_are_words() {
        for (text, expected) in [
            ("C H A P T E R   O N E", Some("CHAPTER ONE")),
            ("C\u{A0}H\u{A0}A\u{A0}P\u{A0}T\u{A0}E\u{A0}R \u{A0} I I", Some("CHAPTER II")),
            (" P A R T\u{2003}1 : ", Some("PART 1:")),
            ("T H E E N D .", Some("THEEND.")),
            ("A B C D E", None),
            ("A B C", None),
            ("The E N D", None),
            ("word", None),
            ("", None),
        ] {
            assert_eq!(joined(text).as_deref(), expected, "{text}");
        }
    }
}
