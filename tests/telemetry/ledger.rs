use strata::telemetry::ledger::{Forecast, LedgerEntry, entries, entry_at};
use strata::telemetry::{Cause, ENGINE_LANE, Event, EventKind, History, Link, StepKind, WaitCause};

fn span(kind: EventKind, begin_ns: u64, duration_ns: u64) -> Event {
    Event { begin_ns, duration_ns, kind }
}

fn step(first_token: u32) -> EventKind {
    EventKind::Step { kind: StepKind::Decode, first_token, n_tokens: 1 }
}

fn moved(link: Link, n_pages: u32, bytes: u64) -> EventKind {
    EventKind::PageMove { link, layer: 0, group: 0, n_pages, bytes, cause: Cause::Attention }
}

fn overlap(expected: [u32; 2], measured: [u32; 2]) -> EventKind {
    let ([expected_io_us, expected_compute_us], [io_us, compute_us]) = (expected, measured);
    EventKind::Overlap { layer: 0, theta_permille: 0, expected_io_us, io_us, expected_compute_us, compute_us }
}

/// Two steps of 1000 ns, each with a sample just after it; the first fetches, the second also has a forecast.
fn history() -> History {
    let mut history = History::default();
    let pages = |fetched| EventKind::Pages { resident: 5, fetched, recomputed: 0, skipped: 7 };
    let engine = [
        span(step(10), 0, 1000),
        span(EventKind::Wait { cause: WaitCause::Pages }, 200, 300),
        span(pages(2), 1001, 0),
        span(step(11), 1010, 1000),
        // The first layer has no prediction yet.
        span(overlap([0, 0], [90, 10]), 1100, 0),
        span(overlap([20, 50], [30, 40]), 1200, 0),
        span(overlap([20, 50], [80, 40]), 1300, 0),
        span(pages(0), 2011, 0),
    ];
    history.add_events(ENGINE_LANE, &engine);
    history
        .add_events("transfer", &[span(moved(Link::RamToVram, 2, 128), 100, 400), span(moved(Link::DiskToRam, 2, 96), 50, 100)]);
    history
}

#[test]
fn ledger_of_two_steps_is_as_it_was_recorded() {
    let history = history();
    let all = entries(&history, (0, u64::MAX), 10);
    let of = |e: &LedgerEntry| [e.resident, e.fetched, e.recomputed, e.skipped].map(|share| (share.n_pages, share.bytes));
    assert_eq!(of(&all[0]), [(5, Some(320)), (2, Some(128)), (0, Some(0)), (7, Some(448))]);
    assert_eq!(of(&all[1]), [(5, Some(320)), (0, Some(0)), (0, Some(0)), (7, Some(448))]);
    assert_eq!((all[0].fetched.ns, all[0].waited_ns, all[1].waited_ns), (400, 300, 0));
    assert_eq!((all[0].first_token, all[1].first_token, all.len()), (10, 11, 2));
    assert_eq!(entries(&history, (0, u64::MAX), 1), all[1..]);
    assert_eq!(entry_at(&history, 1010), Some(all[1]));
    assert_eq!(entry_at(&history, 1011), None);
}

#[test]
fn regret_is_the_excess_over_the_forecast_and_zero_without_one() {
    let all = entries(&history(), (0, u64::MAX), 10);
    assert_eq!(all[0].forecast, None);
    let expected = Forecast {
        n_layers: 2,
        expected_io_ns: 40_000,
        io_ns: 110_000,
        expected_compute_ns: 100_000,
        compute_ns: 80_000,
        // The first layer took 40 of 50 us; the second took 80.
        regret_ns: 30_000,
    };
    assert_eq!(all[1].forecast, Some(expected));
}

#[test]
fn bytes_of_pages_that_never_moved_are_unknown() {
    let mut history = History::default();
    let pages = EventKind::Pages { resident: 5, fetched: 0, recomputed: 1, skipped: 0 };
    history.add_events(ENGINE_LANE, &[span(step(0), 0, 10), span(pages, 11, 0)]);
    let entry = entry_at(&history, 0).unwrap();
    assert_eq!((entry.resident.bytes, entry.recomputed.bytes, entry.resident.n_pages), (None, None, 5));
    assert_eq!(entry.fetched.bytes, Some(0), "nothing moved, which is known");
}
