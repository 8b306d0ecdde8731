//! Chat persistence with a real store in memory: saved changes, and their restoration by a later window.

use super::*;
use crate::app::state::ModelState;
use crate::app::test_support::{model_info, summary};
use crate::chats::ChatStore;
use crate::engine::{EngineCommand, EngineEvent, LoadOptions, ModelSource, RequestId};

fn window(first_id: u64) -> ViewState {
    let mut state = ViewState::new(ModelSource::BuiltIn, LoadOptions::default());
    state.start_ids(first_id);
    state.engine.model = ModelState::Ready(Box::new(model_info()));
    state
}

fn asked(state: &mut ViewState, question: &str) -> RequestId {
    state.chat_mut().draft = question.to_owned();
    state.send();
    state.engine.running.unwrap().request
}

fn answered(state: &mut ViewState, question: &str, answer: &str) {
    let request = asked(state, question);
    say(state, request, answer);
    state.apply(EngineEvent::Finished { request, summary: Box::new(summary()) });
}

fn say(state: &mut ViewState, request: RequestId, text: &str) {
    state.apply(EngineEvent::Token { request, text: text.into(), n: 1, tokens_per_s: 9.0, context_used: 9 });
}

/// Runs the requests as the writer's thread does.
fn serve(state: &mut ViewState, store: &mut ChatStore) {
    while !state.chats.persistence.requests.is_empty() {
        for request in std::mem::take(&mut state.chats.persistence.requests) {
            match request {
                ChatRequest::Save(changes) => store.apply(&changes).unwrap(),
                ChatRequest::Messages(chat) => state.apply_chat_event(ChatEvent::Messages(chat, store.messages(chat).unwrap())),
                ChatRequest::Document(hash) => state.apply_chat_event(match store.document(&hash).unwrap() {
                    Some((document, path)) => ChatEvent::Document(Box::new(document), path),
                    None => ChatEvent::NoDocument(hash),
                }),
                ChatRequest::Search(query) => {
                    let hits = store.search(&query).unwrap();
                    state.apply_chat_event(ChatEvent::Found { query, hits });
                }
                ChatRequest::Export(..) => {}
            }
        }
    }
}

fn restarted(store: &mut ChatStore) -> ViewState {
    let mut state = window(1_000_000);
    let (chats, documents, presets) = (store.list().unwrap(), store.documents().unwrap(), store.presets().unwrap());
    state.apply_chat_event(ChatEvent::Opened { newest_id: store.newest_id().unwrap(), chats, documents, presets });
    serve(&mut state, store);
    state
}

fn open_stored(state: &mut ViewState, store: &mut ChatStore, title: &str) {
    let id = state.chats.list.iter().find(|c| c.title(&state.documents.list) == title).unwrap().id;
    state.select_chat(id);
    serve(state, store);
}

#[test]
fn chat_is_the_same_after_a_restart_with_its_documents_and_what_it_cost() {
    let mut store = ChatStore::in_memory().unwrap();
    let mut state = window(10);
    for name in ["one.txt", "two.txt"] {
        state.add_document(Document::from_bytes(name, format!("Text of {name}.").as_bytes()).unwrap(), false);
    }
    answered(&mut state, "What?", "This.");
    answered(&mut state, "And then?", "That.");
    serve(&mut state, &mut store);
    let (hash, before) = (state.chat().content_hash, state.chat().messages(&state.documents.list, 1));
    let mut state = restarted(&mut store);
    assert!(state.chat().is_blank(), "a new chat is on screen");
    open_stored(&mut state, &mut store, "What?");
    let chat = state.chat();
    assert_eq!((chat.content_hash, chat.messages(&state.documents.list, 1)), (hash, before));
    assert_eq!(chat.exchanges[1].outcome, Outcome::Done(Box::new(summary())));
    assert!(chat.missing.is_empty());
}

#[test]
fn interrupted_answer_has_the_shown_text_and_is_marked() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = ChatStore::open(dir.path()).unwrap();
    let mut state = window(10);
    let request = asked(&mut state, "Where?");
    say(&mut state, request, "In Pud");
    serve(&mut state, &mut store);
    say(&mut state, request, "ding");
    serve(&mut state, &mut store);
    drop(store);
    let mut store = ChatStore::open(dir.path()).unwrap();
    let mut state = restarted(&mut store);
    open_stored(&mut state, &mut store, "Where?");
    let exchange = &state.chat().exchanges[0];
    assert_eq!((exchange.answer.as_str(), &exchange.outcome), ("In Pudding", &Outcome::Restored(INTERRUPTED.into())));
}

