//! Reuse of saved KV at another position: what is imported, what is prefilled, what is not saved, notices.

use std::path::{Path, PathBuf};

use strata::base::{Bytes, Tiers};
use strata::document::catalog::{Catalog, CatalogEntry};
use strata::engine::{
    DocumentRef, EngineCommand, EngineEvent, EngineHandle, KvDtype, LoadOptions, Message, ModelSource, PromptRequest,
    RequestSummary, ReusedDocument, Role, Sampling,
};
use strata::kv::store::{PageStore, StoreRoot};

use crate::{document, engine_hooked, finish};

const PAGE: usize = 64;
/// A fact of the second document, and the question for it.
const FACT: &str = "Tavive Zumu";
const QUESTION: &str = "What is the special temperature for Katalave?";
/// Tokens that are prefilled at most: the end of the first document's last group, the first 64 tokens of the second one up to
/// a whole group, its end after the last whole group that both have, template and question.
const BOUNDARIES: usize = 5 * PAGE;

/// Documents of about 900 tokens.
fn text(name: &str) -> String {
    let begin = match name {
        "a.txt" => 0,
        _ => 2 * 2600,
    };
    document()[begin..begin + 2500].to_owned()
}

struct Answer {
    text: String,
    summary: Box<RequestSummary>,
    notices: Vec<String>,
    reused: Vec<ReusedDocument>,
}

impl Answer {
    fn prefilled(&self) -> usize {
        self.summary.prompt_tokens - self.summary.cached_tokens
    }
}

/// An engine that reuses saved KV at any position, or not.
fn engine(test: &str, dir: &Path, reuse_anywhere: bool) -> Option<EngineHandle> {
    engine_of(test, dir, LoadOptions { reuse_anywhere, ..LoadOptions::default() })
}

fn engine_of(test: &str, dir: &Path, options: LoadOptions) -> Option<EngineHandle> {
    let options = LoadOptions { kv_dir: Some(dir.to_owned()), context: Some(8192), ..options };
    Some(engine_hooked(test, ModelSource::BuiltIn, options, None)?.0)
}

fn references(names: &[&str]) -> (String, Vec<DocumentRef>) {
    let (mut all, mut references) = (String::new(), Vec::new());
    for name in names {
        all += if all.is_empty() { "" } else { "\n\n" };
        all += &text(name);
        let content_hash = *blake3::hash(text(name).as_bytes()).as_bytes();
        references.push(DocumentRef {
            content_hash,
            name: (*name).to_owned(),
            bytes: 2500,
            pages: 1,
            end_byte: all.len(),
            save: true,
        });
    }
    (all, references)
}

fn answer_of(handle: &EngineHandle, command: EngineCommand) -> Answer {
    handle.send(command);
    let (events, end) = finish(handle);
    let mut answer = Answer { text: String::new(), summary: end.unwrap(), notices: Vec::new(), reused: Vec::new() };
    for event in events {
        match event {
            EngineEvent::Token { text, .. } => answer.text.push_str(&text),
            EngineEvent::Notice(text) => answer.notices.push(text),
            EngineEvent::Approximate { documents, .. } => answer.reused = documents,
            _ => {}
        }
    }
    answer
}

fn generate(messages: Vec<Message>, documents: Vec<DocumentRef>) -> EngineCommand {
    let (sampling, policy) = (Sampling::default(), Default::default());
    EngineCommand::Generate { request: 7, messages, documents, sampling, max_tokens: 24, policy }
}

fn user(content: String) -> Message {
    Message { role: Role::User, content }
}

fn answer_to(handle: &EngineHandle, names: &[&str]) -> Answer {
    let (all, documents) = references(names);
    answer_of(handle, generate(vec![user(format!("{all}\n\n{QUESTION}"))], documents))
}

/// Prefills documents, which saves them.
fn save(handle: &EngineHandle, names: &[&str]) {
    let (text, documents) = references(names);
    handle.send(EngineCommand::Prefill { request: 8, text, documents });
    finish(handle).1.unwrap();
}

/// A library in which each document is saved alone.
fn saved_alone(test: &str, options: LoadOptions) -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir().unwrap();
    let handle = engine_of(test, dir.path(), options)?;
    save(&handle, &["a.txt"]);
    save(&handle, &["b.txt"]);
    drop(handle);
    Some(dir)
}

