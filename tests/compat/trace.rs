//! Trace fixture: every event name and argument key of 9b1e455, a trace that it wrote, and its line of counters.
//!
//! Event of a trace: `ph` is its form, `cat` is the lane and the kind, `name` and the keys of `args` belong to the kind.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{device, fixture, internals, path_text, recording, run, scratch};

const FILE: &str = "trace.json";
/// A kind of event: its word, its form, its names, the keys of its arguments.
type Kind = (&'static str, &'static str, &'static [&'static str], &'static [&'static str]);
const KERNELS: &[&str] = &["norm", "linear", "attention", "rope", "seal", "evaluation", "sample", "copy", "other"];
const CAUSES: &[&str] = &["attention", "prefetch", "restore", "write behind", "spill", "repair"];
const WAITS: &[&str] = &["gpu", "disk", "ram full", "upload slot", "link limit", "commit", "readback", "pages"];
const PHASES: &[&str] = &["ingest", "tokenize", "restore", "prefill", "first token", "decode"];
const FAULTS: &[&str] = &["read", "write", "no space", "checksum", "foreign", "device"];
const LINKS: [&str; 4] = ["disk to ram", "ram to vram", "vram to ram", "ram to disk"];
const OVERLAP: &[&str] = &["layer", "theta_permille", "expected_io_us", "io_us", "expected_compute_us", "compute_us"];
const KINDS: [Kind; 13] = [
    ("move", "X", CAUSES, &["link", "layer", "group", "n_pages", "bytes", "cause"]),
    ("wait", "X", WAITS, &[]),
    ("gpu", "X", KERNELS, &["layer", "estimated"]),
    ("encode", "X", &["encode"], &[]),
    ("choose", "X", &["choose"], &["layer"]),
    ("step", "X", &["prefill", "decode", "restore", "repair"], &["first_token", "n_tokens"]),
    ("pages", "C", &["pages of a step"], &["resident", "fetched", "recomputed", "skipped"]),
    ("tiers", "C", &["KV bytes by tier"], &["vram", "ram", "disk"]),
    ("recompute", "X", &["recompute"], &["layer", "n_tokens"]),
    ("hiding", "C", &["hiding of a layer"], OVERLAP),
    ("mass", "C", &["mass kept of a layer"], &["layer", "kept_ppm", "best_ppm"]),
    ("phase", "X", PHASES, &[]),
    ("fault", "i", FAULTS, &[]),
];
const META: [(&str, &str); 4] = [
    ("process_name", "name"),
    ("process_sort_index", "sort_index"),
    ("thread_name", "name"),
    ("thread_sort_index", "sort_index"),
];
const GROUPS: [&str; 5] = ["threads", "gpu", "links", "waits", "tiers"];

/// An event by what is stable of it: kind, form, name, keys of its arguments. A link stands behind a move's name.
type Known = (String, String, String, Vec<String>);

fn known(event: &Value) -> Known {
    let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
    let cat = text("cat");
    let kind = cat.rsplit_once(',').map_or("meta", |(_, kind)| kind).to_owned();
    let args = event["args"].as_object().into_iter().flat_map(Map::keys).cloned().collect();
    let link = event["args"]["link"].as_str().map(|link| format!(", {link}")).unwrap_or_default();
    (kind, text("ph"), text("name") + &link, args)
}

fn events(text: &str) -> Vec<Value> {
    let mut trace: Value = serde_json::from_str(text).unwrap();
    serde_json::from_value(trace["traceEvents"].take()).unwrap()
}

/// Every event that there can be, from the list above.
fn every_event() -> BTreeSet<Known> {
    let owned = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
    let mut all: BTreeSet<Known> =
        META.iter().map(|(name, key)| ("meta".into(), "M".into(), (*name).into(), owned(&[key]))).collect();
    for (kind, form, names, keys) in KINDS {
        for name in names {
            let links = if kind == "move" { LINKS.map(|link| format!("{name}, {link}")).to_vec() } else { owned(&[name]) };
            all.extend(links.into_iter().map(|name| (kind.to_owned(), form.to_owned(), name, owned(keys))));
            if kind == "gpu" {
                // A pass of no layer names none.
                all.insert((kind.to_owned(), form.to_owned(), (*name).to_owned(), owned(&["estimated"])));
            }
        }
    }
    all
}

/// A trace that holds each of them once.
fn trace_of_every_event() -> (usize, String) {
    let every = every_event();
    let said = every.iter().filter(|(kind, ..)| kind != "meta").enumerate().map(|(i, (kind, form, name, keys))| {
        let (name, link) = name.split_once(", ").map_or((name.as_str(), None), |(name, link)| (name, Some(link)));
        let value = |key: &str| match key {
            "link" => json!(link),
            "cause" => json!(name),
            "estimated" => json!(true),
            _ => json!(i + 1),
        };
        let args: Map<String, Value> = keys.iter().map(|key| (key.clone(), value(key))).collect();
        json!({ "ph": form, "name": name, "cat": format!("engine,{kind}"), "ts": i as f64, "dur": 0.5, "args": args })
    });
    let said: Vec<Value> = said.collect();
    (said.len(), json!({ "traceEvents": said, "otherData": { "n_dropped": 3, "run": { "strata": "0.1.0" } } }).to_string())
}

