//! Says where steps and phases of an answer began and ended, and what each step read.
//!
//! ```text
//! begin_steps ─► end_step ─► end_step ─► ...      one step follows the other without a gap
//!                   └─► Step, Pages, Tier ─► hub
//! ```
//! 1. A decode step makes one token: its forward pass, and picking the token. The first one of an answer only
//!    picks. It is named by the position that it reads, the one before its token's.
//! 2. Pages are those that steps asked for since the step before.
//!
//! Owner: the engine thread.

use std::time::Instant;

use crate::base::PageCounts;
use crate::engine::runner::ModelRunner;
use crate::telemetry::{self, EventKind, EventLane, Hub, Phase, StepKind, ns_of};

/// Where the last step ended, and what had been read by then.
pub(in crate::engine) struct StepTimer {
    lane: EventLane,
    began_ns: u64,
    before: PageCounts,
    n_steps: usize,
}

/// Of so many steps one is taken apart for whoever looks on: a pass for each part takes time of its own, up to a tenth of a
/// step on a software device.
const SAMPLED_OF: usize = 32;

impl StepTimer {
    /// No step began.
    pub(in crate::engine) fn new(hub: &Hub) -> StepTimer {
        StepTimer { lane: hub.lane(telemetry::ENGINE_LANE), began_ns: 0, before: PageCounts::default(), n_steps: 0 }
    }

    /// The step that comes next is taken apart, where somebody looks on.
    pub(in crate::engine) fn is_sampled(&self) -> bool {
        self.n_steps.is_multiple_of(SAMPLED_OF)
    }

    /// A part of an answer ends, which began at `began`.
    pub(in crate::engine) fn end_phase(&self, phase: Phase, began: Instant) {
        self.lane.span(EventKind::Phase(phase), ns_of(began));
    }

    /// Tokens of one layer after the other were computed again, in place of being fetched.
    pub(in crate::engine) fn recomputed(&self, n_tokens: usize, began: Instant) {
        let kind = EventKind::Recompute { layer: telemetry::NO_LAYER, n_tokens: n_tokens as u32 };
        self.lane.span(kind, ns_of(began));
    }
}

impl ModelRunner {
    /// The next step begins here.
    pub(in crate::engine) fn begin_steps(&mut self) {
        self.steps.began_ns = telemetry::now();
        self.steps.before = self.model.kv.counts();
    }

    /// A step ends, and the next begins: `n_tokens` from position `first_token` on.
    pub(in crate::engine) fn end_step(&mut self, kind: StepKind, first_token: usize, n_tokens: usize) {
        let steps = &mut self.steps;
        let kv = &self.model.kv;
        let (first_token, n_tokens) = (first_token as u32, n_tokens as u32);
        steps.lane.span(EventKind::Step { kind, first_token, n_tokens }, steps.began_ns);
        let (now, before) = (kv.counts(), std::mem::replace(&mut steps.before, kv.counts()));
        let since = |now: u64, before: u64| now.saturating_sub(before) as u32;
        steps.lane.instant(EventKind::Pages {
            resident: since(now.resident, before.resident),
            fetched: since(now.fetched, before.fetched),
            recomputed: since(now.recomputed, before.recomputed),
            skipped: since(now.skipped, before.skipped),
        });
        let used = self.tiers_used();
        self.steps.lane.instant(EventKind::Tier { vram: used.vram, ram: used.ram, disk: used.disk });
        self.steps.began_ns = telemetry::now();
        self.steps.n_steps += 1;
    }
}
