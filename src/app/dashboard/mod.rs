//! Dashboard: the dock beside the chat that shows pages, transfers, steps and costs of the engine.
//!
//! ```text
//! engine's snapshots ─► DashboardState ─► dock (tabs) ─► activity │ timeline │ KV map │ ledger │ fidelity ─► Action
//! ```
//! Invariants: 1. The dashboard owns copies and never reads from the engine. 2. A closed dock draws nothing.
//! 3. A missing value is written N/A, an estimate is marked ~, and neither is drawn as 0.
//!
//! Owner thread: the UI thread.

mod activity;
pub mod answer_timeline;
mod charts;
mod dock;
mod fidelity;
mod kernels;
mod kv_map;
pub mod ledger;
pub mod legend;
pub mod map_image;
pub mod overhead;
mod page_text;
mod page_tooltip;
mod rates;
mod state;
mod step_kernels;
pub mod timeline;
pub mod trace_files;
pub mod traces;

pub use dock::{contents_ui, dock_ui};
pub use state::runs::OpenRun;
pub use state::{DashboardState, Tab};
