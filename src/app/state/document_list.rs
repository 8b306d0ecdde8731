//! Document list: the documents of the session, files that are being opened, and the document beside the chat.

use crate::app::answer::citations::Search;
use crate::app::state::open_document::OpenDocument;
use crate::app::state::viewer::Viewer;
use crate::document::Progress;

/// Documents of the session.
#[derive(Debug, Default)]
pub struct Documents {
    /// all of them
    pub list: Vec<OpenDocument>,
    /// files that are being opened
    pub opening: Option<Opening>,
    /// citations to look up, oldest first
    pub searches: Vec<Search>,
    /// the document beside the chat
    pub viewer: Option<Viewer>,
}

/// Files that are being opened.
#[derive(Debug, Clone)]
pub struct Opening {
    /// the current file
    pub name: String,
    /// files left
    pub n_left: usize,
    /// progress of the file, and its cancellation
    pub watch: Progress,
}
