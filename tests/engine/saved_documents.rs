//! Saved documents: saved, resumed, interrupted, shared, corrupted.

use std::path::Path;
use std::sync::Arc;

use strata::base::{Bytes, Tiers};
use strata::engine::{
    DocumentRef, EngineCommand, EngineEvent, EngineHandle, FolderHook, LoadOptions, Message, ModelSource, PolicySpec,
    RequestSummary, Role, Sampling, SavedState, SelectionBudget,
};
use strata::kv::store::{Fault, FaultInjectingFolder, FaultOp, Folder, Rule};

use crate::{document, engine_hooked, finish, half_document, saved_as};

struct Answer {
    text: String,
    summary: Box<RequestSummary>,
    notices: Vec<String>,
}

fn reference(text: &str) -> DocumentRef {
    saved_as("document.txt", text, 7)
}

fn generate(handle: &EngineHandle, text: &str, question: &str) -> Answer {
    try_generate(handle, text, question).unwrap()
}

fn try_generate(handle: &EngineHandle, text: &str, question: &str) -> Result<Answer, String> {
    generate_with(handle, text, question, vec![reference(text)], 40)
}

fn generate_with(
    handle: &EngineHandle,
    text: &str,
    question: &str,
    documents: Vec<DocumentRef>,
    max_tokens: usize,
) -> Result<Answer, String> {
    let messages = vec![Message { role: Role::User, content: format!("{text}\n\n{question}") }];
    let (sampling, policy) = (Sampling::default(), Default::default());
    handle.send(EngineCommand::Generate { request: 7, messages, documents, sampling, max_tokens, policy });
    let (events, end) = finish(handle);
    let mut answer = Answer { text: String::new(), summary: end?, notices: Vec::new() };
    for event in events {
        match event {
            EngineEvent::Token { text, .. } => answer.text.push_str(&text),
            EngineEvent::Notice(text) => answer.notices.push(text),
            _ => {}
        }
    }
    Ok(answer)
}

const QUESTION: &str = "What does the document say about the harbour?";

fn engine(test: &str, dir: &Path, budgets: [Option<u64>; 3], hook: Option<FolderHook>) -> Option<EngineHandle> {
    let [vram, ram, disk] = budgets.map(|b| b.map(Bytes));
    let options = LoadOptions {
        budgets: Tiers { vram, ram, disk },
        kv_dir: Some(dir.to_owned()),
        context: Some(16_384),
        ..LoadOptions::default()
    };
    Some(engine_hooked(test, ModelSource::BuiltIn, options, hook)?.0)
}

fn library(handle: &EngineHandle, dir: &Path) -> Vec<strata::engine::SavedDocument> {
    let kv_dir = Some(dir.to_owned());
    handle.send(EngineCommand::Library(strata::engine::LibraryAction::List { kv_dir }));
    loop {
        if let EngineEvent::Library(saved) = handle.wait(std::time::Duration::from_secs(60)).unwrap() {
            return saved;
        }
    }
}

#[test]
fn saved_document_needs_no_prefill_after_a_restart() {
    let test = "saved_document_needs_no_prefill_after_a_restart";
    let dir = tempfile::tempdir().unwrap();
    let text = half_document();
    let Some(first) = engine(test, dir.path(), [None; 3], None) else { return };
    let fresh = generate(&first, &text, QUESTION);
    assert_eq!(fresh.summary.cached_tokens, 0);
    assert!(fresh.notices.iter().any(|n| n.contains("its text can be recovered")), "{:?}", fresh.notices);
    // Another question continues from the same pages, without another notice.
    let second = generate(&first, &text, "Who wrote it?");
    assert!(second.summary.cached_tokens > 3000 && second.notices.is_empty(), "{:?}", second.notices);
    drop(first);

    // Small budgets: the pages are read from disk, and do not all fit in VRAM and RAM.
    for budgets in [[None; 3], [Some(3 << 20), Some(2 << 20), None]] {
        let again = engine(test, dir.path(), budgets, None).unwrap();
        let resumed = generate(&again, &text, QUESTION);
        assert_eq!(resumed.text, fresh.text, "{budgets:?}");
        assert!(resumed.summary.cached_tokens > 3000, "{}", resumed.summary.cached_tokens);
        assert!(resumed.summary.moved_bytes.disk_to_ram > 8 << 20, "{:?}", resumed.summary.moved_bytes);
        let (peak, caps) = (resumed.summary.kv_peak_bytes, budgets.map(|b| b.unwrap_or(u64::MAX)));
        assert!(peak.vram <= caps[0] && peak.ram <= caps[1], "{peak:?} of {caps:?}");
        let saved = library(&again, dir.path());
        assert_eq!(saved.len(), 1);
        assert_eq!((saved[0].state, saved[0].name.as_str(), saved[0].pages), (SavedState::Read, "document.txt", 7));
        assert!(saved[0].prefill_seconds > 0.0 && saved[0].kv_bytes > 8 << 20);
    }
}

