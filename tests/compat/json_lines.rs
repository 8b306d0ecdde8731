//! JSON lines of every command: keys and value types, kept apart by event and phase.
//!
//! Shape: each path in a line, such as `kv_bytes.vram` or `quotes[].text`, with the types of its values. A value that can
//! be null, and a list that can be empty, agree with whatever else stood there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use crate::{Ran, device, fixture, path_text, recorded, run, scratch};

/// Types of the values at each path.
type Shape = BTreeMap<String, BTreeSet<String>>;
/// Shape of the lines of each event.
type Shapes = BTreeMap<String, Shape>;

fn walk(value: &Value, path: &str, shape: &mut Shape) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "float",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    };
    shape.entry(path.to_owned()).or_default().insert(kind.to_owned());
    match value {
        Value::Array(items) => items.iter().for_each(|item| walk(item, &format!("{path}[]"), shape)),
        Value::Object(fields) => fields.iter().for_each(|(key, value)| walk(value, &format!("{path}.{key}"), shape)),
        _ => {}
    }
}

/// Adds lines to the shapes of a command, each under its event and phase.
fn add(shapes: &mut Shapes, command: &str, lines: &[Value]) {
    for line in lines {
        let word = |field: &str| line.get(field).and_then(Value::as_str).map(|word| format!(" {word}")).unwrap_or_default();
        let event = format!("{command}:{}{}", word("event"), word("phase"));
        walk(line, "", shapes.entry(event).or_default());
    }
}

/// Parent of a path: the path without its last key or brackets.
fn parent(path: &str) -> &str {
    path.strip_suffix("[]").unwrap_or_else(|| path.rsplit_once('.').map_or("", |(parent, _)| parent))
}

/// The value at `path` may be absent: something above it was null, or a list without items.
fn may_lack(shape: &Shape, path: &str) -> bool {
    let mut above = path;
    while !above.is_empty() {
        let (below, holder) = (above, parent(above));
        if let Some(kinds) = shape.get(holder) {
            return kinds.contains("null") || (below.ends_with("[]") && kinds.contains("list"));
        }
        above = holder;
    }
    false
}

fn differences(event: &str, before: &Shape, now: &Shape) -> Vec<String> {
    let without_null = |kinds: &BTreeSet<String>| kinds.iter().filter(|kind| *kind != "null").cloned().collect::<BTreeSet<_>>();
    let paths: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let of_path = |path: &String| match (before.get(path), now.get(path)) {
        (Some(was), Some(is)) => {
            let (was, is) = (without_null(was), without_null(is));
            (was != is && !was.is_empty() && !is.is_empty()).then(|| format!("{event} {path}: was {was:?}, is {is:?}"))
        }
        (Some(_), None) => (!may_lack(now, path)).then(|| format!("{event} {path}: is gone")),
        (None, _) => (!may_lack(before, path)).then(|| format!("{event} {path}: is new")),
    };
    paths.into_iter().filter_map(of_path).collect()
}

/// Compares what commands print with a fixture, or records it.
#[track_caller]
fn compare(file: &str, now: &Shapes) {
    let before: Shapes = serde_json::from_value(recorded(file, &json!(now))).unwrap();
    let events: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let nothing = Shape::new();
    let of = |shapes: &'_ Shapes, event: &String| shapes.get(event).unwrap_or(&nothing).clone();
    let found: Vec<String> =
        events.into_iter().flat_map(|event| differences(event, &of(&before, event), &of(now, event))).collect();
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

/// A run with these arguments and then those of the second list.
fn ran(args: &[&str], more: &[&str]) -> Ran {
    run(args.iter().chain(more))
}

/// Shapes of the JSON files in a folder of results, by the first word of their names.
fn add_files(shapes: &mut Shapes, command: &str, folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if name.ends_with(".json") {
            let file = serde_json::from_slice(&std::fs::read(entry.path()).unwrap()).unwrap();
            add(shapes, &format!("{command} file {name}"), &[file]);
        }
    }
}

#[test]
fn json_of_commands_without_a_device_has_the_keys_of_before() {
    let library = crate::library::unpacked();
    let folder = ["--json", "--kv-dir", path_text(library.path())];
    let mut now = Shapes::new();
    add(&mut now, "tokenize", &run(["tokenize", "--text", path_text(&fixture("note.md"))]).lines());
    add(&mut now, "library list", &ran(&["library", "list"], &folder).lines());
    add(&mut now, "library verify", &ran(&["library", "verify"], &folder).lines());
    compare("json_offline.json", &now);
}

