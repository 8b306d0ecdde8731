//! Recorded step: a decode step on the device whose tokens were not read back yet.

use std::time::Duration;

use crate::engine::api::RequestId;
use crate::engine::runner::sampling::RecordedSampling;
use crate::engine::selection::sequence_policy::PolicyProgress;

/// A recorded step whose tokens were not read back yet.
pub(super) struct RecordedStep {
    /// requests of its rows
    pub rows: Vec<RequestId>,
    /// tokens before those of the step
    pub n_context: usize,
    pub sampling: RecordedSampling,
    pub encode: Duration,
    pub n_dispatches: usize,
    /// progress of the policies after the step, by request; they have it once the tokens of the step are known
    pub progress: Vec<(RequestId, PolicyProgress)>,
}
