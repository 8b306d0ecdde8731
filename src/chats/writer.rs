//! Chat writer: a thread that saves chats, so that the window waits for the disk only within a time limit.
//!
//! ```text
//! window ─ ChatRequest ─► [bounded] ─► "chats" thread, ChatStore ─► [bounded] ─ ChatEvent ─► window
//!    └─ flush: waits until all sent requests are handled ◄─ a counter ─┘
//! ```
//! Invariants: 1. Changes are saved in order, and none is dropped: failed changes are retried with the next ones.
//! 2. Changes that the window flushes before it draws survive the program. 3. If chats cannot be saved, everything continues
//! in memory, and the user gets one message.
//! Limits: at most [`QUEUE`] waiting requests.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};

use super::error::ChatsError;
use super::export::{ExportFormat, export};
use super::records::{Change, ChatRow, MessageRow, Preset, SearchHit, StoredDocument};
use super::store::ChatStore;
use crate::document::Document;

/// Capacity of the queues of requests and of events.
const QUEUE: usize = 256;
/// Interval between retries of failed changes.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// A request to the thread.
#[derive(Debug, Clone, PartialEq)]
pub enum ChatRequest {
    /// save changes
    Save(Vec<Change>),
    /// load the messages of a chat
    Messages(u64),
    /// load a document by the hash of its text
    Document(String),
    /// search chats for words
    Search(String),
    /// export a chat
    Export(u64, ExportFormat, Destination),
}

/// Destination of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// a file that the user names
    File,
    /// the clipboard
    Clipboard,
}

/// An event of the thread.
#[derive(Debug)]
pub enum ChatEvent {
    /// the stored data was loaded
    Opened {
        /// largest id of a chat or a message
        newest_id: u64,
        /// all chats, newest first
        chats: Vec<ChatRow>,
        /// documents whose text is stored
        documents: Vec<StoredDocument>,
        /// presets, by name
        presets: Vec<Preset>,
    },
    /// the messages of a chat, on every branch
    Messages(u64, Vec<MessageRow>),
    /// a stored document, with the path of its file
    Document(Box<Document>, Option<PathBuf>),
    /// no document is stored under this hash
    NoDocument(String),
    /// search results
    Found {
        /// the query
        query: String,
        /// results, newest first
        hits: Vec<SearchHit>,
    },
    /// an exported chat
    Exported {
        /// destination
        to: Destination,
        /// name of the file
        name: String,
        /// content
        text: String,
    },
    /// an error, as a sentence for the user
    Refused(String),
}

/// Number of handled requests, for [`ChatWriter::flush`].
#[derive(Default)]
struct HandledCount {
    n: Mutex<u64>,
    changed: Condvar,
}

/// Handle of the chat thread, owned by the window.
pub struct ChatWriter {
    requests: Option<Sender<ChatRequest>>,
    events: Receiver<ChatEvent>,
    handled: Arc<HandledCount>,
    n_sent: u64,
    thread: Option<JoinHandle<()>>,
}

