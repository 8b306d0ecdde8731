//! What can go wrong with a store, as sentences that tell a person what to do.

use std::io;

use crate::base::Bytes;
use crate::kv::store::format::PageId;

/// Errors of the store. None of them ever means that a wrong page was served.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// there is no store in the folder
    #[error("{folder} holds no saved document")]
    Absent {
        /// the folder
        folder: String,
    },
    /// a store of another format version
    #[error("{folder} was written in format {found}, but this Strata reads format {known}; the document will be read again")]
    OtherVersion {
        /// the folder
        folder: String,
        /// version in the file
        found: u32,
        /// version of this program
        known: u32,
    },
    /// a store that belongs to something else
    #[error("{folder} was saved for {what}; the document will be read again")]
    Foreign {
        /// the folder
        folder: String,
        /// what differs, "another model" and the like
        what: &'static str,
    },
    /// the header cannot be trusted
    #[error("the saved document in {folder} is damaged ({what}); it will be read again")]
    Damaged {
        /// the folder
        folder: String,
        /// which part
        what: &'static str,
    },
    /// another process, or another part of this one, writes this store
    #[error("{folder} is in use by {holder}; close the document there, or wait until it is done")]
    Locked {
        /// the folder
        folder: String,
        /// "process 123", or "another chat"
        holder: String,
    },
    /// the folder was deleted or moved while it was open
    #[error("{folder} is gone; what was read stays usable until the document is closed, but nothing more is saved")]
    Gone {
        /// the folder
        folder: String,
    },
    /// no room on the disk
    #[error("the disk is full: {file} could not grow by {needed}; free some space or lower --disk-budget")]
    NoSpace {
        /// the file
        file: String,
        /// bytes that were wanted
        needed: Bytes,
    },
    /// the file system refuses
    #[error("{file} may not be used ({source}); check who owns the folder, or choose another with --kv-dir")]
    Denied {
        /// the file
        file: String,
        /// what the system said
        source: io::Error,
    },
    /// any other failure of the disk
    #[error("could not {op} {file}: {source}")]
    Io {
        /// "read", "write", "sync", "grow", "open"
        op: &'static str,
        /// the file
        file: String,
        /// what the system said
        source: io::Error,
    },
    /// an earlier sync failed, so that nothing written since is sure
    #[error("{folder} could not be made safe on the disk earlier ({reason}); nothing more is saved until it is opened again")]
    Latched {
        /// the folder
        folder: String,
        /// the earlier failure
        reason: String,
    },
    /// a page that is not there, or not whole; the caller computes it again
    #[error("{page} is not on the disk; it is computed again")]
    Missing {
        /// the page
        page: PageId,
    },
    /// pages are written once
    #[error("{page} is on the disk already")]
    AlreadyWritten {
        /// the page
        page: PageId,
    },
    /// beyond the document, the model or the kinds that this store holds
    #[error("{page} does not exist in a store of {n_layer} layers and {n_groups} groups")]
    OutOfRange {
        /// the page
        page: PageId,
        /// layers of the model
        n_layer: u32,
        /// complete groups of the tokens
        n_groups: u64,
    },
    /// a buffer of the wrong size
    #[error("a buffer of {got} was given where {expected} is needed")]
    WrongSize {
        /// bytes given
        got: Bytes,
        /// bytes needed
        expected: Bytes,
    },
    /// the work was given up before it was done
    #[error("reading or saving {page} was given up")]
    Cancelled {
        /// the page, the first of a run
        page: PageId,
    },
    /// dimensions that no store can have
    #[error("a store cannot have {name} = {got}; it must be {must}")]
    Spec {
        /// the field
        name: &'static str,
        /// what was asked for
        got: u64,
        /// what is allowed
        must: String,
    },
    /// a name that could leave the library folder
    #[error("'{name}' cannot name a saved document; use letters, digits, '-' and '_'")]
    BadName {
        /// the name
        name: String,
    },
    /// the memory budget of the buffers is used up
    #[error("{wanted} of buffers would pass the RAM budget of {budget}; raise --ram-budget")]
    OverBudget {
        /// bytes wanted
        wanted: Bytes,
        /// the cap
        budget: Bytes,
    },
}

impl StoreError {
    /// Sorts a failure of the system by what a person can do about it.
    pub fn from_io(op: &'static str, file: &str, needed_bytes: u64, source: io::Error) -> Self {
        use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        let file = file.to_owned();
        match source.kind() {
            StorageFull | QuotaExceeded => StoreError::NoSpace { file, needed: Bytes(needed_bytes) },
            PermissionDenied | ReadOnlyFilesystem => StoreError::Denied { file, source },
            _ => StoreError::Io { op, file, source },
        }
    }

    /// True where making the store anew is the answer: what is there is of no use to this model and document.
    pub fn is_unusable_content(&self) -> bool {
        use StoreError::{Absent, Damaged, Foreign, OtherVersion};
        matches!(self, Absent { .. } | OtherVersion { .. } | Foreign { .. } | Damaged { .. })
    }
}
