//! Question scope: detects questions about a whole document by their words. Pure.
//!
//! Limits: English. A missed question loses a hint, nothing else.

/// Words that ask for all of a document rather than for a place in it, in lower case, without marks.
const PHRASES: [&str; 43] = [
    "summarise",
    "summarize",
    "summary",
    "summaries",
    "overview",
    "outline",
    "synopsis",
    "abstract of",
    "tl dr",
    "in a nutshell",
    "main point",
    "main points",
    "main idea",
    "main ideas",
    "main theme",
    "main themes",
    "main argument",
    "key points",
    "key takeaways",
    "takeaways",
    "gist",
    "how many times",
    "how often",
    "list all",
    "list every",
    "list the",
    "name all",
    "name every",
    "find all",
    "find every",
    "count all",
    "count the",
    "count every",
    "every mention",
    "all mentions",
    "every occurrence",
    "all occurrences",
    "throughout the",
    "whole document",
    "whole text",
    "entire document",
    "in total",
    "across the document",
];

/// Beginnings of questions that end with "about" and mean the whole document.
const ABOUT: [&str; 4] = ["what is", "what s", "tell me what", "explain what"];

/// True if the question seems to be about the whole document.
pub fn asks_about_whole_document(question: &str) -> bool {
    let words: Vec<String> =
        question.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(|word| word.to_lowercase()).collect();
    let line = format!(" {} ", words.join(" "));
    let asks_what_about = line.ends_with(" about ") && ABOUT.iter().any(|begin| line.starts_with(&format!(" {begin} ")));
    asks_what_about || PHRASES.iter().any(|phrase| line.contains(&format!(" {phrase} ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_about_the_whole_document_is_told_from_one_about_a_place() {
        for question in [
            "Summarise the report.",
            "Give me a SUMMARY, please",
            "How many times does the ferryman go home?",
            "List all people who were fined",
            "What is this document about?",
            "What's it about?",
            "TL;DR",
            "What are the main themes?",
            "Count every ship.",
        ] {
            assert!(asks_about_whole_document(question), "{question}");
        }
        for question in [
            "What burned first?",
            "How many bells hang in the tower?",
            "What is the code of the harbour?",
            "Who wrote about the fire?",
            "What did the king say about the summaryless act?",
            "Which listing is at the end?",
            "",
        ] {
            assert!(!asks_about_whole_document(question), "{question}");
        }
    }
}
