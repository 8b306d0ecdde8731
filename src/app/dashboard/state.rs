//! What the dock remembers from frame to frame.
//!
//! Units: nanoseconds of [`crate::telemetry::now`].

use super::ledger::LedgerState;
use super::runs::RunsState;
use super::timeline::TimelineState;
use crate::telemetry::History;

/// What the dock shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tab {
    /// links, utilisation, budgets
    #[default]
    Activity,
    /// every event on one axis of time
    Timeline,
    /// where each page of the context is
    KvMap,
    /// what each step read, and how it came by it
    Ledger,
    /// what was left out, and what that cost
    Fidelity,
}

impl Tab {
    /// All, as they stand side by side.
    pub const ALL: [Tab; 5] = [Tab::Activity, Tab::Timeline, Tab::KvMap, Tab::Ledger, Tab::Fidelity];

    /// As it is written on the tab.
    pub const fn name(self) -> &'static str {
        match self {
            Tab::Activity => "Activity",
            Tab::Timeline => "Timeline",
            Tab::KvMap => "KV map",
            Tab::Ledger => "Ledger",
            Tab::Fidelity => "Fidelity",
        }
    }
}

/// Everything the dock shows.
#[derive(Debug, Default)]
pub struct DashboardState {
    /// beside the chat, or in its place
    pub open: bool,
    /// in place of the chat
    pub fills: bool,
    /// what it shows
    pub tab: Tab,
    /// the step that every panel points at: when it began, nanoseconds
    pub selected_step: Option<u64>,
    /// every event that the engine handed on
    pub history: History,
    /// the timeline's own
    pub timeline: TimelineState,
    /// the ledger's own
    pub ledger: LedgerState,
    /// saved and compared runs
    pub runs: RunsState,
}

impl DashboardState {
    /// Opens the dock beside the chat, or shuts it.
    pub fn toggle(&mut self) {
        self.open = !self.open;
        self.fills = false;
    }
}
