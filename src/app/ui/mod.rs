//! UI toolkit: theme, icons, widgets, Markdown and number formats that all panels share.

pub mod format;
pub mod icon;
pub mod markdown;
pub mod shortcuts;
pub mod theme;
pub mod widgets;
