//! The engine thread: takes commands in order, owns the device and the model, reports events.
//!
//! ```text
//! EngineCommand ─► load │ ask │ ask many │ read │ logits │ score │ bench ─► EngineEvent
//!                          └ device lost? reopen, reload, go on
//! ```
//! * Every command ends in exactly one final event (loaded/failed, finished/failed, counted).
//! * No command panics the thread: errors are sentences.
//! * The device is opened with the first model, so that a window shows before it.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crate::document::catalog::Catalog;

use crate::gpu::{Gpu, GpuOptions};
use crate::kv::KvError;
use crate::kv::store::StoreRoot;
use crate::telemetry::{Hub, Phase};

use super::below::FolderHook;
use super::command::{EngineCommand, EngineEvent, LoadOptions, Message, ModelSource, Role, Sampling, TurnId};
use super::error::EngineError;
use super::fit::DeviceFacts;
use super::handle::{EngineHandle, EnginePort};
use super::library::{self, SavedError};
use super::links;
use super::loaded::Loaded;
use super::saved::{DocumentRef, LibraryAction};
use super::summary::TurnSummary;
use super::turn::{Turn, TurnPolicy};

/// Events that a lane remembers between two looks.
const EVENTS_PER_LANE: usize = 1 << 16;
/// A device is rebuilt at most this often within one turn.
const MAX_REBUILDS: usize = 2;
/// Tokens at the end of a document that are left for the question's prefill: the template and the tokenizer may join them
/// differently with what follows.
const READ_MARGIN: usize = 8;

/// Starts the engine thread, which ends with its handle. `wake` is called after every event.
pub fn spawn(wake: impl Fn() + Send + 'static) -> EngineHandle {
    spawn_with(wake, None)
}

/// The same, with something between the stores of saved documents and their folders.
pub fn spawn_with(wake: impl Fn() + Send + 'static, hook: Option<FolderHook>) -> EngineHandle {
    let (mut handle, port) = EngineHandle::pair(wake);
    let started = std::thread::Builder::new().name("strata-engine".into()).spawn(move || Worker::new(port, hook).run());
    match started {
        Ok(thread) => handle.wait_for(thread),
        // The port went with the closure: every later `wait` answers that the engine is gone.
        Err(error) => eprintln!("strata: the engine thread could not be started ({error})"),
    }
    handle
}

pub(super) struct Worker {
    pub(super) port: EnginePort,
    pub(super) gpu: Option<Gpu>,
    pub(super) loaded: Option<Loaded>,
    options: LoadOptions,
    gpu_options: GpuOptions,
    hub: Arc<Hub>,
    hook: Option<FolderHook>,
}

impl Worker {
    pub(super) fn new(port: EnginePort, hook: Option<FolderHook>) -> Worker {
        Worker {
            port,
            gpu: None,
            loaded: None,
            options: LoadOptions::default(),
            gpu_options: GpuOptions::default(),
            hook,
            hub: Hub::new(EVENTS_PER_LANE),
        }
    }

    pub(super) fn run(mut self) {
        while let Ok(command) = self.port.commands.recv() {
            if matches!(command, EngineCommand::Shutdown) {
                break;
            }
            self.handle(command);
        }
        // Everything is put down before the front end hears that this is the end.
        self.loaded = None;
        self.gpu = None;
    }

