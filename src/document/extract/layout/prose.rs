//! Prose or cells: whether lines below each other are running text.

use super::glyph::Letter;
use super::lines::Line;

/// Lines that tell, at least.
const N_LINES: usize = 3;

/// True if lines are of running text: several words each, as wide as the column, going on in small letters.
pub fn is_prose(lines: &[Line], letters: &[Letter]) -> bool {
    let texts: Vec<Vec<&Letter>> =
        lines.iter().map(|line| line.pieces.iter().flatten().filter_map(|i| letters.get(*i)).collect()).collect();
    let chars = || texts.iter().flatten().filter_map(|letter| letter.text.chars().next());
    let (n_chars, n_digits) = (chars().count(), chars().filter(char::is_ascii_digit).count());
    let widest = lines.iter().map(|line| line.end - line.start).fold(0.0, f64::max);
    let n_wide = lines.iter().filter(|line| line.end - line.start >= 0.7 * widest).count();
    // Words are about five letters; a line of prose has several.
    let is_long = n_chars >= 11 * lines.len();
    let firsts: Vec<char> = texts.iter().skip(1).filter_map(|text| text.first()?.text.chars().next()).collect();
    let n_cased = firsts.iter().filter(|c| c.is_lowercase() || c.is_uppercase() || c.is_numeric()).count();
    let n_small = firsts.iter().filter(|c| c.is_lowercase()).count();
    let goes_on = n_cased * 2 < firsts.len() || n_small * 10 >= firsts.len() * 3;
    lines.len() >= N_LINES && is_long && n_digits * 4 <= n_chars && n_wide * 10 >= lines.len() * 6 && goes_on
}
