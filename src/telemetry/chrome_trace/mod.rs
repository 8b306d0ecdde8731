//! Chrome trace format: a trace as JSON that Perfetto and Tracy open, and that [`read`] restores exactly.
//!
//! ```text
//! Snapshot, Snapshot, ... ─► ChromeTrace ─► {"traceEvents":[ X spans · C samples · i instants · M names ], "otherData":{..}}
//!                 Snapshot, RunInfo ◄─ read ◄┘      (untrusted bytes)
//! ```
//! 1. [`read`] restores every event that [`ChromeTrace`] wrote to the nanosecond, by its lane.
//! 2. A trace holds numbers, the names of [`super::event`] and of lanes, and the fields of [`RunInfo`]. Text of a document
//!    appears only if the caller put it there.
//!
//! Units: `ts` and `dur` are microseconds with three decimals, which keeps nanoseconds; bytes are whole. `cat` is the lane
//! and the kind of the event.
//! Source: "Trace Event Format", the JSON object form.

mod read;
mod write;

pub use read::{MAX_EVENTS, ReadError, Recording, read};
pub use write::ChromeTrace;

use super::event::EventKind;

/// Description of the traced run.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct RunInfo {
    /// version of the program that wrote it
    pub strata: String,
    /// name of the model
    pub model: String,
    /// name of the device
    pub adapter: String,
    /// attention policy of decode steps
    pub policy: String,
    /// questions and answers, if requested
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub text: Vec<QuestionAnswer>,
}

/// A question with its answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct QuestionAnswer {
    /// as it was asked
    pub question: String,
    /// text of the answer
    pub answer: String,
}

/// Name of an event's kind in a file.
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
