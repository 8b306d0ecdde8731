//! Step timer: begin and end of the steps and phases of an answer, and the pages each step read.
//!
//! ```text
//! begin ─► end ─► end ─► ...      steps are contiguous
//!                   └─► Step, Pages, Tier ─► hub
//! ```
//! 1. A decode step generates one token: forward pass and sampling. The first one of an answer only samples. A step has the
//!    position of its input token, the one before the sampled token.
//! 2. Page counts are those since the previous step.
//!
//! Owner: the engine thread.

use std::time::Instant;

use crate::base::{PageCounts, Tiers};
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

    /// Begins the first step, with these page counts so far.
    pub(in crate::engine) fn begin(&mut self, counts: PageCounts) {
        self.began_ns = telemetry::now();
        self.before = counts;
    }

    /// Ends a step of `n_tokens` from position `first_token` on, and begins the next. `counts` are the page counts so far,
    /// `used` the KV bytes in each tier.
    pub(in crate::engine) fn end(
        &mut self,
        kind: StepKind,
        (first_token, n_tokens): (usize, usize),
        counts: PageCounts,
        used: Tiers<u64>,
    ) {
        let (first_token, n_tokens) = (first_token as u32, n_tokens as u32);
        self.lane.span(EventKind::Step { kind, first_token, n_tokens }, self.began_ns);
        let before = std::mem::replace(&mut self.before, counts);
        let since = |now: u64, before: u64| now.saturating_sub(before) as u32;
        self.lane.instant(EventKind::Pages {
            resident: since(counts.resident, before.resident),
            fetched: since(counts.fetched, before.fetched),
            recomputed: since(counts.recomputed, before.recomputed),
            skipped: since(counts.skipped, before.skipped),
        });
        self.lane.instant(EventKind::Tier { vram: used.vram, ram: used.ram, disk: used.disk });
        self.began_ns = telemetry::now();
        self.n_steps += 1;
    }
}
