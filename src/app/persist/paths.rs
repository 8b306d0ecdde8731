//! Where the window keeps what outlasts it, and where it looks for models.
//!
//! Nothing is kept where there is no folder: tests have none, and neither has a person without a home.

use std::path::PathBuf;

use directories::{BaseDirs, ProjectDirs};

use crate::model::discovery::{SearchPath, search_paths};

/// Folders of one person.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folders {
    /// settings
    pub config: Option<PathBuf>,
    /// what is not to be lost: chats, and the lock of who writes them
    pub data: Option<PathBuf>,
    /// what may be lost: the log, and where the window was
    pub state: Option<PathBuf>,
    /// models of other programs
    pub models: Vec<SearchPath>,
}

impl Folders {
    /// The chats' own, where there is a folder for what is not to be lost.
    pub fn chats(&self) -> Option<PathBuf> {
        self.data.as_ref().map(|data| data.join("chats"))
    }

    /// Those of whoever runs the program, by the rules of the system.
    pub fn of_person() -> Folders {
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
