//! Memory of the chat panel: heights, parsed Markdown, and the question that is edited.

use std::collections::HashMap;

use egui_commonmark::CommonMarkCache;

/// State of the chat panel between frames.
#[derive(Default)]
pub struct ChatMemory {
    pub(super) markdown: CommonMarkCache,
    pub(super) heights: HashMap<(u64, usize), f32>,
    pub(super) width: f32,
    /// show the newest exchange in the next frame
    pub jump_to_end: bool,
    /// exchanges and blocks laid out in the last frame
    pub drawn: usize,
    /// timelines of answers are visible
    pub shows_parts: bool,
    /// show this exchange in the next frame
    pub jump_to: Option<u64>,
    /// the exchange whose question is edited, and the new text
    pub editing: Option<(u64, String)>,
}
