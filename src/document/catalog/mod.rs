//! The catalog of saved documents: which there are, who read them, and when they were last used.
//!
//! ```text
//! Entry ─ upsert, touch, remove ─► library.sqlite in the library's folder ─► list, find, least_recently_used
//!                                       └ damaged: set aside, begun anew, and a sentence says so
//! ```
//! 1. The catalog describes, it is never needed: what a page holds is checked by its store, so a lost or wrong entry costs
//!    a name and a date, never a token.
//! 2. Several processes may have it open at once; each change is one transaction.
//! 3. A damaged file is set aside, never deleted; one of a newer Strata is refused and left as it is.
//! 4. The folder is readable by its owner alone (0700), and so is the file (0600): it holds the names of documents.
//!
//! Owner thread: whoever opened it. Units: bytes, tokens, seconds; times in seconds since 1970.

mod database;
mod entry;
mod error;

pub use database::Catalog;
pub use entry::{Entry, ReadState};
pub use error::CatalogError;

use std::path::PathBuf;

/// The library's folder where nobody chose another: in the cache folder of this person, where the system names one.
pub fn default_root() -> Option<PathBuf> {
    directories::ProjectDirs::from("", "", "strata").map(|dirs| dirs.cache_dir().join("library"))
}
