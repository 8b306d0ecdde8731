//! Documents of the session: files on their way in, pages taken of one that is too long, quotations looked up in them.
//!
//! ```text
//! Files ─► Opening (a bar and Cancel) ─► add_document        take_pages: all ─► some of them
//! finished answer ─► search_quotes ─► Search ─► Citation ─► show_spot ─► Viewer
//! ```
//! Invariant: a document that was cut to some of its pages says so in its name.

use std::ops::Range;

use crate::app::answer::citations::{Citation, Search, SourceLocation};
use crate::app::panels::document::document_view::Viewer;
use crate::app::state::chat::{Chat, ChatId, DocId, Exchange};
use crate::app::state::{Running, Task, ViewState};
use crate::document::Progress;

/// Tokens kept free for a question and its answer.
const ROOM_TOKENS: usize = 1024;
/// A pasted text of this many characters is a document.
pub const PASTE_CHARS: usize = 4000;

/// Files that are being opened.
#[derive(Debug, Clone)]
pub struct Opening {
    /// the file at hand
    pub name: String,
    /// files after it
    pub n_left: usize,
    /// how far it is, and how to end it
    pub watch: Progress,
}

impl ViewState {
    /// Has the quotations of the answer that just ended looked up.
    pub(in crate::app) fn search_quotes(&mut self) {
        if let Some(Running { chat, task: Task::Answer(id), .. }) = self.running {
            self.search_quotes_of(chat, |e| e.id == id);
        }
    }

    /// Has the quotations of these answers of a chat looked up.
    pub(in crate::app) fn search_quotes_of(&mut self, chat: ChatId, wanted: impl Fn(&Exchange) -> bool) {
        let whole = self.info().is_some_and(|info| info.built_in);
        let Some(chat) = self.chats.iter().find(|c| c.id == chat) else { return };
        let docs: Vec<_> = chat.docs(&self.documents).map(|d| (d.id, d.document.clone())).collect();
        let answered = chat.all_exchanges().filter(|e| wanted(e) && !e.answer.is_empty() && !docs.is_empty());
        let search = |e: &Exchange| Search { exchange: e.id, answer: e.answer.clone(), whole, docs: docs.clone() };
        let searches: Vec<Search> = answered.map(search).collect();
        self.searches.extend(searches);
    }

    /// Takes the places of an answer's quotations.
    pub fn quotes_found(&mut self, exchange: u64, quotes: Vec<Citation>) {
        let is_it = |e: &&mut Exchange| e.id == exchange;
        if let Some(exchange) = self.chats.iter_mut().flat_map(Chat::all_exchanges_mut).find(is_it) {
            exchange.quotes = Some(quotes);
        }
    }

    /// Shows a passage that an answer quotes on its page, beside the chat.
    pub fn show_spot(&mut self, spot: SourceLocation, answer: u64) {
        self.viewer = Some(Viewer { answer: Some(answer), ..Viewer::at(spot) });
    }

    /// Shows what an answer read most: the first of these pages, or that of the chat's documents where it is not known.
    pub fn show_most_read(&mut self, answer: u64) {
        let exchange = self.chat().exchanges.iter().find(|e| e.id == answer);
        let first = exchange.and_then(|e| e.most_read.as_ref()?.pages.first());
        let first = first.map(|read| (read.doc, read.page)).or_else(|| Some((*self.chat().documents.first()?, 0)));
        self.viewer = first.map(|(doc, page)| Viewer { answer: Some(answer), page, ..Viewer::of(doc) });
    }

    /// Shows a document from its first page.
    pub fn show_document(&mut self, doc: DocId) {
        self.viewer = Some(Viewer::of(doc));
    }

    /// Puts some pages of a document of this chat in its place.
    pub fn take_pages(&mut self, doc: DocId, pages: Range<usize>) {
        let Some(whole) = self.documents.iter().find(|d| d.id == doc).map(|d| d.document.clone()) else { return };
        match whole.excerpt(pages) {
            Ok(excerpt) => {
                self.detach(doc);
                self.add_document(excerpt, false);
            }
            Err(error) => self.notice(error.to_string(), true),
        }
    }

    /// How many pages of a document, from its first, fit into what the model's window has left beside the chat's other
    /// documents and what was said; an estimate from its characters where its tokens are not counted.
    pub fn pages_that_fit(&self, doc: DocId) -> usize {
        let Some(info) = self.info() else { return 0 };
        let Some(document) = self.documents.iter().find(|d| d.id == doc) else { return 0 };
        let others: usize = self.chat().docs(&self.documents).filter(|d| d.id != doc).map(|d| d.tokens().0).sum();
        let room = info.context_limit.saturating_sub(others + self.chat().said_tokens() + ROOM_TOKENS);
        let (n_tokens, _) = document.tokens();
        let bytes = (document.text.len() as f64 * (room as f64 / n_tokens.max(1) as f64)) as usize;
        document.pages.iter().take_while(|page| page.end_byte <= bytes).count()
    }
}
