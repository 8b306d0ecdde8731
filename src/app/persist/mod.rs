//! Persistence: the folders of the user, the settings file and the log.

pub mod logging;
pub mod paths;
pub mod settings_file;
