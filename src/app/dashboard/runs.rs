//! Runs saved, opened again and laid beside each other: one row at the foot of the dock.

use egui::Ui;

use super::DashboardState;
use crate::app::panels::Action;

/// What it remembers from frame to frame.
#[derive(Debug, Default)]
pub struct RunsState {}

/// Draws it.
pub fn show(_ui: &mut Ui, _state: &mut DashboardState) -> Vec<Action> {
    Vec::new()
}