#[test]
fn json_of_questions_has_the_keys_of_before() {
    if device("json_of_questions").is_none() {
        return;
    }
    let (library, note) = (crate::library::unpacked(), fixture("note.md"));
    let (kv, note) = (path_text(library.path()), path_text(&note));
    let question = "What does the document say about the harbour office?";
    let ask = ["ask", "--doc", note, "--prompt", question, "--temperature", "0", "--max-tokens", "12", "--json", "--kv-dir"];
    let tiers = [kv, "--kv-policy", "leoam", "--context", "1024", "--vram-budget", "600KiB", "--ram-budget", "500KiB"];
    let mut now = Shapes::new();
    add(&mut now, "ask", &ran(&ask, &[kv, "--prompt", "List every mention of the harbour."]).lines());
    add(&mut now, "ask leoam", &ran(&ask, &tiers).lines());
    add(&mut now, "ask at once", &ran(&ask, &[kv, "--prompt", "Who are you?", "--at-once"]).lines());
    let empty = scratch();
    add(&mut now, "library add", &ran(&["library", "add", note, "--json", "--kv-dir"], &[path_text(empty.path())]).lines());
    compare("json_questions.json", &now);
}

#[test]
fn json_of_measurements_has_the_keys_of_before() {
    if device("json_of_measurements").is_none() {
        return;
    }
    let (out, text) = (scratch(), fixture("document.md"));
    let (out, text) = (out.path(), path_text(&text));
    let (npy, kld, needle) = (out.join("x.npy"), out.join("kld"), out.join("needle"));
    let policy = ["--kv-policy", "leoam", "--json"];
    let mut now = Shapes::new();
    let args = ["eval", "kld", "--text", text, "--prefix", "200", "--tokens", "3", "--out", path_text(&kld)];
    add(&mut now, "eval kld", &ran(&args, &policy).lines());
    let args =
        ["eval", "needle", "--lengths", "700", "--depths", "0,50", "--questions", "1", "--max-tokens", "4", "--two-questions"];
    add(&mut now, "eval needle", &ran(&args, &[&policy[..], &["--out", path_text(&needle)]].concat()).lines());
    add_files(&mut now, "eval kld", &kld);
    add_files(&mut now, "eval needle", &needle);
    let bench = ["bench", "-p", "16", "-n", "2", "-r", "1", "-o"];
    add(&mut now, "bench jsonl", &ran(&bench, &["jsonl"]).lines());
    let filled =
        ["json", "-p", "0", "-d", "300", "--fill", "--kv-policy", "leoam!", "--importance", "64", "--vram-budget", "8MiB"];
    let bench_json: Value = serde_json::from_str(&ran(&["bench", "-n", "2", "-r", "1", "-o"], &filled).out).unwrap();
    add(&mut now, "bench json", &[bench_json]);
    let csv = ran(&bench, &["csv"]).out;
    let columns: Value = csv.lines().next().unwrap().split(',').map(|column| (column.to_owned(), json!(0))).collect();
    add(&mut now, "bench csv", &[columns]);
    add(&mut now, "logits", &run(["logits", "--tokens", "1,2", "--json", "--out", path_text(&npy)]).lines());
    let library = out.join("library");
    add(&mut now, "doctor", &run(["doctor", "--json", "--kv-dir", path_text(&library)]).lines());
    compare("json_measurements.json", &now);
}

#[test]
fn keys_that_go_or_change_their_type_are_told() {
    let shape = |value: Value| {
        let mut shape = Shape::new();
        walk(&value, "", &mut shape);
        shape
    };
    let before = shape(json!({ "a": { "b": 1 }, "list": [{ "x": "t" }], "maybe": null }));
    let told = |now: Value| differences("e", &before, &shape(now)).len();
    assert_eq!(told(json!({ "a": { "b": 2 }, "list": [], "maybe": 0.5 })), 0, "null and empty lists say nothing");
    assert_eq!(told(json!({ "a": { "b": 2 }, "list": null, "maybe": { "deep": [1] } })), 0);
    assert_eq!(told(json!({ "a": { "b": 2.5 }, "list": [{ "x": "t" }], "maybe": null })), 1, "another type");
    assert_eq!(told(json!({ "a": {}, "list": [{ "x": "t" }], "maybe": null })), 1, "a key less");
    assert_eq!(told(json!({ "a": { "b": 1, "c": 1 }, "list": [{ "y": "t" }], "maybe": null })), 3, "keys more and less");
}
