//! Chats made up for the tests.

use strata::chats::{Author, Change, ChatRow, MessageRow, MessageState};

pub fn chat(id: u64, title: &str) -> ChatRow {
    ChatRow { id, title: title.into(), updated: id as i64, ..ChatRow::default() }
}

pub fn message(id: u64, chat: u64, parent: Option<u64>, author: Author, text: &str) -> MessageRow {
    let (note, cost) = (String::new(), String::new());
    MessageRow { id, chat, parent, author, text: text.into(), state: MessageState::Done, note, cost, made: 7 }
}

/// A chat of one question and its answer.
pub fn asked(id: u64, question: &str, answer: &str) -> Vec<Change> {
    vec![
        Change::Chat(ChatRow { leaf: Some(id + 2), ..chat(id, question) }),
        Change::Message(message(id + 1, id, None, Author::User, question)),
        Change::Message(message(id + 2, id, Some(id + 1), Author::Model, answer)),
    ]
}
