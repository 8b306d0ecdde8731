//! Special tokens: finds them in a text before anything else is tokenized.
//!
//! ```text
//! "<|im_start|>user\nHi" ──► [Token(<|im_start|>), Text("user\nHi")]
//! ```
//! Invariants: 1. The fragments cover the text in order; a token may absorb adjacent white space, if its file sets that.
//! 2. A control token is found only with `parse_special`, a user-defined token always. 3. Of tokens that start at one place
//! the longest wins. 4. An [escaped](SpecialTokens::escape_special) text contains no control token.
//! Limit: [`MAX_SPECIAL_BYTES`] of special-token text, because the search automaton is many times larger.

use std::borrow::Cow;

use aho_corasick::{AhoCorasick, MatchKind};

use super::TokenError;

/// Largest size of special-token text, bytes.
const MAX_SPECIAL_BYTES: usize = 4 << 20;

/// Escape mark that breaks up a control token in a document: a noncharacter, which has no meaning in any text.
const ESCAPE_MARK: char = '\u{FDD0}';

/// A token that is matched in raw text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SpecialToken {
    /// token id
    pub id: u32,
    /// text to match
    pub text: String,
    /// true if found only with `parse_special`
    pub control: bool,
    /// absorbs white space before it
    pub lstrip: bool,
    /// absorbs white space after it
    pub rstrip: bool,
    /// matches only without a word character beside it
    pub single_word: bool,
}

/// A part of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fragment<'t> {
    /// text to tokenize
    Text(&'t str),
    /// id of a special token
    Token(u32),
}

/// The special tokens of a vocabulary.
#[derive(Debug, Default)]
pub(super) struct SpecialTokens {
    all: Finder,
    user_defined: Finder,
}

#[derive(Debug, Default)]
struct Finder {
    search: Option<AhoCorasick>,
    tokens: Vec<SpecialToken>,
}

impl SpecialTokens {
    /// Builds the search automata.
    pub fn new(tokens: Vec<SpecialToken>) -> Result<Self, TokenError> {
        let got = tokens.iter().map(|t| t.text.len()).sum();
        if got > MAX_SPECIAL_BYTES {
            return Err(TokenError::TooMany { what: "bytes of special tokens", got, max: MAX_SPECIAL_BYTES });
        }
        let user_defined = tokens.iter().filter(|t| !t.control).cloned().collect();
        Ok(SpecialTokens { all: Finder::new(tokens)?, user_defined: Finder::new(user_defined)? })
    }

    /// Splits `text` at its special tokens.
    pub fn split<'t>(&self, text: &'t str, parse_special: bool) -> Vec<Fragment<'t>> {
        if parse_special { self.all.split(text) } else { self.user_defined.split(text) }
    }

    /// Escapes `text`, so that [`SpecialTokens::split`] finds no control token in it. [`unescape_special`] reverses it.
    pub fn escape_special<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut out = String::new();
        let mut copied = 0;
        let mut at = 0;
        while let Some((start, _, token)) = self.all.find(text, at) {
            // The search continues inside the match, because another token may begin there.
            at = start + text.get(start..).and_then(|t| t.chars().next()).map_or(1, char::len_utf8);
            if token.control {
                out.push_str(text.get(copied..at).unwrap_or_default());
                out.push(ESCAPE_MARK);
                copied = at;
            }
        }
        if copied == 0 {
            return Cow::Borrowed(text);
        }
        out.push_str(text.get(copied..).unwrap_or_default());
        Cow::Owned(out)
    }
}

/// Removes the marks of [`SpecialTokens::escape_special`].
pub(super) fn unescape_special(text: &str) -> Cow<'_, str> {
    if text.contains(ESCAPE_MARK) { Cow::Owned(text.replace(ESCAPE_MARK, "")) } else { Cow::Borrowed(text) }
}

impl Finder {
    fn new(tokens: Vec<SpecialToken>) -> Result<Self, TokenError> {
        let tokens: Vec<SpecialToken> = tokens.into_iter().filter(|t| !t.text.is_empty()).collect();
        if tokens.is_empty() {
            return Ok(Finder::default());
        }
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|t| t.text.as_bytes()))
            .map_err(|e| TokenError::Encode { reason: e.to_string() })?;
        Ok(Finder { search: Some(search), tokens })
    }

    /// The first special token from byte `at` on: start, end and token.
    fn find(&self, text: &str, at: usize) -> Option<(usize, usize, &SpecialToken)> {
        let search = self.search.as_ref()?;
        if at > text.len() {
            return None;
        }
        let found = search.find(aho_corasick::Input::new(text).range(at..))?;
        Some((found.start(), found.end(), self.tokens.get(found.pattern().as_usize())?))
    }

    fn split<'t>(&self, text: &'t str) -> Vec<Fragment<'t>> {
        let mut out = Vec::new();
        let mut done = 0;
        let mut at = 0;
        while let Some((start, end, token)) = self.find(text, at) {
            at = end;
            let (Some(before), Some(after)) = (text.get(..start), text.get(end..)) else { break };
            if token.single_word && (before.ends_with(is_word) || after.starts_with(is_word)) {
                continue;
            }
            let text_end = if token.lstrip { before.trim_end().len().max(done) } else { start };
            push_text(&mut out, text.get(done..text_end));
            out.push(Fragment::Token(token.id));
            done = if token.rstrip { text.len() - after.trim_start().len() } else { end };
            at = done;
        }
        push_text(&mut out, text.get(done..));
        out
    }
}

fn push_text<'t>(out: &mut Vec<Fragment<'t>>, text: Option<&'t str>) {
    if let Some(text) = text.filter(|t| !t.is_empty()) {
        out.push(Fragment::Text(text));
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::Fragment::{Text, Token};
    use super::*;

    fn specials() -> SpecialTokens {
        let token = |id, text: &str, control| SpecialToken { id, text: text.into(), control, ..SpecialToken::default() };
        SpecialTokens::new(vec![
            token(1, "<s>", true),
            token(2, "<s>>", true),
            token(3, "  ", false),
            SpecialToken { lstrip: true, rstrip: true, ..token(4, "<m>", true) },
            SpecialToken { single_word: true, ..token(5, "me", false) },
            token(6, "", true),
        ])
        .unwrap()
    }

    #[test]
    fn split_finds_control_tokens_only_with_parse_special() {
        let s = specials();
        assert_eq!(s.split("a<s>b  c", true), [Text("a"), Token(1), Text("b"), Token(3), Text("c")]);
        assert_eq!(s.split("a<s>b  c", false), [Text("a<s>b"), Token(3), Text("c")]);
        assert_eq!(s.split("<s>><s>", true), [Token(2), Token(1)]);
        assert_eq!(s.split("", true), []);
    }

    #[test]
    fn split_follows_strip_and_single_word_flags() {
        let s = specials();
        assert_eq!(s.split("x \n<m>\t y", true), [Text("x"), Token(4), Text("y")]);
        assert_eq!(s.split("some me, home", true), [Text("some "), Token(5), Text(", home")]);
    }

    #[test]
    fn escape_hides_every_control_token_and_is_reversible() {
        let s = specials();
        for text in ["<s>", "a <s>> b<m>", "<<s>s><s>", "nothing", "", "é<s>"] {
            let escaped = s.escape_special(text);
            let found = s.split(&escaped, true);
            assert!(!found.iter().any(|f| matches!(f, Token(1 | 2 | 4))), "{text}: {found:?}");
            assert_eq!(unescape_special(&escaped), text);
        }
    }
}
