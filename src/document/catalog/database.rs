//! Catalog database: opening, migration, recovery from corruption, and queries.
//!
//! ```text
//! file ─► intact? ─┬─ yes ─► version: older: migrate │ current │ newer: reject ─► Catalog
//!                  └─ no ──► renamed under a lock, new file ─────────────────────► Catalog and a notice
//! ```

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OptionalExtension, TransactionBehavior, params};

use super::entry::{COLUMNS, CatalogEntry};
use super::error::CatalogError;

const FILE_NAME: &str = "library.sqlite";
/// Suffixes of SQLite's side files.
const SIDE_FILES: [&str; 2] = ["-wal", "-shm"];
const CORRUPT_NAME: &str = "library.sqlite.damaged";
/// Lock held while a corrupt file is renamed, so that two processes do not rename each other's new file.
const LOCK_NAME: &str = "library.lock";
/// Wait for another process's transaction.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Schema migrations: entry n upgrades version n to n + 1. Entries never change; new ones are appended.
const MIGRATIONS: [&str; 2] = [
    "CREATE TABLE documents (
    id TEXT PRIMARY KEY NOT NULL,
    content_hash TEXT NOT NULL,
    name TEXT NOT NULL,
    bytes INTEGER NOT NULL CHECK (bytes >= 0),
    pages INTEGER NOT NULL CHECK (pages >= 0),
    model TEXT NOT NULL,
    model_fingerprint TEXT NOT NULL,
    kv_dtype TEXT NOT NULL,
    tokens INTEGER NOT NULL CHECK (tokens >= 0),
    saved_tokens INTEGER NOT NULL CHECK (saved_tokens >= 0),
    kv_bytes INTEGER NOT NULL CHECK (kv_bytes >= 0),
    state TEXT NOT NULL CHECK (state IN ('read', 'partial')),
    prefill_seconds REAL NOT NULL,
    created INTEGER NOT NULL,
    last_used INTEGER NOT NULL
) STRICT",
    // JSON list of the documents before it; empty text for none.
    "ALTER TABLE documents ADD COLUMN preceding TEXT NOT NULL DEFAULT ''",
];

/// Catalog of the saved documents of one library.
#[derive(Debug)]
pub struct Catalog {
    db: Connection,
}

impl Catalog {
    /// Opens the catalog in folder `root`, and creates both if missing. A corrupt file is renamed and replaced by a new one; the
    /// notice reports that.
    ///
    /// # Errors
    /// [`CatalogError::Folder`], [`CatalogError::Newer`], or a database error.
    pub fn open(root: &Path) -> Result<(Catalog, Option<String>), CatalogError> {
        let folder_error = |source| CatalogError::Folder { path: root.to_owned(), source };
        make_private(root).map_err(folder_error)?;
        match Catalog::open_file(root) {
            Err(error) if is_corruption(&error) => {}
            opened => return Ok((opened?, None)),
        }
        let lock = File::create(root.join(LOCK_NAME)).map_err(folder_error)?;
        lock.lock().map_err(folder_error)?;
        // Another process may have replaced the file while this one waited.
        match Catalog::open_file(root) {
            Err(error) if is_corruption(&error) => {}
            opened => return Ok((opened?, None)),
        }
        let renamed = rename_corrupt(root).map_err(folder_error)?;
        let note = format!(
            "the library's catalog was corrupt and was renamed to {}. Saved documents are found again when they are opened",
            renamed.display()
        );
        Ok((Catalog::open_file(root)?, Some(note)))
    }

    fn open_file(root: &Path) -> Result<Catalog, CatalogError> {
        let path = root.join(FILE_NAME);
        make_private_file(&path).map_err(|source| CatalogError::Folder { path: root.to_owned(), source })?;
        let mut db = Connection::open(&path)?;
        db.busy_timeout(BUSY_TIMEOUT)?;
        // A file system without shared memory gets another journal mode, which is slower but as safe.
        db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        let check: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if check != "ok" {
            return Err(corruption());
        }
        migrate(&mut db, root)?;
        let catalog = Catalog { db };
        // A table of other columns, or a row of invalid values, counts as corruption too.
        catalog.list()?;
        Ok(catalog)
    }

    /// Inserts a document, or updates all but its time of creation.
    ///
    /// # Errors
    /// A database error.
    pub fn upsert(&self, entry: &CatalogEntry) -> Result<(), CatalogError> {
        entry.write(&self.db)
    }

