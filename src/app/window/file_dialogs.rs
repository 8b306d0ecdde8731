//! File dialogs and file reading, on background threads.
//!
//! ```text
//! dialog thread ── paths ─► reader thread ── Opening, Document or an error ─► [bounded] ─► window
//!                           search thread ── citations ──────────────────────┘
//! ```
//! Invariants: 1. The window never waits for a file or a dialog. 2. Every event wakes the window.
//! Limits: [`QUEUE`] events wait at most; then the reader thread does.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::app::answer::citations::{Citation, Search};
use crate::app::dashboard::OpenRun;
use crate::app::dashboard::trace_files::{is_trace, read_trace};
use crate::app::state::document_list::Opening;
use crate::app::state::models::{ModelEvent, ModelSearch};
use crate::app::window::single_instance::Inbox;
use crate::document::{Document, DocumentError, Progress, Reader, documents_in};
use crate::telemetry::{Event, EventKind, Phase, now};

/// Events waiting at most.
const QUEUE: usize = 64;
/// A dialog that closes sooner was never shown.
const MIN_DIALOG_TIME: Duration = Duration::from_millis(120);

/// Opens a folder given as its argument.
const FILE_MANAGER: &str = if cfg!(target_os = "macos") {
    "open"
} else if cfg!(windows) {
    "explorer"
} else {
    "xdg-open"
};

/// An event of a background thread.
#[derive(Debug)]
pub enum FileEvent {
    /// the file that is being read; None at the end
    Opening(Option<Opening>),
    /// a document with its path, or one sentence with what to do; and the time it took
    Read(Result<Box<(Document, PathBuf)>, String>, Event),
    /// citations of an answer
    Quotes {
        /// its exchange
        exchange: u64,
        /// in order
        quotes: Vec<Citation>,
    },
    /// a refusal: one sentence with what to do
    Refused(String),
    /// a model was selected
    Model(PathBuf),
    /// a folder to search for models was selected
    ModelPlace(PathBuf),
    /// an event of a search for models
    Models(ModelEvent),
    /// paths from another start of the program
    HandedOver(Vec<PathBuf>),
    /// a saved trace was read
    Trace(Box<OpenRun>),
}

/// Kinds of dialogs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialog {
    /// documents
    Documents,
    /// a GGUF file
    ModelFile,
    /// a folder with a model in it
    ModelFolder,
    /// a folder to search for models
    ModelPlace,
    /// a saved trace
    Trace,
}

/// Handle of the background threads.
pub struct Files {
    events: Receiver<FileEvent>,
    answers: Answers,
    reader: Reader,
}

impl Files {
    /// Events wake `ctx`.
    pub fn new(ctx: egui::Context) -> Files {
        let (sender, events) = bounded(QUEUE);
        Files { events, answers: Answers { sender, ctx }, reader: Reader::default() }
    }

    /// The next event, if there is one.
    pub fn poll(&self) -> Option<FileEvent> {
        self.events.try_recv().ok()
    }

    /// Reads documents in order, and those in folders.
    pub fn read(&self, paths: Vec<PathBuf>) {
        let (reader, answers) = (self.reader.clone(), self.answers.clone());
        self.spawn("documents", move || read_all(&reader, paths, &answers));
    }

    /// Looks up citations, one answer after the other: a long chat has hundreds.
    pub fn search(&self, searches: Vec<Search>) {
        let answers = self.answers.clone();
        self.spawn("quotations", move || {
            for search in searches {
                if !answers.send(FileEvent::Quotes { exchange: search.exchange, quotes: search.run() }) {
                    return;
                }
            }
        });
    }

    /// Searches for models.
    pub fn find_models(&self, search: ModelSearch) {
        let answers = self.answers.clone();
        self.spawn("models", move || search.run(&mut |event| answers.send(FileEvent::Models(event))));
    }

    /// Receives paths from later starts of the program.
    pub fn watch(&self, inbox: Inbox) {
        let answers = self.answers.clone();
        self.spawn("inbox", move || inbox.watch(&mut |paths| answers.send(FileEvent::HandedOver(paths))));
    }

