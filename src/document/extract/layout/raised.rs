//! Raised letters: powers as `10^6` and `e^{-kt}`, marks of notes in brackets.

use super::glyph::Letter;

/// Largest size of a raised letter, as a share of the letter before.
const SIZE: f64 = 0.85;
/// Smallest rise of a small letter, as a share of the letter before.
const RISE: f64 = 0.15;
/// Smallest rise of a letter as large as the one before.
const RISE_LARGE: f64 = 0.28;
/// Units whose raised digit is a power.
const UNITS: [&str; 14] = ["mm", "cm", "dm", "km", "nm", "µm", "μm", "ft", "in", "yd", "mi", "kg", "Hz", "sec"];
/// Functions whose raised digit is a power.
const FUNCTIONS: [&str; 7] = ["sin", "cos", "tan", "log", "exp", "ln", "cot"];

/// Raised ends of abbreviations, as in 1st, Mlle and 2º.
const ENDS: [&str; 26] = [
    "st", "nd", "rd", "th", "er", "ers", "e", "es", "o", "os", "a", "as", "lle", "lles", "me", "mes", "re", "ère", "ème", "de",
    "ie", "do", "ra", "ta", "tm", "sm",
];
/// Signs before a product whose raised digit is a power.
const OPERATORS: [char; 8] = ['=', '+', '*', '/', '\u{D7}', '\u{B7}', '\u{2212}', '\u{2248}'];

/// A unit of text with its place in the line: letters of one glyph, or a space.
pub type Item<'a> = (std::borrow::Cow<'a, str>, Option<&'a Letter>);

/// Letters with the spaces between them, and marks around what is raised.
pub fn marked<'a>(cell: &[&'a Letter], spaces: &[bool]) -> Vec<Item<'a>> {
    let mut items: Vec<Item<'a>> = Vec::with_capacity(cell.len() * 5 / 4);
    let mut base: Option<&Letter> = None;
    let mut raised: Vec<usize> = Vec::new();
    let letters: Vec<(usize, &'a Letter)> =
        cell.iter().enumerate().filter(|(_, l)| !l.is_space()).map(|(i, l)| (i, *l)).collect();
    let largest = letters.iter().map(|(_, letter)| letter.size).fold(0.0, f64::max);
    // A mark at the start of a line stands before the letters that it is raised over.
    let first_large = letters.iter().map(|(_, letter)| *letter).find(|letter| letter.size >= largest * 0.95);
    for (i, letter) in &letters {
        let has_space = spaces.get(*i).copied().unwrap_or(false);
        let beside = base.or(first_large);
        let is_raised = beside.is_some_and(|base| is_raised(letter, base));
        if !raised.is_empty() && (!is_raised || has_space) {
            close(&mut items, &mut raised, Some(letter), has_space);
        }
        if has_space {
            items.push((" ".into(), None));
        }
        items.push((letter.text.as_str().into(), Some(letter)));
        if is_raised {
            raised.push(items.len() - 1);
        } else {
            base = Some(letter);
        }
    }
    close(&mut items, &mut raised, None, true);
    items
}

fn is_raised(letter: &Letter, base: &Letter) -> bool {
    let rise = (base.below - letter.below) / base.size;
    // Quotation marks and accents are high by their drawing.
    letter.text.chars().all(|c| c.is_alphanumeric() || is_sign(c) || matches!(c, ',' | '-' | '\u{2013}'))
        && rise <= 0.8
        && (if letter.size <= SIZE * base.size { rise >= RISE } else { rise >= RISE_LARGE })
}

fn is_sign(c: char) -> bool {
    matches!(c, '+' | '-' | '\u{2212}' | '\u{2013}')
}

