//! Every event on one axis of time.

use egui::Ui;

use super::DashboardState;
use crate::app::panels::Action;

/// What it remembers from frame to frame.
#[derive(Debug, Default)]
pub struct TimelineState {}

/// Draws it.
pub fn show(_ui: &mut Ui, _state: &mut DashboardState) -> Vec<Action> {
    Vec::new()
}