#[test]
fn branches_and_the_one_that_was_shown_come_back() {
    let mut store = ChatStore::in_memory().unwrap();
    let mut state = window(10);
    answered(&mut state, "One?", "First.");
    answered(&mut state, "Two?", "Second.");
    let first = state.chat().exchanges[0].id;
    state.edit_question(first, " One, really? ");
    let request = state.engine.running.unwrap().request;
    say(&mut state, request, "Other.");
    state.apply(EngineEvent::Finished { request, summary: Box::new(summary()) });
    assert_eq!(state.chat().exchanges.len(), 1);
    let edited = state.chat().exchanges[0].id;
    state.show_branch(first);
    serve(&mut state, &mut store);
    let mut state = restarted(&mut store);
    open_stored(&mut state, &mut store, "One?");
    let answers = |state: &ViewState| state.chat().exchanges.iter().map(|e| e.answer.clone()).collect::<Vec<_>>();
    assert_eq!(answers(&state), ["First.", "Second."]);
    assert_eq!(state.chat().questions_beside(&state.chat().exchanges[0]).ids, [first, edited]);
    state.show_branch(edited);
    assert_eq!((answers(&state), state.chat().exchanges[0].question.as_str()), (vec!["Other.".to_owned()], "One, really?"));
}

#[test]
fn edited_question_is_asked_with_what_was_said_before_it_alone() {
    let mut state = window(10);
    answered(&mut state, "One?", "First.");
    answered(&mut state, "Two?", "Second.");
    answered(&mut state, "Three?", "Third.");
    state.engine.outbox.clear();
    let second = state.chat().exchanges[1].id;
    state.edit_question(second, "Two, really?");
    let [EngineCommand::Generate { messages, .. }] = state.engine.outbox.as_slice() else { panic!("{:?}", state.engine.outbox) };
    let said: Vec<&str> = messages.iter().map(|m| m.content.as_str()).collect();
    assert_eq!(said, ["One?", "First.", "Two, really?"]);
}

#[test]
fn regenerated_answer_stands_beside_the_first_and_a_failed_one_is_replaced() {
    let mut state = window(10);
    answered(&mut state, "One?", "First.");
    let first = state.chat().exchanges[0].id;
    state.regenerate();
    let request = state.engine.running.unwrap().request;
    state.apply(EngineEvent::Failed { request, sentence: "No.".into(), bad_input: false });
    let failed = state.chat().exchanges[0].id;
    state.regenerate();
    assert_eq!(state.chat().exchanges[0].id, failed);
    assert_eq!(state.chat().answers_beside(&state.chat().exchanges[0]).ids, [first, failed]);
}

#[test]
fn chat_without_a_word_is_not_kept_and_a_draft_is() {
    let mut store = ChatStore::in_memory().unwrap();
    let mut state = window(10);
    state.save_draft();
    state.new_chat();
    serve(&mut state, &mut store);
    assert!(store.list().unwrap().is_empty());
    state.chat_mut().draft = "Half a ques".into();
    state.save_draft();
    serve(&mut state, &mut store);
    let mut state = restarted(&mut store);
    assert!(state.chats.list.iter().any(|c| c.draft == "Half a ques"));
    let id = state.chats.list.iter().find(|c| c.draft == "Half a ques").unwrap().id;
    state.delete_chat(id);
    serve(&mut state, &mut store);
    for draft in ["Another", ""] {
        state.save_draft();
        state.chat_mut().draft = draft.into();
        state.save_draft();
        serve(&mut state, &mut store);
    }
    assert!(restarted(&mut store).chats.list.iter().all(|c| c.draft.is_empty()), "it was erased");
}

#[test]
fn instructions_of_a_chat_without_a_question_come_back() {
    let mut store = ChatStore::in_memory().unwrap();
    let mut state = window(10);
    state.chat_mut().instructions = "Be brief.".into();
    state.save_chat(state.chats.current);
    serve(&mut state, &mut store);
    assert!(restarted(&mut store).chats.list.iter().any(|c| c.instructions == "Be brief."));
}

#[test]
fn question_asked_after_the_clock_was_set_back_follows_what_was_said_before() {
    let mut store = ChatStore::in_memory().unwrap();
    let mut state = window(2_000_000);
    answered(&mut state, "One?", "First.");
    serve(&mut state, &mut store);
    let mut state = restarted(&mut store);
    open_stored(&mut state, &mut store, "One?");
    answered(&mut state, "Two?", "Second.");
    serve(&mut state, &mut store);
    let mut state = restarted(&mut store);
    open_stored(&mut state, &mut store, "One?");
    let answers: Vec<&str> = state.chat().exchanges.iter().map(|e| e.answer.as_str()).collect();
    assert_eq!(answers, ["First.", "Second."]);
}

#[test]
fn deleted_chat_comes_back_by_undo_and_not_after_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = ChatStore::open(dir.path()).unwrap();
    let mut state = window(10);
    answered(&mut state, "One?", "First.");
    let id = state.chats.current;
    state.delete_chat(id);
    assert!(state.chat().is_blank());
    state.undo();
    assert_eq!((state.chats.current, state.chat().exchanges.len()), (id, 1));
    serve(&mut state, &mut store);
    assert_eq!(store.list().unwrap().len(), 1);
    state.delete_chat(id);
    serve(&mut state, &mut store);
    drop(store);
    assert!(ChatStore::open(dir.path()).unwrap().list().unwrap().is_empty());
}

