//! Letter-spaced headings: single letters with spaces between them become words.
//!
//! ```text
//! "C H A P T E R   O N E" ──► "CHAPTER ONE"         "A B C D" stays: it is the alphabet
//! ```

/// Fewest letters of a heading that is spaced.
pub const MIN_LETTERS: usize = 4;
/// Fewest letters of a paragraph that is spaced: `B A D C` may be a key of answers.
pub const MIN_PROSE_LETTERS: usize = 6;

/// Text of a heading whose letters stand apart; None if they do not.
pub fn joined(text: &str) -> Option<String> {
    joined_if(text, MIN_LETTERS)
}

/// Text of a line of at least so many letters that stand apart.
pub fn joined_if(text: &str, min_letters: usize) -> Option<String> {
    let text = text.trim();
    let mut letters: Vec<(usize, char)> = Vec::new();
    let mut gap = 0;
    for c in text.chars() {
        if c.is_whitespace() {
            // Wide spaces are gaps between words by themselves.
            gap += if matches!(c, '\u{2001}' | '\u{2003}' | '\u{3000}' | '\n') { 2 } else { 1 };
            continue;
        }
        if gap == 0 && !letters.is_empty() && c.is_alphanumeric() {
            return None;
        }
        letters.push((gap, c));
        gap = 0;
    }
    let of_words: Vec<u32> = letters.iter().map(|(_, c)| *c).filter(|c| c.is_alphanumeric()).map(u32::from).collect();
    let is_alphabet = of_words.windows(2).all(|pair| matches!(pair, [a, b] if a + 1 == *b));
    let is_number = !letters.iter().any(|(_, c)| c.is_alphabetic());
    if of_words.len() < min_letters || is_alphabet || is_number {
        return None;
    }
    // The smallest gap stands between letters, and larger ones between words.
    let smallest = letters.iter().map(|(gap, _)| *gap).filter(|gap| *gap > 0).min().unwrap_or(1);
    let mut out = String::new();
    for (gap, c) in letters {
        if gap > smallest {
            out.push(' ');
        }
        out.push(c);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::{MIN_PROSE_LETTERS, joined, joined_if};

    #[test]
    fn spaced_letters_are_words() {
        for (text, expected) in [
            ("C H A P T E R   O N E", Some("CHAPTER ONE")),
            ("C\u{A0}H\u{A0}A\u{A0}P\u{A0}T\u{A0}E\u{A0}R \u{A0} I I", Some("CHAPTER II")),
            (" P A R T\u{2003}1 : ", Some("PART 1:")),
            ("T H E E N D .", Some("THEEND.")),
            ("C  H  A  P  T  E  R   I", Some("CHAPTER I")),
            ("C\u{A0} H\u{A0} A\u{A0} P\u{A0} \u{A0} \u{A0} O\u{A0} N", Some("CHAP ON")),
            ("\u{53C2}\u{3000}\u{8003}\u{3000}\u{6587}\u{3000}\u{732E}", Some("\u{53C2}\u{8003}\u{6587}\u{732E}")),
            ("4 1 0 2", None),
            ("A B C D E", None),
            ("A B C", None),
            ("The E N D", None),
            ("word", None),
            ("", None),
        ] {
            assert_eq!(joined(text).as_deref(), expected, "{text}");
        }
        assert_eq!(joined_if("B A D C", MIN_PROSE_LETTERS), None);
    }
}
