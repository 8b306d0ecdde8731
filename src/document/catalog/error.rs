//! Why the catalog cannot answer, one sentence each that says what to do.

use std::path::PathBuf;

/// Why the catalog refused.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// the folder or the file cannot be made or read
    #[error("the library in {path} cannot be used: {source}; check that you may write there, or choose another folder")]
    Folder {
        /// the folder
        path: PathBuf,
        /// the system's words
        source: std::io::Error,
    },
    /// written by a later version
    #[error(
        "the library in {path} is of a newer Strata (format {found}, this one knows {known}); update Strata, or choose another folder"
    )]
    Newer {
        /// the folder
        path: PathBuf,
        /// version in the file
        found: i64,
        /// version of this program
        known: i64,
    },
    /// no entry begins so
    #[error("the library has no document '{id}'; `strata library list` shows what it has")]
    NoSuch {
        /// asked for
        id: String,
    },
    /// more than one entry begins so
    #[error("{n} documents of the library begin with '{id}'; give more of its digits")]
    Ambiguous {
        /// asked for
        id: String,
        /// how many
        n: usize,
    },
    /// the database's own words
    #[error("the library's catalog failed: {0}; try again, or start Strata anew")]
    Database(#[from] rusqlite::Error),
}
