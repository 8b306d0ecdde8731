//! Candidates: files that may be models, as each provider lists them.

use std::path::PathBuf;

use super::locations::Provider;

/// A file that may be a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// owner of the folder
    pub provider: Provider,
    /// path to load: a file (the first part present, of a model in parts), or a folder with safetensors
    pub path: PathBuf,
    /// name that the provider shows
    pub name: String,
    /// location within the provider: a repository, a publisher or a folder
    pub within: String,
    /// bytes of the file, or of all its parts
    pub bytes: u64,
}

/// A candidate that cannot be used, with the reason.
pub(super) struct BrokenModel(pub Candidate, pub String);