    fn handle(&mut self, command: EngineCommand) {
        match command {
            EngineCommand::LoadModel { source, options } => self.load(&source, options),
            EngineCommand::UnloadModel => {
                self.loaded = None;
                self.port.emit(EngineEvent::ModelUnloaded);
            }
            EngineCommand::Ask { turn, messages, document, sampling, max_tokens, policy } => {
                let result = self.ask(turn, &messages, document, sampling, max_tokens, policy);
                self.report(turn, result);
            }
            EngineCommand::AskMany { questions, document, sampling, max_tokens } => {
                self.ask_many(&questions, document, sampling, max_tokens);
            }
            EngineCommand::Read { turn, text, document } => {
                let result = self.read(turn, text, document);
                self.report(turn, result);
            }
            EngineCommand::Count { turn, messages } => {
                let counted = self.loaded.as_ref().ok_or(EngineError::NoModel).and_then(|l| l.encode(&messages, true));
                match counted {
                    Ok(prompt) => self.port.emit(EngineEvent::Counted { turn, tokens: prompt.tokens.len() }),
                    Err(error) => self.fail(turn, &error),
                };
            }
            EngineCommand::Logits { turn, tokens } => {
                let result = self.logits(turn, &tokens);
                self.report(turn, result);
            }
            EngineCommand::Score { turn, tokens, n_prefix } => {
                let result = self.score(turn, tokens, n_prefix);
                self.report(turn, result);
            }
            EngineCommand::Bench { turn, tests } => {
                let result = self.bench(turn, &tests);
                self.report(turn, result);
            }
            EngineCommand::Library(action) => self.library(&action),
            EngineCommand::ShowPages => {
                if let Some(loaded) = &mut self.loaded {
                    loaded.tell_pages(&self.port);
                }
            }
            EngineCommand::MeasureLinks => self.measure_links(),
            EngineCommand::LoseDevice => {
                if let Some(gpu) = &self.gpu {
                    gpu.lose();
                }
            }
            EngineCommand::Shutdown => {}
        }
    }

    pub(super) fn report(&mut self, turn: TurnId, result: Result<TurnSummary, EngineError>) {
        match result {
            Ok(summary) => {
                self.port.emit(EngineEvent::Finished { turn, summary: Box::new(summary) });
            }
            Err(error) => {
                self.fail(turn, &error);
            }
        }
    }

    pub(super) fn fail(&self, turn: TurnId, error: &EngineError) -> bool {
        self.port.emit(EngineEvent::Failed { turn, sentence: sentence(error), bad_input: error.is_bad_input() })
    }

    /// A device that cannot be measured is found out by the next turn.
    fn measure_links(&mut self) {
        if let (Some(gpu), Some(loaded)) = (&self.gpu, &self.loaded)
            && let Ok(peaks) = links::measure(gpu, loaded.info.kv.kv_dir.as_deref())
        {
            self.port.emit(EngineEvent::Links(peaks));
        }
    }

    fn library(&mut self, action: &LibraryAction) {
        let done = match action {
            LibraryAction::List { kv_dir } => open_library(kv_dir.as_deref()).and_then(|(c, l)| library::list(&c, &l)),
            LibraryAction::Remove { kv_dir, id } => open_library(kv_dir.as_deref()).and_then(|(c, l)| {
                library::remove(&c, &l, id)?;
                library::list(&c, &l)
            }),
        };
        match done {
            Ok(saved) => self.port.emit(EngineEvent::Library(saved)),
            Err(error) => self.port.emit(EngineEvent::Notice(as_sentence(&error.to_string()))),
        };
    }

    fn load(&mut self, source: &ModelSource, options: LoadOptions) {
        self.loaded = None;
        let watch = self.port.stop_watch();
        let port = &self.port;
        let mut last = -1.0f32;
        let mut progress = |share: f32, what: &str| {
            if share - last >= 0.01 || share >= 1.0 {
                last = share;
                port.emit(EngineEvent::ModelLoading { share, what: what.to_owned() });
            }
            !watch.stopped()
        };
        port.emit(EngineEvent::ModelLoading { share: 0.0, what: "reading the model's header".into() });
        let gpu_options = GpuOptions { adapter: options.gpu.clone(), twins: self.gpu_options.twins };
        let healthy = self.gpu.as_ref().is_some_and(|g| g.check().is_ok()) && self.gpu_options == gpu_options;
        // The header is read before a device is opened: a wrong file must not need a GPU to be called wrong.
        let result = super::loaded::open(source).and_then(|file| {
            if !healthy {
                self.gpu = None;
                self.gpu = Some(Gpu::open(&gpu_options)?);
            }
            let Some(gpu) = &self.gpu else { return Err(EngineError::NoModel) };
            self.port.emit(EngineEvent::Device(Box::new(DeviceFacts::look(gpu, options.kv_dir.as_deref()))));
            Loaded::load(gpu, &self.hub, self.hook.clone(), file, source, &options, &mut progress)
        });
        self.gpu_options = gpu_options;
        self.options = options;
        match result {
            Ok(loaded) => {
                let info = Box::new(loaded.info.clone());
                self.port.emit(EngineEvent::ModelLoaded(info));
                self.loaded.insert(loaded).tell(&self.port);
            }
            Err(error) => {
                let bad_input = error.is_bad_input();
                self.port.emit(EngineEvent::ModelFailed { sentence: sentence(&error), bad_input });
            }
        }
    }

