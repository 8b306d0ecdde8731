//! Quotations: a true one is located in the document, an altered one is not.

use proptest::prelude::*;
use strata::document::{Document, PassageLocation, find_quotes, locate};

fn documents(texts: &[&str]) -> Vec<Document> {
    texts.iter().map(|t| Document::from_bytes("a.txt", t.as_bytes()).unwrap()).collect()
}

fn found(answer: &str, text: &str) -> Vec<bool> {
    find_quotes(answer, &documents(&[text])).iter().map(|q| q.found.is_some()).collect()
}

#[test]
fn quotes_are_located_in_the_right_document_page_and_bytes() {
    let docs = documents(&["Nothing here at all.", "One page.\u{0C}The harbour was\nbuilt in 1704, they say."]);
    let answer =
        "It says \u{201C}harbour was built in 1704,\u{201D} and also \"built in 1704, they\" but not \"built in 1705 they\".";
    let quotes = find_quotes(answer, &docs);
    assert_eq!(quotes.len(), 3);
    assert_eq!(quotes[0].text, "harbour was built in 1704,");
    let place = quotes[0].found.clone().unwrap();
    assert_eq!((place.document, place.page), (1, 1));
    assert_eq!(&docs[1].text[place.bytes], "harbour was\nbuilt in 1704,");
    assert!(quotes[1].found.is_some());
    assert_eq!(quotes[2].found, None);
}

#[test]
fn quotes_need_three_words_and_both_marks() {
    let text = "a b c d e";
    assert_eq!(found("\"a b\" and \u{201C}a\u{201D} and \"a b c", text), Vec::<bool>::new());
    assert_eq!(found("\"a b c\n\nd e\"", text), Vec::<bool>::new());
    assert_eq!(found("5\" wide and \"a b c\" (\"b c d\")", text), [true, true]);
    assert_eq!(found("\"a b c\" x \"c d e\"", text), [true, true]);
    assert_eq!(found("\"... --- a b\"", text), Vec::<bool>::new());
}

#[test]
fn quotes_that_split_a_word_or_a_number_are_not_found() {
    let text = "The budget of Marelo is 48210. It fell to -3.5 or 1,200 on a non-toxic day; he can't go on. Cafe\u{301} noir.";
    for cut in [
        "of Marelo is 4821",
        "Marelo is 482",
        "he budget of Marelo",
        "to -3",
        "3.5 or 1",
        "5 or 1,200 on",
        "toxic day; he",
        "day; he can",
        "go on. Cafe",
    ] {
        assert_eq!(locate(cut, &documents(&[text])), None, "{cut}");
    }
    for whole in ["of Marelo is 48210", "budget of Marelo is 48210.", "to -3.5 or 1,200", "he can't go on", "a non-toxic day"] {
        assert!(locate(whole, &documents(&[text])).is_some(), "{whole}");
    }
    assert_eq!(locate("", &documents(&[text])), None);
    assert_eq!(locate(" , ", &documents(&["a, b"])), None);
}

#[test]
fn later_whole_match_wins_over_an_earlier_split_one() {
    let docs = documents(&["the price is 120 here; the price is 12 there"]);
    let place = locate("the price is 12", &docs).unwrap();
    assert_eq!(place, PassageLocation { document: 0, page: 0, bytes: 23..38 });
}

#[test]
fn letters_of_a_quotation_may_differ_in_case() {
    let bytes = |passage: &str, text: &str| Some(locate(passage, &documents(&[text]))?.bytes);
    assert_eq!(bytes("the harbour bell", "Once. The harbour bell rang."), Some(6..22));
    assert_eq!(bytes("Élan was lost,", "So the élan\nwas lost."), Some(7..21));
    assert_eq!(bytes("THE HARBOUR BELL,", "The harbour bell rang."), Some(0..16));
    assert_eq!(bytes("grosse straße", "Die GROSSE STRASSE."), Some(4..18));
    assert_eq!(bytes("the Harbour bells", "The harbour bell rang."), None);
    // An exact match wins, wherever it is.
    assert_eq!(bytes("the bell rang", "The bell rang, and the bell rang."), Some(19..32));
    assert_eq!(bytes("THE BELL", "The bell, and THE BELL."), Some(14..22));
}

