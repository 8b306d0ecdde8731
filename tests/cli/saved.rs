//! Saved documents through the real binary: shared by processes, deleted, corrupted, evicted, counted.
//!
//! Every answer is compared with one computed in VRAM alone.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use tempfile::TempDir;

use crate::{Ran, strata};

pub const QUESTION: &str = "What does the document say about the harbour?";
/// So little memory that every page is read from disk for every token.
pub const TINY: [&str; 4] = ["--vram-budget", "600KiB", "--ram-budget", "400KiB"];
/// VRAM holds no page, RAM all of them.
pub const IN_RAM: [&str; 4] = ["--vram-budget", "600KiB", "--ram-budget", "8MiB"];
/// Bytes of a page of the built-in model in f16, and its number of layers.
pub const PAGE_BYTES: u64 = 32 << 10;
pub const N_LAYER: u64 = 6;

/// A folder with a document and any number of libraries.
pub struct Scenario {
    dir: TempDir,
}

/// Output of a successful run.
pub struct Answer {
    pub text: String,
    pub cached_tokens: u64,
    pub notices: Vec<String>,
    pub summary: Value,
    pub lines: Vec<Value>,
}

impl Scenario {
    /// None, with a message, if there is no GPU.
    pub fn new(test: &str) -> Option<Scenario> {
        drop(crate::common::gpu(test, strata::gpu::FeatureOverrides::default())?);
        Some(Scenario { dir: tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A document of these parts of the test data, each of about 360 tokens.
    pub fn document(&self, parts: Range<usize>) -> PathBuf {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/quote/document.txt");
        let text = std::fs::read_to_string(file).unwrap();
        let path = self.path(&format!("part-{}.txt", parts.start));
        std::fs::write(&path, &text[1000 * parts.start..1000 * parts.end]).unwrap();
        path
    }

    /// `strata ask` on a document, with a library.
    pub fn ask(&self, kv_dir: &Path, document: &Path, args: &[&str]) -> Command {
        let mut command = strata();
        command.args(["ask", "--json", "--temperature", "0", "--max-tokens", "8", "--prompt", QUESTION]);
        command.arg("--doc").arg(document).arg("--kv-dir").arg(kv_dir).args(args);
        command
    }

    /// The answer with all pages in VRAM.
    pub fn dense(&self, document: &Path) -> String {
        static KNOWN: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
        let text = std::fs::read_to_string(document).unwrap();
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = known.entry(text).or_insert_with(|| {
            let answer = answered(&mut self.ask(&self.path("dense"), document, &["--no-save"]));
            assert_eq!((answer.summary["attention"].as_str(), answer.cached_tokens), (Some("dense"), 0));
            assert!(answer.text.len() > 8, "too short for a comparison: {}", answer.text);
            answer.text
        });
        answer.clone()
    }
}

impl From<Ran> for Answer {
    #[track_caller]
    fn from(ran: Ran) -> Answer {
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{}", ran.out);
        let lines: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |event: &str, field: &str| -> Vec<String> {
            lines.iter().filter(|l| l["event"] == event).map(|l| l[field].as_str().unwrap().to_owned()).collect()
        };
        let summary = lines.last().unwrap().clone();
        let text = of("token", "text").concat();
        assert_eq!(summary["text"], text.as_str());
        let cached_tokens = summary["cached_tokens"].as_u64().unwrap();
        Answer { text, cached_tokens, notices: of("notice", "text"), summary, lines }
    }
}

impl Answer {
    pub fn number(&self, group: &str, field: &str) -> u64 {
        self.summary[group][field].as_u64().unwrap()
    }

    #[track_caller]
    pub fn assert_told(&self, part: &str) {
        assert!(self.notices.iter().any(|n| n.contains(part)), "no notice with '{part}': {:?}", self.notices);
    }
}

/// Runs a command that must answer.
#[track_caller]
pub fn answered(command: &mut Command) -> Answer {
    Ran::from(command.output().unwrap()).into()
}

/// A run that can be suspended at a known moment.
struct Held {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    out: String,
}

impl Held {
    /// Starts the command and suspends it once it has printed a line with `line`.
    fn at(command: &mut Command, line: &str) -> Held {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut held = Held { child, lines, out: String::new() };
        while !held.out.lines().last().is_some_and(|l| l.contains(line)) {
            assert!(held.lines.read_line(&mut held.out).unwrap() > 0, "no line with {line}: {}", held.out);
        }
        held.signal("-STOP");
        held
    }

    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap().success());
    }

    /// Resumes it and waits for its end.
    fn go_on(mut self) -> Ran {
        self.signal("-CONT");
        let (mut out, mut err) = (std::mem::take(&mut self.out), String::new());
        self.lines.read_to_string(&mut out).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        Ran { code: self.child.wait().unwrap().code(), out, err }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A failed test must not leave a suspended process behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Folder of the only store in a library.
pub fn only_store(kv_dir: &Path) -> PathBuf {
    let entries = std::fs::read_dir(kv_dir).unwrap().map(|e| e.unwrap().path());
    let stores: Vec<PathBuf> = entries.filter(|p| p.join("header").exists()).collect();
    assert_eq!(stores.len(), 1, "{stores:?}");
    stores[0].clone()
}

/// Names of the documents in a library, with their state.
fn listed(kv_dir: &Path) -> HashMap<String, String> {
    let ran = crate::run(["library", "list", "--json", "--kv-dir", kv_dir.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let lines = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |line: &Value, field: &str| line[field].as_str().unwrap().to_owned();
    lines.map(|line| (text(&line, "name"), text(&line, "state"))).collect()
}

#[test]
fn document_prefilled_by_one_process_is_not_prefilled_again_by_the_next() {
    let Some(scenario) = Scenario::new("document_prefilled_by_one_process") else { return };
    let (a, b) = (scenario.document(0..1), scenario.document(1..2));
    let kv = scenario.path("kv");
    let runs: Vec<Answer> = [&a, &b, &a, &b].map(|doc| answered(&mut scenario.ask(&kv, doc, &TINY))).into();
    for (i, (doc, run)) in [&a, &b, &a, &b].into_iter().zip(&runs).enumerate() {
        assert_eq!(run.text, scenario.dense(doc), "run {i}");
        let whole = run.summary["prompt_tokens"].as_u64().unwrap() / 64 * 64;
        // The question's last tokens share their page group with the document's.
        let expected = if i < 2 { 0..=0 } else { whole - 64..=whole };
        assert!(expected.contains(&run.cached_tokens), "run {i}: {} cached of {whole}", run.cached_tokens);
    }
    assert_eq!(listed(&kv).len(), 2);
}

#[test]
fn two_processes_on_one_document_both_answer_correctly() {
    let Some(scenario) = Scenario::new("two_processes") else { return };
    let (doc, kv) = (scenario.document(0..1), scenario.path("kv"));
    let first = Held::at(&mut scenario.ask(&kv, &doc, &TINY), "prefill");
    let second = answered(&mut scenario.ask(&kv, &doc, &TINY));
    second.assert_told("in use by another Strata");
    assert_eq!(second.cached_tokens, 0);
    let first = Answer::from(first.go_on());
    let fresh = scenario.dense(&doc);
    assert_eq!((first.text, second.text), (fresh.clone(), fresh.clone()));
    // Further tokens of the second run are gone, and those saved by the first are complete.
    let third = answered(&mut scenario.ask(&kv, &doc, &TINY));
    assert_eq!((third.text, third.notices), (fresh, Vec::<String>::new()));
    assert!(third.cached_tokens > 0);
    let scratch = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("scratch-");
    assert!(!std::fs::read_dir(&kv).unwrap().any(|e| scratch(&e.unwrap().file_name())));
}

#[test]
fn library_deleted_during_an_answer_is_reported_and_the_answer_is_right() {
    let Some(scenario) = Scenario::new("library_deleted") else { return };
    let (doc, kv) = (scenario.document(0..1), scenario.path("kv"));
    let fresh = scenario.dense(&doc);
    for moment in ["load", "prefill", "\"token\""] {
        let run = Held::at(&mut scenario.ask(&kv, &doc, &IN_RAM), moment);
        let was_there = kv.exists();
        if was_there {
            std::fs::remove_dir_all(&kv).unwrap();
        }
        let run = Answer::from(run.go_on());
        assert_eq!(run.text, fresh, "{moment}");
        if moment != "load" {
            assert!(was_there);
            run.assert_told(" is gone");
            assert!(!run.notices.iter().any(|n| n.contains("is saved in")), "{:?}", run.notices);
        }
        let again = answered(&mut scenario.ask(&kv, &doc, &IN_RAM));
        assert_eq!(again.text, fresh, "after {moment}");
        std::fs::remove_dir_all(&kv).unwrap();
    }
    // If RAM cannot take what no longer fits on disk: an error, after the notice about its cause.
    let run = Held::at(&mut scenario.ask(&kv, &doc, &TINY), "prefill");
    std::fs::remove_dir_all(&kv).unwrap();
    let ran = run.go_on();
    if ran.code == Some(0) {
        assert_eq!(Answer::from(ran).text, fresh);
    } else {
        assert!(ran.err.starts_with("strata: ") && ran.err.lines().count() == 1 && !ran.err.contains("panic"), "{}", ran.err);
        assert!(ran.out.contains(" is gone"), "{}", ran.out);
    }
}

#[test]
fn least_recently_used_document_is_evicted_when_the_disk_budget_is_full() {
    let Some(scenario) = Scenario::new("least_recently_used_document") else { return };
    let docs: Vec<PathBuf> = (0..3).map(|i| scenario.document(i..i + 1)).collect();
    let kv = scenario.path("kv");
    // A store has 1.5 MiB.
    let ask = |i: usize| {
        let run = answered(&mut scenario.ask(&kv, &docs[i], &[&TINY[..], &["--disk-budget", "3500KiB"]].concat()));
        assert_eq!(run.text, scenario.dense(&docs[i]), "document {i}");
        assert!(run.number("kv_peak_bytes", "disk") <= 3500 << 10);
        run
    };
    for (i, cached, evicted) in [(0, false, None), (1, false, None), (0, true, None), (2, false, Some(1)), (0, true, None)] {
        let run = ask(i);
        assert_eq!(run.cached_tokens > 0, cached, "document {i}");
        let left: Vec<&String> = run.notices.iter().filter(|n| n.contains("left the library")).collect();
        assert_eq!(left.len(), usize::from(evicted.is_some()), "{left:?}");
        if let Some(evicted) = evicted {
            assert!(left[0].starts_with(&format!("part-{evicted}.txt left the library")), "{left:?}");
        }
    }
    let mut names: Vec<String> = listed(&kv).into_keys().collect();
    names.sort_unstable();
    assert_eq!(names, ["part-0.txt", "part-2.txt"]);
}

#[test]
fn document_in_use_is_never_evicted() {
    let Some(scenario) = Scenario::new("document_in_use") else { return };
    let (a, b, kv) = (scenario.document(0..1), scenario.document(1..2), scenario.path("kv"));
    let first = Held::at(&mut scenario.ask(&kv, &a, &TINY), "\"token\"");
    let store = only_store(&kv);
    let second = answered(&mut scenario.ask(&kv, &b, &[&IN_RAM[..], &["--disk-budget", "2MiB"]].concat()));
    assert_eq!(second.text, scenario.dense(&b));
    assert!(!second.notices.iter().any(|n| n.contains("left the library")), "{:?}", second.notices);
    second.assert_told("the disk budget of");
    assert!(store.join("kv-0000.arena").exists());
    assert_eq!(Answer::from(first.go_on()).text, scenario.dense(&a));
    let again = answered(&mut scenario.ask(&kv, &a, &TINY));
    assert!(again.text == scenario.dense(&a) && again.cached_tokens > 0, "{:?}", again.notices);
}

#[test]
fn every_io_backend_gives_the_same_answer_and_is_reported() {
    let Some(scenario) = Scenario::new("every_io_backend") else { return };
    let (doc, kv) = (scenario.document(0..1), scenario.path("kv"));
    let fresh = scenario.dense(&doc);
    let doctor: Value = serde_json::from_str(&crate::run(["doctor", "--json"]).out).unwrap();
    let here = doctor["disk"]["io_backend"].as_str().unwrap().to_owned();
    for (prelude, backend) in [("export STRATA_IO=threads", "threads"), ("true", &here), ("ulimit -l 0", &here)] {
        let run = answered(&mut after(prelude, &scenario.ask(&kv, &doc, &TINY)));
        assert_eq!(run.text, fresh, "{prelude}");
        assert_eq!(run.summary["io"]["backend"], backend, "{prelude}");
        assert!(run.number("io", "read_bytes") > 0 && run.summary["io"]["read_ms"].as_f64().unwrap() > 0.0, "{prelude}");
    }
}

/// The same command in a shell that runs something else first.
fn after(prelude: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let script = format!("{prelude} && exec \"$0\" \"$@\"");
    shell.stdin(Stdio::null()).args(["-c", &script]).arg(command.get_program()).args(command.get_args());
    shell
}

/// Bytes and pages of each link in a trace.
fn links_of(trace: &Path) -> HashMap<String, (u64, u64)> {
    let trace: Value = serde_json::from_slice(&std::fs::read(trace).unwrap()).unwrap();
    assert_eq!(trace["otherData"]["n_dropped"], 0);
    let events = trace["traceEvents"].as_array().unwrap();
    let is_name = |e: &&Value| e["ph"] == "M" && e["name"] == "thread_name";
    let names: HashMap<u64, &str> =
        events.iter().filter(is_name).map(|e| (e["tid"].as_u64().unwrap(), e["args"]["name"].as_str().unwrap())).collect();
    let mut links = HashMap::new();
    for moved in events.iter().filter(|e| e["ph"] == "X" && e["args"]["n_pages"].is_u64()) {
        // Concurrent spans of a link are on further tracks of it.
        let name = names[&moved["tid"].as_u64().unwrap()].trim_end_matches(|c: char| c == ' ' || c.is_ascii_digit());
        let link: &mut (u64, u64) = links.entry(name.replace(' ', "_")).or_default();
        link.0 += moved["args"]["bytes"].as_u64().unwrap();
        link.1 += moved["args"]["n_pages"].as_u64().unwrap();
    }
    links
}

/// Pages that attention read: all complete groups before each pass, in every layer.
fn n_read_pages(run: &Answer) -> u64 {
    let number = |field: &str| run.summary[field].as_u64().unwrap();
    let ends: Vec<u64> = run.lines.iter().filter(|l| l["phase"] == "prefill").map(|l| l["done"].as_u64().unwrap()).collect();
    let chunks = std::iter::once(run.cached_tokens).chain(ends[..ends.len() - 1].iter().copied());
    let tokens = (0..number("generated_tokens") - 1).map(|i| number("prompt_tokens") + i);
    chunks.chain(tokens).map(|first| first / 64 * N_LAYER).sum()
}

#[test]
fn summary_adds_up_and_matches_the_trace() {
    let Some(scenario) = Scenario::new("summary_adds_up") else { return };
    let (doc, kv, trace) = (scenario.document(0..2), scenario.path("kv"), scenario.path("trace.json"));
    let some_in_vram = ["--vram-budget", "1600KiB", "--ram-budget", "1MiB"];
    let cases: [(&str, [&str; 4], &[&str], u64); 6] = [
        ("fresh", TINY, &[], PAGE_BYTES),
        ("again", TINY, &[], PAGE_BYTES),
        ("some in VRAM", some_in_vram, &[], PAGE_BYTES),
        ("for this context only", some_in_vram, &["--no-save"], PAGE_BYTES),
        ("one after the other", TINY, &["--pipeline", "off"], PAGE_BYTES),
        ("smaller pages", TINY, &["--kv-dtype", "q8"], PAGE_BYTES / 2 + 1536),
    ];
    for (what, budgets, more, page_bytes) in cases {
        // The document without a store is not in the library.
        let kv_dir = if more == ["--no-save"] { scenario.path("empty") } else { kv.clone() };
        let args = [&budgets[..], more, &["--trace", trace.to_str().unwrap()]].concat();
        let run = answered(&mut scenario.ask(&kv_dir, &doc, &args));
        let [moved, pages] = ["moved_bytes", "pages"].map(|group| |field: &str| run.number(group, field));
        assert_eq!(moved("ram_to_vram"), pages("fetched") * page_bytes, "{what}");
        assert_eq!(pages("resident") + pages("fetched"), n_read_pages(&run), "{what}");
        assert_eq!((pages("recomputed"), pages("skipped")), (0, 0), "{what}");
        assert!(pages("resident") > 0 || budgets == TINY, "{what}");
        assert_eq!(run.number("io", "read_bytes"), moved("disk_to_ram"), "{what}");
        assert!(moved("disk_to_ram") > 0 && run.summary["io"]["read_ms"].as_f64().unwrap() > 0.0, "{what}");
        let links = links_of(&trace);
        let of = |link: &str| links.get(link).copied().unwrap_or_default();
        for link in ["ram_to_vram", "vram_to_ram", "ram_to_disk"] {
            assert_eq!(of(link).0, moved(link), "{what}: {link}");
        }
        // Read-ahead still in flight when the answer was complete is in the trace only.
        let ahead = of("disk_to_ram").0.checked_sub(moved("disk_to_ram")).unwrap();
        for (tier, budget) in [("vram", budgets[1]), ("ram", budgets[3])] {
            let budget = budget.parse::<strata::base::Bytes>().unwrap().0;
            let (now, peak) = (run.number("kv_bytes", tier), run.number("kv_peak_bytes", tier));
            assert!(0 < now && now <= peak && peak <= budget, "{what}: {now}, at most {peak}, of {budget} in {tier}");
            assert!(tier == "vram" || ahead <= budget, "{what}: {ahead} bytes read after the end");
        }
        if more.contains(&"--no-save") || more.contains(&"--kv-dtype") {
            continue;
        }
        let files = std::fs::read_dir(only_store(&kv)).unwrap().map(|f| f.unwrap()).filter(|f| f.file_name() != "lock");
        let files: u64 = files.map(|f| f.metadata().unwrap().len()).sum();
        assert_eq!(run.number("kv_bytes", "disk"), files, "{what}");
        assert!(files <= run.number("kv_peak_bytes", "disk"), "{what}");
        // Each complete page was offloaded once, unless it was saved before.
        let n_new = run.summary["context_used"].as_u64().unwrap() / 64 - run.cached_tokens / 64;
        assert_eq!(
            (moved("vram_to_ram"), moved("ram_to_disk")),
            (n_new * N_LAYER * PAGE_BYTES, n_new * N_LAYER * PAGE_BYTES),
            "{what}"
        );
    }
}
