//! Chat: one conversation and its documents, as plain data.
//!
//! ```text
//! Chat { documents: [DocId], exchanges: [question → answer] } ──► messages(): the prompt
//!        other_branches: exchanges that are not shown, see `branches`
//! ```
//! Invariants: 1. The first user message is the documents, joined by blank lines, and the first question. The documents are
//! thus a prefix of every later prompt. Instructions follow the documents, so that a change of them costs no prefill of
//! documents; without documents they are a system message. 2. A question without an answer is left out of later prompts.
//! 3. Read progress is what the engine reported, never a guess.

use std::ops::Range;

use crate::chats::DocumentName;
use crate::document::{BLANK_LINE, ContentHash, distinct_names};
use crate::engine::{DocumentRef, Message, Role, Sampling};

pub use crate::app::state::exchange::{Exchange, Outcome};
pub use crate::app::state::open_document::{CHARS_PER_TOKEN, DocId, OpenDocument, estimate_tokens};

/// Id of a chat.
pub type ChatId = u64;
/// A conversation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chat {
    /// its id
    pub id: ChatId,
    /// documents before the first question, in this order
    pub documents: Vec<DocId>,
    /// hash of the joined documents; None without documents
    pub content_hash: Option<ContentHash>,
    /// the branch that is shown, oldest first
    pub exchanges: Vec<Exchange>,
    /// exchanges of other branches
    pub other_branches: Vec<Exchange>,
    /// text in the composer
    pub draft: String,
    /// tokens of this chat in the engine's context; 0 if another chat has it
    pub cached_tokens: usize,
    /// tokens of the last prompt of this chat; 0 if the engine has no part of it
    pub prompt_tokens: usize,
    /// documents whose KV in the engine's context was saved at another position
    pub approximate: Vec<DocId>,
    /// range of each document in the prompt, once counted together
    pub token_ranges: Vec<Range<usize>>,
    /// title from the user; if empty, the first question is the title
    pub name: String,
    /// listed above the others
    pub pinned: bool,
    /// instructions for the model, sent with the first question
    pub instructions: String,
    /// sampling of this chat; None to use that of the settings
    pub sampling: Option<Sampling>,
    /// time of the last message, seconds since 1970
    pub updated: i64,
    /// documents that are not loaded
    pub missing: Vec<MissingDocument>,
    /// whether its messages are loaded
    pub stored: Stored,
}

/// A document of a chat that is not loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingDocument {
    /// its position among the chat's documents
    pub place: usize,
    /// its name and hash
    pub document: DocumentName,
    /// its text is not stored: the user has to open its file
    pub is_lost: bool,
}

/// Location of the messages of a chat.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Stored {
    /// in memory
    #[default]
    Loaded,
    /// in the database only, with the title for the list and the last message of the branch that was shown
    InDatabase {
        /// for the list
        title: String,
        /// of the branch
        leaf: Option<u64>,
    },
}

impl Chat {
    /// Time to turn the files of the documents into text, milliseconds. None without a file.
    pub fn ingest_ms(&self, documents: &[OpenDocument]) -> Option<f64> {
        let own = documents.iter().filter(|doc| self.documents.contains(&doc.id));
        own.filter_map(|doc| doc.ingest_ms).reduce(|a, b| a + b)
    }

    /// True if the chat has no question, document or name.
    pub fn is_blank(&self) -> bool {
        let is_empty = self.documents.is_empty() && self.missing.is_empty() && self.exchanges.is_empty();
        is_empty && self.name.is_empty() && self.stored == Stored::Loaded
    }

    /// Title in the sidebar: the user's, else the first question, else the first document.
    pub fn title(&self, documents: &[OpenDocument]) -> String {
        if !self.name.is_empty() {
            return self.name.clone();
        }
        if let Stored::InDatabase { title, .. } = &self.stored {
            return title.clone();
        }
        if let Some(first) = self.exchanges.first() {
            return crate::app::ui::format::title(&first.question, 48);
        }
        self.docs(documents).next().map_or_else(|| "New chat".to_owned(), |d| d.name.clone())
    }