impl ChatWriter {
    /// Opens the chats in folder `root`, or in memory. The thread calls `wake` after every event.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start(root: Option<PathBuf>, wake: impl Fn() + Send + 'static) -> Result<ChatWriter, ChatsError> {
        let (requests, inbox) = bounded(QUEUE);
        let (sender, events) = bounded(QUEUE);
        let handled = Arc::new(HandledCount::default());
        let counter = handled.clone();
        let work = move || {
            let send = |event| {
                let is_received = sender.send(event).is_ok();
                wake();
                is_received
            };
            if let Some(store) = open(root, &send) {
                WriterThread {
                    store,
                    send: &send,
                    handled: &counter,
                    pending: Vec::new(),
                    tried: Instant::now(),
                    is_reported: false,
                }
                .run(&inbox);
            }
        };
        let thread = std::thread::Builder::new().name("chats".to_owned()).spawn(work).map_err(ChatsError::Thread)?;
        Ok(ChatWriter { requests: Some(requests), events, handled, n_sent: 0, thread: Some(thread) })
    }

    /// Sends a request; returns it if the queue is full.
    ///
    /// # Errors
    /// The request, for a retry.
    pub fn send(&mut self, request: ChatRequest) -> Result<(), ChatRequest> {
        let Some(requests) = &self.requests else { return Ok(()) };
        match requests.try_send(request) {
            Ok(()) => self.n_sent += 1,
            Err(TrySendError::Full(request)) => return Err(request),
            // The thread has reported why it ended.
            Err(TrySendError::Disconnected(_)) => self.requests = None,
        }
        Ok(())
    }

    /// The next event, if there is one.
    pub fn poll(&self) -> Option<ChatEvent> {
        self.events.try_recv().ok()
    }

    /// Waits until all sent requests are handled, at most `timeout`. False on timeout.
    pub fn flush(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut n = self.handled.n.lock().unwrap_or_else(PoisonError::into_inner);
        while *n < self.n_sent && self.requests.is_some() {
            let Some(left) = until.checked_duration_since(Instant::now()) else { return false };
            n = self.handled.changed.wait_timeout(n, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Drop for ChatWriter {
    /// Handles the requests already sent, then closes the file.
    fn drop(&mut self) {
        self.requests = None;
        // The thread may block on a full queue of events.
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            let _ = self.events.recv_timeout(Duration::from_millis(5));
        }
        self.thread.take().map(JoinHandle::join);
    }
}

/// Opens the store of `root`, or one in memory if that fails.
fn open(root: Option<PathBuf>, send: &dyn Fn(ChatEvent) -> bool) -> Option<ChatStore> {
    let opened = match &root {
        Some(root) => ChatStore::open(root).and_then(|store| opened_event(&store).map(|event| (store, event))),
        None => ChatStore::in_memory().and_then(|store| opened_event(&store).map(|event| (store, event))),
    };
    let refused = match opened {
        Ok((store, event)) => {
            send(event);
            return Some(store);
        }
        Err(error) => error,
    };
    send(ChatEvent::Refused(format!("Chats of this window are not saved: {refused}.")));
    let store = ChatStore::in_memory().ok()?;
    send(opened_event(&store).ok()?);
    Some(store)
}

fn opened_event(store: &ChatStore) -> Result<ChatEvent, ChatsError> {
    let (chats, documents, presets) = (store.list()?, store.documents()?, store.presets()?);
    Ok(ChatEvent::Opened { newest_id: store.newest_id()?, chats, documents, presets })
}

struct WriterThread<'a> {
    store: ChatStore,
    send: &'a dyn Fn(ChatEvent) -> bool,
    handled: &'a HandledCount,
    /// changes not saved yet
    pending: Vec<Change>,
    /// time of the last attempt
    tried: Instant,
    is_reported: bool,
}

impl WriterThread<'_> {
    fn run(mut self, inbox: &Receiver<ChatRequest>) {
        loop {
            match inbox.recv_timeout(RETRY_INTERVAL) {
                Ok(request) => {
                    self.handle(request);
                    if self.tried.elapsed() > RETRY_INTERVAL {
                        self.save(Vec::new());
                    }
                    let mut n = self.handled.n.lock().unwrap_or_else(PoisonError::into_inner);
                    *n += 1;
                    self.handled.changed.notify_all();
                }
                Err(RecvTimeoutError::Timeout) => self.save(Vec::new()),
                Err(RecvTimeoutError::Disconnected) => return self.save(Vec::new()),
            }
        }
    }

    fn handle(&mut self, request: ChatRequest) {
        let answer = match request {
            ChatRequest::Save(changes) => return self.save(changes),
            ChatRequest::Messages(chat) => self.store.messages(chat).map(|messages| ChatEvent::Messages(chat, messages)),
            ChatRequest::Document(hash) => self.document(hash),
            ChatRequest::Search(query) => self.store.search(&query).map(|hits| ChatEvent::Found { query, hits }),
            ChatRequest::Export(chat, format, to) => self.export(chat, format, to),
        };
        (self.send)(answer.unwrap_or_else(|error| ChatEvent::Refused(format!("The chats could not be loaded: {error}."))));
    }

    fn save(&mut self, changes: Vec<Change>) {
        self.pending.extend(changes);
        if self.pending.is_empty() {
            return;
        }
        self.tried = Instant::now();
        match self.store.apply(&self.pending) {
            Ok(()) => {
                self.pending.clear();
                self.is_reported = false;
            }
            Err(error) if !self.is_reported => {
                self.is_reported = true;
                (self.send)(ChatEvent::Refused(format!("The latest messages are not saved yet: {error}.")));
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

    fn export(&self, id: u64, format: ExportFormat, to: Destination) -> Result<ChatEvent, ChatsError> {
        let chat = self.store.list()?.into_iter().find(|c| c.id == id).unwrap_or_default();
        let text = export(format, &chat, &self.store.messages(id)?);
        Ok(ChatEvent::Exported { to, name: format!("{}.{}", file_name(&chat.title), format.extension()), text })
    }
}

/// File name made from a title.
fn file_name(title: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || " -_,".contains(c) { c } else { ' ' };
    let name: String = title.chars().map(plain).take(60).collect();
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    if name.is_empty() { "chat".to_owned() } else { name }
}
