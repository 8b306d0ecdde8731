//! A thousand quotations, true, altered and invented: exactly the true ones are found.

use std::collections::HashMap;
use std::path::Path;

use strata::base::Rng;
use strata::document::{Document, QuoteKind, find_quotes, quotes_in};

const N_QUOTES: u32 = 1000;
/// Letters per line of the text, as in a PDF.
const LINE_CHARS: usize = 60;

/// The sample document in typeset form: lines of one length, words divided at their ends.
fn typeset(text: &str) -> String {
    let mut out = String::new();
    for paragraph in text.split("\n\n") {
        let mut column = 0;
        for word in paragraph.split_whitespace() {
            let letters: Vec<char> = word.chars().collect();
            let can_divide = letters.len() > 6 && letters.iter().all(|c| c.is_ascii_lowercase());
            if column + letters.len() > LINE_CHARS && can_divide {
                let (head, tail) = letters.split_at(letters.len() / 2);
                out += &format!("{}-\n{} ", String::from_iter(head), String::from_iter(tail));
                column = tail.len() + 1;
            } else {
                let gap = if column + letters.len() > LINE_CHARS { "\n" } else { "" };
                column = if gap.is_empty() { column + letters.len() + 1 } else { letters.len() + 1 };
                out += &format!("{gap}{word} ");
            }
        }
        out += "\n\n";
    }
    out
}

/// The quotation with one change of meaning.
fn altered(words: &[&str], rng: &mut Rng) -> Vec<String> {
    let mut words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
    let n = words.len();
    let at = rng.uniform(n as u32) as usize;
    let others = ["ferry", "never", "seven", "1999", "blue", "mayor"];
    let other = others[rng.uniform(others.len() as u32) as usize].to_owned();
    match rng.uniform(6) {
        0 => words[at] = other,
        1 => words.insert(at, other),
        2 if words.len() > 3 => drop(words.remove(at)),
        3 => words.swap(at, (at + 1) % n),
        4 => words[at] = format!("{}s", words[at]),
        _ => words[at] = format!("un{}", words[at]),
    }
    words
}

#[test]
fn exactly_the_true_ones_of_a_thousand_quotations_are_found() {
    let sample = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/sample-document.md")).unwrap();
    let documents = [Document::from_bytes("sample.txt", typeset(&sample).as_bytes()).unwrap()];
    let paragraphs: Vec<Vec<&str>> = sample.split("\n\n").map(|p| p.split_whitespace().collect()).collect();
    let long: Vec<&Vec<&str>> = paragraphs.iter().filter(|p| p.len() > 14).collect();
    // Reference: the words of the document, one space apart, without any code of the finder.
    let truth = format!(" {} ", paragraphs.concat().join(" "));
    let vocabulary: Vec<&str> = paragraphs.concat();
    let mut rng = Rng::new(20_261_121);
    let mut seen: HashMap<&str, u32> = HashMap::new();
    let mut n_quotes = 0;
    while n_quotes < N_QUOTES {
        let paragraph = long[rng.uniform(long.len() as u32) as usize];
        let n = 3 + rng.uniform(9) as usize;
        let from = rng.uniform((paragraph.len() - n) as u32) as usize;
        let passage = &paragraph[from..from + n];
        let words: Vec<String> = match rng.uniform(3) {
            0 => passage.iter().map(|w| (*w).to_owned()).collect(),
            1 => altered(passage, &mut rng),
            _ => (0..n).map(|_| vocabulary[rng.uniform(vocabulary.len() as u32) as usize].to_owned()).collect(),
        };
        let quote = words.join(" ");
        // Fewer than three words are a name; marks inside would end the quotation.
        let n_words = quote.split_whitespace().filter(|w| w.contains(char::is_alphanumeric)).count();
        if n_words < 3 || quote.contains(['"', '\u{201C}', '\u{201D}']) {
            continue;
        }
        n_quotes += 1;
        let is_true = truth.contains(&format!(" {quote} "));
        let found = find_quotes(&format!("It says \u{201C}{quote}\u{201D} there."), &documents);
        assert_eq!(found.len(), 1, "{quote}");
        assert_eq!(found[0].found.is_some(), is_true, "{quote}");
        *seen.entry(if is_true { "true" } else { "false" }).or_default() += 1;
    }
    eprintln!("{seen:?}");
    assert!(seen["true"] > 250 && seen["false"] > 500, "{seen:?}");
}

