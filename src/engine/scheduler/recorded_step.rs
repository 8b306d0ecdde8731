//! Recorded step: a decode step on the device whose tokens were not read back yet.

use std::time::Duration;

use crate::engine::api::RequestId;
use crate::engine::runner::sampling::RecordedSampling;

/// A recorded step whose tokens were not read back yet.
pub(super) struct RecordedStep {
    /// requests of its rows
    pub rows: Vec<RequestId>,
    /// tokens before those of the step
    pub n_context: usize,
    pub sampling: RecordedSampling,
    pub encode: Duration,
    pub n_dispatches: usize,
}
