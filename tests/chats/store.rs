//! Chat store: round trips of chats and messages on every branch, search, documents, deletion.

use std::sync::Arc;

use proptest::prelude::*;
use strata::chats::{Author, Change, ChatRow, ChatStore, DocumentName, MessageRow, MessageState, Preset, branch};
use strata::document::{Document, PageSpan};

use crate::common::{asked, chat, message};

fn reopened(dir: &tempfile::TempDir, changes: &[Change]) -> ChatStore {
    let mut store = ChatStore::open(dir.path()).unwrap();
    store.apply(changes).unwrap();
    drop(store);
    ChatStore::open(dir.path()).unwrap()
}

#[test]
fn chat_survives_a_restart_with_documents_draft_and_every_branch() {
    let dir = tempfile::tempdir().unwrap();
    let document = DocumentName { content_hash: "ab".into(), name: "pepys.txt".into(), path: Some("/books/pepys.txt".into()) };
    let row = ChatRow {
        named: true,
        pinned: true,
        instructions: "Be brief.".into(),
        sampling: "{}".into(),
        leaf: Some(13),
        draft: "And then".into(),
        documents: vec![document],
        ..chat(10, "The fire")
    };
    let failed = MessageRow { state: MessageState::Failed, note: "No.".into(), ..message(14, 10, Some(11), Author::Model, "") };
    let costly = MessageRow { cost: "{\"a\":1}".into(), ..message(12, 10, Some(11), Author::Model, "In Pudding Lane.") };
    let messages =
        [message(11, 10, None, Author::User, "Where?"), costly, message(13, 10, Some(11), Author::Model, "East."), failed];
    let mut changes = vec![Change::Chat(row.clone())];
    changes.extend(messages.iter().cloned().map(Change::Message));
    let store = reopened(&dir, &changes);
    assert_eq!(store.list().unwrap(), [row]);
    assert_eq!(store.messages(10).unwrap(), messages);
    let shown: Vec<u64> = branch(&store.messages(10).unwrap(), Some(13)).iter().map(|m| m.id).collect();
    assert_eq!(shown, [11, 13]);
}

#[test]
fn pieces_of_an_interrupted_answer_are_its_text_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut changes = asked(1, "Where?", "");
    let running = MessageRow { state: MessageState::Running, ..message(3, 1, Some(2), Author::Model, "It ") };
    changes.push(Change::Message(running));
    changes.extend(["began ", "in Pudding ", "Lane"].map(|text| Change::Piece { message: 3, text: text.into() }));
    let store = reopened(&dir, &changes);
    let answer = store.messages(1).unwrap().pop().unwrap();
    assert_eq!((answer.text.as_str(), answer.state), ("It began in Pudding Lane", MessageState::Interrupted));
    assert_eq!(store.search("pudding").unwrap().len(), 1, "and it is found");
}

#[test]
fn complete_answer_replaces_its_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let mut changes = asked(1, "Where?", "");
    changes.push(Change::Piece { message: 3, text: "In P".into() });
    changes.push(Change::Message(message(3, 1, Some(2), Author::Model, "In Pudding Lane.")));
    let store = reopened(&dir, &changes);
    let answer = store.messages(1).unwrap().pop().unwrap();
    assert_eq!((answer.text.as_str(), answer.state), ("In Pudding Lane.", MessageState::Done));
}

#[test]
fn search_finds_parts_of_words_in_any_case_and_language_and_only_all_words_together() {
    let mut store = ChatStore::in_memory().unwrap();
    store.apply(&asked(1, "Where did the fire begin?", "In Pudding Lane, on Sunday.")).unwrap();
    store.apply(&asked(11, "What does the café cost?", "412 kg of 50 % copper_x.")).unwrap();
    store.apply(&asked(21, "北京在哪里？", "在中国的北部。")).unwrap();
    let found = |query: &str| store.search(query).unwrap().iter().map(|h| h.chat).collect::<Vec<_>>();
    assert_eq!(found("PUDDING"), [1]);
    assert_eq!(found("udd"), [1]);
    assert_eq!(found("sunday pudding"), [1]);
    assert_eq!(found("pudding copper"), [] as [u64; 0]);
    assert_eq!(found("cafe"), [11], "without its accent");
    assert_eq!(found("北京"), [21], "two letters");
    assert_eq!(found("50 %"), [11]);
    assert_eq!(found("copper_x"), [11]);
    assert_eq!(found("r_x"), [11]);
    assert_eq!(found("\"quote' OR *"), [] as [u64; 0], "no syntax");
    assert_eq!(found("the"), [11, 1], "newest first");
    assert_eq!(found("  "), [] as [u64; 0]);
    let hit = store.search("pudding").unwrap().remove(0);
    assert_eq!((hit.message, hit.around.as_str()), (Some(3), "In Pudding Lane, on Sunday."));
}

#[test]
fn search_finds_words_in_any_normal_form() {
    let mut store = ChatStore::in_memory().unwrap();
    store.apply(&asked(1, "Wer ist J\u{f6}rgen?", "Der \u{c4}lteste, ein M\u{fc}ller am \u{d6}l.")).unwrap();
    store.apply(&asked(11, "Wer ist Jo\u{308}rgen?", "Der A\u{308}lteste, ein Mu\u{308}ller am O\u{308}l.")).unwrap();
    for query in ["J\u{f6}rgen", "Jo\u{308}rgen", "J\u{d6}RGEN", "\u{f6}l", "o\u{308}l", "\u{d6}L m\u{fc}ller"] {
        let hits = store.search(query).unwrap();
        assert_eq!(hits.iter().map(|hit| hit.chat).collect::<Vec<_>>(), [11, 1], "{query}");
    }
}

