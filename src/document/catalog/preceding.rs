//! Preceding documents: those before a saved document in its prompt, in a table of their own.
//!
//! The table is created with the first such document. A program without support for it can still read the catalog.

use rusqlite::{Connection, params};

use super::entry::{CatalogEntry, PrecedingDocument};
use super::error::CatalogError;

/// Row `position` names the document at this place of the prompt of document `id`.
const CREATE: &str = "CREATE TABLE IF NOT EXISTS preceding (
    id TEXT NOT NULL,
    position INTEGER NOT NULL CHECK (position >= 0),
    name TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    PRIMARY KEY (id, position)
) STRICT";

fn exists(db: &Connection) -> Result<bool, CatalogError> {
    let sql = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'preceding'";
    Ok(db.query_row(sql, [], |row| row.get::<_, i64>(0))? > 0)
}

/// Adds the preceding documents to entries.
pub(super) fn read(db: &Connection, entries: &mut [CatalogEntry]) -> Result<(), CatalogError> {
    if entries.is_empty() || !exists(db)? {
        return Ok(());
    }
    let mut statement = db.prepare("SELECT name, content_hash FROM preceding WHERE id = ?1 ORDER BY position")?;
    for entry in entries {
        let document = |row: &rusqlite::Row<'_>| Ok(PrecedingDocument { name: row.get(0)?, content_hash: row.get(1)? });
        entry.after = statement.query_map([&entry.id], document)?.collect::<Result<_, _>>()?;
    }
    Ok(())
}

/// Replaces the preceding documents of an entry.
pub(super) fn write(db: &Connection, entry: &CatalogEntry) -> Result<(), CatalogError> {
    remove(db, &entry.id)?;
    if entry.after.is_empty() {
        return Ok(());
    }
    db.execute_batch(CREATE)?;
    for (position, document) in (0i64..).zip(&entry.after) {
        let row = params![entry.id, position, document.name, document.content_hash];
        db.execute("INSERT INTO preceding VALUES (?1, ?2, ?3, ?4)", row)?;
    }
    Ok(())
}

/// Removes the preceding documents of an entry.
pub(super) fn remove(db: &Connection, id: &str) -> Result<(), CatalogError> {
    if exists(db)? {
        db.execute("DELETE FROM preceding WHERE id = ?1", [id])?;
    }
    Ok(())
}
