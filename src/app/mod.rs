//! The desktop window: drop a document, ask, watch the answer stream.
//!
//! ```text
//! engine events ─► state::ViewState ─► panels::*_ui ─► Action ─► engine commands
//!                        ▲ files: dialogs and reading, on their own threads
//! ```
//! Invariants: 1. The thread that draws never waits while there is a window: not for the engine, a file or a dialog; when
//! it has closed, the process ends once the engine and the chats have put everything down. 2. The engine is started
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
