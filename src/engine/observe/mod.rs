//! Observation: traces to a file, and the clock of each step.

pub(in crate::engine) mod step_timer;
pub(in crate::engine) mod trace_recorder;
