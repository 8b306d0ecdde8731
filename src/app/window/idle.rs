//! Idle window: prefills documents alone while the user does nothing.
//!
//! ```text
//! no input and no request for IDLE_SECONDS ─► next_alone() ─► prefill_alone(), one document after the other
//! ```

use std::time::Duration;

use eframe::egui;

use crate::app::window::StrataApp;

/// The window is idle after so long without input or a request, seconds.
const IDLE_SECONDS: f64 = 15.0;

impl StrataApp {
    /// Begins the next prefill if the window is idle.
    pub(in crate::app) fn prefill_when_idle(&mut self, ctx: &egui::Context) {
        let (now, has_input) = ctx.input(|i| (i.time, !i.raw.events.is_empty()));
        let is_running = self.state.engine.running.is_some();
        if has_input || is_running {
            self.used_at = now;
        }
        if is_running {
            return;
        }
        let Some(doc) = self.state.next_alone() else { return };
        let left = self.used_at + IDLE_SECONDS - now;
        if left <= 0.0 {
            self.state.prefill_alone(doc);
            ctx.request_repaint();
        } else {
            ctx.request_repaint_after(Duration::from_secs_f64(left));
        }
    }
}