    /// The documents of this chat.
    pub fn docs<'a>(&'a self, documents: &'a [OpenDocument]) -> impl Iterator<Item = &'a OpenDocument> {
        self.documents.iter().filter_map(|id| documents.iter().find(|d| d.id == *id))
    }

    /// Names of the documents of this chat; those with the same name have their folders in it.
    pub fn document_names(&self, documents: &[OpenDocument]) -> Vec<String> {
        let named: Vec<_> = self.docs(documents).map(|d| (d.name.as_str(), d.path.as_deref())).collect();
        distinct_names(&named)
    }

    /// Name of one document, as in [`Chat::document_names`].
    pub fn document_name(&self, documents: &[OpenDocument], doc: &OpenDocument) -> String {
        let position = self.docs(documents).position(|d| d.id == doc.id);
        position.and_then(|i| self.document_names(documents).into_iter().nth(i)).unwrap_or_else(|| doc.name.clone())
    }

    /// The joined documents.
    pub fn document_text(&self, documents: &[OpenDocument]) -> String {
        let parts: Vec<&str> = self.docs(documents).map(|d| d.text.as_str()).collect();
        parts.join(BLANK_LINE)
    }

    /// Hash of [`Chat::document_text`]. None without documents.
    pub fn hash(&self, documents: &[OpenDocument]) -> Option<ContentHash> {
        let docs: Vec<&OpenDocument> = self.docs(documents).collect();
        match docs.as_slice() {
            [] => None,
            [one] => Some(one.content_hash),
            _ => Some(ContentHash::of(&self.document_text(documents))),
        }
    }

    /// References to the documents, as they stand in the first user message.
    pub fn document_refs(&self, documents: &[OpenDocument], save: bool) -> Vec<DocumentRef> {
        DocumentRef::joined(self.docs(documents).map(|doc| &*doc.document), save)
    }

    /// Tokens of the documents, and whether the number is exact.
    pub fn document_tokens(&self, documents: &[OpenDocument]) -> (usize, bool) {
        self.docs(documents).map(OpenDocument::tokens).fold((0, true), |(n, exact), (m, e)| (n + m, exact && e))
    }

    /// The prompt up to and including the question of exchange `index`.
    pub fn messages(&self, documents: &[OpenDocument], index: usize) -> Vec<Message> {
        let mut messages = Vec::new();
        let mut prefix = self.document_text(documents);
        let instructions = self.instructions.trim();
        match (instructions.is_empty(), prefix.is_empty()) {
            (true, _) => {}
            (false, true) => messages.push(Message { role: Role::System, content: instructions.to_owned() }),
            (false, false) => prefix = prefix + BLANK_LINE + instructions,
        }
        for (i, exchange) in self.exchanges.iter().enumerate().take(index + 1) {
            let last = i == index;
            if !last && exchange.answer.is_empty() {
                continue;
            }
            let mut content = std::mem::take(&mut prefix);
            if !content.is_empty() {
                content.push_str(BLANK_LINE);
            }
            content.push_str(&exchange.question);
            messages.push(Message { role: Role::User, content });
            if !last {
                messages.push(Message { role: Role::Assistant, content: exchange.answer.clone() });
            }
        }
        messages
    }

    /// Tokens of the whole conversation: from the engine, else an estimate. True if exact.
    pub fn context_tokens(&self, documents: &[OpenDocument]) -> (usize, bool) {
        if self.cached_tokens > 0 {
            return (self.cached_tokens, true);
        }
        let (docs, exact) = self.document_tokens(documents);
        let said = self.said_tokens();
        (docs + said, exact && said == 0)
    }