#[test]
fn deleting_a_chat_that_answers_stops_it() {
    let mut state = window(10);
    let request = asked(&mut state, "One?");
    let id = state.chats.current;
    state.delete_chat(id);
    assert!(state.engine.pending_stop && state.engine.running.unwrap().stopping);
    say(&mut state, request, "late");
    state.apply(EngineEvent::Finished { request, summary: Box::new(summary()) });
    state.undo();
    assert_eq!(state.chat().exchanges[0].outcome, Outcome::Restored("stopped".into()));
}

#[test]
fn discarded_undo_removes_the_document_and_its_kv() {
    let mut state = window(10);
    let document = Document::from_bytes("one.txt", b"Text.").unwrap();
    let hash = document.content_hash.to_string();
    state.add_document(document, false);
    let saved = crate::engine::SavedDocument {
        content_hash: hash.clone(),
        ..crate::app::test_support::saved(crate::engine::SavedState::Read)
    };
    state.library = Some(vec![saved]);
    state.engine.outbox.clear();
    state.remove_document(&hash, "one.txt", false);
    assert!(state.is_removed(&hash, false) && state.engine.outbox.is_empty());
    state.undo();
    assert!(!state.is_removed(&hash, true) && state.engine.outbox.is_empty() && state.chats.persistence.documents.len() == 1);
    state.remove_document(&hash, "one.txt", true);
    assert!(state.is_removed(&hash, true) && !state.is_removed(&hash, false));
    state.discard_undo();
    assert!(
        matches!(state.engine.outbox.as_slice(), [EngineCommand::Library(_)]) && state.chats.persistence.documents.len() == 1
    );
    state.remove_document(&hash, "one.txt", false);
    state.discard_undo();
    assert!(state.chats.persistence.documents.is_empty());
    assert!(
        state
            .chats
            .persistence
            .requests
            .iter()
            .any(|r| matches!(r, ChatRequest::Save(c) if c.contains(&Change::ForgetDocument(hash.clone()))))
    );
}

#[test]
fn question_waits_for_a_document_that_is_lost_and_its_file_brings_it_back() {
    let mut store = ChatStore::in_memory().unwrap();
    let mut state = window(10);
    let document = |name: &str| Document::from_bytes(name, format!("Text of {name}.").as_bytes()).unwrap();
    for name in ["one.txt", "two.txt", "three.txt"] {
        state.add_document(document(name), false);
    }
    answered(&mut state, "What?", "This.");
    serve(&mut state, &mut store);
    store.apply(&[Change::ForgetDocument(document("two.txt").content_hash.to_string())]).unwrap();
    let mut state = restarted(&mut store);
    open_stored(&mut state, &mut store, "What?");
    state.chat_mut().draft = "More?".into();
    assert!(!state.can_send());
    assert!(state.chat().missing[0].is_lost && state.chat().documents.len() == 2);
    state.add_file(document("two.txt"), "/tmp/two.txt".into());
    assert!(state.can_send());
    let names: Vec<&str> = state.chat().docs(&state.documents.list).map(|d| d.name.as_str()).collect();
    assert_eq!(names, ["one.txt", "two.txt", "three.txt"]);
}

#[test]
fn search_leads_to_the_message_on_another_branch() {
    let mut store = ChatStore::in_memory().unwrap();
    let mut state = window(10);
    answered(&mut state, "One?", "In Pudding Lane.");
    state.regenerate();
    let request = state.engine.running.unwrap().request;
    say(&mut state, request, "Elsewhere.");
    state.apply(EngineEvent::Finished { request, summary: Box::new(summary()) });
    serve(&mut state, &mut store);
    let mut state = restarted(&mut store);
    state.chats.search = " pudding ".into();
    state.request_search();
    serve(&mut state, &mut store);
    let hit = state.chats.persistence.hits("pudding").unwrap()[0].clone();
    state.select_chat(hit.chat);
    state.chats.persistence.reveal = hit.message.map(|message| (hit.chat, message));
    assert_eq!(state.take_reveal(), None, "its messages are not here yet");
    serve(&mut state, &mut store);
    assert_eq!(state.take_reveal(), hit.message);
    assert_eq!(state.chat().exchanges[0].answer, "In Pudding Lane.");
}

#[test]
fn sampling_of_a_chat_is_its_own_and_others_follow_the_settings() {
    let mut state = window(10);
    let own = crate::engine::Sampling { temperature: 1.5, ..state.settings.values.sampling };
    state.chat_mut().sampling = Some(own);
    asked(&mut state, "One?");
    let asked_with = |state: &ViewState| match state.engine.outbox.last() {
        Some(EngineCommand::Generate { sampling, .. }) => *sampling,
        other => panic!("{other:?}"),
    };
    assert_eq!(asked_with(&state), own);
    state.engine.running = None;
    state.new_chat();
    asked(&mut state, "Two?");
    assert_eq!(asked_with(&state), state.settings.values.sampling);
}
