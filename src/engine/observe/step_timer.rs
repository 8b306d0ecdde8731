//! Step timer: begin and end of the steps and phases of an answer, and the pages each step read.
//!
//! ```text
//! begin_steps ─► end_step ─► end_step ─► ...      steps are contiguous
//!                   └─► Step, Pages, Tier ─► hub
//! ```
//! 1. A decode step generates one token: forward pass and sampling. The first one of an answer only samples. A step has the
//!    position of its input token, the one before the sampled token.
//! 2. Page counts are those since the previous step.
//!
//! Owner: the engine thread.

use std::time::Instant;

use crate::base::PageCounts;
use crate::engine::runner::ModelRunner;
use crate::telemetry::{self, EventKind, EventLane, Hub, Phase, StepKind, ns_of};

/// End of the last step, and page counts at that time.
pub(in crate::engine) struct StepTimer {
    lane: EventLane,
    began_ns: u64,
    before: PageCounts,
    n_steps: usize,
}

/// One of this many steps is timed by part. The compute pass per part costs time: up to 10 % of a step on a software device.
const SAMPLED_OF: usize = 32;

impl StepTimer {
    /// A timer before the first step.
    pub(in crate::engine) fn new(hub: &Hub) -> StepTimer {
        StepTimer { lane: hub.lane(telemetry::ENGINE_LANE), began_ns: 0, before: PageCounts::default(), n_steps: 0 }
    }

    /// True if the next step is timed by part, if the front end requests it.
    pub(in crate::engine) fn is_sampled(&self) -> bool {
        self.n_steps.is_multiple_of(SAMPLED_OF)
    }

    /// Records a phase of an answer since `began`.
    pub(in crate::engine) fn end_phase(&self, phase: Phase, began: Instant) {
        self.lane.span(EventKind::Phase(phase), ns_of(began));
    }

    /// Records the recomputation of tokens in all layers since `began`, instead of a fetch.
    pub(in crate::engine) fn recomputed(&self, n_tokens: usize, began: Instant) {
        let kind = EventKind::Recompute { layer: telemetry::NO_LAYER, n_tokens: n_tokens as u32 };
        self.lane.span(kind, ns_of(began));
    }
}

impl ModelRunner {
    /// Begins the next step.
    pub(in crate::engine) fn begin_steps(&mut self) {
        self.steps.began_ns = telemetry::now();
        self.steps.before = self.exec.kv.counts();
    }

    /// Ends a step of `n_tokens` from position `first_token` on, and begins the next.
    pub(in crate::engine) fn end_step(&mut self, kind: StepKind, first_token: usize, n_tokens: usize) {
        let steps = &mut self.steps;
        let kv = &self.exec.kv;
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
