//! One conversation and the documents in front of it, as plain data.
//!
//! ```text
//! Chat { documents: [DocId], exchanges: [question → answer] } ──► messages(): what the model is given
//!        aside: exchanges of other branches ── see `branches`
//! ```
//! Invariants: 1. The documents, joined by blank lines, a blank line, the first question: one user turn, so that the
//! documents are a prefix of every later prompt. Instructions stand between them, so that another word in them costs no
//! document; without documents they are a system message. 2. A turn without an answer is left out of later prompts.
//! 3. What the window shows as read is what the engine said, never what was hoped for.

use std::ops::{Deref, Range};
use std::path::PathBuf;
use std::sync::Arc;

use crate::app::answer::citations::Citation;
use crate::app::answer::exact_check::{ExactCheck, OriginalRequest};
use crate::app::answer::page_attention::AttendedPages;
use crate::chats::DocumentName;
use crate::document::{BLANK_LINE, ContentHash, Document};
use crate::engine::{DocumentRef, Message, RequestSummary, Role, Sampling};

/// Names a chat.
pub type ChatId = u64;
/// Names a document of this session.
pub type DocId = u64;
/// Characters of a token before a document was counted: an estimate, shown with `~`.
pub const CHARS_PER_TOKEN: f64 = 3.6;

/// A document of this session.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenDocument {
    /// names it
    pub id: DocId,
    /// what was read
    pub document: Arc<Document>,
    /// characters of it
    pub n_chars: usize,
    /// tokens, once the engine has counted them for the loaded model
    pub n_tokens: Option<usize>,
    /// where they are in a prompt that begins with this document, once that is counted
    pub token_range: Option<Range<usize>>,
    /// what turning the file into text took, milliseconds; none where there was no file
    pub ingest_ms: Option<f64>,
    /// the bundled sample
    pub sample: bool,
    /// where its file is
    pub path: Option<PathBuf>,
}

impl Deref for OpenDocument {
    type Target = Document;

    fn deref(&self) -> &Document {
        &self.document
    }
}

impl OpenDocument {
    /// Tokens, and whether that is exact.
    pub fn tokens(&self) -> (usize, bool) {
        match self.n_tokens {
            Some(n) => (n, true),
            None => (estimate_tokens(self.n_chars), false),
        }
    }
}

/// Tokens of so many characters, roughly.
pub fn estimate_tokens(n_chars: usize) -> usize {
    (n_chars as f64 / CHARS_PER_TOKEN).ceil() as usize
}

/// How an answer stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// asked, not finished
    Running,
    /// finished or stopped
    Done(Box<RequestSummary>),
    /// one sentence that says what to do
    Failed(String),
    /// kept from before, without what it cost: a few words on how it ended, or none
    Kept(String),
}

/// A question and its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Exchange {
    /// names it, and its answer among all messages
    pub id: u64,
    /// names its question among all messages; other answers to it have the same
    pub question_id: u64,
    /// the exchange that it follows
    pub parent: Option<u64>,
    /// what was asked
    pub question: String,
    /// what came so far
    pub answer: String,
    /// how it stands
    pub outcome: Outcome,
    /// times it was asked again: moves the seed
    pub attempt: u64,
    /// where each token of the answer ends in it, bytes
    pub token_ends: Vec<u32>,
    /// tokens that came from the library instead of being read
    pub resumed_tokens: usize,
    /// how it was asked, while the same can be asked of the same
    pub asked: Option<OriginalRequest>,
    /// the same question answered from everything
    pub check: Option<ExactCheck>,
    /// the quotations of the answer; none before they were looked up
    pub quotes: Option<Vec<Citation>>,
    /// the pages that it read most, where that was measured
    pub most_read: Option<AttendedPages>,
}

impl Exchange {
    /// A question without an answer.
    pub fn new(id: u64, question: String) -> Exchange {
        let (answer, outcome, token_ends) = (String::new(), Outcome::Running, Vec::new());
        let (question_id, parent) = (id, None);
        let (attempt, resumed_tokens) = (0, 0);
        Exchange {
            id,
            question_id,
            parent,
            question,
            answer,
            outcome,
            attempt,
            token_ends,
            resumed_tokens,
            asked: None,
            check: None,
            quotes: None,
            most_read: None,
        }
    }
}

/// A conversation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chat {
    /// names it
    pub id: ChatId,
    /// in front of the first question, in this order
    pub documents: Vec<DocId>,
    /// of the documents as one text; none where there is no document
    pub content_hash: Option<ContentHash>,
    /// the branch that is shown, oldest first
    pub exchanges: Vec<Exchange>,
    /// exchanges of other branches
    pub aside: Vec<Exchange>,
    /// text in the composer
    pub draft: String,
    /// tokens of this chat that the engine holds; 0 when another chat has the cache
    pub cached_tokens: usize,
    /// tokens of the last prompt of this chat; 0 if the engine has none of it
    pub prompt_tokens: usize,
    /// of each document in the prompt, once the engine has counted them together
    pub token_ranges: Vec<Range<usize>>,
    /// given by a person; empty where it is called after its first question
    pub name: String,
    /// stands above the others
    pub pinned: bool,
    /// said to the model with the first question
    pub instructions: String,
    /// how tokens are chosen; as in the settings where there is none
    pub sampling: Option<Sampling>,
    /// when something was last said, seconds since 1970
    pub updated: i64,
    /// documents that it was about and that are not here yet
    pub missing: Vec<MissingDocument>,
    /// where its messages are
    pub stored: Stored,
}

