//! The thread that keeps chats, so that the window never waits for the disk longer than it wants to.
//!
//! ```text
//! window ─ Request ─► [bounded] ─► "chats" thread, ChatStore ─► [bounded] ─ ChatEvent ─► window
//!    └─ flush: until what was handed over is kept ◄─ a counter ─┘
//! ```
//! Invariants: 1. Changes are kept in the order in which they came, and none is dropped: what could not be kept is tried
//! again with what comes next. 2. What the window settles before it draws outlives the program. 3. Where chats cannot be
//! kept, all goes on in memory, and a sentence says so once.
//! Limits: [`QUEUE`] requests wait at most.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};

use super::error::ChatsError;
use super::export::{Format, export};
use super::records::{Change, ChatRow, MessageRow, Preset, SearchHit, StoredDocument};
use super::store::ChatStore;
use crate::document::Document;

/// Requests waiting at most; news as well.
const QUEUE: usize = 256;
/// Between two tries to keep what could not be kept.
const AGAIN: Duration = Duration::from_secs(2);

/// What can be asked of the kept chats.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// keep these
    Keep(Vec<Change>),
    /// the messages of a chat
    Messages(u64),
    /// a document by the hash of its text
    Document(String),
    /// chats that hold these words
    Search(String),
    /// a chat as a text
    Export(u64, Format, Destination),
}

/// Where a chat goes as a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// a file that the person names
    File,
    /// the clipboard
    Clipboard,
}

/// What came back.
#[derive(Debug)]
pub enum ChatEvent {
    /// what there is
    Opened {
        /// the largest name of a chat or a message
        newest_id: u64,
        /// newest first
        chats: Vec<ChatRow>,
        /// whose text is kept
        documents: Vec<StoredDocument>,
        /// by name
        presets: Vec<Preset>,
    },
    /// the messages of a chat, on every branch
    Messages(u64, Vec<MessageRow>),
    /// a document that was kept, and where its file was
    Document(Box<Document>, Option<PathBuf>),
    /// the hash of one that was not
    NoDocument(String),
    /// what a search found
    Found {
        /// the words
        query: String,
        /// the newest first
        hits: Vec<SearchHit>,
    },
    /// a chat as a text
    Exported {
        /// where it goes
        to: Destination,
        /// of a file
        name: String,
        /// all of it
        text: String,
    },
    /// one sentence for the person
    Refused(String),
}

/// How many requests were kept, and who waits for it.
#[derive(Default)]
struct Saved {
    n: Mutex<u64>,
    changed: Condvar,
}

/// The window's end.
pub struct ChatWriter {
    requests: Option<Sender<Request>>,
    news: Receiver<ChatEvent>,
    kept: Arc<Saved>,
    n_sent: u64,
    thread: Option<JoinHandle<()>>,
}

