//! Persistent chats: messages on every branch, and the documents they are about.
//!
//! ```text
//! window ─ ChatRequest::Save([Change]) ─► ChatWriter ─► [thread] ChatStore ─► chats.sqlite in the user's data folder
//!        ◄ ChatEvent: chats, messages, documents, hits ┘
//! ```
//! 1. Shown text is saved: a message when it is sent or ends, the pieces of an answer before they are drawn. After a
//!    `kill -9` the shown part of an answer is there, marked as interrupted.
//! 2. A message never changes its parent: an edited question or a new answer is a sibling message.
//! 3. A file that is corrupt, newer or open elsewhere is left unchanged; the window continues in memory.
//! 4. Only the owner can read the folder (0700) and the file (0600). Deleted data is overwritten.
//!
//! Owner thread: `chats`. Units: bytes, characters, seconds since 1970.

mod database;
mod document_text;
mod error;
mod export;
mod records;
mod search;
mod store;
mod writer;

pub use error::ChatsError;
pub use export::{ExportFormat, branch, export, message_markdown};
pub use records::{Author, Change, ChatRow, DocumentName, MessageRow, MessageState, Preset, SearchHit, StoredDocument};
pub use store::ChatStore;
pub use writer::{ChatEvent, ChatRequest, ChatWriter, Destination};
