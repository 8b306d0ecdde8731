//! Store errors, each with a message that names the remedy.

use std::io;

use crate::base::Bytes;
use crate::kv::store::format::PageId;

/// Errors of the store. None of them means that a wrong page was returned.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// the folder has no store
    #[error("{folder} has no saved document")]
    Absent {
        /// the folder
        folder: String,
    },
    /// the store has another format version
    #[error("{folder} was written in format {found}, but this Strata reads format {known}; the document will be read again")]
    OtherVersion {
        /// the folder
        folder: String,
        /// version in the file
        found: u32,
        /// version of this program
        known: u32,
    },
    /// the store belongs to another model, document or setting
    #[error("{folder} was saved for {what}; the document will be read again")]
    Foreign {
        /// the folder
        folder: String,
        /// the difference, for example "another model"
        what: &'static str,
    },
    /// a file of the store is corrupt
    #[error("the saved document in {folder} is corrupt ({what}); it will be read again")]
    Damaged {
        /// the folder
        folder: String,
        /// the corrupt part
        what: &'static str,
    },
    /// another process, or another part of this one, has this store open for writing
    #[error("{folder} is in use by {holder}; close the document there, or wait until it finishes")]
    Locked {
        /// the folder
        folder: String,
        /// "process 123" or "another chat"
        holder: String,
    },
    /// the folder was deleted or moved while it was open
    #[error("{folder} is gone; the document stays usable until it is closed, but nothing more is saved")]
    Gone {
        /// the folder
        folder: String,
    },
    /// the disk is full
    #[error("the disk is full: {file} could not grow by {needed}; free some space or lower --disk-budget")]
    NoSpace {
        /// the file
        file: String,
        /// bytes needed
        needed: Bytes,
    },
    /// the file system denies access
    #[error("{file} cannot be accessed ({source}); check the owner of the folder, or use another one with --kv-dir")]
    Denied {
        /// the file
        file: String,
        /// error of the operating system
        source: io::Error,
    },
    /// any other disk error
    #[error("could not {op} {file}: {source}")]
    Io {
        /// "read", "write", "sync", "grow", "open"
        op: &'static str,
        /// the file
        file: String,
        /// error of the operating system
        source: io::Error,
    },
    /// an earlier sync failed, so later writes may not be durable
    #[error("{folder} could not be synced to disk ({reason}); nothing more is saved until the document is opened again")]
    Latched {
        /// the folder
        folder: String,
        /// the earlier failure
        reason: String,
    },
    /// a page is missing or corrupt; the caller recomputes it
    #[error("{page} is not on disk; it will be recomputed")]
    Missing {
        /// the page
        page: PageId,
    },
    /// pages are written once
    #[error("{page} is already on disk")]
    AlreadyWritten {
        /// the page
        page: PageId,
    },
    /// a page outside the document, the model or the kinds of this store
    #[error("{page} does not exist in a store of {n_layer} layers and {n_groups} groups")]
    OutOfRange {
        /// the page
        page: PageId,
        /// layers of the model
        n_layer: u32,
        /// complete groups of the tokens
        n_groups: u64,
    },
    /// a buffer has the wrong size
    #[error("a buffer has {got}, but {expected} is needed")]
    WrongSize {
        /// bytes given
        got: Bytes,
        /// bytes needed
        expected: Bytes,
    },
    /// the operation was cancelled before it completed
    #[error("reading or saving {page} was cancelled")]
    Cancelled {
        /// the page, or the first page of a run
        page: PageId,
    },
    /// dimensions outside the limits of a store
    #[error("a store cannot have {name} = {got}; it must be {must}")]
    Spec {
        /// the field
        name: &'static str,
        /// value requested
        got: u64,
        /// allowed values
        must: String,
    },
    /// a name that could point outside the library folder
    #[error("'{name}' cannot name a saved document; use letters, digits, '-' and '_'")]
    BadName {
        /// the name
        name: String,
    },
    /// the memory budget of the slab pool is used up
    #[error("{wanted} more of buffers exceeds the RAM budget of {budget}; raise --ram-budget")]
    OverBudget {
        /// bytes required
        wanted: Bytes,
        /// the cap
        budget: Bytes,
    },
}

impl StoreError {
    /// Classifies an error of the operating system by its remedy.
    pub fn from_io(op: &'static str, file: &str, needed_bytes: u64, source: io::Error) -> Self {
        use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        let file = file.to_owned();
        match source.kind() {
            StorageFull | QuotaExceeded => StoreError::NoSpace { file, needed: Bytes(needed_bytes) },
            PermissionDenied | ReadOnlyFilesystem => StoreError::Denied { file, source },
            _ => StoreError::Io { op, file, source },
        }
    }

    /// True if the store should be created again: its content is useless for this model and document.
    pub fn is_unusable_content(&self) -> bool {
        use StoreError::{Absent, Damaged, Foreign, OtherVersion};
        matches!(self, Absent { .. } | OtherVersion { .. } | Foreign { .. } | Damaged { .. })
    }
}
