//! Several documents in a prompt: each is saved by itself, and serves every prompt that begins with the same documents.

use std::path::Path;
use std::sync::Arc;

use strata::base::{Bytes, Tiers};
use strata::document::catalog::Catalog;
use strata::engine::{
    DocumentRef, EngineCommand, EngineEvent, EngineHandle, FolderHook, LibraryAction, LoadOptions, Message, ModelSource, Role,
    Sampling, SavedDocument, SavedState,
};
use strata::kv::store::{Fault, FaultInjectingFolder, FaultOp, Folder, PageStore, Rule, StoreRoot};

use crate::{document, engine_hooked, finish};

/// Tokens that a group holds.
const PAGE: usize = 64;
const QUESTION: &str = "What does the document say about the harbour?";

/// Document `i`: about 900 tokens.
fn text(i: usize) -> String {
    let (begin, all) = (i * 2600, document());
    let begin = (begin..).find(|at| all.is_char_boundary(*at)).unwrap();
    all[begin..begin + 2500].to_owned()
}

struct Answer {
    text: String,
    prompt_tokens: usize,
    cached_tokens: usize,
    notices: Vec<String>,
}

impl Answer {
    /// Tokens that were computed.
    fn prefilled(&self) -> usize {
        self.prompt_tokens - self.cached_tokens
    }
}

fn engine(test: &str, dir: &Path, budgets: [Option<u64>; 3], hook: Option<FolderHook>) -> Option<EngineHandle> {
    let [vram, ram, disk] = budgets.map(|b| b.map(Bytes));
    let options = LoadOptions {
        budgets: Tiers { vram, ram, disk },
        kv_dir: Some(dir.to_owned()),
        context: Some(8192),
        ..LoadOptions::default()
    };
    Some(engine_hooked(test, ModelSource::BuiltIn, options, hook)?.0)
}

/// References to documents by number; names of equal numbers are equal.
fn references(documents: &[usize]) -> (String, Vec<DocumentRef>) {
    let mut all = String::new();
    let mut references = Vec::new();
    for i in documents {
        all += if all.is_empty() { "" } else { "\n\n" };
        all += &text(*i);
        let (content_hash, end_byte) = (*blake3::hash(text(*i).as_bytes()).as_bytes(), all.len());
        references.push(DocumentRef { content_hash, name: format!("{i}.txt"), bytes: 2500, pages: 1, end_byte, save: true });
    }
    (all, references)
}

fn generate_with(handle: &EngineHandle, all: &str, documents: Vec<DocumentRef>) -> Answer {
    let messages = vec![Message { role: Role::User, content: format!("{all}\n\n{QUESTION}") }];
    let (sampling, policy, max_tokens) = (Sampling::default(), Default::default(), 12);
    handle.send(EngineCommand::Generate { request: 7, messages, documents, sampling, max_tokens, policy });
    let (events, end) = finish(handle);
    let summary = end.unwrap();
    let (prompt_tokens, cached_tokens) = (summary.prompt_tokens, summary.cached_tokens);
    let mut answer = Answer { text: String::new(), prompt_tokens, cached_tokens, notices: Vec::new() };
    for event in events {
        match event {
            EngineEvent::Token { text, .. } => answer.text.push_str(&text),
            EngineEvent::Notice(text) => answer.notices.push(text),
            _ => {}
        }
    }
    answer
}

fn generate(handle: &EngineHandle, documents: &[usize]) -> Answer {
    let (all, documents) = references(documents);
    generate_with(handle, &all, documents)
}

/// Prefills documents ahead of a question: the tokens computed.
fn prefill(handle: &EngineHandle, documents: &[usize]) -> usize {
    let (text, documents) = references(documents);
    handle.send(EngineCommand::Prefill { request: 8, text, documents });
    let summary = finish(handle).1.unwrap();
    summary.prompt_tokens - summary.cached_tokens
}

fn library(handle: &EngineHandle, action: LibraryAction) -> Vec<SavedDocument> {
    handle.send(EngineCommand::Library(action));
    loop {
        match handle.wait(std::time::Duration::from_secs(60)).unwrap() {
            EngineEvent::Library(saved) => return saved,
            EngineEvent::Notice(text) => panic!("{text}"),
            _ => {}
        }
    }
}

fn list(handle: &EngineHandle, dir: &Path) -> Vec<SavedDocument> {
    library(handle, LibraryAction::List { kv_dir: Some(dir.to_owned()) })
}

/// `name after names`, sorted.
fn names(saved: &[SavedDocument]) -> Vec<String> {
    let name = |saved: &SavedDocument| {
        let before: Vec<&str> = saved.after.iter().map(|d| d.name.as_str()).collect();
        if before.is_empty() { saved.name.clone() } else { format!("{} after {}", saved.name, before.join(" ")) }
    };
    let mut names: Vec<String> = saved.iter().map(name).collect();
    names.sort();
    names
}

