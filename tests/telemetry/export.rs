use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;
use strata::telemetry::chrome_trace::ChromeTrace;
use strata::telemetry::{
    Cause, Event, EventKind, FaultKind, Hub, KernelFamily, Link, NO_LAYER, Phase, Snapshot, StepKind, WaitCause, jsonl,
};

pub fn some_kind() -> impl Strategy<Value = EventKind> {
    let of = |n: usize| (0..n).prop_map(|i| i);
    prop_oneof![
        (of(4), of(6), 0u32..99, 0u64..1 << 50).prop_map(|(link, cause, n_pages, bytes)| {
            let (link, cause) = (Link::ALL[link], Cause::ALL[cause]);
            EventKind::PageMove { link, layer: 3, group: 7, n_pages, bytes, cause }
        }),
        of(7).prop_map(|c| EventKind::Wait { cause: WaitCause::ALL[c] }),
        (of(8), any::<bool>()).prop_map(|(f, estimated)| {
            let layer = if f < 4 { 5 } else { NO_LAYER };
            EventKind::GpuPass { family: KernelFamily::ALL[f], layer, estimated }
        }),
        of(4).prop_map(|k| EventKind::Step { kind: StepKind::ALL[k], first_token: 1, n_tokens: 512 }),
        of(6).prop_map(|p| EventKind::Phase(Phase::ALL[p])),
        of(6).prop_map(|k| EventKind::Fault { kind: FaultKind::ALL[k] }),
        Just(EventKind::Encode),
        (0u32..99).prop_map(|layer| EventKind::Select { layer }),
        (0u32..99, any::<u32>(), any::<u32>()).prop_map(|(layer, io_us, compute_us)| {
            let (theta_permille, expected_io_us, expected_compute_us) = (layer * 10, compute_us / 2, io_us / 2);
            EventKind::Overlap { layer, theta_permille, expected_io_us, io_us, expected_compute_us, compute_us }
        }),
        Just(EventKind::Pages { resident: 1, fetched: 2, recomputed: 3, skipped: 4 }),
        (0u64..1 << 50).prop_map(|ram| EventKind::Tier { vram: 1, ram, disk: 2 }),
        (0u32..1_000_000).prop_map(|kept_ppm| EventKind::Mass { layer: 3, kept_ppm, best_ppm: 1_000_000 }),
        Just(EventKind::Recompute { layer: 1, n_tokens: 64 }),
    ]
}

fn traced(hub: &Hub, batches: &[Snapshot]) -> Value {
    let mut trace = ChromeTrace::new(Vec::new()).unwrap();
    batches.iter().for_each(|batch| trace.add(batch).unwrap());
    trace.add(&hub.snapshot()).unwrap();
    serde_json::from_slice(&trace.finish().unwrap()).unwrap()
}

fn of_phase<'a>(trace: &'a Value, ph: &'a str) -> impl Iterator<Item = &'a Value> {
    trace["traceEvents"].as_array().unwrap().iter().filter(move |e| e["ph"] == ph)
}

fn nanos(micros: &Value) -> u64 {
    (micros.as_f64().unwrap() * 1e3).round() as u64
}

type TrackId = (u64, u64);

fn track(event: &Value) -> TrackId {
    (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap())
}

fn names(trace: &Value) -> BTreeMap<TrackId, &str> {
    let named = of_phase(trace, "M").filter(|e| e["name"] == "thread_name");
    named.map(|e| (track(e), e["args"]["name"].as_str().unwrap())).collect()
}

