//! State of the timeline between frames: the view, the ruler, the attribution of the footer.

use super::view::View;
use crate::telemetry::{Attribution, Event};

/// Span of a view before any zoom, nanoseconds.
const DEFAULT_SPAN_NS: u64 = 2_000_000_000;

/// State of the timeline between frames.
#[derive(Debug, Default)]
pub struct TimelineState {
    /// the part of time in view; None before the first frame
    pub(super) view: Option<View>,
    /// new events do not move the view
    pub(super) is_paused: bool,
    /// a drag moves the ruler, not the view
    pub(super) rules: bool,
    /// span of the ruler, on the axis
    pub(super) measured: Option<(u64, u64)>,
    /// start of the current ruler drag
    pub(super) drag_began_ns: Option<u64>,
    /// the selected step that the view was moved to
    pub(super) followed_step: Option<u64>,
    /// cached attribution of the footer: version, window, result
    pub(super) attribution: Option<(u64, (u64, u64), Attribution)>,
}

impl TimelineState {
    /// The part of time in view.
    pub fn shown_ns(&self) -> Option<(u64, u64)> {
        self.view.map(|view| (view.from_ns, view.to_ns))
    }

    /// The span of the ruler.
    pub fn measured_ns(&self) -> Option<(u64, u64)> {
        self.measured
    }

    /// New events do not move the view.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Shows `share` of `range` around its middle, and pauses.
    pub fn show_all(&mut self, range: Option<(u64, u64)>, share: f64) {
        self.view = range.map(|range| View::around(range).zoomed(share, 0.5));
        self.is_paused = true;
    }

    /// Resets the state: other runs are on the axis.
    pub fn reset(&mut self) {
        *self = TimelineState::default();
    }

    /// View of this frame: it follows new events, or moves to a step selected elsewhere.
    pub(super) fn follow(&mut self, range: (u64, u64), selected: Option<&Event>) -> View {
        let mut view = self.view.unwrap_or_else(|| View::new(0, DEFAULT_SPAN_NS).ending_at(range.1));
        if !self.is_paused {
            view = view.ending_at(range.1);
        }
        if let Some(step) = selected.filter(|step| self.followed_step != Some(step.begin_ns)) {
            (self.followed_step, self.is_paused) = (Some(step.begin_ns), true);
            let margin_ns = step.duration_ns.saturating_mul(2);
            view = View::around((step.begin_ns.saturating_sub(margin_ns), step.end_ns().saturating_add(margin_ns)));
        }
        self.view = Some(view);
        view
    }
}
