//! Special tokens: finds them in a text before anything else is tokenized.
//!
//! ```text
//! "<|im_start|>user\nHi" ──► [Token(<|im_start|>), Text("user\nHi")]
//! ```
//! Invariants: 1. The fragments cover the text in order; a token may absorb adjacent white space, if its file sets that.
//! 2. A control token is found only with `parse_special`, and so is a user-defined one that marks the parts of a conversation;
//! other user-defined tokens always. 3. Of tokens that start at one place the longest wins. 4. An
//! [escaped](SpecialTokens::escape_special) text contains no mark.
//! Limit: [`MAX_SPECIAL_BYTES`] of special-token text, because the search automaton is many times larger.

use std::borrow::Cow;
use std::collections::HashSet;

use aho_corasick::{AhoCorasick, MatchKind};

use super::TokenError;

/// Largest size of special-token text, bytes.
const MAX_SPECIAL_BYTES: usize = 4 << 20;

/// Begins an escape sequence: a noncharacter, which has no meaning in any text.
const ESCAPE: char = '\u{FDD0}';
/// After [`ESCAPE`]: nothing; the sequence breaks up a control token.
const BREAK: char = '\u{FDD1}';
/// After [`ESCAPE`]: the character [`ESCAPE`] itself.
const ITSELF: char = '\u{FDD2}';

/// A token that is matched in raw text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SpecialToken {
    /// token id
    pub id: u32,
    /// text to match
    pub text: String,
    /// true if found only with `parse_special`: a mark of the model's own
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
    /// tokens that the encoder finds by itself
    of_encoder: Vec<SpecialToken>,
    /// ids that are found only with `parse_special`
    marks: HashSet<u32>,
}

#[derive(Debug, Default)]
struct Finder {
    search: Option<AhoCorasick>,
    tokens: Vec<SpecialToken>,
}

impl SpecialTokens {
    /// Builds the search automata. `of_encoder` are user-defined tokens that the encoder finds by itself.
    pub fn new(tokens: Vec<SpecialToken>, of_encoder: Vec<SpecialToken>) -> Result<Self, TokenError> {
        Self::with_template(tokens, of_encoder, "")
    }

    /// The same tokens for a model with this chat template: those that stand in it are its marks.
    pub fn with_marks_of(self, template: &str) -> Result<Self, TokenError> {
        Self::with_template(self.all.tokens, self.of_encoder, template)
    }

    fn with_template(mut tokens: Vec<SpecialToken>, of_encoder: Vec<SpecialToken>, template: &str) -> Result<Self, TokenError> {
        let (marks, of_encoder): (Vec<_>, Vec<_>) = of_encoder.into_iter().partition(|token| is_mark(&token.text, template));
        tokens.extend(marks);
        let got = tokens.iter().map(|t| t.text.len()).sum();
        if got > MAX_SPECIAL_BYTES {
            return Err(TokenError::TooMany { what: "bytes of special tokens", got, max: MAX_SPECIAL_BYTES });
        }
        tokens.iter_mut().for_each(|token| token.control |= is_mark(&token.text, template));
        let marks = tokens.iter().filter(|token| token.control).map(|token| token.id).collect();
        let user_defined = tokens.iter().filter(|t| !t.control).cloned().collect();
        Ok(SpecialTokens { all: Finder::new(tokens)?, user_defined: Finder::new(user_defined)?, of_encoder, marks })
    }

    /// True if the id is found only with `parse_special`.
    pub fn is_mark(&self, id: u32) -> bool {
        self.marks.contains(&id)
    }

    /// Splits `text` at its special tokens.
    pub fn split<'t>(&self, text: &'t str, parse_special: bool) -> Vec<Fragment<'t>> {
        if parse_special { self.all.split(text) } else { self.user_defined.split(text) }
    }

    /// Escapes `text`, so that [`SpecialTokens::split`] finds no mark in it. [`unescape_special`] reverses it.
    pub fn escape_special<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut breaks = Vec::new();
        let mut at = 0;
        while let Some((start, _, token)) = self.all.find(text, at) {
            // The search continues inside the match, because another token may begin there.
            at = start + text.get(start..).and_then(|t| t.chars().next()).map_or(1, char::len_utf8);
            breaks.extend(token.control.then_some(at));
        }
        if breaks.is_empty() && !text.contains(ESCAPE) {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(text.len() + 8 * breaks.len());
        let mut copied = 0;
        for at in breaks.into_iter().chain([text.len()]) {
            let part = text.get(copied..at).unwrap_or_default();
            out.push_str(&part.replace(ESCAPE, &format!("{ESCAPE}{ITSELF}")));
            out.extend((at < text.len()).then_some([ESCAPE, BREAK]).into_iter().flatten());
            copied = at;
        }
        Cow::Owned(out)
    }
}

