//! Interval set: how much of any window a set of spans covers, overlaps counted once.
//!
//! ```text
//! spans  ██░░███     merged  ██░░█████    prefix sums of coverage, so a window costs two searches
//!        ░░░░░████
//! ```
//! Spans may arrive out of order: later spans are popped and pushed again.

use super::chunked_queue::ChunkedQueue;

/// Disjoint spans, in order of time.
#[derive(Debug, Clone, Default)]
pub struct IntervalSet {
    spans: ChunkedQueue<Span>,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    begin_ns: u64,
    end_ns: u64,
    /// coverage of all earlier spans
    before_ns: u64,
}

impl IntervalSet {
    /// Adds the span from `begin_ns` to `end_ns`.
    pub fn add(&mut self, begin_ns: u64, end_ns: u64) {
        if end_ns <= begin_ns {
            return;
        }
        let (mut begin_ns, mut end_ns, mut later) = (begin_ns, end_ns, Vec::new());
        while let Some(last) = self.spans.last().filter(|last| last.end_ns >= begin_ns).copied() {
            self.spans.pop();
            if last.begin_ns > end_ns {
                later.push((last.begin_ns, last.end_ns));
            } else {
                (begin_ns, end_ns) = (begin_ns.min(last.begin_ns), end_ns.max(last.end_ns));
            }
        }
        self.push(begin_ns, end_ns);
        later.into_iter().rev().for_each(|(begin_ns, end_ns)| self.push(begin_ns, end_ns));
    }

    /// Covered time between `from_ns` and `to_ns`, nanoseconds.
    pub fn covered_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        self.until(to_ns).saturating_sub(self.until(from_ns))
    }

    /// Memory, bytes.
    pub fn bytes(&self) -> usize {
        self.spans.bytes()
    }

    /// Discards whole chunks of spans that end before `ns`.
    pub fn forget_before(&mut self, ns: u64) {
        while self.spans.n_chunks() > 1 && self.spans.first_chunk().and_then(|c| c.last()).is_some_and(|s| s.end_ns < ns) {
            self.spans.drop_chunk();
        }
    }

    fn push(&mut self, begin_ns: u64, end_ns: u64) {
        let before_ns = self.spans.last().map_or(0, |last| last.before_ns + (last.end_ns - last.begin_ns));
        self.spans.push(Span { begin_ns, end_ns, before_ns });
    }

    /// Coverage before `ns`. Discarded spans count at the begin of the first remaining one.
    fn until(&self, ns: u64) -> u64 {
        let n_begun = self.spans.partition_point(|span| span.begin_ns < ns);
        match n_begun.checked_sub(1).and_then(|i| self.spans.get(i)) {
            Some(span) => span.before_ns + (ns.min(span.end_ns) - span.begin_ns),
            None => self.spans.first().map_or(0, |first| first.before_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::overlap::union_ns;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn cover_of_spans_in_any_order_is_the_length_of_their_union(
            spans in vec((0u64..300, 0u64..40), 0..60), from in 0u64..300, n in 0u64..300,
        ) {
            let mut cover = IntervalSet::default();
            spans.iter().for_each(|(begin, n)| cover.add(*begin, begin + n));
            let to = from + n;
            let cut: Vec<(u64, u64)> = spans.iter().map(|(b, n)| ((*b).clamp(from, to), (b + n).clamp(from, to))).collect();
            prop_assert_eq!(cover.covered_ns(from, to), union_ns(&cut));
        }
    }

    #[test]
    fn cover_that_forgot_the_past_still_covers_the_rest() {
        let mut cover = IntervalSet::default();
        (0..2000).for_each(|i| cover.add(10 * i, 10 * i + 4));
        cover.forget_before(10_000);
        // Of 8 chunks, 3 end before the limit.
        assert_eq!(cover.bytes(), 5 * ChunkedQueue::<Span>::CHUNK_BYTES);
        assert_eq!(cover.covered_ns(10_000, 20_000), 4000);
        assert_eq!(cover.covered_ns(0, 10), 0, "discarded");
    }
}
