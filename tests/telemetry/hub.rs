use strata::telemetry::{Cause, Event, EventKind, EventLane, Hub, Link, StepKind, WaitCause, now};

fn page_move(i: u64) -> EventKind {
    let link = Link::ALL[(i % 4) as usize];
    EventKind::PageMove { link, layer: i as u32 % 32, group: i as u32, n_pages: 2, bytes: i, cause: Cause::Prefetch }
}

#[test]
fn lane_can_move_to_another_thread() {
    fn assert_send<T: Send>() {}
    assert_send::<EventLane>();
}

#[test]
fn full_ring_keeps_the_newest_and_counts_the_rest() {
    let hub = Hub::new(8);
    let lane = hub.lane("engine");
    for i in 0..20 {
        lane.record(Event { begin_ns: i, duration_ns: 1, kind: page_move(i) });
    }
    let snapshot = hub.snapshot();
    let begins: Vec<u64> = snapshot.lanes[0].events.iter().map(|e| e.begin_ns).collect();
    assert_eq!(begins, (12..20).collect::<Vec<_>>());
    assert_eq!((&*snapshot.lanes[0].name, snapshot.lanes[0].n_dropped), ("engine", 12));
    assert_eq!((snapshot.counters.n_events, snapshot.counters.n_dropped), (20, 12));
    assert_eq!(snapshot.counters.moved_bytes(), (0..20).sum::<u64>(), "counters lose nothing");
}

#[test]
fn million_events_from_two_threads_are_each_seen_or_counted_as_lost() {
    const N: u64 = 500_000;
    let hub = Hub::new(1 << 10);
    let record = |name| {
        let lane = hub.lane(name);
        move || (0..N).for_each(|i| lane.record(Event { begin_ns: i, duration_ns: i % 7, kind: page_move(i) }))
    };
    let mut n_seen = [0u64; 2];
    let mut next = [0u64; 2];
    let mut snapshot = hub.snapshot();
    std::thread::scope(|scope| {
        let threads = [scope.spawn(record("a")), scope.spawn(record("b"))];
        let mut last = false;
        while !last {
            last = threads.iter().all(|t| t.is_finished());
            hub.drain_into(&mut snapshot);
            for (i, lane) in snapshot.lanes.iter().enumerate() {
                n_seen[i] += lane.events.len() as u64;
                assert!(lane.events.len() <= 1 << 10);
                for event in &lane.events {
                    assert!(event.begin_ns >= next[i] && event.kind == page_move(event.begin_ns), "torn or out of order");
                    next[i] = event.begin_ns + 1;
                }
            }
        }
    });
    let counters = hub.counters();
    for (i, lane) in snapshot.lanes.iter().enumerate() {
        assert_eq!(n_seen[i] + lane.n_dropped, N, "{}", lane.name);
    }
    assert_eq!((counters.n_events, counters.moved_bytes()), (2 * N, N * (N - 1)));
    assert_eq!(counters.n_dropped + n_seen[0] + n_seen[1], 2 * N);
    let latencies: u64 = Link::ALL.iter().map(|l| counters.latency(*l).n()).sum();
    assert_eq!(latencies, 2 * N);
}

#[test]
fn disabled_hub_records_and_counts_nothing() {
    let hub = Hub::new(8);
    let lane = hub.lane("engine");
    hub.set_enabled(false);
    lane.span(page_move(1), now());
    lane.instant(EventKind::Encode);
    assert!(!lane.is_enabled() && hub.snapshot().lanes[0].events.is_empty());
    assert_eq!(hub.counters().n_events, 0);
    hub.set_enabled(true);
    lane.instant(EventKind::Encode);
    assert_eq!(hub.snapshot().lanes[0].events.len(), 1);
}

#[test]
fn lanes_of_one_name_share_a_ring() {
    let hub = Hub::new(8);
    for _ in 0..3 {
        hub.lane("engine").instant(EventKind::Encode);
    }
    let snapshot = hub.snapshot();
    assert_eq!((snapshot.lanes.len(), snapshot.lanes[0].events.len()), (1, 3));
}

#[test]
fn snapshot_has_the_outer_span_first_and_only_what_is_new() {
    let hub = Hub::new(8);
    let lane = hub.lane("engine");
    let step = EventKind::Step { kind: StepKind::Decode, first_token: 3, n_tokens: 1 };
    lane.record(Event::span(EventKind::Encode, 10, 12));
    lane.record(Event::span(EventKind::Wait { cause: WaitCause::Gpu }, 12, 20));
    lane.record(Event::span(step, 10, 20));
    let mut snapshot = hub.snapshot();
    let kinds: Vec<EventKind> = snapshot.lanes[0].events.iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [step, EventKind::Encode, EventKind::Wait { cause: WaitCause::Gpu }]);
    hub.drain_into(&mut snapshot);
    assert!(snapshot.lanes[0].events.is_empty());
}

#[test]
fn counters_since_an_earlier_time_are_the_difference() {
    let hub = Hub::new(8);
    let lane = hub.lane("engine");
    let pages = EventKind::Pages { resident: 5, fetched: 3, recomputed: 2, skipped: 1 };
    lane.record(Event::span(EventKind::Wait { cause: WaitCause::Disk }, 0, 100));
    lane.instant(pages);
    let earlier = hub.counters();
    lane.record(Event::span(EventKind::Wait { cause: WaitCause::Disk }, 200, 250));
    lane.instant(pages);
    lane.instant(EventKind::Recompute { layer: 1, n_tokens: 64 });
    let between = hub.counters().since(&earlier);
    assert_eq!((between.wait(WaitCause::Disk).n_waits, between.wait(WaitCause::Disk).ns), (1, 50));
    assert_eq!(between.wait(WaitCause::Gpu).ns, 0);
    let p = between.pages;
    assert_eq!((p.resident, p.fetched, p.recomputed, p.skipped, between.recomputed_tokens), (5, 3, 2, 1, 64));
    assert_eq!(between.n_events, 3);
}