fn catalog(dir: &Path) -> Vec<CatalogEntry> {
    let mut entries = Catalog::open(dir).unwrap().0.list().unwrap();
    entries.iter_mut().for_each(|entry| entry.last_used = 0);
    entries.sort_by(|a, b| a.id.cmp(&b.id));
    entries
}

/// Folder of the store of a document.
fn store(dir: &Path, name: &str) -> PathBuf {
    let entries = catalog(dir);
    dir.join(&entries.iter().find(|entry| entry.name == name).unwrap().id)
}

/// Tokens of the store of a document, and its intact pages.
fn content(dir: &Path, name: &str) -> (Vec<u32>, u64) {
    let folder = store(dir, name);
    let id = folder.file_name().unwrap().to_str().unwrap();
    let (mut store, _) = PageStore::open_existing(StoreRoot::at(dir).folder(id).unwrap()).unwrap();
    let report = store.verify(|_, _| true).unwrap();
    assert_eq!(report.n_bad, 0);
    (store.tokens().to_vec(), report.n_checked)
}

#[track_caller]
fn assert_notice_once(answer: &Answer, part: &str) {
    let n_notices = answer.notices.iter().filter(|notice| notice.contains(part)).count();
    assert_eq!(n_notices, 1, "{:?}", answer.notices);
}

#[track_caller]
fn assert_exact(answer: &Answer) {
    assert_eq!((answer.summary.approximate_tokens, &answer.reused), (0, &Vec::new()), "{:?}", answer.notices);
    assert!(answer.text.contains(FACT), "{}", answer.text);
}

/// The second of two documents was reused but for its boundaries.
#[track_caller]
fn assert_reused(answer: &Answer) {
    let (n, prefilled) = (answer.summary.approximate_tokens, answer.prefilled());
    assert!(n.is_multiple_of(PAGE) && n >= 8 * PAGE, "{n} reused");
    assert!(prefilled <= BOUNDARIES, "{prefilled} prefilled of {}, {n} reused", answer.summary.prompt_tokens);
    let content_hash = *blake3::hash(text("b.txt").as_bytes()).as_bytes();
    assert_eq!(answer.reused, [ReusedDocument { content_hash, tokens: n }]);
    assert!(answer.text.contains(FACT), "{}", answer.text);
}

#[test]
fn document_saved_alone_is_reused_after_another_and_nothing_is_saved() {
    let test = "document_saved_alone_is_reused_after_another_and_nothing_is_saved";
    let Some(dir) = saved_alone(test, LoadOptions::default()) else { return };
    let (before, stored) = (catalog(dir.path()), [content(dir.path(), "a.txt"), content(dir.path(), "b.txt")]);
    let handle = engine(test, dir.path(), true).unwrap();
    let reused = answer_to(&handle, &["a.txt", "b.txt"]);
    assert_reused(&reused);
    // The next request of the chat prefills only what is new, and is as approximate.
    let (all, documents) = references(&["a.txt", "b.txt"]);
    let said = Message { role: Role::Assistant, content: reused.text.clone() };
    let messages = vec![user(format!("{all}\n\n{QUESTION}")), said, user(QUESTION.to_owned())];
    let next = answer_of(&handle, generate(messages, documents));
    assert_reused(&next);
    assert_eq!(next.summary.approximate_tokens, reused.summary.approximate_tokens);
    assert!(next.prefilled() <= 2 * PAGE, "{}", next.prefilled());
    assert_eq!(catalog(dir.path()), before);
    // The first document alone is exact.
    let first = answer_to(&handle, &["a.txt"]);
    assert_eq!(first.summary.approximate_tokens, 0);
    assert!(first.prefilled() <= 2 * PAGE, "{}", first.prefilled());
    drop(handle);
    assert_eq!([content(dir.path(), "a.txt"), content(dir.path(), "b.txt")], stored);
    assert_eq!(StoreRoot::at(dir.path()).stores().unwrap().len(), 2, "no scratch store remains");

    // Without the option, everything that is not saved at its position is prefilled, exactly.
    let handle = engine(test, dir.path(), false).unwrap();
    let exact = answer_to(&handle, &["a.txt", "b.txt"]);
    assert_exact(&exact);
    let n_second = exact.summary.prompt_tokens - first.summary.prompt_tokens;
    assert!(exact.prefilled() >= n_second, "{} prefilled, the second document has {n_second}", exact.prefilled());
    assert_eq!(reused.text, exact.text);
    drop(handle);
    // That has saved it at its position, so nothing is approximate any more.
    assert_eq!(catalog(dir.path()).len(), 3);
    let handle = engine(test, dir.path(), true).unwrap();
    let saved = answer_to(&handle, &["a.txt", "b.txt"]);
    assert_exact(&saved);
    assert!(saved.prefilled() <= 2 * PAGE, "{}", saved.prefilled());
}

