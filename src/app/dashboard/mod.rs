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
pub mod answer_timeline;
mod charts;
mod dock;
mod fidelity;
mod kv_map;
pub mod ledger;
pub mod legend;
pub mod map_image;
pub mod overhead;
mod page_text;
mod page_tooltip;
mod rates;
mod state;
pub mod timeline;
pub mod trace_files;
pub mod traces;

pub use dock::{contents_ui, dock_ui};
pub use state::{DashboardState, Tab};
