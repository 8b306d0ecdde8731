//! What each step read, how it came by it, and what that cost.

use egui::Ui;

use super::DashboardState;
use crate::app::panels::Action;

/// What it remembers from frame to frame.
#[derive(Debug, Default)]
pub struct LedgerState {}

/// Draws it.
pub fn show(_ui: &mut Ui, _state: &mut DashboardState) -> Vec<Action> {
    Vec::new()
}
