//! Catalog entry of one saved document, as plain data and as a database row.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Row, named_params};

use super::error::CatalogError;

/// Digits of an id in its short form.
const SHORT_ID_LEN: usize = 8;

/// Progress of a document's prefill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadState {
    /// complete
    Read,
    /// interrupted; prefill resumes from there
    Partial,
}

/// A document before another one in a prompt.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PrecedingDocument {
    /// display name
    pub name: String,
    /// hash of its text, hexadecimal
    pub content_hash: String,
}

/// True if the documents `after` are, or begin with, those before a document and that document itself.
pub fn begins_with(after: &[PrecedingDocument], before: &[PrecedingDocument], content_hash: &str) -> bool {
    let hashes = before.iter().map(|document| document.content_hash.as_str()).chain(std::iter::once(content_hash));
    let n = before.len() + 1;
    after.len() >= n && after.iter().take(n).map(|document| document.content_hash.as_str()).eq(hashes)
}

/// A saved document with the model that prefilled it.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogEntry {
    /// name of its store's folder, hexadecimal
    pub id: String,
    /// hash of its text, hexadecimal
    pub content_hash: String,
    /// display name
    pub name: String,
    /// documents before it in the prompt
    pub after: Vec<PrecedingDocument>,
    /// bytes of the file(s)
    pub bytes: u64,
    /// pages of the file(s)
    pub pages: usize,
    /// name of the model
    pub model: String,
    /// fingerprint of the model, hexadecimal
    pub model_fingerprint: String,
    /// element type of its KV
    pub kv_dtype: String,
    /// number of tokens
    pub tokens: usize,
    /// number of tokens whose KV is saved
    pub saved_tokens: usize,
    /// KV bytes on disk
    pub kv_bytes: u64,
    /// progress of prefill
    pub state: ReadState,
    /// duration of prefill
    pub prefill_seconds: f64,
    /// time of the first save, seconds since 1970
    pub created: i64,
    /// time of the last use, seconds since 1970
    pub last_used: i64,
}

/// Columns in the order of the fields of [`CatalogEntry`].
pub(super) const COLUMNS: &str = "id, content_hash, name, bytes, pages, model, model_fingerprint, kv_dtype, tokens, \
    saved_tokens, kv_bytes, state, prefill_seconds, created, last_used";

/// Inserts a row, or updates all of it but the time of creation.
pub(super) const UPSERT: &str = "INSERT INTO documents VALUES (:id, :content_hash, :name, :bytes, :pages, :model, \
    :model_fingerprint, :kv_dtype, :tokens, :saved_tokens, :kv_bytes, :state, :prefill_seconds, :created, :last_used) \
    ON CONFLICT (id) DO UPDATE SET content_hash = excluded.content_hash, name = excluded.name, bytes = excluded.bytes, \
    pages = excluded.pages, model = excluded.model, model_fingerprint = excluded.model_fingerprint, \
    kv_dtype = excluded.kv_dtype, tokens = excluded.tokens, saved_tokens = excluded.saved_tokens, \
    kv_bytes = excluded.kv_bytes, state = excluded.state, prefill_seconds = excluded.prefill_seconds, \
    last_used = excluded.last_used";

impl CatalogEntry {
    /// Short form of the id.
    pub fn short_id(&self) -> &str {
        self.id.get(..SHORT_ID_LEN).unwrap_or(&self.id)
    }

    /// Without the documents before it, which are in another table.
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<CatalogEntry> {
        Ok(CatalogEntry {
            id: row.get("id")?,
            content_hash: row.get("content_hash")?,
            name: row.get("name")?,
            after: Vec::new(),
            bytes: row.get("bytes")?,
            pages: row.get("pages")?,
            model: row.get("model")?,
            model_fingerprint: row.get("model_fingerprint")?,
            kv_dtype: row.get("kv_dtype")?,
            tokens: row.get("tokens")?,
            saved_tokens: row.get("saved_tokens")?,
            kv_bytes: row.get("kv_bytes")?,
            state: row.get("state")?,
            prefill_seconds: row.get("prefill_seconds")?,
            created: row.get("created")?,
            last_used: row.get("last_used")?,
        })
    }

    pub(super) fn write(&self, db: &rusqlite::Connection) -> Result<(), CatalogError> {
        db.execute(
            UPSERT,
            named_params! {
                ":id": self.id,
                ":content_hash": self.content_hash,
                ":name": self.name,
                ":bytes": self.bytes,
                ":pages": self.pages,
                ":model": self.model,
                ":model_fingerprint": self.model_fingerprint,
                ":kv_dtype": self.kv_dtype,
                ":tokens": self.tokens,
                ":saved_tokens": self.saved_tokens,
                ":kv_bytes": self.kv_bytes,
                ":state": self.state,
                ":prefill_seconds": self.prefill_seconds,
                ":created": self.created,
                ":last_used": self.last_used,
            },
        )?;
        Ok(())
    }
}

impl ToSql for ReadState {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(match self {
            ReadState::Read => "read",
            ReadState::Partial => "partial",
        }))
    }
}

impl FromSql for ReadState {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value.as_str()? {
            "read" => Ok(ReadState::Read),
            "partial" => Ok(ReadState::Partial),
            _ => Err(FromSqlError::InvalidType),
        }
    }
}