#[test]
fn saved_document_of_another_rope_base_is_prefilled_again() {
    let test = "saved_document_of_another_rope_base_is_prefilled_again";
    let dir = tempfile::tempdir().unwrap();
    let text = half_document();
    let load = |rope_base| {
        let options =
            LoadOptions { rope_base, kv_dir: Some(dir.path().to_owned()), context: Some(16_384), ..LoadOptions::default() };
        Some(engine_hooked(test, ModelSource::BuiltIn, options, None)?.0)
    };
    let cached = |handle: EngineHandle| {
        let cached = generate(&handle, &text, QUESTION).summary.cached_tokens;
        drop(handle);
        cached
    };
    let Some(own) = load(None) else { return };
    assert_eq!(cached(own), 0);
    assert_eq!(cached(load(Some(1e5)).unwrap()), 0);
    // Each base has its own store, and finds it again.
    assert!(cached(load(Some(1e5)).unwrap()) > 3000);
    assert!(cached(load(None).unwrap()) > 3000);
}

#[test]
fn context_over_vram_and_ram_budget_is_answered_from_disk() {
    let test = "context_over_vram_and_ram_budget_is_answered_from_disk";
    let dir = tempfile::tempdir().unwrap();
    let text = half_document();
    let Some(dense) = engine(test, dir.path(), [None; 3], None) else { return };
    let generate_unsaved = |handle: &EngineHandle| generate_with(handle, &text, QUESTION, Vec::new(), 20);
    let want = generate_unsaved(&dense).unwrap();
    let small = engine(test, dir.path(), [Some(1500 << 10), Some(1200 << 10), None], None).unwrap();
    let Answer { text: got, summary, .. } = generate_unsaved(&small).unwrap();
    assert_eq!(got, want.text);
    assert!(summary.kv_peak_bytes.vram <= 1500 << 10 && summary.kv_peak_bytes.ram <= 1200 << 10, "{:?}", summary.kv_peak_bytes);
    assert!(summary.moved_bytes.disk_to_ram > 0 && summary.kv_bytes.disk > 6 << 20, "{summary:?}");
    drop(small);
    // The scratch store is removed with its context.
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().filter_map(|e| e.ok()?.file_name().into_string().ok()).collect();
    assert!(left.iter().all(|n| !n.starts_with("scratch-")), "{left:?}");

    let tiny = engine(test, dir.path(), [Some(1500 << 10), Some(1200 << 10), Some(1 << 20)], None).unwrap();
    let refused = generate_unsaved(&tiny).err().unwrap();
    assert!(refused.contains("--ram-budget") && refused.contains("MiB"), "{refused}");
}

