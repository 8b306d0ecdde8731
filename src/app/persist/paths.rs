//! Folders of the window's files, and the folders to search for models.
//!
//! Without a folder nothing is saved: in tests, and for a user without a home.

use std::path::PathBuf;

use directories::{BaseDirs, ProjectDirs};

use crate::model::discovery::{SearchPath, search_paths};

/// Folders of one user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folders {
    /// settings
    pub config: Option<PathBuf>,
    /// chats, and the lock of the process that writes them
    pub data: Option<PathBuf>,
    /// the log, and the place of the window: data that may be lost
    pub state: Option<PathBuf>,
    /// models of other programs
    pub models: Vec<SearchPath>,
}

impl Folders {
    /// Folder of the chats. None without a data folder.
    pub fn chats(&self) -> Option<PathBuf> {
        self.data.as_ref().map(|data| data.join("chats"))
    }

    /// Folders of the current user, by the rules of the system.
    pub fn of_user() -> Folders {
        let home = BaseDirs::new().map(|dirs| dirs.home_dir().to_owned());
        let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let models = search_paths(home.as_deref(), &var);
        let Some(dirs) = ProjectDirs::from("", "", "strata") else { return Folders { models, ..Folders::default() } };
        Folders {
            config: Some(dirs.config_dir().to_owned()),
            data: Some(dirs.data_dir().to_owned()),
            // Only Linux has a folder for this.
            state: Some(dirs.state_dir().unwrap_or_else(|| dirs.data_local_dir()).to_owned()),
            models,
        }
    }
}