    fn ask(
        &mut self,
        turn: TurnId,
        messages: &[Message],
        document: Option<DocumentRef>,
        sampling: Sampling,
        max_tokens: usize,
        policy: TurnPolicy,
    ) -> Result<TurnSummary, EngineError> {
        let watch = self.port.stop_watch();
        let began = Instant::now();
        let loaded = self.loaded.as_mut().ok_or(EngineError::NoModel)?;
        let prompt = loaded.encode(messages, true)?;
        loaded.steps.end_phase(Phase::Tokenize, began);
        if let Some(note) = prompt.note {
            self.port.emit(EngineEvent::Notice(note));
        }
        loaded.begin_text(&prompt.tokens, messages);
        let begins = document.and_then(|d| Some((document_tokens(loaded, messages, &d, &prompt.tokens)?, d)));
        let turn = Turn::new(turn, prompt.tokens, sampling, max_tokens, watch).reading(policy).tokenized(began.elapsed());
        self.run_turn(match begins {
            Some((tokens, document)) => turn.on_document(document, tokens),
            None => turn,
        })
    }

    fn read(&mut self, turn: TurnId, text: String, document: Option<DocumentRef>) -> Result<TurnSummary, EngineError> {
        let watch = self.port.stop_watch();
        let loaded = self.loaded.as_mut().ok_or(EngineError::NoModel)?;
        let began = Instant::now();
        let messages = [Message { role: Role::User, content: text }];
        let mut prompt = loaded.encode(&messages, false)?.tokens;
        loaded.steps.end_phase(Phase::Tokenize, began);
        loaded.begin_text(&prompt, &messages);
        prompt.truncate(prompt.len().saturating_sub(READ_MARGIN).max(1));
        let tokens = prompt.clone();
        let turn = Turn::new(turn, prompt, Sampling::default(), 0, watch);
        self.run_turn(match document {
            Some(document) => turn.on_document(document, tokens),
            None => turn,
        })
    }

    pub(super) fn run_turn(&mut self, mut turn: Turn) -> Result<TurnSummary, EngineError> {
        self.until_done(|gpu, loaded, port| turn.run(gpu, loaded, port))
    }

    /// Runs what remembers how far it has come: again after every damaged page that was repaired and every device that was
    /// rebuilt.
    pub(super) fn until_done<T>(
        &mut self,
        mut run: impl FnMut(&Gpu, &mut Loaded, &EnginePort) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let (mut rebuilds, mut repaired) = (0, HashSet::new());
        loop {
            let result = match (&self.gpu, &mut self.loaded) {
                (Some(gpu), Some(loaded)) => run(gpu, loaded, &self.port),
                _ => Err(EngineError::NoModel),
            };
            match result {
                Err(EngineError::Kv(KvError::Missing(group))) => {
                    if repaired.is_empty() {
                        self.port.emit(EngineEvent::Notice(as_sentence(&KvError::Missing(group).to_string())));
                    }
                    if !self.repair(group, &mut repaired)? {
                        self.give_up_disk();
                    }
                }
                Err(error) if error.is_device_lost() && rebuilds < MAX_REBUILDS => {
                    rebuilds += 1;
                    self.rebuild(&error)?;
                }
                Err(error) => {
                    self.settle();
                    return Err(error);
                }
                done => return done,
            }
        }
    }