fn located(quote: &str, text: &str) -> Option<String> {
    let documents = [Document::from_bytes("a.txt", text.as_bytes()).unwrap()];
    let place = find_quotes(&format!("\u{201C}{quote}\u{201D}"), &documents).pop()?.found?;
    Some(documents[0].text[place.bytes].to_owned())
}

#[test]
fn words_divided_at_line_ends_are_whole() {
    let text = "The har-\nbour was well-\nknown, they don\u{2019}t deny it, and non-\n  toxic at last.";
    assert_eq!(located("The harbour was", text).as_deref(), Some("The har-\nbour was"));
    assert_eq!(located("harbour was well-known", text).as_deref(), Some("har-\nbour was well-\nknown"));
    assert_eq!(located("they don't deny", text).as_deref(), Some("they don\u{2019}t deny"));
    assert_eq!(located("and nontoxic at last", text).as_deref(), Some("and non-\n  toxic at last"));
    for cut in ["bour was well", "toxic at last", "known, they don", "and non at last", "it, and non", "was well, they"] {
        assert_eq!(located(cut, text), None, "{cut}");
    }
    assert_eq!(located("and non toxic", "and non-\n\ntoxic"), None, "a paragraph ends there");
}

#[test]
fn whole_answer_is_a_quotation_only_if_requested() {
    let documents = [Document::from_bytes("a.txt", b"In 1662 the rents rose. So they say.").unwrap()];
    let found = |answer: &str| quotes_in(answer, true, &documents).iter().map(|q| q.found.is_some()).collect::<Vec<_>>();
    assert_eq!(found(" the rents rose."), [true]);
    assert_eq!(found(" the rents fell."), [false]);
    assert_eq!(found(" I cannot find that in the document."), Vec::<bool>::new());
    assert!(quotes_in("the rents rose.", false, &documents).is_empty());
}

#[test]
fn only_parts_that_the_document_has_are_found() {
    let text = "The harbour of Sealand was built in 1704, of stone. Its keeper lit the lamp every night at nine.";
    let documents = [Document::from_bytes("a.txt", text.as_bytes()).unwrap()];
    let parts = |answer: &str| -> Vec<(String, bool)> {
        let quotes = quotes_in(answer, true, &documents);
        assert!(
            quotes
                .iter()
                .all(|q| q.kind == QuoteKind::Unmarked && q.found.as_ref().is_none_or(|p| text[p.bytes.clone()] == q.text))
        );
        quotes.into_iter().map(|q| (q.text, q.found.is_some())).collect()
    };
    let found = |part: &str| (part.to_owned(), true);
    let not = |part: &str| (part.to_owned(), false);
    let answer = "I think the keeper lit the lamp every night, and that the harbour of Sealand was built in 1705.";
    let (lamp, harbour) = (found("keeper lit the lamp every night"), found("harbour of Sealand was built in"));
    assert_eq!(parts(answer), [not("I think the"), lamp, not("and that the"), harbour, not("1705")]);
    assert_eq!(parts("It was built in 1704, of stone."), [not("It"), found("was built in 1704, of stone")]);
    let four = "Its keeper lit the candle";
    assert_eq!(parts(four), [not(four)], "four words in a row are not enough");
    let long = format!("Its keeper lit the lamp every night {}", "at ten ".repeat(40));
    assert_eq!(parts(&long), [not(long.trim())], "too long to split");
}

#[test]
fn found_parts_of_altered_answers_match_word_for_word() {
    let text = include_str!("../fixtures/quote/document.txt");
    let documents = [Document::from_bytes("a.txt", text.as_bytes()).unwrap()];
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let truth = format!(" {} ", flat(text));
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut rng = Rng::new(11);
    let mut n_found = 0;
    for _ in 0..60 {
        let first = rng.uniform(words.len() as u32 - 20) as usize;
        let mut answer: Vec<&str> = words[first..first + 20].to_vec();
        answer[rng.uniform(20) as usize] = "zebra";
        let answer = answer.join(" ");
        if answer.contains(['"', '\u{201C}', '\u{201D}']) {
            continue;
        }
        for quote in quotes_in(&answer, true, &documents).iter().filter(|q| q.found.is_some()) {
            n_found += 1;
            assert!(!quote.text.contains("zebra") && truth.contains(&flat(&quote.text)), "{}", quote.text);
        }
    }
    assert!(n_found > 30, "{n_found}");
}