impl ChatWriter {
    /// Chats in the folder `root`, or in memory alone. `wake` is called after every piece of news, from the thread.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(root: Option<PathBuf>, wake: impl Fn() + Send + 'static) -> Result<ChatWriter, ChatsError> {
        let (requests, inbox) = bounded(QUEUE);
        let (sender, news) = bounded(QUEUE);
        let kept = Arc::new(Saved::default());
        let counter = kept.clone();
        let work = move || {
            let tell = |news| {
                let told = sender.send(news).is_ok();
                wake();
                told
            };
            if let Some(store) = open(root, &tell) {
                Worker { store, tell: &tell, kept: &counter, waiting: Vec::new(), tried: Instant::now(), has_complained: false }
                    .run(&inbox);
            }
        };
        let thread = std::thread::Builder::new().name("chats".to_owned()).spawn(work).map_err(ChatsError::Thread)?;
        Ok(ChatWriter { requests: Some(requests), news, kept, n_sent: 0, thread: Some(thread) })
    }

    /// Hands a request over; gives it back where there is no room yet.
    ///
    /// # Errors
    /// The request.
    pub fn send(&mut self, request: Request) -> Result<(), Request> {
        let Some(requests) = &self.requests else { return Ok(()) };
        match requests.try_send(request) {
            Ok(()) => self.n_sent += 1,
            Err(TrySendError::Full(request)) => return Err(request),
            // The thread has said why it is gone.
            Err(TrySendError::Disconnected(_)) => self.requests = None,
        }
        Ok(())
    }

    /// The next piece of news, if there is one.
    pub fn poll(&self) -> Option<ChatEvent> {
        self.news.try_recv().ok()
    }

    /// Waits until everything handed over was kept, `patience` at most. False where that was not enough.
    pub fn flush(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut n = self.kept.n.lock().unwrap_or_else(PoisonError::into_inner);
        while *n < self.n_sent && self.requests.is_some() {
            let Some(left) = until.checked_duration_since(Instant::now()) else { return false };
            n = self.kept.changed.wait_timeout(n, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Drop for ChatWriter {
    /// Closes the file, after what was handed over.
    fn drop(&mut self) {
        self.requests = None;
        // The thread may stand before a full queue of news.
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            let _ = self.news.recv_timeout(Duration::from_millis(5));
        }
        self.thread.take().map(JoinHandle::join);
    }
}

/// The store of `root`, or one in memory and a sentence.
fn open(root: Option<PathBuf>, tell: &dyn Fn(ChatEvent) -> bool) -> Option<ChatStore> {
    let opened = match &root {
        Some(root) => ChatStore::open(root).and_then(|store| first_news(&store).map(|news| (store, news))),
        None => ChatStore::in_memory().and_then(|store| first_news(&store).map(|news| (store, news))),
    };
    let refused = match opened {
        Ok((store, news)) => {
            tell(news);
            return Some(store);
        }
        Err(error) => error,
    };
    tell(ChatEvent::Refused(format!("Chats of this window are not kept: {refused}.")));
    let store = ChatStore::in_memory().ok()?;
    tell(first_news(&store).ok()?);
    Some(store)
}

fn first_news(store: &ChatStore) -> Result<ChatEvent, ChatsError> {
    let (chats, documents, presets) = (store.list()?, store.documents()?, store.presets()?);
    Ok(ChatEvent::Opened { newest_id: store.newest_id()?, chats, documents, presets })
}

struct Worker<'a> {
    store: ChatStore,
    tell: &'a dyn Fn(ChatEvent) -> bool,
    kept: &'a Saved,
    /// what could not be kept yet
    waiting: Vec<Change>,
    /// when that was tried last
    tried: Instant,
    has_complained: bool,
}

impl Worker<'_> {
    fn run(mut self, inbox: &Receiver<Request>) {
        loop {
            match inbox.recv_timeout(AGAIN) {
                Ok(request) => {
                    self.take(request);
                    if self.tried.elapsed() > AGAIN {
                        self.keep(Vec::new());
                    }
                    let mut n = self.kept.n.lock().unwrap_or_else(PoisonError::into_inner);
                    *n += 1;
                    self.kept.changed.notify_all();
                }
                Err(RecvTimeoutError::Timeout) => self.keep(Vec::new()),
                Err(RecvTimeoutError::Disconnected) => return self.keep(Vec::new()),
            }
        }
    }

    fn take(&mut self, request: Request) {
        let answer = match request {
            Request::Keep(changes) => return self.keep(changes),
            Request::Messages(chat) => self.store.messages(chat).map(|messages| ChatEvent::Messages(chat, messages)),
            Request::Document(hash) => self.document(hash),
            Request::Search(query) => self.store.search(&query).map(|hits| ChatEvent::Found { query, hits }),
            Request::Export(chat, format, to) => self.export(chat, format, to),
        };
        (self.tell)(answer.unwrap_or_else(|error| ChatEvent::Refused(format!("The chats cannot be read: {error}."))));
    }

    fn keep(&mut self, changes: Vec<Change>) {
        self.waiting.extend(changes);
        if self.waiting.is_empty() {
            return;
        }
        self.tried = Instant::now();
        match self.store.apply(&self.waiting) {
            Ok(()) => {
                self.waiting.clear();
                self.has_complained = false;
            }
            Err(error) if !self.has_complained => {
                self.has_complained = true;
                (self.tell)(ChatEvent::Refused(format!("What was said last is not kept yet: {error}.")));
            }
            Err(_) => {}
        }
    }

    fn document(&self, hash: String) -> Result<ChatEvent, ChatsError> {
        Ok(match self.store.document(&hash)? {
            Some((document, path)) => ChatEvent::Document(Box::new(document), path),
            None => ChatEvent::NoDocument(hash),
        })
    }

    fn export(&self, id: u64, format: Format, to: Destination) -> Result<ChatEvent, ChatsError> {
        let chat = self.store.list()?.into_iter().find(|c| c.id == id).unwrap_or_default();
        let text = export(format, &chat, &self.store.messages(id)?);
        Ok(ChatEvent::Exported { to, name: format!("{}.{}", file_name(&chat.title), format.extension()), text })
    }
}

/// A title as the name of a file.
fn file_name(title: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || " -_,".contains(c) { c } else { ' ' };
    let name: String = title.chars().map(plain).take(60).collect();
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    if name.is_empty() { "chat".to_owned() } else { name }
}