#[test]
fn every_trace_event_of_before_is_read_and_written_under_its_name() {
    let dir = scratch();
    let path = dir.path().join("every.json");
    let (n_events, text) = trace_of_every_event();
    std::fs::write(&path, &text).unwrap();
    let (n_foreign, n_read, again) = internals::trace_again(&path);
    assert_eq!((n_foreign, n_read), (0, n_events), "every event is known");
    let written: BTreeSet<Known> = events(&again).iter().map(known).collect();
    assert_eq!(written, every_event());
    let times = |text: &str| {
        let mut times: Vec<String> =
            events(text).iter().filter(|e| e["ph"] != "M").map(|e| format!("{} {}", e["ts"], e["args"])).collect();
        times.sort_unstable();
        times
    };
    let strip = |times: Vec<String>| times.into_iter().map(|t| t.replace(" null", " {}")).collect::<Vec<_>>();
    assert_eq!(strip(times(&again)), strip(times(&text)), "with its values");
    let other: Value = serde_json::from_str(&again).unwrap();
    assert_eq!((&other["otherData"]["n_dropped"], &other["displayTimeUnit"]), (&json!(3), &json!("ns")));
    let run = json!({ "strata": "0.1.0", "model": "", "adapter": "", "policy": "" });
    assert_eq!(other["otherData"]["run"], run);
    let is_group = |e: &&Value| e["name"] == "process_name";
    let groups: Vec<Value> = events(&again).iter().filter(is_group).map(|e| e["args"]["name"].clone()).collect();
    assert_eq!(groups, GROUPS);
}

#[test]
fn trace_of_before_is_read_whole() {
    let text = std::fs::read_to_string(fixture(FILE)).unwrap();
    let before = events(&text);
    let (n_foreign, n_read, again) = internals::trace_again(&fixture(FILE));
    let is_said = |e: &&Value| e["ph"] != "M";
    assert_eq!((n_foreign, n_read), (0, before.iter().filter(is_said).count()));
    let sorted = |events: Vec<Value>| {
        let mut said: Vec<String> = events
            .iter()
            .filter(is_said)
            .map(|e| format!("{} {} {} {} {} {}", e["cat"], e["name"], e["ph"], e["ts"], e["dur"], e["args"]))
            .collect();
        said.sort_unstable();
        said
    };
    assert_eq!(sorted(events(&again)), sorted(before), "written once more, it says the same");
    let run = |text: &str| serde_json::from_str::<Value>(text).unwrap()["otherData"]["run"].take();
    assert_eq!(run(&again), run(&text));
}

#[test]
fn trace_written_now_has_no_event_that_was_not_there_before() {
    if device("trace_written_now").is_none() {
        return;
    }
    let (dir, library) = (scratch(), crate::library::unpacked());
    let (path, note) = (dir.path().join(FILE), fixture("note.md"));
    let args = ["ask", "--doc", path_text(&note), "--prompt", "Who?", "--max-tokens", "3", "--temperature", "0", "--json"];
    let tiers = ["--kv-policy", "leoam", "--context", "1024", "--vram-budget", "600KiB", "--ram-budget", "500KiB"];
    let places = ["--kv-dir", path_text(library.path()), "--trace", path_text(&path)];
    run(args.iter().chain(&tiers).chain(&places)).lines();
    if recording().is_some() {
        std::fs::copy(&path, fixture(FILE)).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let now: BTreeSet<Known> = events(&text).iter().map(known).collect();
    let unknown: Vec<&Known> = now.iter().filter(|event| !every_event().contains(event)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let kinds: BTreeSet<&str> = now.iter().map(|(kind, ..)| kind.as_str()).collect();
    // "hiding" only if pages are transferred: not on a device that reads RAM in place.
    for kind in ["move", "wait", "gpu", "encode", "choose", "step", "pages", "tiers", "phase"] {
        assert!(kinds.contains(kind), "no event of kind {kind}");
    }
    let lanes: BTreeSet<&str> =
        text.match_indices("\"cat\":\"").filter_map(|(at, found)| text[at + found.len()..].split(',').next()).collect();
    assert_eq!(lanes, BTreeSet::from(["disk", "engine", "gpu", "transfer"]));
}

#[test]
fn counters_line_has_the_keys_of_before() {
    let line: Value = serde_json::from_str(&internals::counters_line()).unwrap();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let all = ["at_ns", "links", "waits", "pages", "recomputed_tokens", "gpu_ns", "n_faults", "n_events", "n_dropped"]
        .map(str::to_owned);
    assert_eq!(keys(&line), all);
    assert_eq!(keys(&line["links"]), LINKS.map(|link| link.replace(' ', "_")));
    assert_eq!(keys(&line["links"]["disk_to_ram"]), ["n_moves", "n_pages", "bytes", "latency_ns_p50", "latency_ns_p99"]);
    assert_eq!(keys(&line["waits"]), WAITS.iter().map(|wait| wait.replace(' ', "_")).collect::<Vec<_>>());
    assert_eq!(keys(&line["waits"]["gpu"]), ["n_waits", "ns"]);
    assert_eq!(keys(&line["pages"]), ["resident", "fetched", "recomputed", "skipped"]);
}
