//! Trace file of the binary: valid for viewers, without text of the document, and restored exactly by the reader.

use std::collections::HashSet;
use std::fs::File;
use std::io::BufReader;

use serde_json::Value;
use strata::telemetry::chrome_trace::{self, ChromeTrace};
use strata::telemetry::{ENGINE_LANE, EventKind, History, Phase, StepKind, Track};

use crate::saved::{Answer, QUESTION, Scenario, TINY};

/// Requirements of "Trace Event Format" on an event of each phase.
fn assert_of_the_form(trace: &Value) {
    let is_number = |event: &Value, field: &str| event[field].as_f64().is_some_and(|x| x >= 0.0);
    let mut named = HashSet::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        let track = (event["pid"].as_u64().unwrap(), event["tid"].as_u64());
        assert!(event["name"].is_string() && event["args"].is_object() != (event["ph"] == "i"), "{event}");
        match event["ph"].as_str().unwrap() {
            "M" => _ = named.insert(track),
            "X" => assert!(is_number(event, "ts") && is_number(event, "dur") && named.contains(&track), "{event}"),
            "i" => assert!(is_number(event, "ts") && event["s"] == "t" && named.contains(&track), "{event}"),
            "C" => {
                let values = event["args"].as_object().unwrap();
                assert!(is_number(event, "ts") && values.values().all(Value::is_number) && !values.is_empty(), "{event}");
            }
            other => panic!("unexpected phase {other}: {event}"),
        }
    }
}

#[test]
fn trace_of_an_offloaded_answer_is_valid_and_restored_exactly() {
    let Some(scenario) = Scenario::new("trace_of_an_offloaded_answer_is_valid_and_restored_exactly") else { return };
    let (document, path) = (scenario.document(0..2), scenario.path("trace.json"));
    let args = [&TINY[..], &["--trace", path.to_str().unwrap()]].concat();
    let answer = Answer::from(crate::Ran::from(scenario.ask(&scenario.path("kv"), &document, &args).output().unwrap()));
    let text = std::fs::read_to_string(&path).unwrap();
    assert_of_the_form(&serde_json::from_str(&text).unwrap());
    let document = std::fs::read_to_string(document).unwrap();
    for words in [QUESTION, answer.text.trim(), &document[100..120]] {
        assert!(!text.contains(words), "'{words}' is in the trace");
    }
    let recording = chrome_trace::read(BufReader::new(File::open(&path).unwrap())).unwrap();
    assert_eq!((recording.n_foreign, recording.snapshot.counters.n_dropped), (0, 0));
    assert!(recording.run.model.contains("Quote") && !recording.run.adapter.is_empty(), "{:?}", recording.run);
    let mut history = History::default();
    history.add(&recording.snapshot);
    let of = |track| history.of(track).flat_map(|s| s.iter()).map(|e| e.kind).collect::<Vec<_>>();
    let steps = of(Track::Step);
    let decoded = steps.iter().filter(|k| matches!(k, EventKind::Step { kind: StepKind::Decode, .. })).count() as u64;
    let generated = answer.summary["generated_tokens"].as_u64().unwrap();
    assert!((generated..=generated + 1).contains(&decoded), "{decoded} steps, {generated} tokens");
    assert_eq!(of(Track::Pages).len(), steps.len(), "each step has its page counts");
    assert!(of(Track::Phase).contains(&EventKind::Phase(Phase::Decode)));
    let lanes: HashSet<&str> = history.series().iter().map(|series| &*series.lane).collect();
    assert!([ENGINE_LANE, "gpu", "transfer", "disk"].iter().all(|lane| lanes.contains(lane)), "{lanes:?}");
    // Writing it again gives the same trace.
    let mut again = ChromeTrace::new(Vec::new()).unwrap();
    again.describe(recording.run.clone());
    again.add(&recording.snapshot).unwrap();
    let again = chrome_trace::read(&again.finish().unwrap()[..]).unwrap();
    assert_eq!(again.run, recording.run);
    assert_eq!(again.snapshot.counters, recording.snapshot.counters);
    for lane in &recording.snapshot.lanes {
        let same = again.snapshot.lanes.iter().find(|l| l.name == lane.name).unwrap();
        assert_eq!(same.events, lane.events, "{}", lane.name);
    }
}
