//! Timeline view: the part of time on screen, and conversions to and from positions. Arithmetic only.
//!
//! Units: nanoseconds of [`crate::telemetry::now`]; positions are shares of the width, 0 to 1.

/// Narrowest view, nanoseconds: 1 microsecond.
const MIN_SPAN_NS: u64 = 1_000;
/// Widest view, nanoseconds: two days.
const MAX_SPAN_NS: u64 = 172_800_000_000_000;

/// A span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// left edge
    pub from_ns: u64,
    /// right edge, later
    pub to_ns: u64,
}

impl View {
    /// From `from_ns` for `span_ns`, within the limits of a view.
    pub fn new(from_ns: u64, span_ns: u64) -> View {
        View { from_ns, to_ns: from_ns.saturating_add(span_ns.clamp(MIN_SPAN_NS, MAX_SPAN_NS)) }
    }

    /// All of `range`, with a little room on both sides.
    pub fn around((begin_ns, end_ns): (u64, u64)) -> View {
        let span_ns = end_ns.saturating_sub(begin_ns);
        let room_ns = span_ns / 50;
        View::new(begin_ns.saturating_sub(room_ns), span_ns.saturating_add(2 * room_ns))
    }

    /// Length, nanoseconds.
    pub fn span_ns(&self) -> u64 {
        self.to_ns - self.from_ns
    }

    /// Position of `ns` as a share of the width; outside 0 to 1 if it is not in view.
    pub fn place(&self, ns: u64) -> f64 {
        (ns as f64 - self.from_ns as f64) / self.span_ns() as f64
    }

    /// Time at a share of the width.
    pub fn at(&self, place: f64) -> u64 {
        (self.from_ns as f64 + place * self.span_ns() as f64).max(0.0) as u64
    }

    /// Shows `factor` times as much, with the time at `place` fixed.
    pub fn zoomed(&self, factor: f64, place: f64) -> View {
        let span_ns = ((self.span_ns() as f64 * factor) as u64).clamp(MIN_SPAN_NS, MAX_SPAN_NS);
        let fixed_ns = self.at(place);
        View::new(fixed_ns.saturating_sub((span_ns as f64 * place.max(0.0)) as u64), span_ns)
    }

    /// Moved by a share of the width.
    pub fn panned(&self, share: f64) -> View {
        let from_ns = self.from_ns as f64 + share * self.span_ns() as f64;
        View::new(from_ns.max(0.0) as u64, self.span_ns())
    }

    /// As wide, with `end_ns` near the right edge.
    pub fn ending_at(&self, end_ns: u64) -> View {
        let room_ns = self.span_ns() / 50;
        View::new(end_ns.saturating_add(room_ns).saturating_sub(self.span_ns()), self.span_ns())
    }

    /// Distance between marks of the axis so that at most `n_most` fit: 1, 2 or 5 times a power of ten nanoseconds.
    pub fn tick_ns(&self, n_most: u64) -> u64 {
        let least = self.span_ns() / n_most.max(1);
        let powers = (0..18).map(|i| 10u64.pow(i));
        powers.flat_map(|p| [p, 2 * p, 5 * p]).find(|tick| *tick > least).unwrap_or(MAX_SPAN_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn some_view() -> impl Strategy<Value = View> {
        (0u64..1 << 46, 0u64..1 << 46).prop_map(|(from, span)| View::new(from, span))
    }

    proptest! {
        #[test]
        fn zoom_keeps_what_is_under_the_pointer_in_place(view in some_view(), factor in 0.1f64..10.0, place in 0.0f64..1.0) {
            let zoomed = view.zoomed(factor, place);
            prop_assert!(zoomed.from_ns < zoomed.to_ns);
            let (before, after) = (view.at(place), zoomed.at(place));
            // At the beginning of time there is nothing to the left.
            prop_assume!(zoomed.from_ns > 0);
            prop_assert!(before.abs_diff(after) <= 2 + zoomed.span_ns() / (1 << 20), "{before} {after}");
        }

        #[test]
        fn view_is_never_empty_whatever_is_done_with_it(view in some_view(), steps in prop::collection::vec((0.0f64..40.0, -3.0f64..3.0), 0..20)) {
            let mut view = view;
            for (factor, share) in steps {
                view = view.zoomed(factor, share).panned(share);
                prop_assert!((MIN_SPAN_NS..=MAX_SPAN_NS).contains(&view.span_ns()));
            }
        }

        #[test]
        fn marks_of_the_axis_are_few_and_round(view in some_view(), n_most in 1u64..40) {
            let tick = view.tick_ns(n_most);
            prop_assert!(view.span_ns() / tick <= n_most);
            prop_assert!(tick.to_string().trim_end_matches('0').len() == 1);
        }
    }

    #[test]
    fn view_around_a_run_shows_all_of_it() {
        let view = View::around((1_000_000, 2_000_000));
        assert!(view.place(1_000_000) > 0.0 && view.place(2_000_000) < 1.0);
        assert_eq!(View::new(0, 1_000_000).ending_at(5_000_000).span_ns(), 1_000_000);
        assert!(View::new(0, 1_000_000).ending_at(5_000_000).place(5_000_000) < 1.0);
    }
}
