//! The desktop window: drop a document, ask, watch the answer stream.
//!
//! ```text
//! engine events ─► state::ViewState ─► panels::*_ui ─► Action ─► engine commands
//!                       ▲ files: dialogs and reading, on their own threads
//! ```
//! Invariants: 1. The UI thread never waits for the engine, a file or a dialog. After the window closes, the process ends once
//! the engine and the chats are saved. 2. The engine starts
//! after the first frame, so the window opens before any model is loaded. 3. A frame is drawn for new data only.
//! 4. Colors and spacings come from [`theme`] alone.
//!
//! Owner thread: the main thread.

pub mod answer;
pub mod dashboard;
pub mod panels;
pub mod persist;
pub mod state;
#[cfg(test)]
mod test_support;
pub mod ui;
mod window;

pub use window::{APP_ID, Spawn, StrataApp, Wake, WindowError, WindowOptions, run};
pub use window::{file_dialogs, single_instance};