/// True for a user-defined token that marks parts of a conversation: letters between signs, as in `<|user|>`, `[INST]` and
/// `### Human:`, or part of the chat template. Runs of spaces and words are none, so that they stay one token in a document.
fn is_mark(text: &str, template: &str) -> bool {
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\u{2581}');
    let is_sign = |c: char| !c.is_alphanumeric() && !c.is_whitespace() && c != '\u{2581}';
    let has_letters = text.contains(char::is_alphanumeric);
    let is_between_signs = text.starts_with(is_sign) && text.ends_with(is_sign);
    has_letters && (is_between_signs || text.contains(is_sign) && template.contains(text))
}

/// Reverses [`SpecialTokens::escape_special`].
pub(super) fn unescape_special(text: &str) -> Cow<'_, str> {
    if !text.contains(ESCAPE) {
        return Cow::Borrowed(text);
    }
    let broken = text.replace(&String::from_iter([ESCAPE, BREAK]), "");
    Cow::Owned(broken.replace(&String::from_iter([ESCAPE, ITSELF]), &ESCAPE.to_string()))
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
        SpecialTokens::new(
            vec![
                token(1, "<s>", true),
                token(2, "<s>>", true),
                token(3, "  ", false),
                SpecialToken { lstrip: true, rstrip: true, ..token(4, "<m>", true) },
                SpecialToken { single_word: true, ..token(5, "me", false) },
                token(6, "", true),
            ],
            Vec::new(),
        )
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
        for text in
            ["<s>", "a <s>> b<m>", "<<s>s><s>", "nothing", "", "é<s>", "\u{FDD0}", "<\u{FDD0}s>\u{FDD0}\u{FDD1}<s>\u{FDD0}"]
        {
            let escaped = s.escape_special(text);
            let found = s.split(&escaped, true);
            assert!(!found.iter().any(|f| matches!(f, Token(1 | 2 | 4))), "{text}: {found:?}");
            assert_eq!(unescape_special(&escaped), text);
        }
    }

    #[test]
    fn user_defined_token_is_a_mark_by_its_form_or_in_the_template() {
        let template = "{% for m in messages %}    <start_of_turn>user\nUSER:{{ 'Bot:' }}";
        for text in ["<|im_start|>", "<\u{FF5C}User\u{FF5C}>", "<start_of_turn>", "[INST]", " [INST]", "<<SYS>>\n", "[|user|]"] {
            assert!(is_mark(text, ""), "{text}");
        }
        for text in ["</s>", "<think>", "### Human:", "\u{2581}<tool_call>"] {
            assert!(is_mark(text, ""), "{text}");
        }
        for text in ["    ", "\n\n", "user", "\u{2581}\u{2581}", "{%", "'", "messages", "it's", "U.S."] {
            assert!(!is_mark(text, template), "{text}");
        }
        assert!(is_mark("USER:", template) && !is_mark("USER:", ""));
        let token = |id, text: &str| SpecialToken { id, text: text.into(), ..SpecialToken::default() };
        let tokens = SpecialTokens::new(vec![token(1, "USER:"), token(2, "  ")], vec![token(3, "Bot:")]).unwrap();
        assert_eq!(tokens.split("USER:  Bot:", false), [Token(1), Token(2), Text("Bot:")]);
        let tokens = tokens.with_marks_of(template).unwrap();
        assert_eq!(tokens.split("USER:  Bot:", false), [Text("USER:"), Token(2), Text("Bot:")]);
        assert_eq!(tokens.split("USER:  Bot:", true), [Token(1), Token(2), Token(3)]);
        assert_eq!((tokens.is_mark(3), tokens.is_mark(2)), (true, false));
    }
}
