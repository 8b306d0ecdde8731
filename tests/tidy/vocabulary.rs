//! Vocabulary rule: home-made words are replaced by the field's terms, so their number only falls.
//!
//! ```text
//! names of the code ─► words of a name: `read_ahead`, `RamPages` ─┐
//! comments ──────────► words of a text ──────────────────────────┴─► Index ─► uses of each Term ─► against its limit
//! ```
//! Literals do not count, so a wire name in `#[serde(rename = "...")]` does not either. A word that is also ordinary
//! English counts in names only, and in names of up to [`MAX_NAME_WORDS`] words: a longer name is a sentence that names a
//! test.

use std::collections::{BTreeMap, HashMap};

use crate::rust::is_word;
use crate::sources::Source;

const MAX_NAME_WORDS: usize = 5;

/// Words for one thing, and what the field calls it.
pub struct Term {
    /// with a space between them; a phrase has `_` between its words; `*` stands for any end of a word
    pub words: &'static str,
    pub better: &'static str,
    pub place: Place,
    /// folders and files, with a space between them; empty for everything
    pub within: &'static str,
    /// number of uses today
    pub limit: usize,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Place {
    /// names of up to [`MAX_NAME_WORDS`] words
    Names,
    /// names and comments
    Everywhere,
}

impl Term {
    /// A term whose words are right in prose.
    pub const fn names(words: &'static str, better: &'static str, within: &'static str, limit: usize) -> Term {
        Term { words, better, place: Place::Names, within, limit }
    }

    /// A term whose words are wrong everywhere.
    pub const fn everywhere(words: &'static str, better: &'static str, within: &'static str, limit: usize) -> Term {
        Term { words, better, place: Place::Everywhere, within, limit }
    }
}

/// A name or word that is right in a file or folder, and why.
pub struct Exception {
    pub within: &'static str,
    pub name: &'static str,
    pub reason: &'static str,
}

/// A name in a file with the number of its uses, or one paragraph of comments.
struct Text<'a> {
    path: &'a str,
    /// None in comments
    name: Option<&'a str>,
    words: Vec<String>,
    n_uses: usize,
}

/// All names and comments, by each of their words.
pub struct Index<'a> {
    texts: Vec<Text<'a>>,
    by_word: HashMap<String, Vec<usize>>,
}

impl<'a> Index<'a> {
    pub fn new(sources: &[&'a Source]) -> Index<'a> {
        let mut texts = Vec::new();
        for source in sources {
            let mut names: BTreeMap<&str, usize> = BTreeMap::new();
            for name in source.code().split(|c| !is_word(c)).filter(|name| name.starts_with(|c: char| !c.is_ascii_digit())) {
                *names.entry(name).or_default() += 1;
            }
            let path = source.path.as_str();
            texts.extend(names.into_iter().map(|(name, n_uses)| Text {
                path,
                name: Some(name),
                words: words_of_name(name),
                n_uses,
            }));
            let paragraphs = paragraphs(source.comments());
            texts.extend(paragraphs.into_iter().map(|words| Text { path, name: None, words, n_uses: 1 }));
        }
        let mut by_word: HashMap<String, Vec<usize>> = HashMap::new();
        for (n, text) in texts.iter().enumerate() {
            for word in &text.words {
                let at = by_word.entry(word.clone()).or_default();
                if at.last() != Some(&n) {
                    at.push(n);
                }
            }
        }
        Index { texts, by_word }
    }

    /// Number of uses of a term, by file.
    fn uses(&self, term: &Term, exceptions: &[Exception]) -> BTreeMap<&'a str, usize> {
        let mut found = BTreeMap::new();
        for phrase in term.words.split_whitespace().map(|phrase| phrase.split('_').collect::<Vec<_>>()) {
            for text in self.texts_with(phrase[0]).filter(|t| is_counted(term, t)) {
                let is_right = |name: &str| exceptions.iter().any(|e| e.name == name && is_within(text.path, e.within));
                if is_right(text.name.unwrap_or(phrase[0])) {
                    continue;
                }
                let is_phrase = |words: &&[String]| words.iter().zip(&phrase).all(|(word, pattern)| matches(word, pattern));
                let n = text.words.windows(phrase.len()).filter(is_phrase).count() * text.n_uses;
                if n > 0 {
                    *found.entry(text.path).or_default() += n;
                }
            }
        }
        found
    }

    fn texts_with(&self, pattern: &str) -> impl Iterator<Item = &Text<'a>> {
        let mut at: Vec<usize> = match pattern.strip_suffix('*') {
            None => self.by_word.get(pattern).cloned().unwrap_or_default(),
            Some(stem) => {
                self.by_word.iter().filter(|(word, _)| word.starts_with(stem)).flat_map(|(_, at)| at).copied().collect()
            }
        };
        at.sort_unstable();
        at.dedup();
        at.into_iter().map(|n| &self.texts[n])
    }
}

