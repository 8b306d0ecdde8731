//! Export of a chat: Markdown of the selected branch, or JSON of every branch. Pure.

use super::records::{Author, ChatRow, MessageRow};

/// File format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// Markdown of the selected branch, for readers
    Markdown,
    /// JSON of every branch, for programs
    Json,
}

impl ExportFormat {
    /// Extension of the file name.
    pub fn extension(self) -> &'static str {
        match self {
            ExportFormat::Markdown => "md",
            ExportFormat::Json => "json",
        }
    }
}

/// Content of the exported file.
pub fn export(format: ExportFormat, chat: &ChatRow, messages: &[MessageRow]) -> String {
    match format {
        ExportFormat::Markdown => markdown(chat, messages),
        ExportFormat::Json => json(chat, messages),
    }
}

/// Messages from the first to `leaf`, oldest first.
pub fn branch(messages: &[MessageRow], leaf: Option<u64>) -> Vec<&MessageRow> {
    let mut branch: Vec<&MessageRow> = Vec::new();
    let mut next = leaf;
    // A parent is older than its child; the check ends the loop even on a corrupt file.
    while let Some(message) = next.and_then(|id| messages.iter().find(|m| m.id == id)) {
        if branch.last().is_some_and(|child| child.id <= message.id) {
            break;
        }
        branch.push(message);
        next = message.parent;
    }
    branch.reverse();
    branch
}

fn markdown(chat: &ChatRow, messages: &[MessageRow]) -> String {
    let mut text = format!("# {}\n", chat.title.replace(['\n', '\r'], " "));
    for document in &chat.documents {
        text += &format!("\n- Document: {} (BLAKE3 {})", document.name, document.content_hash);
    }
    if !chat.documents.is_empty() {
        text.push('\n');
    }
    if !chat.instructions.is_empty() {
        text += &format!("\n## Instructions\n\n{}\n", chat.instructions.trim_end());
    }
    for message in branch(messages, chat.leaf) {
        text.push('\n');
        text += &message_markdown(message.author, &message.text, &message.note);
    }
    text
}

/// One message under its own heading, followed by its note, if any.
pub fn message_markdown(author: Author, text: &str, note: &str) -> String {
    let who = match author {
        Author::User => "Question",
        Author::Model => "Answer",
    };
    let note = if note.is_empty() { String::new() } else { format!("\n*{note}*\n") };
    format!("## {who}\n\n{}\n{note}", text.trim_end())
}

#[derive(serde::Serialize)]
struct Exported<'a> {
    format: &'static str,
    version: u32,
    chat: &'a ChatRow,
    messages: &'a [MessageRow],
}

fn json(chat: &ChatRow, messages: &[MessageRow]) -> String {
    let all = Exported { format: "strata-chat", version: 1, chat, messages };
    serde_json::to_string_pretty(&all).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chats::records::MessageState;

    fn message(id: u64, parent: Option<u64>, author: Author, text: &str) -> MessageRow {
        let (note, cost) = (String::new(), String::new());
        MessageRow { id, chat: 1, parent, author, text: text.into(), state: MessageState::Done, note, cost, made: 0 }
    }

    fn chat() -> (ChatRow, Vec<MessageRow>) {
        let messages = vec![
            message(2, None, Author::User, "One?"),
            message(3, Some(2), Author::Model, "First."),
            message(4, Some(2), Author::Model, "Second."),
        ];
        (ChatRow { id: 1, title: "Numbers".into(), leaf: Some(4), ..ChatRow::default() }, messages)
    }

    #[test]
    fn markdown_has_the_selected_branch_and_json_has_all() {
        let (chat, messages) = chat();
        assert_eq!(
            export(ExportFormat::Markdown, &chat, &messages),
            "# Numbers\n\n## Question\n\nOne?\n\n## Answer\n\nSecond.\n"
        );
        let json: serde_json::Value = serde_json::from_str(&export(ExportFormat::Json, &chat, &messages)).unwrap();
        assert_eq!(json["messages"].as_array().unwrap().len(), 3);
        assert_eq!((&json["format"], &json["chat"]["leaf"]), (&"strata-chat".into(), &4.into()));
    }

    #[test]
    fn branch_ends_at_a_cycle_of_parents() {
        let messages = [message(2, Some(3), Author::User, "a"), message(3, Some(2), Author::Model, "b")];
        assert_eq!(branch(&messages, Some(3)).len(), 2);
        assert!(branch(&messages, Some(9)).is_empty());
    }
}
