//! Chats fixture: `chats.sqlite` with branches, pieces, documents and presets, opened by the current store.
//!
//! Tables: `TABLES` are the statements of 9b1e455, as `sqlite_master` has them; the columns of a row never change.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{fixture, internals, schema, scratch, user_version};

const FILE: &str = "chats.sqlite";
const TABLES: [&str; 11] = [
    "CREATE TABLE chat_documents ( chat INTEGER NOT NULL REFERENCES chats (id) ON DELETE CASCADE, place INTEGER NOT NULL, \
     content_hash TEXT NOT NULL, name TEXT NOT NULL, path TEXT, PRIMARY KEY (chat, place) ) STRICT, WITHOUT ROWID",
    "CREATE TABLE chats ( id INTEGER PRIMARY KEY, title TEXT NOT NULL, named INTEGER NOT NULL, pinned INTEGER NOT NULL, \
     instructions TEXT NOT NULL, sampling TEXT NOT NULL, leaf INTEGER, draft TEXT NOT NULL, updated INTEGER NOT NULL, \
     deleted INTEGER NOT NULL DEFAULT 0 ) STRICT",
    "CREATE TABLE documents ( content_hash TEXT PRIMARY KEY, name TEXT NOT NULL, path TEXT, bytes INTEGER NOT NULL, \
     n_chars INTEGER NOT NULL, n_pages INTEGER NOT NULL, text TEXT NOT NULL, parts TEXT NOT NULL ) STRICT",
    "CREATE TABLE messages ( id INTEGER PRIMARY KEY, chat INTEGER NOT NULL REFERENCES chats (id) ON DELETE CASCADE, \
     parent INTEGER, author TEXT NOT NULL CHECK (author IN ('user', 'model')), text TEXT NOT NULL, \
     state TEXT NOT NULL CHECK (state IN ('running', 'done', 'failed', 'interrupted')), note TEXT NOT NULL, \
     cost TEXT NOT NULL, made INTEGER NOT NULL ) STRICT",
    "CREATE INDEX messages_of_chat ON messages (chat, id)",
    "CREATE TABLE pieces ( n INTEGER PRIMARY KEY, message INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE, \
     text TEXT NOT NULL ) STRICT",
    "CREATE INDEX pieces_of_message ON pieces (message, n)",
    "CREATE TABLE presets (name TEXT PRIMARY KEY, instructions TEXT NOT NULL, sampling TEXT NOT NULL) STRICT",
    "CREATE TRIGGER words_changed AFTER UPDATE OF text ON messages WHEN old.text <> new.text BEGIN \
     INSERT INTO words (words, rowid, text) VALUES ('delete', old.id, old.text); \
     INSERT INTO words (rowid, text) VALUES (new.id, new.text); END",
    "CREATE TRIGGER words_gone AFTER DELETE ON messages BEGIN \
     INSERT INTO words (words, rowid, text) VALUES ('delete', old.id, old.text); END",
    "CREATE TRIGGER words_new AFTER INSERT ON messages BEGIN INSERT INTO words (rowid, text) VALUES (new.id, new.text); END",
];
const WORDS: &str = "CREATE VIRTUAL TABLE words USING fts5 (text, content = 'messages', content_rowid = 'id', tokenize = 'trigram remove_diacritics 1')";

/// A folder with a copy of the database, as a window of now finds it.
fn copied() -> TempDir {
    let dir = scratch();
    std::fs::copy(fixture(FILE), dir.path().join(FILE)).unwrap();
    dir
}

fn all_tables() -> Vec<String> {
    let mut tables: Vec<String> = TABLES.iter().copied().chain([WORDS]).map(str::to_owned).collect();
    tables.sort_unstable();
    tables
}

fn sorted(mut tables: Vec<String>) -> Vec<String> {
    tables.sort_unstable();
    tables
}

#[test]
fn chats_of_before_are_opened_with_every_branch_document_and_preset() {
    let dir = copied();
    let now = internals::chats(dir.path());
    let expected: Value = serde_json::from_slice(&std::fs::read(fixture("chats.json")).unwrap()).unwrap();
    for table in ["chats", "messages", "presets", "documents"] {
        assert_eq!(now[table], expected["data"][table], "{table}");
    }
    assert_eq!(internals::chats_with(dir.path(), "pudding"), [1], "the index of words came along");
    assert_eq!(internals::chats_with(dir.path(), "almanac"), [21], "and names of documents");
    assert!(internals::chats_with(dir.path(), "zanzibar").is_empty(), "a deleted chat is gone");
}

#[test]
fn chats_database_of_now_has_the_tables_of_before() {
    let (before, opened, new) = (copied(), copied(), scratch());
    internals::chats(opened.path());
    internals::chats(new.path());
    for (when, dir) in [("before", before), ("opened", opened), ("new", new)] {
        let path = dir.path().join(FILE);
        assert_eq!((sorted(schema(&path)), user_version(&path)), (all_tables(), 1), "{when}");
    }
}

#[test]
fn cost_and_sampling_in_rows_of_before_keep_every_key() {
    let dir = copied();
    let db = rusqlite::Connection::open(dir.path().join(FILE)).unwrap();
    let texts = |sql: &str| -> Vec<String> {
        let mut statement = db.prepare(sql).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let costs = texts("SELECT cost FROM messages WHERE cost <> ''");
    let samplings =
        texts("SELECT sampling FROM chats WHERE sampling <> '' UNION ALL SELECT sampling FROM presets WHERE sampling <> ''");
    assert_eq!((costs.len(), samplings.len()), (2, 2));
    for cost in costs {
        assert_eq!(json(&internals::cost_again(&cost)), json(&cost));
    }
    for sampling in samplings {
        assert_eq!(json(&internals::sampling_again(&sampling)), json(&sampling));
        assert_eq!(json(&sampling)["top_k"], json!(7));
    }
}
