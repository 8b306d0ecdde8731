//! Full-text search over chats: every word must occur, in any case, also inside longer words.
//!
//! ```text
//! query ─► words of three letters and more: full-text index │ shorter words: LIKE on each message ─► one SearchHit per chat
//! ```
//! Limits: [`MAX_HITS`] chats. Titles and document names must contain the whole query.

use rusqlite::{Row, ToSql, params_from_iter};

use super::error::ChatsError;
use super::records::SearchHit;
use super::store::ChatStore;

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
        let (indexed, short): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| word.chars().count() >= GRAM);
        let mut conditions = vec!["NOT c.deleted".to_owned()];
        let mut values: Vec<Box<dyn ToSql>> = Vec::new();
        if !indexed.is_empty() {
            let phrases: Vec<String> = indexed.iter().map(|word| format!("\"{}\"", word.replace('"', "\"\""))).collect();
            values.push(Box::new(phrases.join(" AND ")));
            conditions.push("m.id IN (SELECT rowid FROM words WHERE words MATCH ?)".to_owned());
        }
        for word in short {
            values.push(Box::new(pattern(word)));
            conditions.push("m.text LIKE ? ESCAPE '\\'".to_owned());
        }
        let sql = format!(
            "SELECT m.chat, max(m.id), m.text FROM messages m JOIN chats c ON c.id = m.chat WHERE {} GROUP BY m.chat
             ORDER BY max(m.id) DESC LIMIT {MAX_HITS}",
            conditions.join(" AND ")
        );
        let hit = |row: &Row<'_>| {
            let text: String = row.get(2)?;
            Ok(SearchHit { chat: row.get(0)?, message: row.get(1)?, around: around(&text, first) })
        };
        let mut hits: Vec<SearchHit> =
            self.db.prepare(&sql)?.query_map(params_from_iter(values), hit)?.collect::<Result<_, _>>()?;
        for hit in self.named(query)? {
            if !hits.iter().any(|h| h.chat == hit.chat) {
                hits.push(hit);
            }
        }
        Ok(hits)
    }

    /// Chats whose title or a document's name contains the query.
    fn named(&self, query: &str) -> Result<Vec<SearchHit>, ChatsError> {
        let sql = format!(
            "SELECT id FROM chats WHERE NOT deleted AND (title LIKE ?1 ESCAPE '\\' OR id IN (SELECT chat FROM chat_documents
             WHERE name LIKE ?1 ESCAPE '\\')) ORDER BY updated DESC LIMIT {MAX_HITS}"
        );
        let hit = |row: &Row<'_>| Ok(SearchHit { chat: row.get(0)?, message: None, around: String::new() });
        Ok(self.db.prepare(&sql)?.query_map([pattern(query.trim())], hit)?.collect::<Result<_, _>>()?)
    }
}

/// LIKE pattern for any text that contains `text`.
fn pattern(text: &str) -> String {
    format!("%{}%", text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_"))
}

/// Excerpt around the first match of `word` in `text`, in any case, on one line.
fn around(text: &str, word: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let wanted: Vec<char> = word.chars().flat_map(char::to_lowercase).collect();
    let folded: Vec<char> = chars.iter().map(|c| c.to_lowercase().next().unwrap_or(*c)).collect();
    let at = folded.windows(wanted.len().max(1)).position(|window| window == wanted).unwrap_or(0);
    let (from, to) = (at.saturating_sub(AROUND), (at + wanted.len() + AROUND).min(chars.len()));
    let part: String = chars.get(from..to).unwrap_or_default().iter().collect();
    let line = part.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{}{line}{}", if from > 0 { "…" } else { "" }, if to < chars.len() { "…" } else { "" })
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
    fn pattern_escapes_wildcards() {
        assert_eq!(pattern("50 %_\\"), "%50 \\%\\_\\\\%");
    }
}
