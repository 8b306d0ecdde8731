//! Telemetry: typed events in bounded rings, exact counters, one clock, and the analyses built on them.
//!
//! ```text
//! engine, I/O, ... ─► EventLane.record ─┬─► counters, histograms ───────────────┐
//!  (one lane each)                 └─► ring of fixed size ─► Hub::drain_into ─► Snapshot ─► chrome_trace, jsonl, overlap
//!                                                                               └─► History ─► attribution, ledger, dashboard
//! ```
//! 1. Recording neither allocates nor blocks; a full ring drops its oldest event and counts the loss.
//! 2. Counters include every event of an enabled hub, also those that a ring lost.
//! 3. An event holds numbers only: no text of a document, no path, no question.
//! 4. All times are nanoseconds of one clock, [`now`].
//!
//! Owner thread: a lane belongs to the thread that records; a snapshot to the one thread that drains.

pub mod attribution;
pub mod chrome_trace;
mod clock;
mod counters;
mod event;
mod histogram;
pub mod history;
mod hub;
pub mod jsonl;
pub mod ledger;
pub mod overlap;
mod track;

pub use attribution::{Attribution, TimeCategory};
pub use clock::{now, ns_of};
pub use counters::{Counters, LinkCounter, PageCounter, WaitCounter};
pub use event::{Cause, Event, EventKind, FaultKind, KernelFamily, Link, NO_LAYER, Phase, StepKind, WaitCause};
pub use histogram::Histogram;
pub use history::{ENGINE_LANE, History};
pub use hub::{EventLane, Hub, LaneSnapshot, Snapshot};
pub use track::Track;
