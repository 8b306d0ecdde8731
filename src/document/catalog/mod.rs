//! Catalog of saved documents: their names, their models, and when they were last used.
//!
//! ```text
//! CatalogEntry ─ upsert, touch, remove ─► library.sqlite in the library's folder ─► list, find, least_recently_used
//!                                       └ corrupt: renamed and replaced, with a notice
//! ```
//! 1. The catalog only describes: stores verify their own pages, so a lost or wrong entry costs a name and a date, never a
//!    token.
//! 2. Several processes may open it at once; each change is one transaction.
//! 3. A corrupt file is renamed, never deleted; one of a newer Strata is rejected and left unchanged.
//! 4. Only the owner can read the folder (0700) and the file (0600), because it has the names of documents.
//!
//! Owner thread: the one that opened it. Units: bytes, tokens, seconds; times in seconds since 1970.

mod database;
mod entry;
mod error;
mod preceding;

pub use database::Catalog;
pub use entry::{CatalogEntry, PrecedingDocument, ReadState, begins_with};
pub use error::CatalogError;

use std::path::PathBuf;

/// Default folder of the library, in the user's cache folder; None if the system has no such folder.
pub fn default_root() -> Option<PathBuf> {
    directories::ProjectDirs::from("", "", "strata").map(|dirs| dirs.cache_dir().join("library"))
}