/// A document that a chat is about and that is not here yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingDocument {
    /// among the chat's documents
    pub place: usize,
    /// which
    pub document: DocumentName,
    /// its text is not kept: its file is to be opened
    pub is_lost: bool,
}

/// Where the messages of a chat are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Stored {
    /// here
    #[default]
    Here,
    /// kept, and not read yet: what the list shows meanwhile, and the last message of the branch that was shown
    Kept {
        /// for the list
        title: String,
        /// of the branch
        leaf: Option<u64>,
    },
}

impl Chat {
    /// What turning files into the documents took, milliseconds; none where there was no file.
    pub fn ingest_ms(&self, documents: &[OpenDocument]) -> Option<f64> {
        let own = documents.iter().filter(|doc| self.documents.contains(&doc.id));
        own.filter_map(|doc| doc.ingest_ms).reduce(|a, b| a + b)
    }

    /// Nothing was asked and no document added.
    pub fn is_blank(&self) -> bool {
        let is_empty = self.documents.is_empty() && self.missing.is_empty() && self.exchanges.is_empty();
        is_empty && self.name.is_empty() && self.stored == Stored::Here
    }

    /// For the sidebar: what a person called it, else the first question, else the first document.
    pub fn title(&self, documents: &[OpenDocument]) -> String {
        if !self.name.is_empty() {
            return self.name.clone();
        }
        if let Stored::Kept { title, .. } = &self.stored {
            return title.clone();
        }
        if let Some(first) = self.exchanges.first() {
            return crate::app::ui::format::title(&first.question, 48);
        }
        self.docs(documents).next().map_or_else(|| "New chat".to_owned(), |d| d.name.clone())
    }

    /// The documents in front of this chat.
    pub fn docs<'a>(&'a self, documents: &'a [OpenDocument]) -> impl Iterator<Item = &'a OpenDocument> {
        self.documents.iter().filter_map(|id| documents.iter().find(|d| d.id == *id))
    }

    /// The documents as one text.
    pub fn document_text(&self, documents: &[OpenDocument]) -> String {
        let parts: Vec<&str> = self.docs(documents).map(|d| d.text.as_str()).collect();
        parts.join(BLANK_LINE)
    }

    /// Hash of [`Chat::document_text`]; none where there is no document.
    pub fn hash(&self, documents: &[OpenDocument]) -> Option<ContentHash> {
        let docs: Vec<&OpenDocument> = self.docs(documents).collect();
        match docs.as_slice() {
            [] => None,
            [one] => Some(one.content_hash),
            _ => Some(ContentHash::of(&self.document_text(documents))),
        }
    }

    /// The documents as the library names them.
    pub fn document_ref(&self, documents: &[OpenDocument], save: bool) -> Option<DocumentRef> {
        let docs: Vec<&OpenDocument> = self.docs(documents).collect();
        let name = match docs.as_slice() {
            [] => return None,
            [one] => one.name.clone(),
            [first, rest @ ..] => format!("{} and {} more", first.name, rest.len()),
        };
        Some(DocumentRef {
            content_hash: self.content_hash?.0,
            name,
            bytes: docs.iter().map(|d| d.bytes).sum(),
            pages: docs.iter().map(|d| d.pages.len()).sum(),
            text_bytes: docs.iter().map(|d| d.text.len()).sum::<usize>() + (docs.len() - 1) * BLANK_LINE.len(),
            save,
        })
    }

    /// Tokens of the documents, and whether that is exact.
    pub fn document_tokens(&self, documents: &[OpenDocument]) -> (usize, bool) {
        self.docs(documents).map(OpenDocument::tokens).fold((0, true), |(n, exact), (m, e)| (n + m, exact && e))
    }

    /// The conversation up to and including the question of exchange `index`, as the model is given it.
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

    /// Tokens of the whole conversation: what the engine holds, else an estimate.
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
    fn reference_of_several_documents_names_their_joined_text() {
        let docs = [doc(1, "Text."), doc(2, "Möre.")];
        let mut chat = Chat { documents: vec![1, 2], exchanges: vec![exchange(1, "One?", "")], ..Chat::default() };
        chat.content_hash = chat.hash(&docs);
        let named = chat.document_ref(&docs, true).unwrap();
        assert_eq!((named.name.as_str(), named.bytes, named.pages, named.save), ("1.txt and 1 more", 11, 2, true));
        let first = &chat.messages(&docs, 0)[0].content;
        let text = first.get(..named.text_bytes).unwrap();
        assert_eq!(text, "Text.\n\nMöre.");
        assert_eq!(named.content_hash, *blake3::hash(text.as_bytes()).as_bytes());
        chat.documents.pop();
        assert_eq!(chat.hash(&docs), Some(docs[0].content_hash));
        assert_eq!(Chat::default().document_ref(&docs, true), None);
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
}
