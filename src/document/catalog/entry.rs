//! What the catalog knows of one saved document, as plain data and as a row.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Row, named_params};

use super::error::CatalogError;

/// Digits of an id that a person is shown.
const SHORT_ID_LEN: usize = 8;

/// How far a document is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadState {
    /// all of it
    Read,
    /// reading was interrupted; it goes on where it stopped
    Partial,
}

/// A document with the model that read it.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// name of its store's folder: hexadecimal digits
    pub id: String,
    /// hash of its text, hexadecimal
    pub content_hash: String,
    /// what people call it
    pub name: String,
    /// size of the file(s)
    pub bytes: u64,
    /// pages of the file(s)
    pub pages: usize,
    /// name of the model that read it
    pub model: String,
    /// fingerprint of that model, hexadecimal
    pub model_fingerprint: String,
    /// element type of its KV
    pub kv_dtype: String,
    /// its tokens
    pub tokens: usize,
    /// of which the KV is saved
    pub saved_tokens: usize,
    /// KV bytes on the disk
    pub kv_bytes: u64,
    /// how far it is read
    pub state: ReadState,
    /// what reading it took
    pub prefill_seconds: f64,
    /// when it was first saved
    pub created: i64,
    /// when it was last opened
    pub last_used: i64,
}

/// Columns in the order of the fields of [`Entry`].
pub(super) const COLUMNS: &str = "id, content_hash, name, bytes, pages, model, model_fingerprint, kv_dtype, tokens, \
    saved_tokens, kv_bytes, state, prefill_seconds, created, last_used";

/// A new row, or the new values of the old one, but for when it was first saved.
pub(super) const UPSERT: &str = "INSERT INTO documents VALUES (:id, :content_hash, :name, :bytes, :pages, :model, \
    :model_fingerprint, :kv_dtype, :tokens, :saved_tokens, :kv_bytes, :state, :prefill_seconds, :created, :last_used) \
    ON CONFLICT (id) DO UPDATE SET content_hash = excluded.content_hash, name = excluded.name, bytes = excluded.bytes, \
    pages = excluded.pages, model = excluded.model, model_fingerprint = excluded.model_fingerprint, \
    kv_dtype = excluded.kv_dtype, tokens = excluded.tokens, saved_tokens = excluded.saved_tokens, \
    kv_bytes = excluded.kv_bytes, state = excluded.state, prefill_seconds = excluded.prefill_seconds, \
    last_used = excluded.last_used";

impl Entry {
    /// The digits of its id that a person is shown.
    pub fn short_id(&self) -> &str {
        self.id.get(..SHORT_ID_LEN).unwrap_or(&self.id)
    }

    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Entry> {
        Ok(Entry {
            id: row.get("id")?,
            content_hash: row.get("content_hash")?,
            name: row.get("name")?,
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
