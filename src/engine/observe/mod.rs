//! Observation: trace recorder and step timer.

pub(in crate::engine) mod step_timer;
pub(in crate::engine) mod trace_recorder;