    /// Shows a dialog.
    pub fn ask(&self, dialog: Dialog) {
        // Some desktops require the dialog to be made on this thread; only the waiting is elsewhere.
        let future: std::pin::Pin<Box<dyn Future<Output = Vec<PathBuf>> + Send>> = match dialog {
            Dialog::Documents => {
                let picked = rfd::AsyncFileDialog::new()
                    .set_title("Open documents")
                    .add_filter("Documents", &["txt", "text", "md", "markdown", "pdf", "docx", "epub", "html", "htm", "xhtml"])
                    .add_filter("All files", &["*"])
                    .pick_files();
                Box::pin(async { picked.await.unwrap_or_default().iter().map(|f| f.path().to_owned()).collect() })
            }
            Dialog::ModelFile => {
                let picked =
                    rfd::AsyncFileDialog::new().set_title("Open a model").add_filter("GGUF models", &["gguf"]).pick_file();
                Box::pin(async { picked.await.iter().map(|f| f.path().to_owned()).collect() })
            }
            Dialog::ModelFolder => {
                let picked = rfd::AsyncFileDialog::new().set_title("Open a model folder").pick_folder();
                Box::pin(async { picked.await.iter().map(|f| f.path().to_owned()).collect() })
            }
            Dialog::ModelPlace => {
                let picked = rfd::AsyncFileDialog::new().set_title("Look for models in").pick_folder();
                Box::pin(async { picked.await.iter().map(|f| f.path().to_owned()).collect() })
            }
            Dialog::Trace => {
                let picked = rfd::AsyncFileDialog::new().set_title("Open a trace").add_filter("Traces", &["json"]).pick_file();
                Box::pin(async { picked.await.iter().map(|f| f.path().to_owned()).collect() })
            }
        };
        let (reader, answers) = (self.reader.clone(), self.answers.clone());
        self.spawn("dialog", move || {
            let began = Instant::now();
            let paths = pollster::block_on(future);
            if paths.is_empty() && began.elapsed() < MIN_DIALOG_TIME {
                answers.send(FileEvent::Refused(missing_dialog_sentence(dialog)));
            } else if dialog == Dialog::Documents {
                open_all(&reader, paths, &answers);
            } else if dialog == Dialog::Trace {
                read_traces(&paths, &answers);
            } else {
                let chosen: fn(PathBuf) -> FileEvent =
                    if dialog == Dialog::ModelPlace { FileEvent::ModelPlace } else { FileEvent::Model };
                paths.into_iter().for_each(|path| {
                    answers.send(chosen(path));
                });
            }
        });
    }

    /// Opens files and folders by their kind: saved traces, a model (the last of several), documents.
    pub fn open(&self, paths: Vec<PathBuf>) {
        let (reader, answers) = (self.reader.clone(), self.answers.clone());
        self.spawn("opening", move || open_all(&reader, paths, &answers));
    }

    /// Shows a dialog to save a file called `name`, and writes it with `write`.
    pub fn save(&self, name: &str, instead: &'static str, write: impl FnOnce(&Path) -> std::io::Result<()> + Send + 'static) {
        let picked = rfd::AsyncFileDialog::new().set_title("Save").set_file_name(name).save_file();
        let answers = self.answers.clone();
        self.spawn("save", move || {
            let began = Instant::now();
            let refused = match pollster::block_on(picked) {
                Some(file) => write(file.path()).err().map(|e| format!("{} cannot be written: {e}", file.path().display())),
                None => (began.elapsed() < MIN_DIALOG_TIME)
                    .then(|| format!("This desktop shows no file dialog (it needs xdg-desktop-portal). {instead}")),
            };
            if let Some(sentence) = refused {
                answers.send(FileEvent::Refused(sentence));
            }
        });
    }

    /// Shows a folder in the desktop's file manager.
    pub fn show_folder(&self, folder: PathBuf) {
        let answers = self.answers.clone();
        self.spawn("folder", move || {
            if !std::process::Command::new(FILE_MANAGER).arg(&folder).status().is_ok_and(|status| status.success()) {
                let sentence =
                    format!("This desktop does not open {}. Is the folder there yet? Copy its path instead.", folder.display());
                answers.send(FileEvent::Refused(sentence));
            }
        });
    }

    fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) {
        if std::thread::Builder::new().name(name.to_owned()).spawn(work).is_err() {
            let _ = self
                .answers
                .sender
                .try_send(FileEvent::Refused("The system refuses another thread. Close other programs.".into()));
        }
    }
}

/// Sender of events, and the context they wake.
#[derive(Clone)]
struct Answers {
    sender: Sender<FileEvent>,
    ctx: egui::Context,
}

impl Answers {
    /// False if the window is closed.
    fn send(&self, event: FileEvent) -> bool {
        let sent = self.sender.send(event).is_ok();
        self.ctx.request_repaint();
        sent
    }
}

fn open_all(reader: &Reader, paths: Vec<PathBuf>, answers: &Answers) {
    let (traces, others): (Vec<PathBuf>, Vec<PathBuf>) = paths.into_iter().partition(|path| is_trace(path));
    let (models, documents): (Vec<PathBuf>, Vec<PathBuf>) = others.into_iter().partition(|path| is_model(path));
    read_traces(&traces, answers);
    if let Some(model) = models.into_iter().next_back() {
        answers.send(FileEvent::Model(model));
    }
    if !documents.is_empty() {
        read_all(reader, documents, answers);
    }
}

fn read_all(reader: &Reader, paths: Vec<PathBuf>, answers: &Answers) {
    let files = with_folder_contents(paths, answers);
    let watch = Progress::default();
    for (i, path) in files.iter().enumerate() {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let opening = Opening { name, n_left: files.len() - i - 1, watch: watch.clone() };
        if watch.is_cancelled() || !answers.send(FileEvent::Opening(Some(opening))) {
            break;
        }
        let began_ns = now();
        let read = match reader.open(path, &watch) {
            // The user has cancelled it.
            Err(DocumentError::Cancelled { .. }) => break,
            read => read.map(|document| Box::new((document, path.clone()))).map_err(|error| error.to_string()),
        };
        let took = Event::span(EventKind::Phase(Phase::Ingest), began_ns, now());
        if !answers.send(FileEvent::Read(read, took)) {
            return;
        }
    }
    answers.send(FileEvent::Opening(None));
}

/// The files; folders are replaced by the documents in them.
fn with_folder_contents(paths: Vec<PathBuf>, answers: &Answers) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path);
            continue;
        }
        let (found, has_more) = documents_in(&path);
        let folder = path.display();
        if found.is_empty() {
            answers.send(FileEvent::Refused(format!("There are no documents in {folder}. Drop the files themselves.")));
        } else if has_more {
            let n = found.len();
            let sentence = format!("{folder} holds more than {n} documents; the first {n} were opened. Drop folders inside it.");
            answers.send(FileEvent::Refused(sentence));
        }
        files.extend(found);
    }
    files
}

fn read_traces(paths: &[PathBuf], answers: &Answers) {
    for path in paths {
        let answer = read_trace(path).map_or_else(FileEvent::Refused, |run| FileEvent::Trace(Box::new(run)));
        if !answers.send(answer) {
            return;
        }
    }
}

fn missing_dialog_sentence(dialog: Dialog) -> String {
    let how = match dialog {
        Dialog::Documents | Dialog::Trace => "Drop the file on this window instead.",
        Dialog::ModelPlace => "Type the folder instead.",
        Dialog::ModelFile | Dialog::ModelFolder => "Drop the model on this window, or start Strata with STRATA_MODEL=PATH.",
    };
    format!("This desktop shows no file dialog (it needs xdg-desktop-portal). {how}")
}

/// True if a dropped path is a model rather than a document.
pub fn is_model(path: &Path) -> bool {
    looks_like_model(path) || (path.is_dir() && holds_model(path))
}

/// True if the folder has model weights.
fn holds_model(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let weights = |path: &Path| path.extension().is_some_and(|e| e == "safetensors") || looks_like_model(path);
    entries.map(|entry| entry.path()).any(|path| weights(&path))
}

/// True if the name is that of a model. Does not access the disk.
pub fn looks_like_model(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf"))
}
