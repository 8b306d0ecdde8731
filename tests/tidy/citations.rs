//! Citation rule: papers are cited as `LeoAM §4.2 eq. 2`, so that a search finds them, and the place exists.
//!
//! ```text
//! comments ─► words ─► § and locators ─┬─► complaints about other forms
//!                                      └─► Citation ─► heading and number in the text of the paper
//! ```
//! After the section comes at most one locator: `eq. 2`, `Algorithm 1`, `Fig. 10` or `Table 2`. Papers that are not in
//! [`PAPERS`] may be cited by a locator alone.

use crate::rust::is_word;
use crate::sources::Source;

/// Papers that Strata follows, as they are cited, with the files of their texts.
pub const PAPERS: [(&str, &str); 5] = [
    ("LeoAM", "leoam.md"),
    ("KVPR", "kvpr.md"),
    ("HybridServe", "hybridserve.md"),
    ("KV-Compress", "kv-compress.md"),
    ("InfiniGen", "infinigen.md"),
];

/// Files with another form today. The list only shrinks.
const OTHER_FORM_TODAY: [&str; 0] = [];

/// Locators, each with the words that a paper's text has before the number.
const LOCATORS: [(&str, &[&str]); 4] =
    [("eq.", &["("]), ("Algorithm", &["Algorithm "]), ("Fig.", &["Figure ", "Fig. "]), ("Table", &["Table "])];

/// Other spellings of locators and sections.
const OTHER_SPELLINGS: [&str; 16] = [
    "eq",
    "Eq.",
    "eqs.",
    "equation",
    "equations",
    "Equation",
    "algorithm",
    "fig.",
    "figs.",
    "figure",
    "figures",
    "Figure",
    "table",
    "section",
    "sections",
    "Section",
];

/// A section of a paper.
#[derive(Debug, PartialEq)]
pub struct Citation {
    /// where it is cited, as `src/a.rs:12`
    pub at: String,
    pub paper: String,
    /// without §
    pub section: String,
    /// as `eq. 2`
    pub locator: Option<(String, String)>,
}

/// A word of a comment; an empty one ends a paragraph.
struct Word<'a> {
    text: &'a str,
    line: usize,
}

/// Citations in another form, and files that need no entry in the list any more.
pub fn form_complaints(sources: &[&Source]) -> Vec<String> {
    compare(sources, &OTHER_FORM_TODAY)
}

fn compare(sources: &[&Source], listed: &[&str]) -> Vec<String> {
    let (mut found, mut stale) = (Vec::new(), listed.to_vec());
    for source in sources {
        let (_, complaints) = read(source);
        if listed.contains(&source.path.as_str()) && !complaints.is_empty() {
            stale.retain(|path| *path != source.path);
        } else {
            found.extend(complaints);
        }
    }
    found.extend(stale.iter().map(|path| format!("{path}: its citations have the agreed form; remove it from OTHER_FORM_TODAY")));
    found
}

/// Citations in the comments of a file, and complaints about those in another form.
pub fn read(source: &Source) -> (Vec<Citation>, Vec<String>) {
    let words = words(source);
    let (mut found, mut complaints): (Vec<Citation>, Vec<String>) = (Vec::new(), Vec::new());
    for (n, pair) in words.windows(2).enumerate() {
        let [before, word] = pair else { continue };
        let after = words.get(n + 2).map_or("", |w| w.text);
        let at = format!("{}:{}", source.path, word.line);
        let text = word.text.trim_start_matches(OPENING);
        let wrong = if let Some(rest) = text.strip_prefix('§') {
            match (name(before.text), number(rest)) {
                (None, _) => Some("names no paper before §"),
                (_, "") => Some("has no number after §"),
                (Some(paper), section) => {
                    found.push(Citation { at: at.clone(), paper: paper.to_owned(), section: section.to_owned(), locator: None });
                    None
                }
            }
        } else if number(after).is_empty() {
            None
        } else if OTHER_SPELLINGS.contains(&text) {
            Some("has another form")
        } else if PAPERS.iter().any(|(paper, _)| *paper == text) {
            number(after).contains('.').then_some("has no § before its section")
        } else if LOCATORS.iter().any(|(locator, _)| *locator == text) {
            match (found.last_mut(), name(before.text)) {
                (Some(last), _) if before.text.strip_prefix('§') == Some(&last.section) && word.text == text => {
                    last.locator = Some((text.to_owned(), number(after).to_owned()));
                    let rest: Vec<&str> = words.iter().skip(n + 3).take(2).map(|w| w.text).collect();
                    matches!(rest[..], ["and" | "or", second] if !number(second).is_empty()).then_some("names two places")
                }
                (_, Some(other)) if PAPERS.iter().all(|(paper, _)| *paper != other) => None,
                _ => Some("names no section before it"),
            }
        } else {
            None
        };
        if let Some(what) = wrong {
            complaints.push(format!("{at}: `{} {} {after}` {what}; cite as `LeoAM §4.2 eq. 2`", before.text, word.text));
        }
    }
    (found, complaints)
}

const OPENING: [char; 4] = ['(', '[', '`', '"'];

/// Words of the comments, with an empty one before the first and between paragraphs. Rows of a table are left out: the
/// index of papers is one.
fn words(source: &Source) -> Vec<Word<'_>> {
    let mut found = vec![Word { text: "", line: 0 }];
    for (n, line) in source.comments().lines().enumerate() {
        let text = line.trim_start().trim_start_matches('/').trim_start_matches('!').trim();
        if !text.starts_with('|') {
            found.extend(text.split_whitespace().map(|text| Word { text, line: n + 1 }));
        }
        if text.is_empty() || text.starts_with('|') {
            found.push(Word { text: "", line: n + 1 });
        }
    }
    found
}

