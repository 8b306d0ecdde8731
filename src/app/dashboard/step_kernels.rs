//! Step kernels: times of the passes of a step that was timed by part, from events alone. Pure.
//!
//! The engine times one step of a few by part. Passes of prefill may run after the end of their step, so their times are
//! estimates.

use crate::engine::{FamilyWork, KernelProfile, WorkShape};
use crate::telemetry::overlap::Interval;
use crate::telemetry::{Event, EventKind, History, KernelFamily, StepKind, Track};

/// Times of one step by kernel family.
#[derive(Debug, Clone, PartialEq)]
pub struct StepKernels {
    /// prefill rather than decode
    pub is_prefill: bool,
    /// bounded by times of the CPU, or passes that overlap other steps
    pub is_estimated: bool,
    first_token: usize,
    n_tokens: usize,
    /// share of the earlier tokens that attention read
    share_read: f64,
    wall_ns: u64,
    times: Vec<(KernelFamily, u64)>,
}

impl StepKernels {
    /// The newest complete step in the window whose attention was timed by itself: such a step was timed by part, and ran all
    /// layers.
    pub fn newest(history: &History, (from_ns, to_ns): Interval) -> Option<StepKernels> {
        let newest = |track: Track, before_ns: u64| {
            let events = history.of(track).filter_map(move |series| series.last_before(before_ns));
            events.max_by_key(|event| event.begin_ns)
        };
        let complete_ns = newest(Track::Step, to_ns.saturating_add(1))?.end_ns();
        let pass = newest(Track::Gpu(KernelFamily::Attention), complete_ns).filter(|pass| pass.begin_ns >= from_ns)?;
        let step = newest(Track::Step, pass.begin_ns.saturating_add(1)).filter(|step| step.end_ns() > pass.begin_ns)?;
        StepKernels::of(history, step)
    }

    fn of(history: &History, step: &Event) -> Option<StepKernels> {
        let EventKind::Step { kind, first_token, n_tokens } = step.kind else { return None };
        let is_prefill = match kind {
            StepKind::Prefill => true,
            StepKind::Decode => false,
            StepKind::Restore | StepKind::Repair => return None,
        };
        let (begin, end) = (step.begin_ns, step.end_ns());
        let mut is_estimated = is_prefill;
        let mut times = Vec::new();
        for family in KernelFamily::ALL {
            let mut ns = 0;
            for event in history.of(Track::Gpu(family)).flat_map(|series| series.within(begin, end)) {
                ns += event.end_ns().min(end).saturating_sub(event.begin_ns.max(begin));
                is_estimated |=
                    matches!(event.kind, EventKind::GpuPass { estimated: true, family, .. } if family != KernelFamily::Copy);
            }
            times.push((family, ns));
        }
        Some(StepKernels {
            is_prefill,
            is_estimated,
            first_token: first_token as usize,
            n_tokens: n_tokens as usize,
            share_read: share_read(history, end),
            wall_ns: step.duration_ns,
            times,
        })
    }

    /// Profile of the step on a model of this shape.
    pub fn profile(&self, shape: &WorkShape) -> KernelProfile {
        let work: FamilyWork = match self.is_prefill {
            true => shape.prefill(self.first_token, self.n_tokens),
            false => shape.decode(self.n_tokens, (self.first_token as f64 * self.share_read) as usize + 1),
        };
        KernelProfile::new(shape, self.is_prefill, (self.wall_ns, self.n_tokens), &self.times, &work)
    }
}

/// Share of the pages that the step read that ended at `end_ns`; its page counts follow it.
fn share_read(history: &History, end_ns: u64) -> f64 {
    let next = history.of(Track::Pages).filter_map(|series| series.within(end_ns, u64::MAX).next());
    match next.min_by_key(|event| event.begin_ns).map(|event| event.kind) {
        Some(EventKind::Pages { resident, fetched, recomputed, skipped }) => {
            let read = f64::from(resident) + f64::from(fetched) + f64::from(recomputed);
            let all = read + f64::from(skipped);
            if all > 0.0 { read / all } else { 1.0 }
        }
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::WorkFamily;
    use crate::telemetry::NO_LAYER;

    fn pass(family: KernelFamily, begin: u64, end: u64) -> Event {
        Event::span(EventKind::GpuPass { family, layer: NO_LAYER, estimated: false }, begin, end)
    }

    fn step(kind: StepKind, begin: u64, end: u64) -> Event {
        Event::span(EventKind::Step { kind, first_token: 7, n_tokens: 1 }, begin, end)
    }

    #[test]
    fn newest_step_that_was_timed_by_part_gives_the_times() {
        let mut history = History::default();
        let decode = |begin| step(StepKind::Decode, begin, begin + 100);
        history.add_events("engine", &[decode(100), decode(200), decode(300)]);
        let pages = EventKind::Pages { resident: 1, fetched: 0, recomputed: 0, skipped: 3 };
        history.add_events("engine", &[Event { begin_ns: 301, duration_ns: 0, kind: pages }]);
        let timed = [
            pass(KernelFamily::Linear, 110, 120),
            pass(KernelFamily::Linear, 210, 240),
            pass(KernelFamily::Attention, 240, 260),
            pass(KernelFamily::Linear, 260, 270),
            // Not taken apart, and a step that only samples.
            pass(KernelFamily::Other, 305, 380),
            pass(KernelFamily::Linear, 405, 410),
        ];
        history.add_events("gpu", &timed);
        let found = StepKernels::newest(&history, (0, 1000)).unwrap();
        assert_eq!((found.is_prefill, found.is_estimated, found.wall_ns), (false, false, 100));
        let shape = WorkShape { n_layer: 1, kv_token_bytes: 10, ..WorkShape::default() };
        let profile = found.profile(&shape);
        let times: Vec<(WorkFamily, u64)> = profile.families.iter().map(|family| (family.family, family.ns)).collect();
        assert_eq!(times, [(WorkFamily::Linear, 40), (WorkFamily::Attention, 20)]);
        // A quarter of the seven tokens before it, and itself.
        assert_eq!(profile.families[1].work.bytes, 2 * 10);
        assert_eq!(StepKernels::newest(&history, (300, 1000)), None, "outside the window");
        // A running step is not complete.
        history.add_events("gpu", &[pass(KernelFamily::Attention, 420, 430)]);
        assert_eq!(StepKernels::newest(&history, (0, 1000)), Some(found));
    }

    #[test]
    fn times_of_prefill_are_estimates() {
        let mut history = History::default();
        history.add_events("engine", &[step(StepKind::Prefill, 0, 100)]);
        history.add_events("gpu", &[pass(KernelFamily::Attention, 40, 130)]);
        let found = StepKernels::newest(&history, (0, 1000)).unwrap();
        assert!(found.is_prefill && found.is_estimated);
        assert_eq!(found.profile(&WorkShape::default()).families[0].ns, 60, "only within the step");
    }
}
