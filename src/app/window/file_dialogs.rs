//! File dialogs and reading of files, off the thread that draws.
//!
//! ```text
//! dialog thread ── paths ─► reading thread ── Opening, Document or a sentence ─► [bounded] ─► window
//!                           search thread  ── places of quotations ────────────┘
//! ```
//! Invariants: 1. The window never waits for a file or a dialog. 2. Every answer wakes the window.
//! Limits: [`QUEUE`] answers wait at most; then the reading thread does.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::app::answer::citations::{Citation, Search};
use crate::app::dashboard::trace_files::{is_trace, read_trace};
use crate::app::dashboard::traces::OpenRun;
use crate::app::state::documents::Opening;
use crate::app::state::models::{ModelEvent, ModelSearch};
use crate::app::window::single_instance::Inbox;
use crate::document::{Document, DocumentError, Progress, Reader, documents_in};
use crate::telemetry::{Event, EventKind, Phase, now};

/// Answers waiting at most.
const QUEUE: usize = 64;
/// A dialog that is closed sooner than a hand can was never shown.
const NO_DIALOG: Duration = Duration::from_millis(120);

/// Opens a folder given as its argument.
const FILE_MANAGER: &str = if cfg!(target_os = "macos") {
    "open"
} else if cfg!(windows) {
    "explorer"
} else {
    "xdg-open"
};

/// What came back.
#[derive(Debug)]
pub enum FileEvent {
    /// a file is being read, or none any more
    Opening(Option<Opening>),
    /// a file was read, from here, or is no document (one sentence that says what to do); and what that took
    Read(Result<Box<(Document, PathBuf)>, String>, Event),
    /// where the quotations of an answer stand
    Quotes {
        /// whose answer
        exchange: u64,
        /// in order
        quotes: Vec<Citation>,
    },
    /// something was refused: one sentence that says what to do
    Refused(String),
    /// a model was chosen
    Model(PathBuf),
    /// a folder to look for models in was chosen
    ModelPlace(PathBuf),
    /// what a search for models found
    Models(ModelEvent),
    /// another start of the program had these to open
    HandedOver(Vec<PathBuf>),
    /// a saved trace was read
    Trace(Box<OpenRun>),
}

/// What a dialog asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialog {
    /// documents
    Documents,
    /// a GGUF file
    ModelFile,
    /// a folder with a model in it
    ModelFolder,
    /// a folder to look for models in
    ModelPlace,
    /// a saved trace
    Trace,
}

/// The threads' answers, and the way to ask.
pub struct Files {
    events: Receiver<FileEvent>,
    answers: Answers,
    reader: Reader,
}

impl Files {
    /// Answers wake `ctx`.
    pub fn new(ctx: egui::Context) -> Files {
        let (sender, events) = bounded(QUEUE);
        Files { events, answers: Answers { sender, ctx }, reader: Reader::default() }
    }

    /// The next answer, if there is one.
    pub fn poll(&self) -> Option<FileEvent> {
        self.events.try_recv().ok()
    }

    /// Reads documents, in order, and those in folders.
    pub fn read(&self, paths: Vec<PathBuf>) {
        let (reader, answers) = (self.reader.clone(), self.answers.clone());
        self.spawn("documents", move || read_all(&reader, paths, &answers));
    }

    /// Looks up the quotations of answers, one after the other: a long chat that is opened has hundreds.
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

    /// Looks for models.
    pub fn find_models(&self, search: ModelSearch) {
        let answers = self.answers.clone();
        self.spawn("models", move || search.run(&mut |event| answers.send(FileEvent::Models(event))));
    }

    /// Takes over what later starts of the program have to open, for as long as the window is there.
    pub fn watch(&self, inbox: Inbox) {
        let answers = self.answers.clone();
        self.spawn("inbox", move || inbox.watch(&mut |paths| answers.send(FileEvent::HandedOver(paths))));
    }

    /// Shows a dialog.
    pub fn ask(&self, dialog: Dialog) {
        // Some desktops want the dialog made on this thread; only the waiting is moved away.
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
            if paths.is_empty() && began.elapsed() < NO_DIALOG {
                answers.send(FileEvent::Refused(no_dialog(dialog)));
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

    /// Opens files and folders, each as what it is: saved traces, a model (the last of several), documents.
    pub fn open(&self, paths: Vec<PathBuf>) {
        let (reader, answers) = (self.reader.clone(), self.answers.clone());
        self.spawn("opening", move || open_all(&reader, paths, &answers));
    }

    /// Asks where to save what is called `name`, and lets `write` do it.
    pub fn save(&self, name: &str, instead: &'static str, write: impl FnOnce(&Path) -> std::io::Result<()> + Send + 'static) {
        let picked = rfd::AsyncFileDialog::new().set_title("Save").set_file_name(name).save_file();
        let answers = self.answers.clone();
        self.spawn("save", move || {
            let began = Instant::now();
            let refused = match pollster::block_on(picked) {
                Some(file) => write(file.path()).err().map(|e| format!("{} cannot be written: {e}", file.path().display())),
                None => (began.elapsed() < NO_DIALOG)
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

/// Where answers go, and who is woken by them.
#[derive(Clone)]
struct Answers {
    sender: Sender<FileEvent>,
    ctx: egui::Context,
}

impl Answers {
    /// False where the window is gone: nobody to tell.
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
    let files = unfolded(paths, answers);
    let watch = Progress::default();
    for (i, path) in files.iter().enumerate() {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let opening = Opening { name, n_left: files.len() - i - 1, watch: watch.clone() };
        if watch.is_cancelled() || !answers.send(FileEvent::Opening(Some(opening))) {
            break;
        }
        let began_ns = now();
        let read = match reader.open(path, &watch) {
            // Whoever stopped it knows.
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

/// The files, and in place of a folder the documents in it.
fn unfolded(paths: Vec<PathBuf>, answers: &Answers) -> Vec<PathBuf> {
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

fn no_dialog(dialog: Dialog) -> String {
    let how = match dialog {
        Dialog::Documents | Dialog::Trace => "Drop the file on this window instead.",
        Dialog::ModelPlace => "Type the folder instead.",
        Dialog::ModelFile | Dialog::ModelFolder => "Drop the model on this window, or start Strata with STRATA_MODEL=PATH.",
    };
    format!("This desktop shows no file dialog (it needs xdg-desktop-portal). {how}")
}

/// Dropped paths that are models rather than documents.
pub fn is_model(path: &Path) -> bool {
    looks_like_model(path) || (path.is_dir() && holds_model(path))
}

/// A folder that a model is loaded from.
fn holds_model(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let weights = |path: &Path| path.extension().is_some_and(|e| e == "safetensors") || looks_like_model(path);
    entries.map(|entry| entry.path()).any(|path| weights(&path))
}

/// By its name alone, without asking the disk.
pub fn looks_like_model(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf"))
}