fn matches(word: &str, pattern: &str) -> bool {
    pattern.strip_suffix('*').map_or(word == pattern, |stem| word.starts_with(stem))
}

fn is_counted(term: &Term, text: &Text<'_>) -> bool {
    let is_place = term.place == Place::Everywhere || text.name.is_some() && text.words.len() <= MAX_NAME_WORDS;
    is_place && is_within(text.path, term.within)
}

/// True if a path is one of these files, or under one of these folders.
fn is_within(path: &str, within: &str) -> bool {
    within.is_empty() || within.split_whitespace().any(|folder| std::path::Path::new(path).starts_with(folder))
}

/// Words of a name in lower case: `n_read_ahead`, `RamPagesView`, `KVCache`.
fn words_of_name(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let chars: Vec<char> = name.chars().collect();
    for (n, c) in chars.iter().enumerate() {
        let before = n.checked_sub(1).map(|n| chars[n]);
        let begins = match before {
            None | Some('_') => true,
            Some(b) if c.is_uppercase() => !b.is_uppercase() || chars.get(n + 1).is_some_and(|after| after.is_lowercase()),
            Some(b) => b.is_ascii_digit() != c.is_ascii_digit(),
        };
        if *c == '_' {
            continue;
        }
        if begins {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.extend(c.to_lowercase());
        }
    }
    words
}

/// Paragraphs of comments as words in lower case; code in them is divided like any text.
fn paragraphs(comments: &str) -> Vec<Vec<String>> {
    let mut found = vec![Vec::new()];
    for line in comments.lines() {
        let words = line.split(|c: char| !c.is_alphabetic()).filter(|w| !w.is_empty()).map(str::to_lowercase);
        match found.last_mut() {
            Some(paragraph) if line.contains(char::is_alphabetic) => paragraph.extend(words),
            _ => found.push(Vec::new()),
        }
    }
    found
}

/// Terms whose number has changed, and exceptions that nothing needs.
pub fn complaints(index: &Index<'_>, terms: &[Term], exceptions: &[Exception]) -> Vec<String> {
    let mut found = Vec::new();
    for term in terms {
        let Term { words, better, limit, .. } = term;
        let uses = index.uses(term, exceptions);
        let n: usize = uses.values().sum();
        if n > *limit {
            let places: Vec<String> = uses.iter().map(|(path, n)| format!("{path} ({n})")).collect();
            found.push(format!("`{words}`: {n} uses; the limit is {limit}. Write {better}: {}", places.join(", ")));
        } else if n < *limit {
            found.push(format!("`{words}`: {n} uses are left; lower its limit from {limit} to {n}"));
        }
    }
    for Exception { within, name, reason } in exceptions {
        let is_used = |text: &Text<'_>| {
            let is_it = text.name.map_or_else(|| text.words.iter().any(|word| word == name), |n| n == *name);
            is_it && is_within(text.path, within)
        };
        if reason.is_empty() || !index.texts.iter().any(is_used) {
            found.push(format!("{within}: the exception for `{name}` has no use or no reason; remove it"));
        }
    }
    found
}