    /// Goes on without the disk: the context is read again, into VRAM and RAM alone.
    fn give_up_disk(&mut self) {
        if let (Some(gpu), Some(loaded)) = (&self.gpu, &mut self.loaded) {
            loaded.give_up_disk(gpu);
        }
    }

    /// Computes a damaged group again, and before it what it needs and is damaged too. False where one of them is lost for
    /// the second time in this turn: what is lost as soon as it was written again is lost to a disk that cannot be read.
    fn repair(&mut self, group: u32, repaired: &mut HashSet<u32>) -> Result<bool, EngineError> {
        let (Some(gpu), Some(loaded)) = (&self.gpu, &mut self.loaded) else { return Err(EngineError::NoModel) };
        let mut todo = vec![group];
        if !repaired.insert(group) {
            return Ok(false);
        }
        while let Some(group) = todo.last().copied() {
            match loaded.repair(gpu, group) {
                Ok(()) => {
                    todo.pop();
                }
                // A pass reads only groups before its own.
                Err(EngineError::Kv(KvError::Missing(earlier))) if earlier < group => {
                    if !repaired.insert(earlier) {
                        return Ok(false);
                    }
                    todo.push(earlier);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// After a failed turn, what was recorded must not run with the next one, and the cache holds what it says.
    fn settle(&mut self) {
        if let Some(loaded) = &mut self.loaded {
            loaded.pace.reset();
            if let Some(gpu) = &self.gpu {
                loaded.abandon(gpu);
            }
            // What led to the failure may be among it.
            loaded.tell(&self.port);
        }
    }

    /// Opens the device again and puts the model on it. The conversation's tokens are read again by the turn.
    fn rebuild(&mut self, why: &EngineError) -> Result<(), EngineError> {
        self.port.emit(EngineEvent::Notice(format!("{why}; it is being reopened and the conversation read again")));
        if let Some(loaded) = &mut self.loaded {
            loaded.pace.reset();
        }
        self.gpu = None;
        let gpu = Gpu::open(&self.gpu_options)?;
        if let Some(loaded) = &mut self.loaded {
            loaded.reload(&gpu, &self.hub, &self.options)?;
        }
        self.gpu = Some(gpu);
        Ok(())
    }
}

fn open_library(chosen: Option<&Path>) -> Result<(Catalog, StoreRoot), SavedError> {
    let root = library::library_root(chosen)?;
    let library = StoreRoot::open(root.clone())?;
    Ok((Catalog::open(&root)?.0, library))
}

/// An error as one sentence with a capital and a full stop.
fn sentence(error: &EngineError) -> String {
    as_sentence(&error.to_string())
}

fn as_sentence(text: &str) -> String {
    let mut chars = text.chars();
    let capital = chars.next().map(|c| c.to_uppercase().collect::<String>()).unwrap_or_default();
    let end = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{capital}{}{end}", chars.as_str())
}

/// The tokens at the beginning of `prompt` that are the document's: those that reading it ahead gives, as far as the prompt
/// has the same.
pub(super) fn document_tokens(loaded: &Loaded, messages: &[Message], document: &DocumentRef, prompt: &[u32]) -> Option<Vec<u32>> {
    let first = messages.iter().position(|m| m.role == Role::User)?;
    let text = messages[first].content.get(..document.text_bytes)?;
    let mut ahead = messages[..first].to_vec();
    ahead.push(Message { role: Role::User, content: text.to_owned() });
    let mut tokens = loaded.encode(&ahead, false).ok()?.tokens;
    tokens.truncate(tokens.len().saturating_sub(READ_MARGIN));
    let common = tokens.iter().zip(prompt).take_while(|(a, b)| a == b).count();
    tokens.truncate(common);
    Some(tokens)
}
