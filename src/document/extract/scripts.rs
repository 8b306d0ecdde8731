//! Superscripts and subscripts as text that stays apart from the number beside it.
//!
//! ```text
//! 10 raised 6 ──► 10^6      1848 raised 3, a link to a note ──► 1848[3]      H lowered 2, O ──► H2O      1 raised st ──► 1st
//! ```
//! Limits: [`MAX_SCRIPT_CHARS`]; longer text is no script.

/// Longest superscript or subscript, characters.
pub const MAX_SCRIPT_CHARS: usize = 40;
/// Fewest letters of a word whose raised number is the mark of a note: `kg` and `sec` are units.
const NOTED_WORD_CHARS: usize = 4;
/// Endings of ordinal numbers, and signs of trademarks, which are raised for their looks.
const ORDINALS: [&str; 22] = [
    "st", "nd", "rd", "th", "er", "re", "e", "ère", "ers", "ème", "a", "o", "ª", "º", "de", "ste", "TM", "SM", "®", "™", "©", "℠",
];

/// Units of length that have squares and cubes, in the singular.
const LENGTHS: [&str; 8] = ["mile", "inch", "inche", "feet", "yard", "metre", "meter", "kilometre"];

/// Position of a text relative to its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Script {
    /// superscript
    Raised,
    /// exponent in a formula, which is no mark of a note
    Exponent,
    /// mark of a note
    Note,
    /// subscript
    Lowered,
}

/// Text of a script after the text `before`.
pub fn written(script: Script, before: &str, content: &str) -> String {
    let content = content.trim();
    if content.is_empty() {
        return String::new();
    }
    match script {
        Script::Note => in_brackets(content),
        Script::Raised => raised(before, content),
        Script::Exponent => with_sign('^', content),
        Script::Lowered => lowered(before, content),
    }
}

fn in_brackets(content: &str) -> String {
    if content.starts_with(['[', '(']) { content.to_owned() } else { format!("[{content}]") }
}

fn raised(before: &str, content: &str) -> String {
    let previous = before.chars().next_back();
    if content.starts_with('[') || is_already_raised(content) {
        return content.to_owned();
    }
    if content.chars().all(|c| matches!(c, '*' | '†' | '‡' | '§' | '¶' | '#')) {
        return in_brackets(content);
    }
    if content.chars().all(char::is_alphabetic) {
        let n_letters = before.chars().rev().take_while(|c| c.is_alphabetic()).count();
        let is_roman = before.ends_with(['I', 'V', 'X', 'L', 'C']);
        let follows_text = n_letters >= NOTED_WORD_CHARS || previous.is_some_and(ends_sentence);
        if content.chars().count() == 1 && follows_text && !is_roman {
            return in_brackets(content);
        }
        let is_abbreviated = n_letters > 1 || (n_letters == 1 && content.chars().count() > 1);
        let is_ordinal = ORDINALS.contains(&content) && !previous.is_some_and(char::is_alphabetic);
        return if is_abbreviated || is_ordinal { content.to_owned() } else { with_sign('^', content) };
    }
    if ORDINALS.contains(&content) || content == "°" {
        return content.to_owned();
    }
    let is_number = content.chars().all(|c| c.is_ascii_digit() || matches!(c, ',' | ' ' | '–')) && content.len() <= 9;
    let n_letters = before.chars().rev().take_while(|c| c.is_alphabetic()).count();
    let ends_word =
        n_letters >= NOTED_WORD_CHARS || previous.is_some_and(|c| matches!(c, '\u{3040}'..='\u{9FFF}' | '\u{AC00}'..='\u{D7A3}'));
    let word = before.rsplit(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
    let is_power = LENGTHS.contains(&word.trim_end_matches('s')) && matches!(content, "2" | "3");
    if is_number && !is_power && (previous.is_some_and(ends_sentence) || ends_word) {
        return in_brackets(content);
    }
    with_sign('^', content)
}

/// True for a mark of punctuation, after which a raised number or letter is the mark of a note.
fn ends_sentence(c: char) -> bool {
    matches!(c, '.' | ',' | ';' | ':' | '!' | '?' | '"' | '”' | '’' | '»' | '…' | '。' | '、' | '」')
}

fn lowered(before: &str, content: &str) -> String {
    let is_number = content.chars().all(|c| c.is_ascii_digit());
    let is_formula = before.ends_with(|c: char| c.is_alphabetic() || matches!(c, ')' | ']')) && !before.ends_with("log");
    let is_fraction = before.ends_with(['/', '⁄']);
    match (is_number && is_formula) || is_fraction || !before.ends_with(|c: char| !c.is_whitespace()) {
        true => content.to_owned(),
        false => with_sign('_', content),
    }
}

/// `^6`, `^−3`, `^2+`, but `^(n + 1)`.
fn with_sign(sign: char, content: &str) -> String {
    let is_sign = |c: char| matches!(c, '+' | '-' | '−' | '–' | '±');
    let inner = content.trim_start_matches(is_sign).trim_end_matches(is_sign);
    let is_simple = inner.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '\'' | '′'));
    if is_simple || content.starts_with('(') { format!("{sign}{content}") } else { format!("{sign}({content})") }
}

fn is_already_raised(content: &str) -> bool {
    content.chars().all(|c| matches!(c, '⁰'..='⁹' | '¹' | '²' | '³' | '⁺' | '⁻'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raised_text_is_a_power_a_note_or_an_ending() {
        for (before, content, expected) in [
            ("10", "6", "^6"),
            ("10", "−3", "^−3"),
            ("km", "2", "^2"),
            ("1848", "3", "^3"),
            ("x", "n+1", "^(n+1)"),
            ("e", "x", "^x"),
            ("Ca", "2+", "^2+"),
            ("(a + b)", "2", "^2"),
            ("as the clerk wrote", "4", "[4]"),
            ("40 miles", "2", "^2"),
            ("It ended.", "12", "[12]"),
            ("水車", "1", "[1]"),
            ("word", "*", "[*]"),
            ("word", "[7]", "[7]"),
            ("1", "st", "st"),
            ("XX", "e", "e"),
            ("XVIII", "e", "e"),
            ("the miller", "b", "[b]"),
            ("at last,", "c", "[c]"),
            ("M", "me", "me"),
            ("Acme", "®", "®"),
            ("x", " ", ""),
        ] {
            assert_eq!(written(Script::Raised, before, content), expected, "{before} {content}");
        }
        assert_eq!(written(Script::Note, "1848", "3"), "[3]");
    }

    #[test]
    fn lowered_text_is_a_part_of_a_formula_or_an_index() {
        for (before, content, expected) in [
            ("H", "2", "2"),
            ("10", "2", "_2"),
            ("x", "i", "_i"),
            ("log", "10", "_10"),
            ("(OH)", "2", "2"),
            ("1/", "2", "2"),
            ("x", "n, m", "_(n, m)"),
        ] {
            assert_eq!(written(Script::Lowered, before, content), expected, "{before} {content}");
        }
    }
}
