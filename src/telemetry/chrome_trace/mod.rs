//! A trace as Chrome's JSON, which Perfetto and Tracy open, and which comes back as it went.
//!
//! ```text
//! Snapshot, Snapshot, ... ─► ChromeTrace ─► {"traceEvents":[ X spans · C samples · i instants · M names ], "otherData":{..}}
//!                 Snapshot, RunInfo ◄─ read ◄┘      (bytes that nobody vouches for)
//! ```
//! 1. What [`ChromeTrace`] wrote, [`read`] gives back to the nanosecond: every event, by its lane.
//! 2. There is nothing to write but numbers, the names of [`super::event`] and of lanes, and what a [`RunInfo`] says: text
//!    of a document only where somebody put it in there.
//!
//! Units: `ts` and `dur` are microseconds with three decimals, so nanoseconds survive; bytes are whole. `cat` is the lane and
//! the kind of the event.
//! Source: "Trace Event Format", the JSON object form.

mod read;
mod write;

pub use read::{MAX_EVENTS, ReadError, Recording, read};
pub use write::ChromeTrace;

use super::event::EventKind;

/// What a trace is of, in words.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct RunInfo {
    /// version of the program that wrote it
    pub strata: String,
    /// name of the model
    pub model: String,
    /// name of the device
    pub adapter: String,
    /// what decode steps read of the context
    pub policy: String,
    /// questions and answers, where they were asked for
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub text: Vec<Exchange>,
}

/// A question and its answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Exchange {
    /// as it was asked
    pub question: String,
    /// as it was answered
    pub answer: String,
}

/// The word by which a kind of event is known in a file.
fn word(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::PageMove { .. } => "move",
        EventKind::Wait { .. } => "wait",
        EventKind::GpuPass { .. } => "gpu",
        EventKind::Encode => "encode",
        EventKind::Choose { .. } => "choose",
        EventKind::Step { .. } => "step",
        EventKind::Pages { .. } => "pages",
        EventKind::Tier { .. } => "tiers",
        EventKind::Recompute { .. } => "recompute",
        EventKind::Hiding { .. } => "hiding",
        EventKind::Mass { .. } => "mass",
        EventKind::Phase(_) => "phase",
        EventKind::Fault { .. } => "fault",
    }
}