#[test]
fn quotes_are_located_in_the_original_whatever_their_spelling() {
    for (answer, text, there) in [
        ("„Der älteste hieß Jörg“", "So: Der a\u{308}lteste hieß Jo\u{308}rg.", "Der a\u{308}lteste hieß Jo\u{308}rg"),
        ("«\u{A0}il a payé 3 000 francs\u{A0}»", "Là, il a pay\u{E9} 3\u{202F}000 francs.", "il a payé 3\u{202F}000 francs"),
        ("»die Wassermühle am Bach«", "die Was\u{AD}ser\u{200B}mühle am Bach", "die Was\u{AD}ser\u{200B}mühle am Bach"),
        (
            "“the first office - so they said”",
            "the \u{FB01}rst o\u{FB03}ce — so they said",
            "the \u{FB01}rst o\u{FB03}ce — so they said",
        ),
        ("「山の上の水車は三人の」", "昔、山の上の\n水車は三人の兄弟の", "山の上の\n水車は三人の"),
        ("“磨坊属于三个兄弟”", "据说磨坊属于三个兄弟。", "磨坊属于三个兄弟"),
    ] {
        let docs = documents(&[text]);
        let quotes = find_quotes(answer, &docs);
        assert_eq!(quotes.len(), 1, "{answer}");
        let place = quotes[0].found.clone().unwrap_or_else(|| panic!("{answer}"));
        assert_eq!(&docs[0].text[place.bytes], there);
    }
    assert_eq!(found("「長男は水車を売ってしまった」", "長男は水車を買ってしまった"), [false]);
    assert_eq!(found("“10² sacks of flour”", "102 sacks of flour"), [false]);
}

const WORDS: [&str; 12] = ["harbour", "the", "of", "1704", "lamp,", "Marelo.", "keeper", "é", "48210", "said:", "is", "(old)"];

proptest! {
    #[test]
    fn true_quotations_are_found_with_any_white_space(
        words in prop::collection::vec(prop::sample::select(WORDS.to_vec()), 10..40),
        gaps in prop::collection::vec(prop::sample::select(vec![" ", "\n", "  ", "\n\n", "\t"]), 40),
        at in 0usize..8,
        n in 3usize..8,
    ) {
        let text: String = words.iter().zip(&gaps).flat_map(|(w, g)| [*w, *g]).collect();
        let passage = words[at.min(words.len() - n)..][..n].join(" ");
        let docs = documents(&[&text]);
        let quotes = find_quotes(&format!("It says \"{passage}\" there."), &docs);
        prop_assert_eq!(quotes.len(), 1);
        let place = quotes[0].found.clone().unwrap();
        let there: Vec<&str> = docs[0].text[place.bytes].split_whitespace().collect();
        let want: Vec<&str> = passage.split_whitespace().collect();
        prop_assert!(there == want || there.join(" ") == passage.trim_end_matches(','));
    }

    #[test]
    fn altered_quotations_are_never_found(
        words in prop::collection::vec(prop::sample::select(WORDS.to_vec()), 10..40),
        at in 0usize..8,
        n in 3usize..8,
        which in 0usize..8,
        how in 0usize..4,
    ) {
        let text = words.join(" ");
        let mut passage: Vec<String> = words[at.min(words.len() - n)..][..n].iter().map(|w| (*w).to_owned()).collect();
        let which = which % n;
        match how {
            0 => passage[which] = "ferry".into(),
            1 => passage.insert(which, "never".into()),
            2 => passage[which] = format!("{}x", passage[which]),
            _ => passage[which] = format!("9{}", passage[which]),
        }
        let quotes = find_quotes(&format!("\u{201C}{}\u{201D}", passage.join(" ")), &documents(&[&text]));
        prop_assert_eq!(quotes.len(), 1);
        prop_assert_eq!(&quotes[0].found, &None);
    }

    #[test]
    fn found_text_matches_word_for_word(answer in "[\"\u{201C}\u{201D}ab c.,\\n-]{0,60}", text in "[ab c.,\\n-]{1,40}") {
        if let Ok(document) = Document::from_bytes("a.txt", text.as_bytes()) {
            let docs = [document];
            for quote in find_quotes(&answer, &docs) {
                if let Some(place) = quote.found {
                    let there: Vec<&str> = docs[0].text[place.bytes].split_whitespace().collect();
                    let want = quote.text.split_whitespace().collect::<Vec<_>>().join(" ");
                    prop_assert!([want.as_str(), want.trim_end_matches(',').trim_end()].contains(&there.join(" ").as_str()));
                }
            }
        }
    }
}