/// The tokens prefilled are those of the question, and of the incomplete group before it.
#[track_caller]
fn assert_resumed(answer: &Answer, rest: usize) {
    let (prefilled, least) = (answer.prefilled(), rest.saturating_sub(PAGE));
    assert!((least..rest + 2 * PAGE).contains(&prefilled), "{prefilled} prefilled, {rest} expected");
}

#[test]
fn documents_resume_alone_in_another_order_and_after_a_restart() {
    let test = "documents_resume_alone_in_another_order_and_after_a_restart";
    let dir = tempfile::tempdir().unwrap();
    let Some(handle) = engine(test, dir.path(), [None; 3], None) else { return };
    let all = generate(&handle, &[0, 1, 2]);
    assert_eq!(all.cached_tokens, 0);
    let sentences: Vec<_> = all.notices.iter().filter(|n| n.contains("can be recovered")).collect();
    assert!(matches!(sentences.as_slice(), [one] if one.starts_with("0.txt, 1.txt and 2.txt are saved in")), "{:?}", all.notices);
    let saved = list(&handle, dir.path());
    assert_eq!(names(&saved), ["0.txt", "1.txt after 0.txt", "2.txt after 0.txt 1.txt"]);
    assert!(saved.iter().all(|s| s.state == SavedState::Read && (600..1300).contains(&s.tokens)), "{saved:?}");
    // Each page is on disk once: no store has the pages of an earlier document.
    let (tokens, bytes) = saved.iter().fold((0, 0), |(t, b), s| (t + s.tokens, b + s.kv_bytes));
    assert!(bytes < 3072 * tokens as u64 * 5 / 4, "{bytes} bytes for {tokens} tokens");

    // The first document, and the first two, were not saved by themselves, and need no prefill.
    let (n_question, one) = (40, saved.iter().find(|s| s.name == "1.txt").unwrap().tokens);
    let first = generate(&handle, &[0]);
    assert_resumed(&first, n_question);
    assert_resumed(&generate(&handle, &[0, 1]), n_question);
    // The second one after the first is of no use alone.
    assert_eq!(generate(&handle, &[1]).cached_tokens, 0);
    assert_resumed(&generate(&handle, &[1]), n_question);
    // Another order: what is saved alone is used, the rest is prefilled.
    let third = generate(&handle, &[1, 2, 0]);
    assert_resumed(&third, third.prompt_tokens - one);
    drop(handle);

    // After a restart, with pages that do not fit in VRAM and RAM.
    for budgets in [[None; 3], [Some(1 << 20), Some(1 << 20), None]] {
        let handle = engine(test, dir.path(), budgets, None).unwrap();
        let again = generate(&handle, &[0, 1, 2]);
        assert_resumed(&again, n_question);
        assert_eq!(again.text, all.text, "{budgets:?}");
        let alone = generate(&handle, &[0]);
        assert_resumed(&alone, n_question);
        assert_eq!(alone.text, first.text, "{budgets:?}");
        let other = generate(&handle, &[1, 2, 0]);
        assert_resumed(&other, n_question);
        assert_eq!(other.text, third.text, "{budgets:?}");
        assert!(again.notices.iter().chain(&alone.notices).chain(&other.notices).all(|n| !n.contains("prefilled again")));
    }
}

#[test]
fn shared_prefix_gives_the_answer_of_documents_that_are_not_saved() {
    let test = "shared_prefix_gives_the_answer_of_documents_that_are_not_saved";
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(handle) = engine(test, other.path(), [None; 3], None) else { return };
    let unsaved = generate_with(&handle, &references(&[0, 1]).0, Vec::new());
    drop(handle);
    // Saved one after the other, by two processes, the first one stopped after the first document.
    let handle = engine(test, dir.path(), [None; 3], None).unwrap();
    assert!(prefill(&handle, &[0]) > 600);
    drop(handle);
    let handle = engine(test, dir.path(), [None; 3], None).unwrap();
    let saved = generate(&handle, &[0, 1]);
    assert!(saved.cached_tokens > 600, "{}", saved.cached_tokens);
    assert_eq!(saved.text, unsaved.text);
    // Only the margin at the end is left to prefill, for each command.
    assert!(prefill(&handle, &[0, 1]) <= PAGE);
}

#[test]
fn documents_saved_as_one_text_before_are_used_in_their_order() {
    let test = "documents_saved_as_one_text_before_are_used_in_their_order";
    let dir = tempfile::tempdir().unwrap();
    let Some(handle) = engine(test, dir.path(), [None; 3], None) else { return };
    // As saved by earlier versions: one reference to both texts.
    let (all, parts) = references(&[0, 1]);
    let content_hash = *blake3::hash(all.as_bytes()).as_bytes();
    let joined = DocumentRef { content_hash, name: "0.txt and 1 more".into(), ..parts[1].clone() };
    let before = generate_with(&handle, &all, vec![joined]);
    assert_eq!(before.cached_tokens, 0);
    drop(handle);
    let handle = engine(test, dir.path(), [None; 3], None).unwrap();
    let now = generate_with(&handle, &all, parts);
    assert_resumed(&now, 40);
    assert_eq!(now.text, before.text);
    let sentences: Vec<_> = now.notices.iter().filter(|n| n.contains("saved as one text")).collect();
    assert!(matches!(sentences.as_slice(), [one] if one.contains("0.txt and 1 more")), "{:?}", now.notices);
    assert_eq!(names(&list(&handle, dir.path())), ["0.txt and 1 more"]);
    // The first one alone is prefilled and saved; nothing is lost.
    assert_eq!(generate(&handle, &[0]).cached_tokens, 0);
    assert_resumed(&generate(&handle, &[0, 1]), 40);
    assert_eq!(names(&list(&handle, dir.path())), ["0.txt", "0.txt and 1 more"]);
}

