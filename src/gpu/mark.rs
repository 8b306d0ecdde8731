//! Mark: label of a part of the recorded work, for timing.

use crate::telemetry::{KernelFamily, NO_LAYER};

/// Label of a part of the work, for timing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub family: KernelFamily,
    pub layer: u32,
}

impl Default for Mark {
    fn default() -> Self {
        Mark { family: KernelFamily::Other, layer: NO_LAYER }
    }
}
