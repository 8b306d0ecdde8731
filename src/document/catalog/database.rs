//! The catalog's database: opening, migrating and setting aside, and the few questions asked of it.
//!
//! ```text
//! file ─► whole? ─┬─ yes ─► version: older: migrate │ ours │ newer: refuse ─► Catalog
//!                 └─ no ──► set aside under a lock, begin anew ─────────────► Catalog and a sentence
//! ```

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OptionalExtension, TransactionBehavior, params};

use super::entry::{COLUMNS, Entry};
use super::error::CatalogError;

const FILE_NAME: &str = "library.sqlite";
/// What SQLite keeps beside its file.
const COMPANIONS: [&str; 2] = ["-wal", "-shm"];
const ASIDE_NAME: &str = "library.sqlite.damaged";
/// Held while a damaged file is set aside, so that two processes do not set aside each other's new ones.
const LOCK_NAME: &str = "library.lock";
/// How long to wait for another process's change.
const PATIENCE: Duration = Duration::from_secs(5);

/// What makes version n + 1 of version n. Never changed, only added to.
const MIGRATIONS: [&str; 1] = ["CREATE TABLE documents (
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
) STRICT"];

/// The saved documents of one library.
#[derive(Debug)]
pub struct Catalog {
    db: Connection,
}

impl Catalog {
    /// The catalog in the folder `root`, both made where they are not there. A damaged one is set aside and begun anew:
    /// then a sentence says so.
    ///
    /// # Errors
    /// [`CatalogError::Folder`], [`CatalogError::Newer`], or what the database said.
    pub fn open(root: &Path) -> Result<(Catalog, Option<String>), CatalogError> {
        let folder_error = |source| CatalogError::Folder { path: root.to_owned(), source };
        make_private(root).map_err(folder_error)?;
        match Catalog::open_file(root) {
            Err(error) if is_damage(&error) => {}
            opened => return Ok((opened?, None)),
        }
        let lock = File::create(root.join(LOCK_NAME)).map_err(folder_error)?;
        lock.lock().map_err(folder_error)?;
        // Another process may have done it while this one waited.
        match Catalog::open_file(root) {
            Err(error) if is_damage(&error) => {}
            opened => return Ok((opened?, None)),
        }
        let aside = set_aside(root).map_err(folder_error)?;
        let note = format!(
            "the library's catalog was damaged and is kept as {}; saved documents are found again when they are opened",
            aside.display()
        );
        Ok((Catalog::open_file(root)?, Some(note)))
    }

    fn open_file(root: &Path) -> Result<Catalog, CatalogError> {
        let path = root.join(FILE_NAME);
        make_private_file(&path).map_err(|source| CatalogError::Folder { path: root.to_owned(), source })?;
        let mut db = Connection::open(&path)?;
        db.busy_timeout(PATIENCE)?;
        // Where the file system cannot do it, the answer is another mode, and that is as correct, only slower.
        db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        let whole: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if whole != "ok" {
            return Err(damage());
        }
        migrate(&mut db, root)?;
        let catalog = Catalog { db };
        // A table of that name in another shape, and a row that no Strata wrote, are damage too.
        catalog.list()?;
        Ok(catalog)
    }

    /// Adds a document, or tells what is new of one; when it was first saved stays.
    ///
    /// # Errors
    /// What the database said.
    pub fn upsert(&self, entry: &Entry) -> Result<(), CatalogError> {
        entry.write(&self.db)
    }

    /// One document by its whole id.
    ///
    /// # Errors
    /// What the database said.
    pub fn get(&self, id: &str) -> Result<Option<Entry>, CatalogError> {
        let sql = format!("SELECT {COLUMNS} FROM documents WHERE id = ?1");
        Ok(self.db.query_row(&sql, [id], Entry::read).optional()?)
    }

    /// The one document whose id begins with `prefix`, in any case.
    ///
    /// # Errors
    /// [`CatalogError::NoSuch`], [`CatalogError::Ambiguous`], or what the database said.
    pub fn find(&self, prefix: &str) -> Result<Entry, CatalogError> {
        let wanted = prefix.trim().to_ascii_lowercase();
        let fits = |entry: &Entry| !wanted.is_empty() && entry.id.starts_with(&wanted);
        let mut found: Vec<Entry> = self.list()?.into_iter().filter(fits).collect();
        match (found.pop(), found.len()) {
            (Some(entry), 0) => Ok(entry),
            (Some(_), others) => Err(CatalogError::Ambiguous { id: prefix.to_owned(), n: others + 1 }),
            (None, _) => Err(CatalogError::NoSuch { id: prefix.to_owned() }),
        }
    }

    /// Notes that a document was used at `now`; false where it is not there.
    ///
    /// # Errors
    /// What the database said.
    pub fn touch(&self, id: &str, now: i64) -> Result<bool, CatalogError> {
        Ok(self.db.execute("UPDATE documents SET last_used = max(last_used, ?2) WHERE id = ?1", params![id, now])? > 0)
    }

    /// Forgets a document; false where it is not there.
    ///
    /// # Errors
    /// What the database said.
    pub fn remove(&self, id: &str) -> Result<bool, CatalogError> {
        Ok(self.db.execute("DELETE FROM documents WHERE id = ?1", [id])? > 0)
    }

    /// All documents, least recently used last.
    ///
    /// # Errors
    /// What the database said.
    pub fn list(&self) -> Result<Vec<Entry>, CatalogError> {
        let sql = format!("SELECT {COLUMNS} FROM documents ORDER BY last_used DESC, id");
        let mut statement = self.db.prepare(&sql)?;
        let entries = statement.query_map([], Entry::read)?.collect::<Result<_, _>>()?;
        Ok(entries)
    }

    /// The document that was not used for longest, but for those in `except`.
    ///
    /// # Errors
    /// What the database said.
    pub fn least_recently_used(&self, except: &[&str]) -> Result<Option<Entry>, CatalogError> {
        Ok(self.list()?.into_iter().rfind(|entry| !except.contains(&entry.id.as_str())))
    }
}

/// Brings the database to the newest version; whoever comes second finds nothing to do.
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
    let n_done = usize::try_from(found).map_err(|_| damage())?;
    for migration in MIGRATIONS.iter().skip(n_done) {
        change.execute_batch(migration)?;
    }
    change.pragma_update(None, "user_version", known)?;
    Ok(change.commit()?)
}

/// What SQLite says of a file that is none of its own, or no longer whole.
fn damage() -> CatalogError {
    CatalogError::Database(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT), None))
}

/// The file itself is at fault, not the disk, the rights, or another process.
fn is_damage(error: &CatalogError) -> bool {
    let CatalogError::Database(error) = error else { return false };
    match error {
        rusqlite::Error::SqlInputError { .. }
        | rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..) => true,
        // Unknown is SQLite's plain "error": a table that is not there, or is in another shape than our questions.
        _ => matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown)),
    }
}

/// Moves a damaged database out of the way, in the place of one that was there before.
fn set_aside(root: &Path) -> io::Result<PathBuf> {
    let aside = root.join(ASIDE_NAME);
    for end in COMPANIONS {
        match fs::rename(root.join(format!("{FILE_NAME}{end}")), root.join(format!("{ASIDE_NAME}{end}"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(root.join(FILE_NAME), &aside)?;
    Ok(aside)
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

/// Makes the file before SQLite does, which would let others read it. What SQLite keeps beside it gets the same rights.
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