    /// Tokens of the questions and answers, an estimate.
    pub fn said_tokens(&self) -> usize {
        estimate_tokens(self.exchanges.iter().map(|e| e.question.len() + e.answer.len()).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Document;

    fn doc(id: DocId, text: &str) -> OpenDocument {
        let document = Document::from_bytes(&format!("{id}.txt"), text.as_bytes()).unwrap().into();
        OpenDocument {
            id,
            document,
            n_chars: text.len(),
            n_tokens: None,
            token_range: None,
            ingest_ms: None,
            sample: false,
            path: None,
        }
    }

    fn exchange(id: u64, question: &str, answer: &str) -> Exchange {
        Exchange { answer: answer.into(), ..Exchange::new(id, question.into()) }
    }

    #[test]
    fn document_stands_in_front_of_the_first_question_only() {
        let docs = [doc(1, "Text."), doc(2, "More.")];
        let chat = Chat {
            documents: vec![1, 2],
            exchanges: vec![exchange(1, "One?", "Yes."), exchange(2, "Two?", "")],
            ..Chat::default()
        };
        let messages = chat.messages(&docs, 1);
        assert_eq!(messages.len(), 3);
        assert_eq!(messages[0], Message { role: Role::User, content: "Text.\n\nMore.\n\nOne?".into() });
        assert_eq!(messages[1], Message { role: Role::Assistant, content: "Yes.".into() });
        assert_eq!(messages[2].content, "Two?");
    }

    #[test]
    fn references_name_each_document_and_the_end_of_its_text() {
        let docs = [doc(1, "Text."), doc(2, "Möre.")];
        let chat = Chat { documents: vec![1, 2], exchanges: vec![exchange(1, "One?", "")], ..Chat::default() };
        let references = chat.document_refs(&docs, true);
        let first = &chat.messages(&docs, 0)[0].content;
        let named: Vec<_> = references.iter().map(|r| (r.name.as_str(), first.get(..r.end_byte).unwrap(), r.save)).collect();
        assert_eq!(named, [("1.txt", "Text.", true), ("2.txt", "Text.\n\nMöre.", true)]);
        assert_eq!(references[1].content_hash, docs[1].content_hash.0);
        assert_ne!(chat.hash(&docs), Some(docs[0].content_hash), "both");
        assert!(Chat::default().document_refs(&docs, true).is_empty());
    }

    #[test]
    fn turn_without_an_answer_is_left_out_and_the_document_moves_on() {
        let docs = [doc(1, "Text.")];
        let chat =
            Chat { documents: vec![1], exchanges: vec![exchange(1, "Lost?", ""), exchange(2, "Kept?", "")], ..Chat::default() };
        let messages = chat.messages(&docs, 1);
        assert_eq!(messages, vec![Message { role: Role::User, content: "Text.\n\nKept?".into() }]);
    }

    #[test]
    fn instructions_stand_after_the_documents_or_alone_in_front() {
        let docs = [doc(1, "Text.")];
        let exchanges = vec![exchange(1, "One?", "Yes."), exchange(2, "Two?", "")];
        let chat = Chat { documents: vec![1], exchanges, instructions: " Be brief.\n".into(), ..Chat::default() };
        assert_eq!(chat.messages(&docs, 1)[0].content, "Text.\n\nBe brief.\n\nOne?");
        let chat = Chat { documents: Vec::new(), ..chat };
        let messages = chat.messages(&docs, 0);
        assert_eq!(messages[0], Message { role: Role::System, content: "Be brief.".into() });
        assert_eq!(messages[1].content, "One?");
    }

    #[test]
    fn documents_of_the_same_name_have_their_folders_in_it() {
        let in_folder = |id: DocId, folder: &str| {
            let document = Document::from_bytes("notes.txt", folder.as_bytes()).unwrap().into();
            OpenDocument { document, path: Some(format!("/{folder}/notes.txt").into()), ..doc(id, "x") }
        };
        let documents = [in_folder(1, "old"), in_folder(2, "new"), doc(3, "z"), in_folder(4, "other")];
        let chat = Chat { documents: vec![1, 2, 3], ..Chat::default() };
        let names: Vec<String> = documents.iter().map(|d| chat.document_name(&documents, d)).collect();
        assert_eq!(names, ["old/notes.txt", "new/notes.txt", "3.txt", "notes.txt"]);
        let alone = Chat { documents: vec![1, 3], ..Chat::default() };
        assert_eq!(alone.document_name(&documents, &documents[0]), "notes.txt");
    }
}
