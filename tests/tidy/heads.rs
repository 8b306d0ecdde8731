//! Head rule: a file begins with one short sentence about its purpose.

use crate::sources::Source;

const MAX_WORDS: usize = 25;

/// Files whose first sentence is too long today. The list only shrinks.
const LONG_TODAY: [&str; 0] = [];

/// Files with a long first sentence, and files that need no entry in the list any more.
pub fn complaints(sources: &[&Source]) -> Vec<String> {
    compare(sources, &LONG_TODAY)
}

fn compare(sources: &[&Source], listed: &[&str]) -> Vec<String> {
    let long: Vec<(&str, usize)> =
        sources.iter().map(|s| (s.path.as_str(), n_words(&s.text))).filter(|(_, n)| *n > MAX_WORDS).collect();
    let new = long.iter().filter(|(path, _)| !listed.contains(path));
    let new =
        new.map(|(path, n)| format!("{path}: the first sentence of the module head has {n} words; the limit is {MAX_WORDS}"));
    let stale = listed.iter().filter(|path| long.iter().all(|(p, _)| p != *path));
    let stale = stale.map(|path| format!("{path}: the first sentence is short now; remove its entry in LONG_TODAY"));
    new.chain(stale).collect()
}

/// Number of words in the first sentence of the head.
fn n_words(text: &str) -> usize {
    first_sentence(text).split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

/// The first sentence of the first paragraph. A dot ends it only before a capital or a sign: `eq. 2` goes on.
fn first_sentence(text: &str) -> String {
    let head = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let paragraph: Vec<&str> = head.take_while(|line| !line.is_empty() && !line.starts_with("```")).collect();
    let paragraph = paragraph.join(" ");
    let ends = |at: usize| {
        let after = paragraph[at + 1..].strip_prefix(' ')?.chars().next()?;
        Some(!after.is_lowercase() && !after.is_ascii_digit())
    };
    let end = paragraph.match_indices(['.', '!', '?']).find(|(at, _)| ends(*at) == Some(true));
    paragraph[..end.map_or(paragraph.len(), |(at, _)| at + 1)].to_owned()
}

#[test]
fn first_sentence_ends_at_its_dot() {
    assert_eq!(
        first_sentence("//! Pages of `a.rs`, as in eq. 2 of\n//! a paper. Next.\n"),
        "Pages of `a.rs`, as in eq. 2 of a paper."
    );
    assert_eq!(first_sentence("//! Pages.\n//! [`Page`] is one.\n"), "Pages.");
    assert_eq!(first_sentence("//! Pages\n//!\n//! More. And more.\nuse a;"), "Pages");
    assert_eq!(first_sentence("//! Pages:\n//! ```text\n//! a. B\n//! ```\n"), "Pages:");
}

#[test]
fn head_rule_rejects_long_sentences_and_stale_entries() {
    let long = Source::new("src/a.rs", &format!("//! {}.\n", "word ".repeat(MAX_WORDS + 1)));
    let short = Source::new("src/a.rs", &format!("//! {}─► . Next sentence.\n", "word ".repeat(MAX_WORDS)));
    assert_eq!(compare(&[&long], &[]).len(), 1);
    assert_eq!(compare(&[&long], &["src/a.rs"]), [""; 0]);
    assert_eq!(compare(&[&short], &[]), [""; 0]);
    assert_eq!(compare(&[&short], &["src/a.rs"]).len(), 1, "the entry is not needed any more");
}
