//! Missing mentions: mentions in the documents that a list of the built-in model does not include.

use strata::document::{Document, MAX_MISSING_MENTIONS, QuoteKind, quotes_in};

const TEXT: &str = "Doctor Savane left the town a library, and Savane\u{2019}s chair stands in it. The Savanes were five.\n\n\
                    Nobody knew what the password of\nSavane was. It is Lumira. A child wrote to \"Savane\".\n\n\
                    Old Savane, who collected books, died. And then again: Old Savane, who collected books, died.";

/// Passages around each mention that an answer misses.
fn left_out(answer: &str, texts: &[&str]) -> Vec<String> {
    let documents: Vec<Document> = texts.iter().map(|text| Document::from_bytes("a.txt", text.as_bytes()).unwrap()).collect();
    let quotes = quotes_in(answer, true, &documents).into_iter().filter(|quote| quote.kind == QuoteKind::MissingMention);
    let in_place = |quote: strata::document::Quote| {
        let place = quote.found.unwrap();
        assert_eq!(documents[place.document].text[place.bytes], quote.text);
        quote.text
    };
    quotes.map(in_place).collect()
}

#[test]
fn complete_list_misses_none() {
    let all = " - Savane left the town a library, and Savane\u{2019}s chair stands in it.\n- Savane was.\n- Savane\".\n- Savane, who \
               collected books, died.\n- Savane: no more mentions.";
    assert_eq!(left_out(all, &[TEXT]), Vec::<String>::new());
    assert_eq!(left_out(" - Savanes were five.\n- Savanes: no more mentions.", &[TEXT]), Vec::<String>::new());
}

#[test]
fn incomplete_list_misses_mentions_by_sentence() {
    let some = " - Savane, who collected books, died.\n- Savane: no more mentions.";
    let (library, password) = (
        "Doctor Savane left the town a library, and Savane\u{2019}s chair stands in it.",
        "knew what the password of\nSavane was.",
    );
    assert_eq!(left_out(some, &[TEXT]), [library, &format!("Nobody {password}"), "A child wrote to \"Savane\"."]);
    // An item that no document has covers nothing.
    let wrong = some.replace("books", "stamps");
    assert_eq!(
        left_out(&wrong, &[TEXT])[3..],
        ["Old Savane, who collected books, died.", "And then again: Old Savane, who collected books, died."]
    );
    assert_eq!(left_out("- Savane: no more mentions.", &["Old _Savane_ died.", "The Savanes."]), ["Old _Savane_ died."]);
    assert_eq!(left_out("- Savane: no more mentions.", &["Savane", "No one.", "savane\n\nby Savane"]), ["Savane", "by Savane"]);
}

#[test]
fn only_lists_that_claim_to_be_complete_miss_mentions() {
    for answer in [
        "- Savane, who collected books, died.",
        "Savane: no more mentions.",
        "- : no more mentions.",
        "- Tolu: no more mentions.",
        "",
    ] {
        assert_eq!(left_out(answer, &[TEXT]), Vec::<String>::new(), "{answer}");
    }
}

#[test]
fn mentions_are_missed_in_any_spelling() {
    let text = "J\u{f6}rgen slept. Jo\u{308}rgen went to town. J\u{f6}r\u{AD}gen came back. J\u{f6}r-\ngen left. J\u{f6}rgens mill burned.";
    let list = "- J\u{f6}rgen slept.\n- J\u{f6}rgen: no more mentions.";
    assert_eq!(left_out(list, &[text]), ["Jo\u{308}rgen went to town.", "J\u{f6}r\u{AD}gen came back.", "J\u{f6}r-\ngen left."]);
}

#[test]
fn missing_mentions_are_limited() {
    assert_eq!(left_out("- Savane: no more mentions.", &[&"Savane is here. ".repeat(1500)]).len(), MAX_MISSING_MENTIONS);
}