/// A name, as papers have: it begins with a capital and has no other sign than a hyphen.
fn name(word: &str) -> Option<&str> {
    let word = word.trim_start_matches(OPENING);
    let is_name = word.starts_with(char::is_uppercase) && word.chars().all(|c| c.is_alphanumeric() || c == '-');
    is_name.then_some(word)
}

/// The number at the front, as `4.2` of `4.2,` or `A.5` of `A.5)`; empty without one.
fn number(word: &str) -> &str {
    let word = word.trim_start_matches('(');
    let end = word.find(|c: char| !(is_word(c) || c == '.')).unwrap_or(word.len());
    let number = word[..end].trim_end_matches('.');
    let parts: Vec<&str> = number.split('.').collect();
    let is_digits = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_appendix = parts.len() > 1 && parts[0].len() == 1 && parts[0].starts_with(char::is_uppercase);
    if parts.iter().skip(usize::from(is_appendix)).all(is_digits) { number } else { "" }
}

/// A complaint if a paper has no such section, or no such number in its text.
pub fn resolve(citation: &Citation, text: &str) -> Option<String> {
    let Citation { at, paper, section, locator } = citation;
    let is_heading = |line: &str| {
        let title = line.trim_start_matches(['#', '*', ' ']).strip_prefix(section.as_str());
        title.is_some_and(|t| t.strip_prefix('.').unwrap_or(t).starts_with(' '))
    };
    if !text.lines().any(is_heading) {
        return Some(format!("{at}: {paper} has no section {section}"));
    }
    let (kind, n) = locator.as_ref()?;
    let spellings = LOCATORS.iter().find(|(locator, _)| locator == kind)?.1;
    let is_there = spellings.iter().any(|before| {
        let written = format!("{before}{n}");
        text.match_indices(&written).any(|(at, _)| !text[at + written.len()..].starts_with(|c: char| c.is_ascii_digit()))
    });
    (!is_there).then(|| format!("{at}: {paper} has no {kind} {n}"))
}

#[test]
fn citation_rule_accepts_the_agreed_form() {
    let text = "//! Source: LeoAM §4.2 eq. 2, LeoAM §4.3 (KV-Compress §4.2.1 Fig. 3).\n\
                // KVPR §A.5; FlashAttention-2 Algorithm 1, LeoAM\n// §6.1. A table of 2 columns; KVPR §3.2 eq. 6 to 11\n";
    let (found, complaints) = read(&Source::new("src/a.rs", text));
    assert_eq!(complaints, [""; 0]);
    let shown = |c: &Citation| format!("{} {} {:?}", c.paper, c.section, c.locator.as_ref().map(|(_, n)| n.as_str()));
    assert_eq!(
        found.iter().map(shown).collect::<Vec<_>>(),
        [
            "LeoAM 4.2 Some(\"2\")",
            "LeoAM 4.3 None",
            "KV-Compress 4.2.1 Some(\"3\")",
            "KVPR A.5 None",
            "LeoAM 6.1 None",
            "KVPR 3.2 Some(\"6\")"
        ]
    );
    assert_eq!(found.last().map(|c| c.at.as_str()), Some("src/a.rs:3"));
}

#[test]
fn citation_rule_rejects_other_forms() {
    let said = |text: &str| read(&Source::new("src/a.rs", text)).1.len();
    for other in [
        "LeoAM, section 4.4",
        "LeoAM §4.2 and §4.3",
        "LeoAM §4.4, §4.2",
        "LeoAM's §4.4",
        "LeoAM figure 10",
        "LeoAM Fig. 10",
        "LeoAM 4.2",
        "compared by eq. 2 itself",
        "LeoAM § 4.2",
        "LeoAM §4.2, eq. 2",
        "LeoAM §4.2 eq. 2 and 3",
        "LeoAM §4.2 equation 2",
        "LeoAM §4.2 (Algorithm 1)",
    ] {
        assert_eq!(said(&format!("// As in {other}.\n")), 1, "{other}");
    }
    assert_eq!(said("let leoam = \"LeoAM, section 4.4\";"), 0, "no comment");
}

#[test]
fn citation_list_has_only_files_that_need_it() {
    let (old, new) = (Source::new("src/a.rs", "// LeoAM, section 4.4"), Source::new("src/a.rs", "// LeoAM §4.4"));
    assert_eq!(compare(&[&old], &[]).len(), 1);
    assert_eq!(compare(&[&old], &["src/a.rs"]), [""; 0]);
    assert_eq!(compare(&[&new], &["src/a.rs"]).len(), 1);
}

#[test]
fn citations_resolve_to_headings_and_numbers() {
    let text = "## 4.2 Design\n4.3.1 Blocks. Text, Figure 10 (a).\n$$a \\quad (2)$$\nA.5 More\nin 4.4 there\n";
    let resolved = |section: &str, locator: Option<(&str, &str)>| {
        let locator = locator.map(|(kind, n)| (kind.to_owned(), n.to_owned()));
        resolve(&Citation { at: "a".to_owned(), paper: "LeoAM".to_owned(), section: section.to_owned(), locator }, text).is_none()
    };
    assert!(resolved("4.2", None) && resolved("4.3.1", None) && resolved("A.5", None));
    assert!(!resolved("4.3", None) && !resolved("4.4", None) && !resolved("4", None));
    assert!(resolved("4.2", Some(("eq.", "2"))) && resolved("4.2", Some(("Fig.", "10"))));
    assert!(
        !resolved("4.2", Some(("eq.", "3"))) && !resolved("4.2", Some(("Fig.", "1"))) && !resolved("4.2", Some(("Table", "2")))
    );
}
