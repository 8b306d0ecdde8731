//! Documents of the session: files being opened, excerpts of long documents, and citations.
//!
//! ```text
//! Files ─► Opening (a bar and Cancel) ─► add_document        take_pages: a document ─► some of its pages
//! finished answer ─► request_citations ─► Search ─► Citation ─► show_source ─► Viewer
//! ```
//! Invariant: the name of an excerpt has its pages.

use std::ops::Range;

use crate::app::answer::citations::{Citation, Search, SourceLocation};
use crate::app::state::chat::{Chat, ChatId, DocId, Exchange};
use crate::app::state::viewer::Viewer;
use crate::app::state::{Running, Task, ViewState};
use crate::token::without_reasoning;

/// Tokens reserved for a question and its answer.
const ROOM_TOKENS: usize = 1024;
/// A longer pasted text is a document, characters.
pub const PASTE_CHARS: usize = 4000;

impl ViewState {
    /// Requests the citations of the answer that has just ended.
    pub(in crate::app) fn request_citations(&mut self) {
        if let Some(Running { chat, task: Task::Answer(id), .. }) = self.engine.running {
            self.request_citations_of(chat, |e| e.id == id);
        }
    }

    /// Requests the citations of some answers of a chat.
    pub(in crate::app) fn request_citations_of(&mut self, chat: ChatId, wanted: impl Fn(&Exchange) -> bool) {
        let whole = self.info().is_some_and(|info| info.built_in);
        let Some(chat) = self.chats.list.iter().find(|c| c.id == chat) else { return };
        let docs: Vec<_> = chat.docs(&self.documents.list).map(|d| (d.id, d.document.clone())).collect();
        let answered = chat.all_exchanges().filter(|e| wanted(e) && !e.answer.is_empty() && !docs.is_empty());
        let search = |e: &Exchange| Search {
            exchange: e.id,
            answer: without_reasoning(&e.answer).into_owned(),
            whole,
            docs: docs.clone(),
        };
        let searches: Vec<Search> = answered.map(search).collect();
        self.documents.searches.extend(searches);
    }

    /// Sets the citations of an answer.
    pub fn set_citations(&mut self, exchange: u64, quotes: Vec<Citation>) {
        let is_it = |e: &&mut Exchange| e.id == exchange;
        if let Some(exchange) = self.chats.list.iter_mut().flat_map(Chat::all_exchanges_mut).find(is_it) {
            exchange.quotes = Some(quotes);
        }
    }

    /// Shows the source of a citation beside the chat.
    pub fn show_source(&mut self, spot: SourceLocation, answer: u64) {
        self.documents.viewer = Some(Viewer { answer: Some(answer), ..Viewer::at(spot) });
    }

    /// Shows the first attended page of an answer, or the first page of the chat's documents if none was measured.
    pub fn show_attended_pages(&mut self, answer: u64) {
        let exchange = self.chat().exchanges.iter().find(|e| e.id == answer);
        let first = exchange.and_then(|e| e.attended_pages.as_ref()?.pages.first());
        let first = first.map(|read| (read.doc, read.page)).or_else(|| Some((*self.chat().documents.first()?, 0)));
        self.documents.viewer = first.map(|(doc, page)| Viewer { answer: Some(answer), page, ..Viewer::of(doc) });
    }

    /// Shows the first page of a document.
    pub fn show_document(&mut self, doc: DocId) {
        self.documents.viewer = Some(Viewer::of(doc));
    }

    /// Replaces a document of this chat by some of its pages.
    pub fn take_pages(&mut self, doc: DocId, pages: Range<usize>) {
        let Some(whole) = self.documents.list.iter().find(|d| d.id == doc).map(|d| d.document.clone()) else { return };
        match whole.excerpt(pages) {
            Ok(excerpt) => {
                self.detach(doc);
                self.add_document(excerpt, false);
            }
            Err(error) => self.notice(error.to_string(), true),
        }
    }

    /// Number of pages of a document, from its first, that fit into the model's window beside the chat's other documents and
    /// its messages. An estimate from characters if the tokens are not counted.
    pub fn pages_that_fit(&self, doc: DocId) -> usize {
        let Some(info) = self.info() else { return 0 };
        let Some(document) = self.documents.list.iter().find(|d| d.id == doc) else { return 0 };
        let others: usize = self.chat().docs(&self.documents.list).filter(|d| d.id != doc).map(|d| d.tokens().0).sum();
        let room = info.context_limit.saturating_sub(others + self.chat().said_tokens() + ROOM_TOKENS);
        let (n_tokens, _) = document.tokens();
        let bytes = (document.text.len() as f64 * (room as f64 / n_tokens.max(1) as f64)) as usize;
        document.pages.iter().take_while(|page| page.end_byte <= bytes).count()
    }
}
