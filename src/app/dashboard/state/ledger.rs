//! State of the ledger between frames: the newest steps.

use crate::telemetry::History;
use crate::telemetry::ledger::{LedgerEntry, entries};

/// Steps in the table: the newest.
const MAX_STEPS: usize = 512;

/// State of the ledger between frames.
#[derive(Debug, Default)]
pub struct LedgerState {
    entries: Option<(u64, Vec<LedgerEntry>)>,
}

impl LedgerState {
    /// The newest steps, cached for a version of the history.
    pub(in crate::app::dashboard) fn entries(&mut self, history: &History) -> &[LedgerEntry] {
        let version = history.version();
        if self.entries.as_ref().is_none_or(|(v, _)| *v != version) {
            self.entries = Some((version, entries(history, (0, u64::MAX), MAX_STEPS)));
        }
        self.entries.as_ref().map_or(&[], |(_, entries)| entries)
    }
}
