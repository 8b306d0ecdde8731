use std::borrow::Cow;

use proptest::collection::vec;
use proptest::prelude::*;
use strata::telemetry::chrome_trace::{self, ChromeTrace, QuestionAnswer, ReadError, Recording, RunInfo};
use strata::telemetry::{Event, EventKind, Hub, LaneSnapshot, Snapshot};

use crate::export::some_kind;

fn snapshot(lanes: Vec<(&'static str, Vec<Event>)>) -> Snapshot {
    let hub = Hub::new(1 << 12);
    for (name, events) in lanes {
        let lane = hub.lane(name);
        events.into_iter().for_each(|event| lane.record(event));
    }
    hub.snapshot()
}

fn written(snapshots: &[Snapshot], run: RunInfo) -> Vec<u8> {
    let mut trace = ChromeTrace::new(Vec::new()).unwrap();
    trace.describe(run);
    snapshots.iter().for_each(|snapshot| trace.add(snapshot).unwrap());
    trace.finish().unwrap()
}

fn read(text: &[u8]) -> Result<Recording, ReadError> {
    chrome_trace::read(text)
}

fn by_name(lanes: &[LaneSnapshot]) -> Vec<(&str, &[Event])> {
    let mut lanes: Vec<_> = lanes.iter().filter(|l| !l.events.is_empty()).map(|l| (&*l.name, l.events.as_slice())).collect();
    lanes.sort_unstable_by_key(|(name, _)| *name);
    lanes
}

/// Samples and faults have no extent.
fn some_events() -> impl Strategy<Value = Vec<Event>> {
    let has_extent = |kind: &EventKind| {
        !matches!(
            kind,
            EventKind::Pages { .. }
                | EventKind::Tier { .. }
                | EventKind::Hiding { .. }
                | EventKind::Mass { .. }
                | EventKind::Fault { .. }
        )
    };
    vec(
        (some_kind(), 0u64..1 << 50, 0u64..1 << 40)
            .prop_map(move |(kind, begin, n)| Event::span(kind, begin, begin + n * u64::from(has_extent(&kind)))),
        0..60,
    )
}

proptest! {
    #[test]
    fn trace_that_was_written_is_read_back_to_the_nanosecond(
        engine in some_events(), other in some_events(), question in ".*", answer in ".*",
    ) {
        let run = RunInfo {
            strata: "0.1".into(),
            model: "a \"model\"".into(),
            text: vec![QuestionAnswer { question, answer }],
            ..RunInfo::default()
        };
        let snapshot = snapshot(vec![("engine", engine), ("io \"quoted\", with a comma", other)]);
        let recording = read(&written(std::slice::from_ref(&snapshot), run.clone())).unwrap();
        prop_assert_eq!(by_name(&recording.snapshot.lanes), by_name(&snapshot.lanes));
        prop_assert_eq!(recording.snapshot.counters, snapshot.counters);
        prop_assert_eq!((recording.run, recording.n_foreign), (run, 0));
    }

    #[test]
    fn damaged_trace_is_refused_or_read_and_never_breaks_anything(
        events in some_events(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>(),
    ) {
        let mut text = written(&[snapshot(vec![("engine", events)])], RunInfo::default());
        let place = at.index(text.len());
        text[place] = byte;
        let _ = read(&text);
        prop_assert!(read(&text[..cut.index(text.len() - 2)]).is_err(), "a part of a trace is not a trace");
    }

    #[test]
    fn text_that_is_no_trace_is_refused(text in vec(any::<u8>(), 0..200)) {
        prop_assert!(read(&text).is_err());
    }
}

fn with_event(event: &str) -> Result<Recording, ReadError> {
    read(format!("{{\"traceEvents\":[{event}]}}").as_bytes())
}

#[test]
fn hostile_events_are_refused_with_a_sentence() {
    for event in [
        r#"{"ph":"X","cat":"engine,encode","ts":-1}"#,
        r#"{"ph":"X","cat":"engine,encode","ts":1e30}"#,
        r#"{"ph":"X","cat":"engine,encode","dur":1e300}"#,
        r#"{"ph":"X","cat":"engine,gpu","name":"linear","args":{"layer":-1}}"#,
        r#"{"ph":"X","cat":"engine,move","args":{"bytes":1e99}}"#,
        r#"{"ph":7}"#,
    ] {
        assert!(matches!(with_event(event), Err(ReadError::Malformed(_))), "{event}");
    }
    let many_lanes: Vec<String> = (0..65).map(|i| format!(r#"{{"ph":"X","cat":"{i},encode"}}"#)).collect();
    assert!(matches!(with_event(&many_lanes.join(",")), Err(ReadError::Malformed(_))));
    assert!(with_event(&many_lanes[..64].join(",")).is_ok());
    let deep = "[".repeat(100_000);
    assert!(with_event(&format!(r#"{{"ph":"X","args":{{"x":{deep}}}}}"#)).is_err());
    assert!(read(b"{}").is_err() && read(b"[]").is_err());
}

#[test]
fn trace_of_another_program_is_named_as_such() {
    let of_others = r#"{"name":"Task","cat":"toplevel","ph":"X","ts":5,"dur":1,"pid":1,"tid":2,"args":{"src":"x"}}"#;
    let refused = with_event(of_others).unwrap_err();
    assert!(matches!(refused, ReadError::Foreign { n_foreign: 1 }), "{refused}");
    assert!(refused.to_string().contains("no event of Strata"));
    let ours = r#"{"ph":"X","cat":"engine,encode","ts":1.5,"dur":0.001}"#;
    let mixed = with_event(&format!("{of_others},{ours}")).unwrap();
    assert_eq!((mixed.n_foreign, mixed.snapshot.lanes[0].events[0].begin_ns), (1, 1500));
    assert!(with_event("").unwrap().snapshot.lanes.is_empty(), "an empty trace is a trace");
}

#[test]
fn history_of_a_saved_run_writes_the_same_trace_again() {
    let events = |n: u64| (0..n).map(|i| Event::span(EventKind::Encode, 7 * i, 7 * i + 3)).collect();
    let first = snapshot(vec![("engine", events(1000)), ("gpu", events(10))]);
    let mut history = strata::telemetry::History::default();
    history.add(&read(&written(&[first], RunInfo::default())).unwrap().snapshot);
    let again = read(&written(&[history.snapshot()], RunInfo::default())).unwrap();
    assert_eq!(by_name(&again.snapshot.lanes), by_name(&history.snapshot().lanes));
    assert_eq!(again.snapshot.lanes[0].name, Cow::Borrowed("engine"));
    assert_eq!((history.n_events(), again.snapshot.counters.n_events), (1010, 1010));
}
