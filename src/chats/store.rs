//! Chat store: applies changes, and returns chats, messages, documents and search results.
//!
//! ```text
//! [Change] ─ one transaction ─► chats.sqlite ─► list, messages, document, search
//! ```
//! Units: seconds since 1970. Owner thread: the one that opened it.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, Transaction, named_params, params};

use super::database;
use super::document_text;
use super::error::ChatsError;
use super::records::{Author, Change, ChatRow, DocumentName, MessageRow, MessageState, Preset, StoredDocument};
use crate::document::Document;

/// The chats of one folder, or of memory only.
#[derive(Debug)]
pub struct ChatStore {
    pub(super) db: Connection,
}

impl ChatStore {
    /// Opens the chats in folder `root`. No other process can open them until this is dropped.
    ///
    /// # Errors
    /// The file cannot be used; it is left unchanged.
    pub fn open(root: &Path) -> Result<ChatStore, ChatsError> {
        Ok(ChatStore { db: database::file_in(root)? })
    }

    /// An empty store in memory.
    ///
    /// # Errors
    /// A database error.
    pub fn in_memory() -> Result<ChatStore, ChatsError> {
        Ok(ChatStore { db: database::in_memory()? })
    }

    /// Saves all changes or none. Lasting changes are durable afterwards. Pieces and drafts survive the end of the program at
    /// once, and a power failure after the next lasting change.
    ///
    /// # Errors
    /// A database error.
    pub fn apply(&mut self, changes: &[Change]) -> Result<(), ChatsError> {
        let synchronous = if changes.iter().any(Change::is_lasting) { "FULL" } else { "NORMAL" };
        self.db.pragma_update(None, "synchronous", synchronous)?;
        let transaction = self.db.transaction()?;
        for change in changes {
            match apply(&transaction, change) {
                // The change refers to a chat that does not exist: it is skipped, so that it does not block the others.
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {}
                applied => applied?,
            }
        }
        Ok(transaction.commit()?)
    }

    /// All chats: pinned ones first, then by the time of their last message.
    ///
    /// # Errors
    /// A database error.
    pub fn list(&self) -> Result<Vec<ChatRow>, ChatsError> {
        let sql = "SELECT * FROM chats WHERE NOT deleted ORDER BY pinned DESC, updated DESC, id DESC";
        let mut chats = self.db.prepare(sql)?.query_map([], chat)?.collect::<Result<Vec<_>, _>>()?;
        let mut named = self.db.prepare("SELECT * FROM chat_documents WHERE chat = ?1 ORDER BY place")?;
        for chat in &mut chats {
            chat.documents = named.query_map([chat.id], document_name)?.collect::<Result<_, _>>()?;
        }
        Ok(chats)
    }

    /// Messages of a chat on every branch, oldest first.
    ///
    /// # Errors
    /// A database error.
    pub fn messages(&self, chat: u64) -> Result<Vec<MessageRow>, ChatsError> {
        let mut statement = self.db.prepare("SELECT * FROM messages WHERE chat = ?1 ORDER BY id")?;
        Ok(statement.query_map([chat], message)?.collect::<Result<_, _>>()?)
    }

    /// Largest id of a chat or a message, 0 if there is none; new ids must be larger.
    ///
    /// # Errors
    /// A database error.
    pub fn newest_id(&self) -> Result<u64, ChatsError> {
        let sql = "SELECT coalesce(max(id), 0) FROM (SELECT max(id) AS id FROM chats UNION ALL SELECT max(id) FROM messages)";
        Ok(self.db.query_row(sql, [], |row| row.get(0))?)
    }