#[test]
fn reused_pages_that_leave_vram_and_ram_go_to_a_scratch_store() {
    let test = "reused_pages_that_leave_vram_and_ram_go_to_a_scratch_store";
    let Some(dir) = saved_alone(test, LoadOptions::default()) else { return };
    let (before, stored) = (catalog(dir.path()), content(dir.path(), "a.txt"));
    let budgets = Tiers { vram: Some(Bytes(1 << 20)), ram: Some(Bytes(1 << 20)), disk: None };
    let handle = engine_of(test, dir.path(), LoadOptions { budgets, reuse_anywhere: true, ..LoadOptions::default() }).unwrap();
    let reused = answer_to(&handle, &["a.txt", "b.txt"]);
    assert_reused(&reused);
    assert!(reused.summary.moved_bytes.ram_to_disk > 0 && reused.summary.moved_bytes.disk_to_ram > 0);
    assert!(StoreRoot::at(dir.path()).stores().unwrap().iter().any(|store| store.name.starts_with("scratch-")));
    drop(handle);
    assert_eq!((catalog(dir.path()), content(dir.path(), "a.txt")), (before, stored));
    assert_eq!(StoreRoot::at(dir.path()).stores().unwrap().len(), 2, "no scratch store remains");
}

#[test]
fn document_saved_after_another_is_reused_alone_and_in_a_batch() {
    let test = "document_saved_after_another_is_reused_alone_and_in_a_batch";
    let dir = tempfile::tempdir().unwrap();
    let Some(handle) = engine(test, dir.path(), false) else { return };
    save(&handle, &["a.txt", "b.txt"]);
    drop(handle);
    let before = catalog(dir.path());
    let handle = engine(test, dir.path(), true).unwrap();
    assert_reused(&answer_to(&handle, &["b.txt"]));
    let (all, documents) = references(&["b.txt"]);
    let question = |request| PromptRequest { id: request, messages: vec![user(format!("{all}\n\n{QUESTION}"))] };
    let (requests, sampling) = (vec![question(1), question(2)], Sampling::default());
    handle.send(EngineCommand::GenerateBatch { requests, documents, sampling, max_tokens: 4 });
    for _ in 0..2 {
        assert!(finish(&handle).1.unwrap().approximate_tokens >= 8 * PAGE);
    }
    assert_eq!(catalog(dir.path()), before);
    // A document that is prefilled by itself is prefilled to be saved, so it is exact.
    save(&handle, &["b.txt"]);
    let alone = catalog(dir.path());
    assert!(alone.len() == 3 && alone.iter().any(|entry| entry.name == "b.txt" && entry.after.is_empty()));
    assert_exact(&answer_to(&handle, &["b.txt"]));
}

#[test]
fn document_that_is_not_to_be_saved_is_reused_by_every_request() {
    let test = "document_that_is_not_to_be_saved_is_reused_by_every_request";
    let Some(dir) = saved_alone(test, LoadOptions::default()) else { return };
    let before = catalog(dir.path());
    std::fs::remove_dir_all(store(dir.path(), "a.txt")).unwrap();
    let handle = engine(test, dir.path(), true).unwrap();
    let (all, mut documents) = references(&["a.txt", "b.txt"]);
    documents.iter_mut().for_each(|document| document.save = false);
    let command = || generate(vec![user(format!("{all}\n\n{QUESTION}"))], documents.clone());
    let first = answer_of(&handle, command());
    assert!(first.summary.approximate_tokens >= 8 * PAGE && first.text.contains(FACT), "{}", first.text);
    let again = answer_of(&handle, command());
    assert!(again.prefilled() <= PAGE && again.text == first.text, "{}", again.prefilled());
    drop(handle);
    assert_eq!(catalog(dir.path()), before);
    assert_eq!(StoreRoot::at(dir.path()).stores().unwrap().len(), 1);
}