/// Ends a raised run: writes its marks.
fn close(items: &mut [Item<'_>], raised: &mut Vec<usize>, next: Option<&Letter>, has_space: bool) {
    let places = std::mem::take(raised);
    let (Some(first), Some(last)) = (places.first().copied(), places.last().copied()) else { return };
    let run: String = items.get(first..=last).unwrap_or_default().iter().map(|(text, _)| text.as_ref()).collect();
    let before = items.get(..first).unwrap_or_default();
    let token: Vec<&str> = before.iter().rev().take(24).map(|(text, _)| text.as_ref()).take_while(|t| *t != " ").collect();
    let token: String = token.into_iter().rev().collect();
    let word_before = before.iter().rev().map(|(text, _)| text.as_ref()).skip_while(|t| *t != " ").find(|t| *t != " ");
    let is_term = word_before.is_some_and(|text| text.ends_with(OPERATORS));
    let next = next.filter(|_| !has_space).and_then(|letter| letter.text.chars().next());
    let (open, end) = marks(&token, &run, next, is_term);
    if let Some((text, _)) = items.get_mut(first) {
        *text = format!("{open}{text}").into();
    }
    if let Some((text, _)) = items.get_mut(last) {
        *text = format!("{text}{end}").into();
    }
}

/// Marks before and after a raised run, by the word that it stands on; `is_term` is true if an operator stands before the word.
fn marks(token: &str, run: &str, next: Option<char>, is_term: bool) -> (&'static str, &'static str) {
    const POWER: (&str, &str) = ("^", "");
    const LONG_POWER: (&str, &str) = ("^{", "}");
    const NOTE: (&str, &str) = ("[", "]");
    const NONE: (&str, &str) = ("", "");
    let tail = |test: fn(char) -> bool| token.trim_end_matches(test).len();
    let number = token.get(tail(|c| c.is_ascii_digit() || matches!(c, '.' | ','))..).unwrap_or_default();
    let word = token.get(tail(char::is_alphabetic)..).unwrap_or_default();
    let is_number =
        run.trim_start_matches(is_sign).chars().all(|c| c.is_ascii_digit()) && run.ends_with(|c: char| c.is_ascii_digit());
    let is_notes = run.starts_with(|c: char| c.is_ascii_digit())
        && run.chars().all(|c| c.is_ascii_digit() || matches!(c, ',' | '-' | '\u{2013}'));
    let n_letters = word.chars().count();
    if is_number || is_notes {
        // The upper part of a fraction.
        if matches!(next, Some('/' | '\u{2044}')) {
            return if number.is_empty() { NONE } else { (" ", "") };
        }
        let is_power = match () {
            () if run.starts_with(is_sign) => true,
            () if !is_number => false,
            () if !number.is_empty() => number.len() <= 3 && number.bytes().all(|b| b.is_ascii_digit()),
            () if !word.is_empty() => {
                n_letters == 1 || UNITS.contains(&word) || FUNCTIONS.contains(&word) || is_product(token, word, is_term)
            }
            () => is_formula(token),
        };
        return if is_power { POWER } else { NOTE };
    }
    let is_letter = run.chars().count() == 1 && run.chars().all(|c| c.is_ascii_lowercase());
    let ends_word = !next.is_some_and(char::is_alphanumeric);
    match () {
        () if is_letter && ends_word && n_letters >= 3 && word.chars().any(char::is_lowercase) => NOTE,
        () if is_letter && ends_word && (number == "10" || (n_letters == 1 && word == token)) => POWER,
        () if ends_word && is_exponent(token, word, number, run) => {
            if run.chars().count() == 1 {
                POWER
            } else {
                LONG_POWER
            }
        }
        () => NONE,
    }
}

/// True for two letters that are factors, as in E = mc² and πr².
fn is_product(token: &str, word: &str, is_term: bool) -> bool {
    let before = token.strip_suffix(word).unwrap_or_default();
    let is_greek = |c: char| matches!(c, '\u{370}'..='\u{3FF}');
    word.chars().count() == 2 && (word.contains(is_greek) || before.ends_with(OPERATORS) || (before.is_empty() && is_term))
}

/// True for a sum or product in brackets.
fn is_formula(token: &str) -> bool {
    token.ends_with(')') && token.contains(['+', '=', '*', '\u{2212}'])
}

/// True if a raised run with letters is a power of one letter, a number or a formula, and no end of an abbreviation.
fn is_exponent(token: &str, word: &str, number: &str, run: &str) -> bool {
    let is_plain = run.chars().all(char::is_alphabetic);
    let n_chars = run.chars().count();
    if ENDS.contains(&run.to_lowercase().as_str()) || !run.contains(char::is_alphabetic) {
        return false;
    }
    match word.chars().next() {
        // Capitals with small letters are names and titles, as Mgr and Wm.
        Some(letter) => word.len() == letter.len_utf8() && (!is_plain || n_chars == 1 || (letter.is_lowercase() && n_chars <= 3)),
        // A number with another letter is a note or a unit of time.
        None if !number.is_empty() => {
            let is_variable = n_chars == 1 && run.starts_with(|c: char| matches!(c, 'i'..='z'));
            number.len() <= 3 && number.bytes().all(|b| b.is_ascii_digit()) && (is_variable || !is_plain)
        }
        None => is_formula(token),
    }
}

#[cfg(test)]
mod tests {
    use super::marks;

    fn read(token: &str, run: &str, next: Option<char>) -> String {
        let (open, end) = marks(token, run, next, token == "mc");
        format!("{token}{open}{run}{end}")
    }

    #[test]
    fn powers_have_a_caret_and_notes_brackets() {
        let cases = [
            ("10", "6", "10^6"),
            ("2", "10", "2^10"),
            ("10", "\u{2212}3", "10^\u{2212}3"),
            ("x", "2", "x^2"),
            ("km", "2", "km^2"),
            ("sin", "2", "sin^2"),
            ("s", "-1", "s^-1"),
            ("(a+b)", "2", "(a+b)^2"),
            ("1848", "3", "1848[3]"),
            ("12,500", "4", "12,500[4]"),
            ("brothers", "12", "brothers[12]"),
            ("said.\u{201D}", "3", "said.\u{201D}[3]"),
            ("them", "1,2", "them[1,2]"),
            ("", "7", "[7]"),
            ("e", "x", "e^x"),
            ("Ca", "2+", "Ca2+"),
            ("Na", "+", "Na+"),
            ("1", "st", "1st"),
            ("M", "lle", "Mlle"),
            ("Smith", "a", "Smith[a]"),
            ("e", "-kt", "e^{-kt}"),
            ("2", "n", "2^n"),
            ("(1+r)", "n", "(1+r)^n"),
            ("10", "n+1", "10^{n+1}"),
            ("mc", "2", "mc^2"),
            ("E=mc", "2", "E=mc^2"),
            ("πr", "2", "πr^2"),
            ("He", "2", "He[2]"),
            ("M", "me", "Mme"),
            ("W", "illm", "Willm"),
            ("21", "st", "21st"),
            ("1848", "b", "1848b"),
            ("H", "+", "H+"),
        ];
        for (token, run, right) in cases {
            assert_eq!(read(token, run, None), right);
        }
        assert_eq!(read("3", "1", Some('/')), "3 1");
    }
}