#[test]
fn later_document_is_prefilled_again_if_the_first_one_was_deleted() {
    let test = "later_document_is_prefilled_again_if_the_first_one_was_deleted";
    let dir = tempfile::tempdir().unwrap();
    let Some(handle) = engine(test, dir.path(), [None; 3], None) else { return };
    let before = generate(&handle, &[0, 1]);
    let saved = list(&handle, dir.path());
    let first = saved.iter().find(|s| s.after.is_empty()).unwrap().id.clone();
    drop(handle);
    // By hand, not through the library.
    std::fs::remove_dir_all(dir.path().join(&first)).unwrap();
    let handle = engine(test, dir.path(), [None; 3], None).unwrap();
    let after = generate(&handle, &[0, 1]);
    assert_eq!((after.cached_tokens, after.text.as_str()), (0, before.text.as_str()));
    let sentences: Vec<_> = after.notices.iter().filter(|n| n.contains("cannot be used")).collect();
    assert!(matches!(sentences.as_slice(), [one] if one.contains("0.txt") && one.contains("1.txt")), "{:?}", after.notices);
    assert_resumed(&generate(&handle, &[0, 1]), 40);

    // Through the library, what was saved after it goes as well, but not what is open.
    let (kv_dir, id) = (Some(dir.path().to_owned()), first);
    drop(handle);
    let handle = engine(test, dir.path(), [None; 3], None).unwrap();
    assert!(library(&handle, LibraryAction::Remove { kv_dir, id }).is_empty());
    assert_eq!(StoreRoot::at(dir.path()).stores().unwrap().len(), 0);
}

#[test]
fn two_documents_with_one_text_share_what_is_saved() {
    let test = "two_documents_with_one_text_share_what_is_saved";
    let dir = tempfile::tempdir().unwrap();
    let Some(handle) = engine(test, dir.path(), [None; 3], None) else { return };
    let both = generate(&handle, &[0, 0]);
    assert_eq!(both.cached_tokens, 0);
    assert_eq!(names(&list(&handle, dir.path())), ["0.txt", "0.txt after 0.txt"]);
    let (text, mut copy) = references(&[0]);
    copy[0].name = "copy.txt".into();
    assert_resumed(&generate_with(&handle, &text, copy), 40);
    assert_eq!(names(&list(&handle, dir.path())), ["0.txt after 0.txt", "copy.txt"]);
    assert_resumed(&generate(&handle, &[0, 0]), 40);
}

#[test]
fn full_disk_while_a_prefix_is_shared_loses_nothing_of_it() {
    let test = "full_disk_while_a_prefix_is_shared_loses_nothing_of_it";
    let dir = tempfile::tempdir().unwrap();
    let Some(handle) = engine(test, dir.path(), [None; 3], None) else { return };
    prefill(&handle, &[0]);
    let first = list(&handle, dir.path())[0].id.clone();
    let expected = generate_with(&handle, &references(&[0, 1]).0, Vec::new());
    drop(handle);
    let full: FolderHook = Arc::new(|folder: Arc<dyn Folder>| {
        let full = FaultInjectingFolder::new(folder);
        full.add(Rule::always(FaultOp::Grow, "kv-", Fault::NoSpace));
        Arc::new(full)
    });
    let handle = engine(test, dir.path(), [None; 3], Some(full)).unwrap();
    let answer = generate(&handle, &[0, 1]);
    assert!(answer.cached_tokens > 600, "the first document is used");
    assert_eq!(answer.text, expected.text);
    assert_eq!(answer.notices.iter().filter(|n| n.contains("nothing more is saved")).count(), 1, "{:?}", answer.notices);
    drop(handle);
    let (mut store, _) = PageStore::open_existing(StoreRoot::at(dir.path()).folder(&first).unwrap()).unwrap();
    let pages = store.verify(|_, _| true).unwrap();
    assert!(pages.n_bad == 0 && pages.n_pages > 0, "{pages:?}");
    drop(store);
    // With room again, the rest is saved.
    let handle = engine(test, dir.path(), [None; 3], None).unwrap();
    generate(&handle, &[0, 1]);
    assert_resumed(&generate(&handle, &[0, 1]), 40);
    assert_eq!(Catalog::open(dir.path()).unwrap().0.list().unwrap().len(), 2);
}