#[test]
fn corrupt_page_ends_the_reuse_of_its_document() {
    let test = "corrupt_page_ends_the_reuse_of_its_document";
    let Some(dir) = saved_alone(test, LoadOptions::default()) else { return };
    // The last bytes are of the last layer of the second run of eight groups.
    let arena = store(dir.path(), "b.txt").join("kv-0000.arena");
    let mut bytes = std::fs::read(&arena).unwrap();
    let second_run = 8 * 6 * (32 << 10);
    assert!(bytes.len() >= 2 * second_run);
    bytes[second_run..].fill(7);
    std::fs::write(&arena, bytes).unwrap();
    let handle = engine(test, dir.path(), true).unwrap();
    let answer = answer_to(&handle, &["a.txt", "b.txt"]);
    let n = answer.summary.approximate_tokens;
    assert!(n > 0 && n < 8 * PAGE && answer.prefilled() > BOUNDARIES, "{n} reused, {} prefilled", answer.prefilled());
    assert!(answer.text.contains(FACT), "{}", answer.text);
    assert_notice_once(&answer, "cannot be reused from here on");
}

#[test]
fn store_that_is_open_or_gone_is_noticed_and_its_document_prefilled() {
    let test = "store_that_is_open_or_gone_is_noticed_and_its_document_prefilled";
    let Some(dir) = saved_alone(test, LoadOptions::default()) else { return };
    let folder = store(dir.path(), "b.txt");
    let id = folder.file_name().unwrap().to_str().unwrap().to_owned();
    let open = PageStore::open_existing(StoreRoot::at(dir.path()).folder(&id).unwrap()).unwrap();
    let handle = engine(test, dir.path(), true).unwrap();
    let answer = answer_to(&handle, &["a.txt", "b.txt"]);
    assert_exact(&answer);
    assert_notice_once(&answer, "cannot be reused at another position");
    drop((open, handle));
    // Now it is saved after the other one; that goes as well.
    for name in catalog(dir.path()).iter().filter(|entry| entry.name == "b.txt").map(|entry| entry.id.clone()) {
        std::fs::remove_dir_all(dir.path().join(name)).unwrap();
    }
    Catalog::open(dir.path()).unwrap().0.remove(&catalog(dir.path()).iter().find(|e| !e.after.is_empty()).unwrap().id).unwrap();
    let handle = engine(test, dir.path(), true).unwrap();
    let answer = answer_to(&handle, &["a.txt", "b.txt"]);
    assert_exact(&answer);
    assert_notice_once(&answer, "cannot be reused at another position");
}

#[test]
fn quantized_pages_are_reused() {
    let test = "quantized_pages_are_reused";
    let q8 = || LoadOptions { kv_dtype: KvDtype::Q8, ..LoadOptions::default() };
    let Some(dir) = saved_alone(test, q8()) else { return };
    let handle = engine_of(test, dir.path(), LoadOptions { reuse_anywhere: true, ..q8() }).unwrap();
    assert_reused(&answer_to(&handle, &["a.txt", "b.txt"]));
    drop(handle);
    // Pages of another type are not used.
    let handle = engine(test, dir.path(), true).unwrap();
    let other = answer_to(&handle, &["a.txt", "b.txt"]);
    assert_eq!((other.summary.cached_tokens, other.summary.approximate_tokens), (0, 0));
}

#[test]
fn model_without_rope_has_one_notice_and_prefills() {
    let test = "model_without_rope_has_one_notice_and_prefills";
    let dir = tempfile::tempdir().unwrap();
    let source = ModelSource::Path(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hf/gpt2"));
    let options = LoadOptions { kv_dir: Some(dir.path().to_owned()), reuse_anywhere: true, ..LoadOptions::default() };
    let Some((handle, _)) = engine_hooked(test, source, options, None) else { return };
    let answer = |text: &str| {
        let document = crate::saved_as("note.txt", text, 1);
        let (messages, sampling) = (vec![user(format!("{text}\n\nWhat?"))], Sampling::default());
        let (documents, policy) = (vec![document], Default::default());
        answer_of(&handle, EngineCommand::Generate { request: 7, messages, documents, sampling, max_tokens: 2, policy })
    };
    let first = answer("The rents.");
    assert_notice_once(&first, "learned positions");
    assert_eq!((first.summary.approximate_tokens, first.summary.cached_tokens), (0, 0));
    assert!(answer("Other rents.").notices.iter().all(|notice| !notice.contains("positions")));
}
