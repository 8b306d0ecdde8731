//! The desktop window: drop a document, ask, watch the answer stream.
//!
//! ```text
//! engine events ─► state::ViewState ─► panels::*_ui ─► Action ─► engine commands
//!                        ▲ files: dialogs and reading, on their own threads
//! ```
//! Invariants: 1. The thread that draws never waits while there is a window: not for the engine, a file or a dialog; when
//! it has closed, the process ends once the engine and the chats have put everything down. 2. The engine is started
//! after the first frame, so the window opens before any model is loaded. 3. A frame is drawn for new data only.
//! 4. Colours and spacings come from [`theme`] alone.
//!
//! Owner thread: the main thread.

mod asking;
pub mod branches;
pub mod chat;
pub mod check;
mod choices;
pub mod cited;
pub mod dashboard;
pub mod document_view;
mod events;
mod export;
pub mod files;
pub mod folders;
pub mod format;
mod frames;
pub mod icon;
pub mod instance;
pub mod keeping;
pub mod kept;
pub mod logs;
pub mod markdown;
pub mod models;
pub mod most_read;
pub mod opened;
pub mod panels;
pub mod preferences;
mod sample;
pub mod sentences;
pub mod settings;
pub mod settings_file;
pub mod shortcuts;
pub mod state;
#[cfg(test)]
mod testing;
pub mod theme;
pub mod undo;
pub mod whole;
pub mod widgets;
mod window;

pub use window::{APP_ID, Spawn, StrataApp, Wake, WindowError, WindowOptions, run};