    /// Documents whose text is stored, by name.
    ///
    /// # Errors
    /// A database error.
    pub fn documents(&self) -> Result<Vec<StoredDocument>, ChatsError> {
        let sql = "SELECT content_hash, name, path, bytes, n_chars, n_pages FROM documents ORDER BY name COLLATE NOCASE";
        let stored = |row: &Row<'_>| {
            let (bytes, n_chars, n_pages) = (row.get("bytes")?, row.get("n_chars")?, row.get("n_pages")?);
            Ok(StoredDocument { document: document_name(row)?, bytes, n_chars, n_pages })
        };
        Ok(self.db.prepare(sql)?.query_map([], stored)?.collect::<Result<_, _>>()?)
    }

    /// A document with the path of its file, by the hash of its text; None if it is not stored.
    ///
    /// # Errors
    /// Corrupt text, or a database error.
    pub fn document(&self, content_hash: &str) -> Result<Option<(Document, Option<PathBuf>)>, ChatsError> {
        let sql = "SELECT name, bytes, text, parts, path FROM documents WHERE content_hash = ?1";
        let row = |row: &Row<'_>| {
            let stored =
                document_text::StoredText { name: row.get(0)?, bytes: row.get(1)?, text: row.get(2)?, parts: row.get(3)? };
            Ok((stored, row.get::<_, Option<String>>(4)?))
        };
        let Some((stored, path)) = self.db.query_row(sql, [content_hash], row).optional()? else { return Ok(None) };
        let name = stored.name.clone();
        let document = stored.document(content_hash).ok_or(ChatsError::Text { name })?;
        Ok(Some((document, path.map(PathBuf::from))))
    }

    /// All presets, by name.
    ///
    /// # Errors
    /// A database error.
    pub fn presets(&self) -> Result<Vec<Preset>, ChatsError> {
        let preset = |row: &Row<'_>| Ok(Preset { name: row.get(0)?, instructions: row.get(1)?, sampling: row.get(2)? });
        let mut statement = self.db.prepare("SELECT name, instructions, sampling FROM presets ORDER BY name COLLATE NOCASE")?;
        Ok(statement.query_map([], preset)?.collect::<Result<_, _>>()?)
    }
}

fn apply(db: &Transaction<'_>, change: &Change) -> rusqlite::Result<()> {
    match change {
        Change::Chat(chat) => save_chat(db, chat)?,
        Change::Message(message) => save_message(db, message)?,
        Change::Draft { chat, text } => {
            db.prepare_cached("UPDATE chats SET draft = ?2 WHERE id = ?1")?.execute(params![chat, text])?;
        }
        // A deleted chat's answer may still be generating; its pieces match no message.
        Change::Piece { message, text } => {
            let sql = "INSERT INTO pieces (message, text) SELECT id, ?2 FROM messages WHERE id = ?1";
            db.prepare_cached(sql)?.execute(params![message, text])?;
        }
        Change::Delete(chat) => drop(db.execute("UPDATE chats SET deleted = 1 WHERE id = ?1", [chat])?),
        Change::Restore(chat) => drop(db.execute("UPDATE chats SET deleted = 0 WHERE id = ?1", [chat])?),
        Change::Document(document, path) => save_document(db, document, path.as_deref())?,
        Change::ForgetDocument(hash) => drop(db.execute("DELETE FROM documents WHERE content_hash = ?1", [hash])?),
        Change::Preset(Preset { name, instructions, sampling }) => {
            db.execute("INSERT OR REPLACE INTO presets VALUES (?1, ?2, ?3)", params![name, instructions, sampling])?;
        }
        Change::ForgetPreset(name) => drop(db.execute("DELETE FROM presets WHERE name = ?1", [name])?),
    }
    Ok(())
}

