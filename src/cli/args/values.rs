//! Parsers of single values, with errors that name the valid values.

/// A whole number from 1.
pub(super) fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "it must be a whole number from 1".to_owned())
}

/// Text that is not blank.
pub(super) fn not_blank(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("it must be a question, not blank".to_owned()) } else { Ok(text.to_owned()) }
}

/// A number from 0.
pub(super) fn non_negative(text: &str) -> Result<f32, String> {
    number(text, |x| x >= 0.0).ok_or_else(|| "it must be a number from 0".to_owned())
}

/// A number above 0.
pub(super) fn positive(text: &str) -> Result<f32, String> {
    number(text, |x| x > 0.0).ok_or_else(|| "it must be a number above 0".to_owned())
}

/// A number from 0 to 1.
pub(super) fn share(text: &str) -> Result<f32, String> {
    number(text, |x| (0.0..=1.0).contains(&x)).ok_or_else(|| "it must be a number from 0 to 1".to_owned())
}

/// A finite number that is allowed; None for another text.
pub(super) fn number(text: &str, allowed: impl Fn(f32) -> bool) -> Option<f32> {
    text.parse::<f32>().ok().filter(|x| x.is_finite() && allowed(*x))
}