#[test]
fn every_disk_fault_gives_the_right_answer_or_an_error() {
    let test = "every_disk_fault_gives_the_right_answer_or_an_error";
    let text = document()[..2000].to_owned();
    let clean = tempfile::tempdir().unwrap();
    let Some(handle) = engine(test, clean.path(), [None; 3], None) else { return };
    let want = generate(&handle, &text, QUESTION).text;
    drop(handle);
    let rules: Vec<(&str, Rule)> = vec![
        ("short read", Rule::always(FaultOp::Read, "kv-", Fault::Short(4096))),
        ("EINTR", Rule::once(FaultOp::Read, "kv-", 3, Fault::Interrupted)),
        ("EAGAIN", Rule::once(FaultOp::Read, "kv-", 5, Fault::Again)),
        ("EIO on a read", Rule::once(FaultOp::Read, "kv-", 2, Fault::Failed)),
        ("EIO on every read", Rule::always(FaultOp::Read, "kv-", Fault::Failed)),
        ("flipped bit", Rule::once(FaultOp::Read, "kv-", 4, Fault::BitFlip(12_345))),
        ("torn page", Rule::once(FaultOp::Write, "kv-", 7, Fault::Torn(512))),
        ("ENOSPC", Rule::always(FaultOp::Grow, "kv-", Fault::NoSpace)),
        ("EIO on a write", Rule::once(FaultOp::Write, "kv-", 9, Fault::Failed)),
        ("failed sync", Rule::always(FaultOp::Sync, "", Fault::Failed)),
        ("permission denied", Rule::always(FaultOp::Open, "", Fault::Denied)),
        ("power cut", Rule::once(FaultOp::Write, "kv-", 20, Fault::PowerCut)),
    ];
    for (what, rule) in rules {
        let dir = tempfile::tempdir().unwrap();
        let rule_reads = rule.op == FaultOp::Read;
        let hook: FolderHook = Arc::new(move |inner: Arc<dyn Folder>| {
            let faulty = FaultInjectingFolder::new(inner);
            faulty.add(rule.clone());
            Arc::new(faulty)
        });
        // VRAM and RAM hold only some pages, so that prefill reads from disk too. If nothing can be written, RAM must suffice.
        let ram = if rule_reads { 1 << 20 } else { 5 << 20 };
        let budgets = [Some(700 << 10), Some(ram), None];
        // Which page is lost first depends on timing: more rounds cover more cases.
        let n_again = if what == "EIO on every read" { 5 } else { 1 };
        for round in std::iter::once("fresh").chain(std::iter::repeat_n("again", n_again)) {
            let handle = engine(test, dir.path(), budgets, Some(hook.clone())).unwrap();
            eprintln!("{what}, {round}");
            let answer = match try_generate(&handle, &text, QUESTION) {
                Ok(answer) => answer,
                // It does not fit in VRAM and RAM alone.
                Err(sentence) => {
                    assert!(what == "EIO on every read" && sentence.contains("--ram-budget"), "{what}: {sentence}");
                    continue;
                }
            };
            assert_eq!(answer.text, want, "{what}, {round}: {:?}", answer.notices);
            // A fault that a retry repairs needs no notice.
            let quiet = ["short read", "EINTR", "EAGAIN", "EIO on a read", "flipped bit"].contains(&what);
            let told = answer.notices.iter().any(|n| !n.contains("its text can be recovered"));
            assert!(quiet || round == "again" || told || what == "torn page", "{what}: no notice");
        }
        // Without faults, the store is complete, or can be repaired.
        let handle = engine(test, dir.path(), [None; 3], None).unwrap();
        assert_eq!(generate(&handle, &text, QUESTION).text, want, "{what}, healed");
    }
}

#[test]
fn corrupt_selected_pages_are_recomputed() {
    let test = "corrupt_selected_pages_are_recomputed";
    let text = document()[..9000].to_owned();
    let dir = tempfile::tempdir().unwrap();
    let Some(handle) = engine(test, dir.path(), [None; 3], None) else { return };
    let want = generate(&handle, &text, QUESTION).text;
    drop(handle);
    // Everything is selected, so that the answer equals that of exact attention; little of it fits in VRAM. More pages are
    // corrupted in transfer than there are staging buffers, and no staging buffer may leak.
    let hook: FolderHook = Arc::new(|inner: Arc<dyn Folder>| {
        let faulty = FaultInjectingFolder::new(inner);
        (0..8).for_each(|i| faulty.add(Rule::once(FaultOp::Read, "kv-", 300 + 89 * i, Fault::BitFlip(12_345))));
        Arc::new(faulty)
    });
    let options = LoadOptions {
        budgets: Tiers { vram: Some(Bytes(2300 << 10)), ram: Some(Bytes(3 << 20)), disk: None },
        kv_dir: Some(dir.path().to_owned()),
        context: Some(16_384),
        policy: Some(PolicySpec { amount: SelectionBudget::Rate(1.0), is_forced: true, ..PolicySpec::default() }),
        ..LoadOptions::default()
    };
    let (handle, _) = engine_hooked(test, ModelSource::BuiltIn, options, Some(hook)).unwrap();
    match try_generate(&handle, &text, QUESTION) {
        Ok(answer) => {
            assert_eq!(answer.text, want, "{:?}", answer.notices);
            assert!(answer.summary.pages.recomputed >= 24, "{:?}", answer.summary.pages);
        }
        // A page was corrupted twice: without the disk, it does not fit in VRAM and RAM alone.
        Err(sentence) => assert!(sentence.contains("--ram-budget"), "{sentence}"),
    }
}