    /// A document by its whole id.
    ///
    /// # Errors
    /// A database error.
    pub fn get(&self, id: &str) -> Result<Option<CatalogEntry>, CatalogError> {
        let sql = format!("SELECT {COLUMNS} FROM documents WHERE id = ?1");
        Ok(self.db.query_row(&sql, [id], CatalogEntry::read).optional()?)
    }

    /// The only document whose id begins with `prefix`, in any case.
    ///
    /// # Errors
    /// [`CatalogError::NoSuch`], [`CatalogError::Ambiguous`], or a database error.
    pub fn find(&self, prefix: &str) -> Result<CatalogEntry, CatalogError> {
        let wanted = prefix.trim().to_ascii_lowercase();
        let fits = |entry: &CatalogEntry| !wanted.is_empty() && entry.id.starts_with(&wanted);
        let mut found: Vec<CatalogEntry> = self.list()?.into_iter().filter(fits).collect();
        match (found.pop(), found.len()) {
            (Some(entry), 0) => Ok(entry),
            (Some(_), others) => Err(CatalogError::Ambiguous { id: prefix.to_owned(), n: others + 1 }),
            (None, _) => Err(CatalogError::NoSuch { id: prefix.to_owned() }),
        }
    }

    /// Records that a document was used at `now`; false if it does not exist.
    ///
    /// # Errors
    /// A database error.
    pub fn touch(&self, id: &str, now: i64) -> Result<bool, CatalogError> {
        Ok(self.db.execute("UPDATE documents SET last_used = max(last_used, ?2) WHERE id = ?1", params![id, now])? > 0)
    }

    /// Deletes a document; false if it does not exist.
    ///
    /// # Errors
    /// A database error.
    pub fn remove(&self, id: &str) -> Result<bool, CatalogError> {
        Ok(self.db.execute("DELETE FROM documents WHERE id = ?1", [id])? > 0)
    }

    /// All documents, the most recently used first.
    ///
    /// # Errors
    /// A database error.
    pub fn list(&self) -> Result<Vec<CatalogEntry>, CatalogError> {
        let sql = format!("SELECT {COLUMNS} FROM documents ORDER BY last_used DESC, id");
        let mut statement = self.db.prepare(&sql)?;
        let entries = statement.query_map([], CatalogEntry::read)?.collect::<Result<_, _>>()?;
        Ok(entries)
    }

    /// The least recently used document that is not in `except`.
    ///
    /// # Errors
    /// A database error.
    pub fn least_recently_used(&self, except: &[&str]) -> Result<Option<CatalogEntry>, CatalogError> {
        Ok(self.list()?.into_iter().rfind(|entry| !except.contains(&entry.id.as_str())))
    }
}

/// Migrates to the newest version; a second process finds it done.
fn migrate(db: &mut Connection, root: &Path) -> Result<(), CatalogError> {
    let version = |db: &Connection| db.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0));
    let known = MIGRATIONS.len() as i64;
    if version(db)? == known {
        return Ok(());
    }
    let change = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = version(&change)?;
    if found > known {
        return Err(CatalogError::Newer { path: root.to_owned(), found, known });
    }
    let n_done = usize::try_from(found).map_err(|_| corruption())?;
    for migration in MIGRATIONS.iter().skip(n_done) {
        change.execute_batch(migration)?;
    }
    change.pragma_update(None, "user_version", known)?;
    Ok(change.commit()?)
}

/// SQLite's error for a corrupt file.
fn corruption() -> CatalogError {
    CatalogError::Database(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT), None))
}

/// True if the file itself is corrupt; false for errors of the disk, of permissions, or of another process.
fn is_corruption(error: &CatalogError) -> bool {
    let CatalogError::Database(error) = error else { return false };
    match error {
        rusqlite::Error::SqlInputError { .. }
        | rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..) => true,
        // SQLite reports a missing table or unexpected columns as its generic "error", which is Unknown here.
        _ => matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown)),
    }
}

/// Renames a corrupt database, replacing an earlier renamed one.
fn rename_corrupt(root: &Path) -> io::Result<PathBuf> {
    let renamed = root.join(CORRUPT_NAME);
    for suffix in SIDE_FILES {
        match fs::rename(root.join(format!("{FILE_NAME}{suffix}")), root.join(format!("{CORRUPT_NAME}{suffix}"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(root.join(FILE_NAME), &renamed)?;
    Ok(renamed)
}

fn make_private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    #[cfg(unix)]
    fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    Ok(())
}

/// Creates the file with private rights before SQLite does; SQLite gives its side files the same rights.
fn make_private_file(path: &Path) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    #[cfg(unix)]
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    drop(file);
    Ok(())
}
