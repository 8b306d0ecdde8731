//! Chat writer: the thread between the window and the store.

use std::time::{Duration, Instant};

use strata::chats::{Change, ChatEvent, ChatRequest, ChatStore, ChatWriter, Destination, ExportFormat};

use crate::common::{asked, chat};

const LONG: Duration = Duration::from_secs(20);

fn next_event(writer: &ChatWriter) -> ChatEvent {
    let began = Instant::now();
    loop {
        if let Some(event) = writer.poll() {
            return event;
        }
        assert!(began.elapsed() < LONG, "no event");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn opened(root: Option<&std::path::Path>) -> ChatWriter {
    ChatWriter::start(root.map(Into::into), || {}).unwrap()
}

#[test]
fn flushed_changes_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = opened(Some(dir.path()));
    assert!(matches!(next_event(&writer), ChatEvent::Opened { chats, .. } if chats.is_empty()));
    writer.send(ChatRequest::Save(asked(1, "Where?", "Here."))).unwrap();
    assert!(writer.flush(LONG));
    drop(writer);
    let writer = opened(Some(dir.path()));
    assert!(matches!(next_event(&writer), ChatEvent::Opened { chats, .. } if chats[0].title == "Where?"));
}

#[test]
fn requests_are_answered_in_order() {
    let mut writer = opened(None);
    next_event(&writer);
    writer.send(ChatRequest::Save(asked(1, "Where/\\?", "In Pudding Lane."))).unwrap();
    writer.send(ChatRequest::Messages(1)).unwrap();
    writer.send(ChatRequest::Search("pudding".into())).unwrap();
    writer.send(ChatRequest::Export(1, ExportFormat::Markdown, Destination::File)).unwrap();
    writer.send(ChatRequest::Document("none".into())).unwrap();
    assert!(matches!(next_event(&writer), ChatEvent::Messages(1, messages) if messages.len() == 2));
    assert!(matches!(next_event(&writer), ChatEvent::Found { query, hits } if query == "pudding" && hits.len() == 1));
    let ChatEvent::Exported { to: Destination::File, name, text } = next_event(&writer) else { panic!("not exported") };
    assert!(name == "Where.md" && text.contains("Pudding"), "{name}: {text}");
    assert!(matches!(next_event(&writer), ChatEvent::NoDocument(hash) if hash == "none"));
}

#[test]
fn chats_that_cannot_be_opened_stay_in_memory_with_a_message() {
    let dir = tempfile::tempdir().unwrap();
    let first = ChatStore::open(dir.path()).unwrap();
    let mut writer = opened(Some(dir.path()));
    let ChatEvent::Refused(sentence) = next_event(&writer) else { panic!("not refused") };
    assert!(sentence.starts_with("Chats of this window are not saved: another Strata has"), "{sentence}");
    assert!(matches!(next_event(&writer), ChatEvent::Opened { .. }));
    writer.send(ChatRequest::Save(asked(1, "Where?", "Here."))).unwrap();
    writer.send(ChatRequest::Search("where".into())).unwrap();
    assert!(matches!(next_event(&writer), ChatEvent::Found { hits, .. } if hits.len() == 1));
    drop(writer);
    assert!(first.list().unwrap().is_empty());
}

#[test]
fn failed_change_is_retried_until_it_is_saved() {
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
    let mut writer = opened(Some(dir.path()));
    next_event(&writer);
    writer.send(ChatRequest::Save(asked(1, "Where?", "Here."))).unwrap();
    assert!(
        matches!(next_event(&writer), ChatEvent::Refused(sentence) if sentence.starts_with("The latest messages are not saved yet"))
    );
    let found = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        writer.send(ChatRequest::Search("where".into())).unwrap();
        matches!(next_event(&writer), ChatEvent::Found { hits, .. } if hits.len() == 1)
    });
    assert!(found, "never saved, although it could be after a second");
}

#[test]
fn change_of_a_missing_chat_is_skipped() {
    let mut writer = opened(None);
    next_event(&writer);
    let mut changes = asked(1, "Where?", "Here.");
    changes.remove(0);
    writer.send(ChatRequest::Save(changes)).unwrap();
    writer.send(ChatRequest::Save(vec![Change::Chat(chat(5, "Another"))])).unwrap();
    writer.send(ChatRequest::Search("another".into())).unwrap();
    assert!(matches!(next_event(&writer), ChatEvent::Found { hits, .. } if hits.len() == 1));
}

#[test]
fn full_queue_returns_the_request() {
    let mut writer = opened(None);
    let given_back = (0..100_000).find_map(|_| writer.send(ChatRequest::Search("word".into())).err());
    assert_eq!(given_back, Some(ChatRequest::Search("word".into())));
}
