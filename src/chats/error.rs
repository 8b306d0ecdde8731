//! Errors of stored chats. Each names the fault and the remedy.

use std::path::PathBuf;

/// Error of saving or loading chats.
#[derive(Debug, thiserror::Error)]
pub enum ChatsError {
    /// the folder or its file cannot be created or opened
    #[error("the folder {} cannot be used ({source}). Check its permissions and the free space on its disk", path.display())]
    Folder {
        /// the folder
        path: PathBuf,
        /// cause
        source: std::io::Error,
    },
    /// another window has the file open
    #[error("another Strata has {} open. Close it, then restart this one", path.display())]
    Locked {
        /// the file
        path: PathBuf,
    },
    /// the file was written by a later version
    #[error("{} is from a newer Strata (format {found}, this version reads up to {known}). Update Strata", path.display())]
    Newer {
        /// the file
        path: PathBuf,
        /// version in the file
        found: i64,
        /// newest version that this program reads
        known: i64,
    },
    /// the file is corrupt
    #[error("{} is corrupt and was left unchanged. Move it elsewhere to start with a new file", path.display())]
    Corrupt {
        /// the file
        path: PathBuf,
    },
    /// the stored text of a document is corrupt
    #[error("the stored text of {name} is corrupt. Open its file again")]
    Text {
        /// name of the document
        name: String,
    },
    /// any other database error
    #[error("{0}. Check the free space on the disk")]
    Database(#[from] rusqlite::Error),
    /// a thread could not be started
    #[error("the thread that saves chats could not be started ({0}). Close other programs")]
    Thread(std::io::Error),
}
