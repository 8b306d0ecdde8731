//! The thread between the window and the store.

use std::time::{Duration, Instant};

use strata::chats::{Change, ChatEvent, ChatRequest, ChatStore, ChatWriter, Destination, ExportFormat};

use crate::common::{asked, chat};

const LONG: Duration = Duration::from_secs(20);

fn news(keeper: &ChatWriter) -> ChatEvent {
    let began = Instant::now();
    loop {
        if let Some(news) = keeper.poll() {
            return news;
        }
        assert!(began.elapsed() < LONG, "no news");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn opened(root: Option<&std::path::Path>) -> ChatWriter {
    ChatWriter::start(root.map(Into::into), || {}).unwrap()
}

#[test]
fn what_was_settled_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut keeper = opened(Some(dir.path()));
    assert!(matches!(news(&keeper), ChatEvent::Opened { chats, .. } if chats.is_empty()));
    keeper.send(ChatRequest::Save(asked(1, "Where?", "Here."))).unwrap();
    assert!(keeper.flush(LONG));
    drop(keeper);
    let keeper = opened(Some(dir.path()));
    assert!(matches!(news(&keeper), ChatEvent::Opened { chats, .. } if chats[0].title == "Where?"));
}

#[test]
fn requests_are_answered_in_order() {
    let mut keeper = opened(None);
    news(&keeper);
    keeper.send(ChatRequest::Save(asked(1, "Where/\\?", "In Pudding Lane."))).unwrap();
    keeper.send(ChatRequest::Messages(1)).unwrap();
    keeper.send(ChatRequest::Search("pudding".into())).unwrap();
    keeper.send(ChatRequest::Export(1, ExportFormat::Markdown, Destination::File)).unwrap();
    keeper.send(ChatRequest::Document("none".into())).unwrap();
    assert!(matches!(news(&keeper), ChatEvent::Messages(1, messages) if messages.len() == 2));
    assert!(matches!(news(&keeper), ChatEvent::Found { query, hits } if query == "pudding" && hits.len() == 1));
    let ChatEvent::Exported { to: Destination::File, name, text } = news(&keeper) else { panic!("not exported") };
    assert!(name == "Where.md" && text.contains("Pudding"), "{name}: {text}");
    assert!(matches!(news(&keeper), ChatEvent::NoDocument(hash) if hash == "none"));
}

#[test]
fn chats_that_cannot_be_opened_are_kept_in_memory_and_a_sentence_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let first = ChatStore::open(dir.path()).unwrap();
    let mut keeper = opened(Some(dir.path()));
    let ChatEvent::Refused(sentence) = news(&keeper) else { panic!("not refused") };
    assert!(sentence.starts_with("Chats of this window are not saved: another Strata has"), "{sentence}");
    assert!(matches!(news(&keeper), ChatEvent::Opened { .. }));
    keeper.send(ChatRequest::Save(asked(1, "Where?", "Here."))).unwrap();
    keeper.send(ChatRequest::Search("where".into())).unwrap();
    assert!(matches!(news(&keeper), ChatEvent::Found { hits, .. } if hits.len() == 1));
    drop(keeper);
    assert!(first.list().unwrap().is_empty());
}

#[test]
fn change_that_cannot_be_kept_waits_and_is_kept_when_it_can() {
    let dir = tempfile::tempdir().unwrap();
    drop(ChatStore::open(dir.path()).unwrap());
    let db = rusqlite::Connection::open(dir.path().join("chats.sqlite")).unwrap();
    let until = "(SELECT unixepoch('subsec') < at FROM refused)";
    db.execute_batch(&format!(
        "CREATE TABLE refused AS SELECT unixepoch('subsec') + 1 AS at;
         CREATE TRIGGER refuse BEFORE INSERT ON chats WHEN {until} BEGIN SELECT json('no JSON'); END;"
    ))
    .unwrap();
    drop(db);
    let mut keeper = opened(Some(dir.path()));
    news(&keeper);
    keeper.send(ChatRequest::Save(asked(1, "Where?", "Here."))).unwrap();
    assert!(
        matches!(news(&keeper), ChatEvent::Refused(sentence) if sentence.starts_with("The latest messages are not saved yet"))
    );
    let found = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        keeper.send(ChatRequest::Search("where".into())).unwrap();
        matches!(news(&keeper), ChatEvent::Found { hits, .. } if hits.len() == 1)
    });
    assert!(found, "never kept, although it could be after a second");
}

#[test]
fn change_of_what_is_not_there_changes_nothing_and_holds_nothing_up() {
    let mut keeper = opened(None);
    news(&keeper);
    let mut changes = asked(1, "Where?", "Here.");
    changes.remove(0);
    keeper.send(ChatRequest::Save(changes)).unwrap();
    keeper.send(ChatRequest::Save(vec![Change::Chat(chat(5, "Another"))])).unwrap();
    keeper.send(ChatRequest::Search("another".into())).unwrap();
    assert!(matches!(news(&keeper), ChatEvent::Found { hits, .. } if hits.len() == 1));
}

#[test]
fn full_queue_gives_the_request_back() {
    let mut keeper = opened(None);
    let given_back = (0..100_000).find_map(|_| keeper.send(ChatRequest::Search("word".into())).err());
    assert_eq!(given_back, Some(ChatRequest::Search("word".into())));
}
