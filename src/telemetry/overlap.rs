//! Overlap of transfer and compute: how much of one was hidden behind the other, from timestamps alone.
//!
//! ```text
//! compute  ████░░██████      overlap = (Tcompute + Tio - Twall) / min(Tcompute, Tio)
//! io       ░░██████░░██      1: the shorter of the two cost nothing;  0: one after the other
//! ```
//! Both times are lengths of unions: concurrent spans count once.

use super::event::{EventKind, KernelFamily};
use super::hub::Snapshot;

/// Begin and end, nanoseconds.
pub type Interval = (u64, u64);

/// Time that at least one of `intervals` covers, nanoseconds.
pub fn union_ns(intervals: &[Interval]) -> u64 {
    let mut sorted = intervals.to_vec();
    sorted.sort_unstable();
    let mut covered_until = 0;
    let mut total = 0;
    for (begin, end) in sorted {
        total += end.saturating_sub(begin.max(covered_until));
        covered_until = covered_until.max(end);
    }
    total
}

/// Hidden share of the shorter of compute and I/O, 0 to 1; None if either is empty.
pub fn overlap(compute: &[Interval], io: &[Interval], wall_ns: u64) -> Option<f64> {
    let (compute_ns, io_ns) = (union_ns(compute), union_ns(io));
    let shorter_ns = compute_ns.min(io_ns);
    let hidden_ns = (compute_ns as f64 + io_ns as f64 - wall_ns as f64).max(0.0);
    (shorter_ns > 0).then(|| (hidden_ns / shorter_ns as f64).min(1.0))
}

/// True for GPU compute, copies excluded.
pub fn is_compute(kind: &EventKind) -> bool {
    matches!(kind, EventKind::GpuPass { family, .. } if *family != KernelFamily::Copy)
}

/// True for transfers of pages.
pub fn is_io(kind: &EventKind) -> bool {
    matches!(kind, EventKind::PageMove { .. })
}

/// Spans of the events of `snapshot` for which `wanted` holds, over all lanes.
pub fn intervals(snapshot: &Snapshot, wanted: impl Fn(&EventKind) -> bool) -> impl Iterator<Item = Interval> {
    let events = snapshot.lanes.iter().flat_map(|lane| &lane.events);
    events.filter(move |event| wanted(&event.kind)).map(|event| (event.begin_ns, event.end_ns()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn some_intervals() -> impl Strategy<Value = Vec<Interval>> {
        vec((0u64..120, 0u64..40).prop_map(|(begin, n)| (begin, begin + n)), 0..12)
    }

    /// Covered nanoseconds, counted one by one.
    fn brute(intervals: &[Interval]) -> u64 {
        (0..200).filter(|t| intervals.iter().any(|(begin, end)| begin <= t && t < end)).count() as u64
    }

    proptest! {
        #[test]
        fn union_is_what_counting_each_nanosecond_gives(intervals in some_intervals()) {
            prop_assert_eq!(union_ns(&intervals), brute(&intervals));
        }

        #[test]
        fn overlap_of_busy_wall_is_the_time_both_ran(compute in some_intervals(), io in some_intervals()) {
            let both: Vec<Interval> = compute.iter().chain(&io).copied().collect();
            let wall = brute(&both);
            let at_once = brute(&compute) + brute(&io) - wall;
            let shorter = brute(&compute).min(brute(&io));
            let expected = (shorter > 0).then(|| at_once as f64 / shorter as f64);
            prop_assert_eq!(overlap(&compute, &io, wall), expected);
        }

        #[test]
        fn overlap_is_a_share_whatever_the_wall(compute in some_intervals(), io in some_intervals(), wall in 0u64..1000) {
            prop_assert!(overlap(&compute, &io, wall).is_none_or(|o| (0.0..=1.0).contains(&o)));
        }
    }

    #[test]
    fn overlap_of_known_runs_is_as_drawn() {
        assert_eq!(overlap(&[(0, 10)], &[(10, 20)], 20), Some(0.0));
        assert_eq!(overlap(&[(0, 10)], &[(0, 20)], 20), Some(1.0));
        assert_eq!(overlap(&[(0, 10)], &[(5, 15)], 15), Some(0.5));
        assert_eq!(overlap(&[(0, 10)], &[], 10), None);
        assert_eq!(overlap(&[], &[(0, 10)], 10), None);
        assert_eq!(overlap(&[(0, 10)], &[(0, 10)], 1000), Some(0.0), "an idle wall hides nothing");
    }
}