proptest! {
    #[test]
    fn chrome_trace_of_any_events_has_flat_named_tracks_and_every_byte(
        events in vec((some_kind(), 0u64..50_000, 0u64..9_000, any::<bool>()), 0..120), cut in 0usize..120,
    ) {
        let hub = Hub::new(256);
        let lanes = [hub.lane("engine"), hub.lane("io \"quoted\"")];
        let mut batches = Vec::new();
        for (i, (kind, begin_ns, n, second)) in events.iter().enumerate() {
            if i == cut {
                batches.push(hub.snapshot());
            }
            lanes[usize::from(*second)].record(Event::span(*kind, *begin_ns, begin_ns + n));
        }
        let trace = traced(&hub, &batches);
        let names = names(&trace);
        let mut spans: BTreeMap<TrackId, Vec<(u64, u64)>> = BTreeMap::new();
        for event in of_phase(&trace, "X") {
            let begin = nanos(&event["ts"]);
            spans.entry(track(event)).or_default().push((begin, begin + nanos(&event["dur"])));
        }
        for (id, mut spans) in spans {
            prop_assert!(names.contains_key(&id));
            spans.sort_unstable();
            prop_assert!(spans.windows(2).all(|w| w[0].1 <= w[1].0), "{} overlaps: {spans:?}", names[&id]);
        }
        let n_written = ["X", "C", "i"].iter().map(|ph| of_phase(&trace, ph).count()).sum::<usize>();
        prop_assert_eq!(n_written, events.len());
        for link in Link::ALL {
            let on_link = |e: &&Value| e["pid"] == 3 && names[&track(e)].starts_with(link.name());
            let bytes: u64 = of_phase(&trace, "X").filter(on_link).map(|e| e["args"]["bytes"].as_u64().unwrap()).sum();
            prop_assert_eq!(bytes, hub.counters().link(link).bytes);
        }
    }
}

#[test]
fn chrome_trace_shows_what_moved_when_and_why() {
    let hub = Hub::new(16);
    let lane = hub.lane("io");
    let kind =
        EventKind::PageMove { link: Link::DiskToRam, layer: 4, group: 9, n_pages: 8, bytes: 1 << 20, cause: Cause::Restore };
    lane.record(Event::span(kind, 1_234_567, 1_999_999));
    lane.record(Event::span(kind, 1_500_000, 2_500_000));
    lane.record(Event::span(EventKind::Tier { vram: 10, ram: 20, disk: 30 }, 5, 5));
    let trace = traced(&hub, &[]);
    assert_eq!(names(&trace).into_values().collect::<Vec<_>>(), ["disk to ram", "disk to ram 2"]);
    let first = of_phase(&trace, "X").next().unwrap();
    assert_eq!((nanos(&first["ts"]), nanos(&first["dur"])), (1_234_567, 765_432));
    assert_eq!(first["name"], "restore");
    assert_eq!(
        first["args"],
        serde_json::json!({"link": "disk to ram", "layer": 4, "group": 9, "n_pages": 8, "bytes": 1 << 20, "cause": "restore"})
    );
    let sample = of_phase(&trace, "C").next().unwrap();
    assert_eq!(sample["args"], serde_json::json!({"vram": 10, "ram": 20, "disk": 30}));
}

#[test]
fn chrome_trace_has_the_number_of_lost_events() {
    let hub = Hub::new(4);
    let lane = hub.lane("engine");
    (0..10).for_each(|_| lane.instant(EventKind::Encode));
    let trace = traced(&hub, &[]);
    assert_eq!((of_phase(&trace, "X").count(), trace["otherData"]["n_dropped"].as_u64()), (4, Some(6)));
    assert!(of_phase(&traced(&Hub::new(4), &[]), "X").next().is_none(), "an empty trace is a trace");
}

#[test]
fn counters_line_is_json_with_null_latency_of_unused_links() {
    let hub = Hub::new(4);
    let kind = EventKind::PageMove { link: Link::RamToVram, layer: 0, group: 0, n_pages: 2, bytes: 77, cause: Cause::Prefetch };
    hub.lane("engine").record(Event::span(kind, 0, 1000));
    let mut out = Vec::new();
    jsonl::write_counters(&mut out, 5, &hub.counters()).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.matches('\n').count(), 1);
    let line: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((line["at_ns"].as_u64(), line["links"]["ram_to_vram"]["bytes"].as_u64()), (Some(5), Some(77)));
    assert!(line["links"]["disk_to_ram"]["latency_ns_p50"].is_null());
    assert_eq!(line["waits"]["ram_full"]["n_waits"], 0);
}
