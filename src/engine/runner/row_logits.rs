//! Row logits: buffers for the logits and candidates of the rows of a batch.

use crate::engine::runner::bindings::LinearOp;
use crate::gpu::{Buffer, Slice};

/// Buffers for the logits and candidates of several rows.
pub(in crate::engine) struct RowLogits {
    pub(super) n_rows: usize,
    pub(super) output: LinearOp,
    pub(super) logits: Slice,
    /// in turn, as those of a single row
    pub(super) readbacks: Vec<Buffer>,
}
