//! Safe split: splits a long text where the parts tokenize to the same ids as the whole.
//!
//! ```text
//! "… the harbour| was built.\n|In 1704 …"   before a space between two letters, or after a line feed before a letter
//! ```
//! [`SplitRule`] has which of the two is safe; tests on the tokenizer and its vocabulary decide it. Without a safe place
//! within [`HARD_CUT_BYTES`] the text is split at any character, which bounds memory and the backtracking of regular
//! expressions.

/// Smallest part but for the last, bytes.
const PART_BYTES: usize = 32 << 10;
/// Largest part, bytes, up to one character more.
const HARD_CUT_BYTES: usize = 512 << 10;

/// Safe places to split a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SplitRule {
    /// `letter | space letter`
    pub before_space: bool,
    /// `non-space, line feed | letter`
    pub after_newline: bool,
}

/// Parts of `text`, which join to the whole.
pub(super) fn parts(text: &str, rule: SplitRule) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (part, after) = rest.split_at(part_len(rest, rule));
        rest = after;
        Some(part)
    })
}

fn part_len(text: &str, rule: SplitRule) -> usize {
    if text.len() <= PART_BYTES {
        return text.len();
    }
    let bytes = text.as_bytes();
    let end = text.len().min(HARD_CUT_BYTES);
    for at in PART_BYTES..end {
        let (Some(&two_before), Some(&before), Some(&here)) = (bytes.get(at - 2), bytes.get(at - 1), bytes.get(at)) else {
            break;
        };
        let next_is_letter = bytes.get(at + 1).is_some_and(u8::is_ascii_alphabetic);
        let space = here == b' ' && before.is_ascii_alphabetic() && next_is_letter;
        let newline = before == b'\n' && here.is_ascii_alphabetic() && !is_white_space(two_before);
        if (rule.before_space && space) || (rule.after_newline && newline) {
            return at;
        }
    }
    if text.len() <= HARD_CUT_BYTES {
        return text.len();
    }
    (end..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len())
}

/// True for ASCII white space, and for bytes of characters that might be white space.
fn is_white_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0B || !byte.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: SplitRule = SplitRule { before_space: true, after_newline: true };

    #[test]
    fn parts_join_to_the_whole_and_stay_within_the_limits() {
        let prose = "The harbour was built.\nIn 1704 it burnt down. ".repeat(20_000);
        let dense = "0123456789\u{6d77}".repeat(100_000);
        for text in [prose.as_str(), dense.as_str(), "short", ""] {
            for rule in [BOTH, SplitRule::default()] {
                let parts: Vec<_> = parts(text, rule).collect();
                assert_eq!(parts.concat(), text);
                assert!(parts.iter().all(|p| !p.is_empty() && p.len() < HARD_CUT_BYTES + 4));
            }
        }
    }

    #[test]
    fn parts_are_split_only_at_safe_places() {
        let text = "word  two\n\nlines. 7 up\nend\n".repeat(5_000);
        let mut at = 0;
        for part in parts(&text, BOTH) {
            at += part.len();
            if let Some(after) = text.get(at..).filter(|a| !a.is_empty()) {
                let before = &text[..at];
                let newline =
                    before.ends_with("d\n") && after.starts_with('w') || before.ends_with("p\n") && after.starts_with('e');
                assert!(newline, "…{}|{}…", &before[before.len() - 8..], &after[..8]);
            }
        }
    }
}
