//! Chats that outlive the window: what was said, on every branch, and the documents that it was about.
//!
//! ```text
//! window ─ Request::Keep([Change]) ─► ChatWriter ─► [thread] ChatStore ─► chats.sqlite in the data folder of the person
//!        ◄ ChatEvent: chats, messages, documents, hits ┘
//! ```
//! 1. What was shown is kept: a message when it is sent or ends, the pieces of an answer before they are drawn. After a
//!    `kill -9` the part that was shown is there, and says that it was interrupted.
//! 2. A message never changes its parent: another question or another answer is another message beside it.
//! 3. A file that is damaged, of a newer Strata or open elsewhere is left as it is; the window goes on in memory.
//! 4. The folder is readable by its owner alone (0700), and so is the file (0600). What is deleted is overwritten.
//!
//! Owner thread: `chats`. Units: bytes, characters; times in seconds since 1970.

mod database;
mod document_text;
mod error;
mod export;
mod records;
mod search;
mod store;
mod writer;

pub use error::ChatsError;
pub use export::{Format, branch, export, message_markdown};
pub use records::{Author, Change, ChatRow, DocumentName, MessageRow, Preset, SearchHit, State, StoredDocument};
pub use store::ChatStore;
pub use writer::{ChatEvent, ChatWriter, Destination, Request};