fn save_chat(db: &Transaction<'_>, chat: &ChatRow) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO chats (id, title, named, pinned, instructions, sampling, leaf, draft, updated) VALUES (:id, :title, :named,
         :pinned, :instructions, :sampling, :leaf, :draft, :updated) ON CONFLICT (id) DO UPDATE SET title = excluded.title,
         named = excluded.named, pinned = excluded.pinned, instructions = excluded.instructions, sampling = excluded.sampling,
         leaf = excluded.leaf, draft = excluded.draft, updated = excluded.updated",
    )?
    .execute(named_params! {
        ":id": chat.id,
        ":title": chat.title,
        ":named": chat.named,
        ":pinned": chat.pinned,
        ":instructions": chat.instructions,
        ":sampling": chat.sampling,
        ":leaf": chat.leaf,
        ":draft": chat.draft,
        ":updated": chat.updated,
    })?;
    db.prepare_cached("DELETE FROM chat_documents WHERE chat = ?1")?.execute([chat.id])?;
    for (place, document) in chat.documents.iter().enumerate() {
        db.prepare_cached("INSERT INTO chat_documents VALUES (?1, ?2, ?3, ?4, ?5)")?.execute(params![
            chat.id,
            place,
            document.content_hash,
            document.name,
            document.path.as_deref().map(Path::to_string_lossy),
        ])?;
    }
    Ok(())
}

fn save_message(db: &Transaction<'_>, message: &MessageRow) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO messages VALUES (:id, :chat, :parent, :author, :text, :state, :note, :cost, :made) ON CONFLICT (id) DO
         UPDATE SET text = excluded.text, state = excluded.state, note = excluded.note, cost = excluded.cost",
    )?
    .execute(named_params! {
        ":id": message.id,
        ":chat": message.chat,
        ":parent": message.parent,
        ":author": author_word(message.author),
        ":text": message.text,
        ":state": state_word(message.state),
        ":note": message.note,
        ":cost": message.cost,
        ":made": message.made,
    })?;
    db.prepare_cached("DELETE FROM pieces WHERE message = ?1")?.execute([message.id])?;
    Ok(())
}

fn save_document(db: &Transaction<'_>, document: &Document, path: Option<&Path>) -> rusqlite::Result<()> {
    db.execute(
        "INSERT INTO documents VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (content_hash) DO UPDATE SET
         name = excluded.name, path = coalesce(excluded.path, path), bytes = excluded.bytes, n_pages = excluded.n_pages,
         parts = excluded.parts",
        params![
            document.content_hash.to_string(),
            document.name,
            path.map(Path::to_string_lossy),
            document.bytes,
            document.text.chars().count(),
            document.pages.len(),
            document.text,
            document_text::parts_of(document),
        ],
    )?;
    Ok(())
}

fn chat(row: &Row<'_>) -> rusqlite::Result<ChatRow> {
    Ok(ChatRow {
        id: row.get("id")?,
        title: row.get("title")?,
        named: row.get("named")?,
        pinned: row.get("pinned")?,
        instructions: row.get("instructions")?,
        sampling: row.get("sampling")?,
        leaf: row.get("leaf")?,
        draft: row.get("draft")?,
        updated: row.get("updated")?,
        documents: Vec::new(),
    })
}

fn document_name(row: &Row<'_>) -> rusqlite::Result<DocumentName> {
    let path = row.get::<_, Option<String>>("path")?.map(PathBuf::from);
    Ok(DocumentName { content_hash: row.get("content_hash")?, name: row.get("name")?, path })
}

fn message(row: &Row<'_>) -> rusqlite::Result<MessageRow> {
    let author: String = row.get("author")?;
    let state: String = row.get("state")?;
    Ok(MessageRow {
        id: row.get("id")?,
        chat: row.get("chat")?,
        parent: row.get("parent")?,
        author: if author == author_word(Author::User) { Author::User } else { Author::Model },
        text: row.get("text")?,
        state: STATES.into_iter().find(|s| state_word(*s) == state).unwrap_or(MessageState::Interrupted),
        note: row.get("note")?,
        cost: row.get("cost")?,
        made: row.get("made")?,
    })
}

const STATES: [MessageState; 4] = [MessageState::Running, MessageState::Done, MessageState::Failed, MessageState::Interrupted];

fn state_word(state: MessageState) -> &'static str {
    match state {
        MessageState::Running => "running",
        MessageState::Done => "done",
        MessageState::Failed => "failed",
        MessageState::Interrupted => "interrupted",
    }
}

fn author_word(author: Author) -> &'static str {
    match author {
        Author::User => "user",
        Author::Model => "model",
    }
}
