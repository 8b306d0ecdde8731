//! Database file of the chats: opening, migration, and recovery after a crash.
//!
//! ```text
//! file ─► locked for this window ─► intact? ─► version: older: migrate │ current │ newer: reject ─► recover ─► Connection
//! ```
//! Invariant: a file that cannot be used is left unchanged.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use super::error::ChatsError;

const FILE_NAME: &str = "chats.sqlite";
/// Wait for the file lock of a window that is about to close.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// Schema migrations: entry n upgrades version n to n + 1. Entries never change; new ones are appended.
pub(super) const MIGRATIONS: [&str; 1] = ["
CREATE TABLE chats (
    id INTEGER PRIMARY KEY,
    title TEXT NOT NULL,
    named INTEGER NOT NULL,
    pinned INTEGER NOT NULL,
    instructions TEXT NOT NULL,
    sampling TEXT NOT NULL,
    leaf INTEGER,
    draft TEXT NOT NULL,
    updated INTEGER NOT NULL,
    deleted INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE chat_documents (
    chat INTEGER NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
    place INTEGER NOT NULL,
    content_hash TEXT NOT NULL,
    name TEXT NOT NULL,
    path TEXT,
    PRIMARY KEY (chat, place)
) STRICT, WITHOUT ROWID;
CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    chat INTEGER NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
    parent INTEGER,
    author TEXT NOT NULL CHECK (author IN ('user', 'model')),
    text TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('running', 'done', 'failed', 'interrupted')),
    note TEXT NOT NULL,
    cost TEXT NOT NULL,
    made INTEGER NOT NULL
) STRICT;
CREATE INDEX messages_of_chat ON messages (chat, id);
CREATE TABLE pieces (
    n INTEGER PRIMARY KEY,
    message INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    text TEXT NOT NULL
) STRICT;
CREATE INDEX pieces_of_message ON pieces (message, n);
CREATE VIRTUAL TABLE words USING fts5 (text, content = 'messages', content_rowid = 'id', tokenize = 'trigram remove_diacritics 1');
CREATE TRIGGER words_new AFTER INSERT ON messages BEGIN
    INSERT INTO words (rowid, text) VALUES (new.id, new.text);
END;
CREATE TRIGGER words_gone AFTER DELETE ON messages BEGIN
    INSERT INTO words (words, rowid, text) VALUES ('delete', old.id, old.text);
END;
CREATE TRIGGER words_changed AFTER UPDATE OF text ON messages WHEN old.text <> new.text BEGIN
    INSERT INTO words (words, rowid, text) VALUES ('delete', old.id, old.text);
    INSERT INTO words (rowid, text) VALUES (new.id, new.text);
END;
CREATE TABLE documents (
    content_hash TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    path TEXT,
    bytes INTEGER NOT NULL,
    n_chars INTEGER NOT NULL,
    n_pages INTEGER NOT NULL,
    text TEXT NOT NULL,
    parts TEXT NOT NULL
) STRICT;
CREATE TABLE presets (name TEXT PRIMARY KEY, instructions TEXT NOT NULL, sampling TEXT NOT NULL) STRICT;
INSERT INTO words (words, rank) VALUES ('secure-delete', 1);
"];

/// Recovery after a crash: joins the pieces of unfinished answers, and removes deleted chats.
const RECOVERY: &str = "
UPDATE messages SET text = text || (SELECT group_concat(p.text, '') FROM
    (SELECT text FROM pieces WHERE message = messages.id ORDER BY n) AS p) WHERE id IN (SELECT message FROM pieces);
DELETE FROM pieces;
UPDATE messages SET state = 'interrupted' WHERE state = 'running';
DELETE FROM chats WHERE deleted;
";

/// Opens the file in folder `root`, creates both if missing, and locks the file until the connection is closed.
pub(super) fn file_in(root: &Path) -> Result<Connection, ChatsError> {
    let path = root.join(FILE_NAME);
    make_private(root, &path).map_err(|source| ChatsError::Folder { path: root.to_owned(), source })?;
    let explain = |error| explained(error, &path);
    let mut db = Connection::open(&path).map_err(explain)?;
    db.busy_timeout(BUSY_TIMEOUT).map_err(explain)?;
    // One window owns the chats: the connection holds the file lock, which the OS releases with the process.
    db.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(explain)?;
    db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).map_err(explain)?;
    let check: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(explain)?;
    if check != "ok" {
        return Err(ChatsError::Corrupt { path });
    }
    prepare(&mut db, &path).map_err(|error| match error {
        ChatsError::Database(error) => explain(error),
        other => other,
    })?;
    Ok(db)
}

/// An empty database in memory, for a window that saves nothing.
pub(super) fn in_memory() -> Result<Connection, ChatsError> {
    let mut db = Connection::open_in_memory()?;
    prepare(&mut db, Path::new(":memory:"))?;
    Ok(db)
}

/// Migrates to the newest schema, then recovers from a crash.
fn prepare(db: &mut Connection, path: &Path) -> Result<(), ChatsError> {
    db.execute_batch("PRAGMA foreign_keys = ON; PRAGMA secure_delete = ON; PRAGMA synchronous = FULL;")?;
    let change = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let known = MIGRATIONS.len();
    let found: i64 = change.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let n_done = usize::try_from(found).map_err(|_| ChatsError::Corrupt { path: path.to_owned() })?;
    if n_done > known {
        return Err(ChatsError::Newer { path: path.to_owned(), found, known: known as i64 });
    }
    for migration in MIGRATIONS.iter().skip(n_done) {
        change.execute_batch(migration)?;
    }
    change.pragma_update(None, "user_version", known)?;
    change.execute_batch(RECOVERY)?;
    Ok(change.commit()?)
}

/// Translates a SQLite error into a [`ChatsError`] about this file.
pub(super) fn explained(error: rusqlite::Error, path: &Path) -> ChatsError {
    let path = path.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => ChatsError::Locked { path },
        // SQLite reports a table of unexpected columns as its generic "error", which is Unknown here.
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown) => ChatsError::Corrupt { path },
        _ => ChatsError::Database(error),
    }
}

/// Creates folder and file, readable by their owner alone. SQLite gives its side files the same rights.
fn make_private(folder: &Path, file: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    let mut options = fs::OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file).map(drop)
}
