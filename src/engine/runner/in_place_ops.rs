//! Bind groups of attention over pages in RAM, where they are.
//!
//! Owner: the engine thread.

use crate::gpu::Binding;

/// Bind groups of the runs in RAM.
#[derive(Default)]
pub(in crate::engine) struct InPlaceOps {
    /// by layer, then run
    pub decode: Vec<Vec<Binding>>,
    /// version of the runs; None if they are not bound
    pub of: Option<u64>,
    /// this pass reads in place
    pub is_active: bool,
}

impl InPlaceOps {
    /// Drops the bind groups.
    pub fn unbind(&mut self) {
        (self.decode, self.of) = (Vec::new(), None);
    }
}
