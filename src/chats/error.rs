//! What can go wrong with kept chats, each as one sentence that says what to do.

use std::path::PathBuf;

/// Why chats cannot be kept, or read.
#[derive(Debug, thiserror::Error)]
pub enum ChatsError {
    /// the folder or its file cannot be made or opened
    #[error("the folder {} cannot be used ({source}); check its rights and the room on its disk", path.display())]
    Folder {
        /// which
        path: PathBuf,
        /// the system's words
        source: std::io::Error,
    },
    /// another window has them
    #[error("another Strata has {} open; close it, and start this one again to see them", path.display())]
    Locked {
        /// the file
        path: PathBuf,
    },
    /// written by a later version
    #[error("{} is of a newer Strata (format {found}, this one knows {known}); update Strata", path.display())]
    Newer {
        /// the file
        path: PathBuf,
        /// version in the file
        found: i64,
        /// version of this program
        known: i64,
    },
    /// not what was written
    #[error("{} is damaged; it is kept as it is: move it elsewhere to begin anew", path.display())]
    Damaged {
        /// the file
        path: PathBuf,
    },
    /// the text of a document is not the one that was kept
    #[error("the kept text of {name} is damaged; open its file again")]
    Text {
        /// which
        name: String,
    },
    /// the database's own words
    #[error("{0}; check the room on the disk")]
    Database(#[from] rusqlite::Error),
    /// the system refuses another thread
    #[error("the system refuses another thread ({0}); close other programs")]
    Thread(std::io::Error),
}
