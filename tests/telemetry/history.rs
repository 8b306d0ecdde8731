use proptest::collection::vec;
use proptest::prelude::*;
use strata::base::Bytes;
use strata::telemetry::history::{Column, ENGINE_LANE, Sum};
use strata::telemetry::overlap::union_ns;
use strata::telemetry::{
    Attribution, Cause, Event, EventKind, Hub, KernelFamily, Link, NO_LAYER, Phase, StepKind, TimeCategory, Track, WaitCause,
};

use strata::telemetry::History;

const GPU: EventKind = EventKind::GpuPass { family: KernelFamily::Linear, layer: NO_LAYER, estimated: false };
const STEP: EventKind = EventKind::Step { kind: StepKind::Decode, first_token: 0, n_tokens: 1 };

fn moved(bytes: u64) -> EventKind {
    EventKind::PageMove { link: Link::DiskToRam, layer: 0, group: 0, n_pages: 1, bytes, cause: Cause::Attention }
}

fn wait(cause: WaitCause) -> EventKind {
    EventKind::Wait { cause }
}

fn of(lane: &'static str, mut events: Vec<Event>, history: &mut History) {
    events.sort_by_key(|e| e.begin_ns);
    history.add_events(lane, &events);
}

/// Moves in batches, ordered within a batch only.
fn some_batches() -> impl Strategy<Value = Vec<Vec<Event>>> {
    let event = (0u64..400, 0u64..50, 0u64..1000).prop_map(|(begin, n, bytes)| Event::span(moved(bytes), begin, begin + n));
    vec(vec(event, 0..40), 0..12)
}

fn cut(event: &Event, from: u64, to: u64) -> (u64, u64) {
    (event.begin_ns.clamp(from, to), event.end_ns().clamp(from, to))
}

fn brute(events: &[Event], from: u64, to: u64) -> Column {
    let begun: Vec<&Event> = events.iter().filter(|e| (from..to).contains(&e.begin_ns)).collect();
    let bytes = begun.iter().map(|e| if let EventKind::PageMove { bytes, .. } = e.kind { bytes } else { 0 }).sum();
    let cut: Vec<(u64, u64)> = events.iter().map(|e| cut(e, from, to)).collect();
    let touching = events.iter().filter(|e| e.begin_ns < to && e.end_ns() > from);
    Column {
        sum: Sum { n_events: begun.len(), bytes, busy_ns: union_ns(&cut) },
        longest_ns: touching.map(|e| e.duration_ns).max().unwrap_or(0),
    }
}

proptest! {
    #[test]
    fn history_of_any_batches_matches_counting(
        batches in some_batches(), from in 0u64..450, n in 1u64..450, n_columns in 1usize..40,
    ) {
        let mut history = History::default();
        let all: Vec<Event> = batches.concat();
        batches.into_iter().for_each(|batch| of("disk", batch, &mut history));
        let to = from + n;
        prop_assert_eq!(history.n_events(), all.len());
        let Some(series) = history.of(Track::Link(Link::DiskToRam)).next() else { return Ok(()) };
        prop_assert!(series.iter().zip(series.iter().skip(1)).all(|(a, b)| a.begin_ns <= b.begin_ns));
        prop_assert_eq!(series.sum(from, to), brute(&all, from, to).sum);
        let touching = all.iter().filter(|e| e.begin_ns < to && (e.end_ns() > from || e.begin_ns == from)).count();
        prop_assert_eq!(series.within(from, to).count(), touching);
        let columns: Vec<Column> = series.envelope(from, to, n_columns).collect();
        prop_assert_eq!(columns.len(), n_columns);
        for (i, column) in columns.iter().enumerate() {
            let edge = |i: usize| from + n * i as u64 / n_columns as u64;
            prop_assert_eq!(*column, brute(&all, edge(i), edge(i + 1)), "column {}", i);
        }
    }

    #[test]
    fn account_of_any_window_is_its_length(batches in some_batches(), from in 0u64..450, n in 0u64..450) {
        let mut history = History::default();
        for (i, batch) in batches.into_iter().enumerate() {
            let restore = EventKind::Phase(Phase::Restore);
            let kinds = [GPU, STEP, wait(WaitCause::Disk), moved(1), EventKind::Encode, restore];
            let batch = batch.into_iter().map(|e| Event { kind: kinds[(e.begin_ns as usize + i) % kinds.len()], ..e });
            of(["engine", "disk"][i % 2], batch.collect(), &mut history);
        }
        let account = history.account(from, from + n);
        prop_assert_eq!(account.accounted_ns + account.unattributed_ns + account.idle_ns, n);
        let attribution = Attribution::of(&history, from, from + n);
        prop_assert_eq!(attribution.parts.iter().map(|(_, ns)| ns).sum::<u64>(), n);
        prop_assert_eq!(attribution.ns(TimeCategory::Unattributed), account.unattributed_ns);
        prop_assert_eq!(attribution.ns(TimeCategory::Idle), account.idle_ns);
    }
}

