//! Options of the window, and how it starts the engine.

use std::path::PathBuf;

use crate::app::persist::paths::Folders;
use crate::app::window::single_instance::Inbox;
use crate::engine::{EngineHandle, LoadOptions, ModelSource};

/// Options of the window.
#[derive(Debug, Clone)]
pub struct WindowOptions {
    /// the model to load
    pub initial_model: ModelSource,
    /// load options
    pub load: LoadOptions,
    /// documents to open
    pub documents: Vec<PathBuf>,
    /// folders of its files
    pub folders: Folders,
    /// paths from later starts
    pub handed_over: Option<Inbox>,
}

/// The engine calls it after every event, on its own thread.
pub type Wake = Box<dyn Fn() + Send>;
/// Starts the engine; called once, after the first frame.
pub type Spawn = Box<dyn FnOnce(Wake) -> EngineHandle>;
