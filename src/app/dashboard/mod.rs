//! The dock: what the engine is doing with every byte, beside the chat.
//!
//! ```text
//! engine's snapshots ─► DashboardState ─► dock (tabs) ─► activity │ timeline │ KV map │ ledger │ fidelity ─► Action
//! ```
//! Invariants: 1. The dashboard reads and owns copies; nothing here reaches into the engine. 2. A shut dock draws nothing.
//! 3. What was not measured is written N/A, what is estimated is marked ~, and neither is drawn as 0.
//!
//! Owner thread: the one that draws.

mod activity;
pub mod cost;
mod dock;
mod draw;
mod fidelity;
mod figures;
mod kv_map;
pub mod ledger;
pub mod legend;
pub mod map_image;
mod page_words;
mod reader;
pub mod run_files;
pub mod runs;
mod state;
pub mod strip;
pub mod timeline;

pub use dock::{contents_ui, dock_ui};
pub use state::{DashboardState, Tab};