#[test]
fn history_over_its_cap_discards_and_counts_the_oldest() {
    let cap = Bytes(1 << 20);
    let mut history = History::new(cap);
    let event = |i: u64| Event::span(GPU, 100 * i, 100 * i + 60);
    for batch in 0..100u64 {
        of("gpu", (0..1000).map(|i| event(batch * 1000 + i)).collect(), &mut history);
        assert!(history.bytes() <= cap, "{}", history.bytes());
    }
    let n_events = history.n_events() as u64;
    assert_eq!(n_events + history.n_forgotten(), 100_000);
    assert!(n_events > 5_000, "the cap is used: {n_events}");
    let (first, end) = history.range_ns().unwrap();
    assert_eq!((first, end), (100 * (100_000 - n_events), 100 * 99_999 + 60));
    assert!(history.known_since_ns() < first && history.known_since_ns() > 0);
    let account = history.account(first, end);
    assert_eq!((account.accounted_ns, account.idle_ns), (60 * n_events, 40 * (n_events - 1)));
}

#[test]
fn spike_among_a_million_short_passes_survives_any_zoom() {
    let mut history = History::default();
    let passes = (0..200_000u64).map(|i| Event::span(GPU, 10_000 * i, 10_000 * i + 5_000 + 1_000_000 * u64::from(i == 77_777)));
    of("gpu", passes.collect(), &mut history);
    let (from, to) = history.range_ns().unwrap();
    let series = history.of(Track::Gpu(KernelFamily::Linear)).next().unwrap();
    for n_columns in [1, 7, 1000, 5000] {
        let columns: Vec<Column> = series.envelope(from, to, n_columns).collect();
        let n_spikes = columns.iter().filter(|c| c.longest_ns == 1_005_000).count();
        assert!((1..=1 + n_columns / 1000).contains(&n_spikes), "{n_spikes} of {n_columns}");
    }
}

#[test]
fn attribution_of_a_drawn_step_is_as_drawn() {
    let mut history = History::default();
    let span = Event::span;
    of(
        ENGINE_LANE,
        vec![
            span(STEP, 0, 100),
            span(EventKind::Encode, 0, 15),
            span(wait(WaitCause::Gpu), 20, 60),
            span(wait(WaitCause::Pages), 60, 90),
        ],
        &mut history,
    );
    of("gpu", vec![span(GPU, 10, 50)], &mut history);
    of("disk", vec![span(wait(WaitCause::Disk), 0, 70), span(moved(1), 0, 100)], &mut history);
    let attribution = Attribution::of(&history, 0, 110);
    let expected = [
        (TimeCategory::Compute(KernelFamily::Linear), 40),
        (TimeCategory::Wait(WaitCause::Gpu), 10),
        (TimeCategory::Wait(WaitCause::Disk), 10),
        (TimeCategory::Wait(WaitCause::Pages), 20),
        (TimeCategory::Encode, 10),
        (TimeCategory::Unattributed, 10),
        (TimeCategory::Idle, 10),
    ];
    for (category, ns) in expected {
        assert_eq!(attribution.ns(category), ns, "{category:?}");
    }
    assert_eq!((attribution.parts.len(), attribution.wall_ns), (expected.len(), 110));
    assert!((attribution.attributed_share().unwrap() - 0.9).abs() < 1e-9);
    assert_eq!(Attribution::of(&History::default(), 0, 10).attributed_share(), None);
}

#[test]
fn history_of_a_hub_has_each_event_once_and_the_newest_totals() {
    let hub = Hub::new(64);
    let lane = hub.lane("disk");
    let mut history = History::default();
    let mut snapshot = hub.snapshot();
    for i in 0..10 {
        lane.record(Event::span(moved(100), 10 * i, 10 * i + 5));
        hub.drain_into(&mut snapshot);
        history.add(&snapshot);
    }
    assert_eq!((history.n_events(), history.counters().link(Link::DiskToRam).bytes), (10, 1000));
    let series = history.of(Track::Link(Link::DiskToRam)).next().unwrap();
    assert_eq!(series.sum(0, 1000).bytes, 1000);
}
