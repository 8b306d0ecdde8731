//! Chats that outlive the window: what was said, on every branch, and the documents that it was about.
//!
//! ```text
//! window ─ Request::Keep([Change]) ─► Keeper ─► [thread] Store ─► chats.sqlite in the data folder of the person
//!        ◄ News: chats, messages, documents, hits ┘
//! ```
//! 1. What was shown is kept: a message when it is sent or ends, the pieces of an answer before they are drawn. After a
//!    `kill -9` the part that was shown is there, and says that it was interrupted.
//! 2. A message never changes its parent: another question or another answer is another message beside it.
//! 3. A file that is damaged, of a newer Strata or open elsewhere is left as it is; the window goes on in memory.
//! 4. The folder is readable by its owner alone (0700), and so is the file (0600). What is deleted is overwritten.
//!
//! Owner thread: `chats`. Units: bytes, characters; times in seconds since 1970.

mod error;
mod export;
mod keeper;
mod open;
mod row;
mod search;
mod store;
mod text;

pub use error::ChatsError;
pub use export::{Format, branch, export, message_markdown};
pub use keeper::{Destination, Keeper, News, Request};
pub use row::{Author, Change, ChatRow, DocumentName, Hit, KeptDocument, MessageRow, Preset, State};
pub use store::Store;
