//! Full-text search over chats: every word must occur, in any case and spelling, also inside longer words.
//!
//! ```text
//! query ─► words of three letters and more: full-text index ─► shorter words: each message ─► one SearchHit per chat
//! ```
//! The index has the text as it was written, so it is asked for each normal form of a word; it ignores accents. All else is
//! compared by [`FoldedText`].
//! Limits: [`MAX_HITS`] chats. Titles and document names must contain the whole query.

use rusqlite::{Row, params_from_iter};
use unicode_normalization::UnicodeNormalization;

use super::error::ChatsError;
use super::records::SearchHit;
use super::store::ChatStore;
use crate::document::FoldedText;

/// Largest number of results.
const MAX_HITS: usize = 100;
/// Length of the index's n-grams, characters.
const GRAM: usize = 3;
/// Characters of an excerpt on each side of the match.
const AROUND: usize = 24;

impl ChatStore {
    /// Chats that contain every word of `query`, in order of their newest matching message.
    ///
    /// # Errors
    /// A database error.
    pub fn search(&self, query: &str) -> Result<Vec<SearchHit>, ChatsError> {
        let words: Vec<&str> = query.split_whitespace().collect();
        let Some(first) = words.first() else { return Ok(Vec::new()) };
        let (indexed, short): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| word.nfc().count() >= GRAM);
        let short: Vec<FoldedText<'_>> = short.into_iter().map(FoldedText::ignoring_case).collect();
        let phrases: Vec<String> = indexed.iter().map(|word| phrase(word)).collect();
        let is_indexed = if phrases.is_empty() { "" } else { "AND m.id IN (SELECT rowid FROM words WHERE words MATCH ?)" };
        let sql = format!(
            "SELECT m.chat, m.id, m.text FROM messages m JOIN chats c ON c.id = m.chat WHERE NOT c.deleted {is_indexed} \
             ORDER BY m.id DESC"
        );
        let values = (!phrases.is_empty()).then(|| phrases.join(" AND "));
        let mut statement = self.db.prepare(&sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        let mut hits: Vec<SearchHit> = Vec::new();
        while let Some(row) = rows.next()?.filter(|_| hits.len() < MAX_HITS) {
            let (chat, text): (u64, String) = (row.get(0)?, row.get(2)?);
            if hits.iter().all(|hit| hit.chat != chat) && short.iter().all(|word| contains(&text, word)) {
                hits.push(SearchHit { chat, message: row.get(1)?, around: around(&text, first) });
            }
        }
        for hit in self.named(query.trim())? {
            if !hits.iter().any(|h| h.chat == hit.chat) {
                hits.push(hit);
            }
        }
        Ok(hits)
    }

    /// Chats whose title or a document's name contains the query.
    fn named(&self, query: &str) -> Result<Vec<SearchHit>, ChatsError> {
        let sql = "SELECT c.id, c.title, d.name FROM chats c LEFT JOIN chat_documents d ON d.chat = c.id WHERE NOT c.deleted
                   ORDER BY c.updated DESC, c.id";
        let query = &FoldedText::ignoring_case(query);
        let named = |row: &Row<'_>| {
            let (title, name): (String, Option<String>) = (row.get(1)?, row.get(2)?);
            let is_hit = contains(&title, query) || name.is_some_and(|name| contains(&name, query));
            Ok(is_hit.then_some(SearchHit { chat: row.get(0)?, message: None, around: String::new() }))
        };
        let hits: Vec<Option<SearchHit>> = self.db.prepare(sql)?.query_map([], named)?.collect::<Result<_, _>>()?;
        let mut hits: Vec<SearchHit> = hits.into_iter().flatten().collect();
        hits.dedup_by_key(|hit| hit.chat);
        hits.truncate(MAX_HITS);
        Ok(hits)
    }
}

/// Phrases of the full-text index for every form that a word may be written in.
fn phrase(word: &str) -> String {
    let mut forms = vec![word.nfc().collect::<String>(), word.nfd().collect(), word.to_owned()];
    forms.sort();
    forms.dedup();
    let quoted: Vec<String> = forms.iter().map(|form| format!("\"{}\"", form.replace('"', "\"\""))).collect();
    format!("({})", quoted.join(" OR "))
}

fn contains(text: &str, words: &FoldedText<'_>) -> bool {
    FoldedText::ignoring_case(text).find(words).next().is_some()
}

/// Excerpt around the first match of `word` in `text`, in any case and spelling, on one line.
fn around(text: &str, word: &str) -> String {
    let (folded, word) = (FoldedText::ignoring_case(text), FoldedText::ignoring_case(word));
    let found = folded.find(&word).next().map_or(0..0, |range| folded.original_range(&range));
    let before: Vec<char> = text.get(..found.start).unwrap_or_default().chars().rev().take(AROUND + 1).collect();
    let after: Vec<char> = text.get(found.end..).unwrap_or_default().chars().take(AROUND + 1).collect();
    let shown = |chars: &[char]| chars.iter().take(AROUND).copied().collect::<Vec<char>>();
    let begin: String = shown(&before).into_iter().rev().collect();
    let part = begin + text.get(found).unwrap_or_default() + &String::from_iter(shown(&after));
    let line = part.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{}{line}{}", if before.len() > AROUND { "…" } else { "" }, if after.len() > AROUND { "…" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpt_is_one_line_in_the_case_of_the_text() {
        assert_eq!(around("It began in\nPudding Lane.", "pudding"), "It began in Pudding Lane.");
        let long = format!("{} the needle {}", "hay ".repeat(40), "hay ".repeat(40));
        let part = around(&long, "NEEDLE");
        assert!(part.starts_with('…') && part.ends_with('…') && part.contains("the needle hay"), "{part}");
        assert_eq!(around("Über", "über"), "Über");
        assert_eq!(around("", "x"), "");
    }

    #[test]
    fn phrase_has_every_normal_form_without_syntax() {
        assert_eq!(phrase("\"é"), "(\"\"\"e\u{301}\" OR \"\"\"é\")");
        assert_eq!(phrase("abc"), "(\"abc\")");
    }
}