/// Retired names that are used again. A name is retired as a whole, so its parts stay free.
pub fn retired(index: &Index<'_>, names: &[(&str, &str)]) -> Vec<String> {
    let pairs: HashMap<&str, &str> =
        names.iter().flat_map(|(old, new)| old.split_whitespace().map(move |old| (old, *new))).collect();
    let named = index.texts.iter().filter_map(|t| Some((t.path, t.name?)));
    named.filter_map(|(path, name)| pairs.get(name).map(|new| format!("{path}: {name} is retired; see {new}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(sources: &[Source]) -> Index<'_> {
        Index::new(&sources.iter().collect::<Vec<_>>())
    }

    fn count(term: &Term, path: &str, text: &str) -> usize {
        index(&[Source::new(path, text)]).uses(term, &[]).values().sum()
    }

    #[test]
    fn names_are_divided_into_words() {
        assert_eq!(words_of_name("n_read_ahead"), ["n", "read", "ahead"]);
        assert_eq!(words_of_name("RamPagesView"), ["ram", "pages", "view"]);
        assert_eq!(words_of_name("KVCache2x"), ["kv", "cache", "2", "x"]);
        assert_eq!(words_of_name("MAX_SLOTS"), ["max", "slots"]);
    }

    #[test]
    fn uses_are_counted_in_names_and_comments() {
        let text = "// A twin, the\n/// census.\nfn twin(x: Twin) { x.twins(\"twin\"); twin_of(twin) }\n";
        assert_eq!(count(&Term::everywhere("twin twins", "", "", 0), "src/a.rs", text), 6);
        assert_eq!(count(&Term::names("twin", "", "", 0), "src/a.rs", text), 4);
        assert_eq!(count(&Term::everywhere("the_census", "", "", 0), "src/a.rs", text), 1, "a phrase over two lines");
        assert_eq!(count(&Term::everywhere("census_fn", "", "", 0), "src/a.rs", text), 0);
        assert_eq!(count(&Term::everywhere("tw*", "", "", 0), "src/a.rs", text), 6);
        assert_eq!(count(&Term::names("twin", "", "src/b src/a.rs", 0), "src/a.rs", text), 4);
        assert_eq!(count(&Term::names("twin", "", "src/b", 0), "src/a.rs", text), 0, "another folder");
    }

    #[test]
    fn long_names_are_sentences() {
        let text = "fn map_of_pages_below_vram_has_them() { below() }";
        assert_eq!(count(&Term::names("below", "", "", 0), "src/a.rs", text), 1);
        assert_eq!(count(&Term::everywhere("below", "", "", 0), "src/a.rs", text), 2);
    }

    #[test]
    fn limits_and_exceptions_are_exact() {
        let sources = [Source::new("src/a.rs", "let (census, other_census) = f(); // census\n")];
        let index = index(&sources);
        let said = |limit, exceptions: &[Exception]| {
            complaints(&index, &[Term::everywhere("census", "occupancy", "", limit)], exceptions).len()
        };
        assert_eq!((said(3, &[]), said(2, &[]), said(4, &[])), (0, 1, 1));
        let exception = |name, reason| [Exception { within: "src/a.rs", name, reason }];
        assert_eq!(said(2, &exception("other_census", "a wire name")), 0);
        assert_eq!(said(1, &exception("census", "a wire name")), 0, "the name and the word of the comment");
        assert_eq!(said(3, &exception("gone", "a wire name")), 1, "no use");
        assert_eq!(said(2, &exception("other_census", "")), 1, "no reason");
    }

    #[test]
    fn retired_names_are_found_as_a_whole() {
        let sources = [Source::new("src/a.rs", "struct Lower; fn lower(x: LowerUse) {} // Lower\n")];
        assert_eq!(retired(&index(&sources), &[("Lower LowerError", "kv/offload")]).len(), 1);
        assert_eq!(retired(&index(&sources), &[("LowerError", "kv/offload")]), [""; 0]);
    }
}