#[test]
fn search_finds_titles_and_names_of_documents() {
    let mut store = ChatStore::in_memory().unwrap();
    let document = DocumentName { content_hash: "ab".into(), name: "pepys-diary.txt".into(), path: None };
    store.apply(&[Change::Chat(ChatRow { documents: vec![document], ..chat(1, "Old London") })]).unwrap();
    for query in ["london", "pepys", "diary.txt"] {
        assert_eq!(store.search(query).unwrap().len(), 1, "{query}");
    }
    assert!(store.search("plague").unwrap().is_empty());
}

#[test]
fn deleted_chat_is_erased_at_the_next_start_unless_restored() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = ChatStore::open(dir.path()).unwrap();
    store.apply(&asked(1, "Where?", "Zanzibarquux")).unwrap();
    store.apply(&[Change::Delete(1)]).unwrap();
    assert!(store.list().unwrap().is_empty() && store.search("zanzibar").unwrap().is_empty());
    store.apply(&[Change::Restore(1)]).unwrap();
    assert_eq!(store.list().unwrap().len(), 1);
    store.apply(&[Change::Delete(1)]).unwrap();
    drop(store);
    let store = ChatStore::open(dir.path()).unwrap();
    assert!(store.messages(1).unwrap().is_empty());
    drop(store);
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(8).any(|w| w.eq_ignore_ascii_case(b"Zanzibar")), "deleted text is left");
    }
}

#[test]
fn document_keeps_its_text_and_pages_and_is_rejected_if_corrupt() {
    let dir = tempfile::tempdir().unwrap();
    let document = Document::from_bytes("a.txt", b"Page one.\x0cPage two.").unwrap();
    let hash = document.content_hash.to_string();
    let store = reopened(&dir, &[Change::Document(Arc::new(document.clone()), Some("/tmp/a.txt".into()))]);
    let stored = store.documents().unwrap().remove(0);
    assert_eq!((stored.document.name.as_str(), stored.n_pages, stored.n_chars), ("a.txt", document.pages.len(), 19));
    assert_eq!(store.document(&hash).unwrap(), Some((document, Some("/tmp/a.txt".into()))));
    assert_eq!(store.document("none").unwrap(), None);
    drop(store);
    let db = rusqlite::Connection::open(dir.path().join("chats.sqlite")).unwrap();
    db.execute("UPDATE documents SET text = 'Page one, forged.'", []).unwrap();
    drop(db);
    let mut store = ChatStore::open(dir.path()).unwrap();
    assert!(store.document(&hash).unwrap_err().to_string().contains("a.txt"));
    store.apply(&[Change::ForgetDocument(hash.clone())]).unwrap();
    assert_eq!(store.document(&hash).unwrap(), None);
}

#[test]
fn document_saved_again_has_its_new_pages() {
    let mut store = ChatStore::in_memory().unwrap();
    let first = Document::from_bytes("a.txt", b"Page one. Page two.").unwrap();
    let halves = [(0, 10), (10, 19)].map(|(first_byte, end_byte)| PageSpan { first_byte, end_byte });
    let again = Document { pages: halves.to_vec(), ..first.clone() };
    for document in [&first, &again] {
        store.apply(&[Change::Document(Arc::new(document.clone()), None)]).unwrap();
        assert_eq!(store.documents().unwrap()[0].n_pages, document.pages.len());
        assert_eq!(store.document(&first.content_hash.to_string()).unwrap().unwrap().0, *document);
    }
}

#[test]
fn newest_id_is_that_of_a_chat_or_of_a_message_on_any_branch() {
    let mut store = ChatStore::in_memory().unwrap();
    assert_eq!(store.newest_id().unwrap(), 0);
    store.apply(&asked(1, "Where?", "Here.")).unwrap();
    assert_eq!(store.newest_id().unwrap(), 3);
    store.apply(&[Change::Chat(chat(40, "Empty")), Change::Delete(1)]).unwrap();
    assert_eq!(store.newest_id().unwrap(), 40);
}

#[test]
fn presets_are_saved_by_name() {
    let mut store = ChatStore::in_memory().unwrap();
    let preset =
        |name: &str, instructions: &str| Preset { name: name.into(), instructions: instructions.into(), sampling: String::new() };
    store.apply(&[Change::Preset(preset("Short", "a")), Change::Preset(preset("Exact", "b"))]).unwrap();
    store.apply(&[Change::Preset(preset("Short", "c"))]).unwrap();
    assert_eq!(store.presets().unwrap(), [preset("Exact", "b"), preset("Short", "c")]);
    store.apply(&[Change::ForgetPreset("Exact".into())]).unwrap();
    assert_eq!(store.presets().unwrap().len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// The text last written is stored, whatever was written before.
    #[test]
    fn any_order_of_pieces_and_rewrites_gives_the_text_that_was_shown(
        steps in proptest::collection::vec((any::<bool>(), 0u64..4, "\\PC{0,12}"), 0..40)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut store = ChatStore::open(dir.path()).unwrap();
        store.apply(&[Change::Chat(chat(1, "t"))]).unwrap();
        let mut shown = vec![String::new(); 4];
        for id in 0..4 {
            store.apply(&[Change::Message(message(10 + id, 1, None, Author::Model, ""))]).unwrap();
        }
        for (is_piece, id, text) in steps {
            let all = &mut shown[id as usize];
            let change = if is_piece {
                all.push_str(&text);
                Change::Piece { message: 10 + id, text }
            } else {
                all.clone_from(&text);
                Change::Message(message(10 + id, 1, None, Author::Model, &text))
            };
            store.apply(&[change]).unwrap();
        }
        drop(store);
        let store = ChatStore::open(dir.path()).unwrap();
        let texts: Vec<String> = store.messages(1).unwrap().into_iter().map(|m| m.text).collect();
        prop_assert_eq!(texts, shown);
    }
}
