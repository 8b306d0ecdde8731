//! File dialogs and reading of files, off the thread that draws.
//!
//! ```text
//! dialog thread ── paths ─► reading thread ── Document or a sentence ─► [bounded] ─► window
//! ```
//! Invariants: 1. The window never waits for a file or a dialog. 2. Every answer wakes the window.
//! Limits: [`QUEUE`] answers wait at most; then the reading thread does.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::dashboard::run_files::read_trace;
use super::dashboard::runs::OpenRun;
use crate::document::Document;
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
    /// a document was read
    Document(Document),
    /// a file is no document: one sentence that says what to do
    Refused(String),
    /// a model was chosen
    Model(PathBuf),
    /// it took this to read the document before
    Ingested(Event),
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
    /// a saved trace
    Trace,
}

/// The threads' answers, and the way to ask.
pub struct Files {
    answers: Receiver<FileEvent>,
    sender: Sender<FileEvent>,
    ctx: egui::Context,
}

impl Files {
    /// Answers wake `ctx`.
    pub fn new(ctx: egui::Context) -> Files {
        let (sender, answers) = bounded(QUEUE);
        Files { answers, sender, ctx }
    }

    /// The next answer, if there is one.
    pub fn poll(&self) -> Option<FileEvent> {
        self.answers.try_recv().ok()
    }

    /// Reads documents, in order.
    pub fn read(&self, paths: Vec<PathBuf>) {
        let (sender, ctx) = (self.sender.clone(), self.ctx.clone());
        self.spawn("documents", move || read_all(&paths, &sender, &ctx));
    }

    /// Shows a dialog.
    pub fn ask(&self, dialog: Dialog) {
        // Some desktops want the dialog made on this thread; only the waiting is moved away.
        let future: std::pin::Pin<Box<dyn Future<Output = Vec<PathBuf>> + Send>> = match dialog {
            Dialog::Documents => {
                let picked = rfd::AsyncFileDialog::new()
                    .set_title("Open documents")
                    .add_filter("Text and Markdown", &["txt", "md", "markdown", "text"])
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
            Dialog::Trace => {
                let picked = rfd::AsyncFileDialog::new().set_title("Open a trace").add_filter("Traces", &["json"]).pick_file();
                Box::pin(async { picked.await.iter().map(|f| f.path().to_owned()).collect() })
            }
        };
        let (sender, ctx) = (self.sender.clone(), self.ctx.clone());
        self.spawn("dialog", move || {
            let began = Instant::now();
            let paths = pollster::block_on(future);
            if paths.is_empty() && began.elapsed() < NO_DIALOG {
                let _ = sender.send(FileEvent::Refused(no_dialog(dialog)));
            } else if dialog == Dialog::Documents {
                read_all(&paths, &sender, &ctx);
            } else if dialog == Dialog::Trace {
                read_traces(&paths, &sender, &ctx);
            } else {
                for path in paths {
                    let _ = sender.send(FileEvent::Model(path));
                }
            }
            ctx.request_repaint();
        });
    }

    /// Reads saved traces, in order.
    pub fn read_traces(&self, paths: Vec<PathBuf>) {
        let (sender, ctx) = (self.sender.clone(), self.ctx.clone());
        self.spawn("traces", move || read_traces(&paths, &sender, &ctx));
    }

    /// Asks where to save what is called `name`, and lets `write` do it.
    pub fn save(&self, name: &str, write: impl FnOnce(&Path) -> std::io::Result<()> + Send + 'static) {
        let picked = rfd::AsyncFileDialog::new().set_title("Save").set_file_name(name).save_file();
        let (sender, ctx) = (self.sender.clone(), self.ctx.clone());
        self.spawn("save", move || {
            let began = Instant::now();
            let refused = match pollster::block_on(picked) {
                Some(file) => write(file.path()).err().map(|e| format!("{} cannot be written: {e}", file.path().display())),
                None => (began.elapsed() < NO_DIALOG).then(|| {
                    "This desktop shows no file dialog (it needs xdg-desktop-portal). `strata ask --trace FILE` writes one."
                        .into()
                }),
            };
            if let Some(sentence) = refused {
                let _ = sender.send(FileEvent::Refused(sentence));
                ctx.request_repaint();
            }
        });
    }

    /// Shows a folder in the desktop's file manager.
    pub fn show_folder(&self, folder: PathBuf) {
        let sender = self.sender.clone();
        let ctx = self.ctx.clone();
        self.spawn("folder", move || {
            if !std::process::Command::new(FILE_MANAGER).arg(&folder).status().is_ok_and(|status| status.success()) {
                let sentence =
                    format!("This desktop does not open {}. Is the folder there yet? Copy its path instead.", folder.display());
                let _ = sender.send(FileEvent::Refused(sentence));
                ctx.request_repaint();
            }
        });
    }

    fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) {
        if std::thread::Builder::new().name(name.to_owned()).spawn(work).is_err() {
            let _ = self.sender.try_send(FileEvent::Refused("The system refuses another thread. Close other programs.".into()));
        }
    }
}

fn read_all(paths: &[PathBuf], sender: &Sender<FileEvent>, ctx: &egui::Context) {
    for path in paths {
        let began_ns = now();
        let answer = match Document::open(path) {
            Ok(document) => FileEvent::Document(document),
            Err(error) => FileEvent::Refused(error.to_string()),
        };
        let took = Event::span(EventKind::Phase(Phase::Ingest), began_ns, now());
        // An error means that the window is gone: nobody to tell.
        if sender.send(answer).is_err() || sender.send(FileEvent::Ingested(took)).is_err() {
            return;
        }
        ctx.request_repaint();
    }
}

fn read_traces(paths: &[PathBuf], sender: &Sender<FileEvent>, ctx: &egui::Context) {
    for path in paths {
        let answer = read_trace(path).map_or_else(FileEvent::Refused, |run| FileEvent::Trace(Box::new(run)));
        if sender.send(answer).is_err() {
            return;
        }
        ctx.request_repaint();
    }
}

fn no_dialog(dialog: Dialog) -> String {
    let how = match dialog {
        Dialog::Documents | Dialog::Trace => "Drop the file on this window instead.",
        Dialog::ModelFile | Dialog::ModelFolder => "Drop the model on this window, or start Strata with --model PATH.",
    };
    format!("This desktop shows no file dialog (it needs xdg-desktop-portal). {how}")
}

/// Dropped paths that are models rather than documents.
pub fn is_model(path: &Path) -> bool {
    looks_like_model(path) || path.is_dir()
}

/// Dropped paths that are saved traces: by their names alone.
pub fn looks_like_trace(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json"))
}

/// By its name alone, without asking the disk.
pub fn looks_like_model(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf"))
}
