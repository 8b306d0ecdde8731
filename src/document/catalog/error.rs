//! Errors of the catalog. Each message names the fault and the remedy.

use std::path::PathBuf;

/// Error of the catalog.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// the folder or the file cannot be created or read
    #[error("the library in {path} cannot be used ({source}). Check its permissions, or choose another folder")]
    Folder {
        /// the folder
        path: PathBuf,
        /// cause
        source: std::io::Error,
    },
    /// the file was written by a later version
    #[error(
        "the library in {path} is from a newer Strata (format {found}, this version reads up to {known}). Update Strata, or choose another folder"
    )]
    Newer {
        /// the folder
        path: PathBuf,
        /// version in the file
        found: i64,
        /// newest version that this program reads
        known: i64,
    },
    /// no id has this prefix
    #[error("the library has no document '{id}'. List its documents with `strata library list`")]
    NoSuch {
        /// requested prefix
        id: String,
    },
    /// more than one id has this prefix
    #[error("{n} documents of the library begin with '{id}'. Give more of its digits")]
    Ambiguous {
        /// requested prefix
        id: String,
        /// number of documents
        n: usize,
    },
    /// any other database error
    #[error("the library's catalog failed: {0}. Try again, or restart Strata")]
    Database(#[from] rusqlite::Error),
}
