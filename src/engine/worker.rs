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

use crate::gpu::{DevicePool, Gpu, GpuOptions};
use crate::kv::KvError;
use crate::kv::store::StoreRoot;
use crate::telemetry::{Hub, Phase};

use crate::engine::api::{
    AttentionMode, DeviceFacts, DocumentRef, EngineCommand, EngineEvent, LibraryAction, LoadOptions, Message, ModelSource,
    READ_MARGIN, RequestId, RequestSummary, Role, Sampling,
};
use crate::engine::context::document_parts::DocumentTokens;
use crate::engine::context::kv_storage::FolderHook;
use crate::engine::context::saved_documents::{self, SavedError};
use crate::engine::error::EngineError;
use crate::engine::handle::{EngineHandle, EnginePort};
use crate::engine::link_bandwidth;
use crate::engine::runner::ModelRunner;
use crate::engine::sequence::Sequence;

/// Events that a lane remembers between two looks.
const EVENTS_PER_LANE: usize = 1 << 16;
/// A device is rebuilt at most this often within one turn.
const MAX_REBUILDS: usize = 2;

/// Starts the engine thread, which ends with its handle. `wake` is called after every event.
pub fn spawn(wake: impl Fn() + Send + 'static) -> EngineHandle {
    spawn_with(wake, None, Arc::default())
}

/// The same, with something between the stores of saved documents and their folders. The device comes from `devices`, and
/// returns there when the engine ends.
pub fn spawn_with(wake: impl Fn() + Send + 'static, hook: Option<FolderHook>, devices: Arc<DevicePool>) -> EngineHandle {
    let (mut handle, port) = EngineHandle::pair(wake);
    let run = move || Worker::new(port, hook, devices).run();
    let started = std::thread::Builder::new().name("strata-engine".into()).spawn(run);
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
    pub(super) runner: Option<ModelRunner>,
    options: LoadOptions,
    gpu_options: GpuOptions,
    hub: Arc<Hub>,
    hook: Option<FolderHook>,
    devices: Arc<DevicePool>,
}

impl Worker {
    pub(super) fn new(port: EnginePort, hook: Option<FolderHook>, devices: Arc<DevicePool>) -> Worker {
        Worker {
            port,
            gpu: None,
            runner: None,
            options: LoadOptions::default(),
            gpu_options: GpuOptions::default(),
            hook,
            devices,
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
        self.runner = None;
        if let Some(gpu) = self.gpu.take() {
            self.devices.put_back(self.gpu_options, gpu);
        }
    }

    fn handle(&mut self, command: EngineCommand) {
        match command {
            EngineCommand::LoadModel { source, options } => self.load(&source, options),
            EngineCommand::UnloadModel => {
                self.runner = None;
                self.port.emit(EngineEvent::ModelUnloaded);
            }
            EngineCommand::Generate { turn, messages, documents, sampling, max_tokens, policy } => {
                if let Err(error) = self.ask(turn, &messages, &documents, sampling, max_tokens, policy) {
                    self.fail(turn, &error);
                }
            }
            EngineCommand::GenerateBatch { questions, documents, sampling, max_tokens } => {
                self.generate_batch(&questions, &documents, sampling, max_tokens);
            }
            EngineCommand::Prefill { turn, text, documents } => {
                if let Err(error) = self.read(turn, text, &documents) {
                    self.fail(turn, &error);
                }
            }
            EngineCommand::Count { turn, messages, offsets } => {
                let runner = self.runner.as_ref().ok_or(EngineError::NoModel);
                match runner.and_then(|runner| runner.count(&messages, &offsets)) {
                    Ok((tokens, positions)) => self.port.emit(EngineEvent::Counted { turn, tokens, positions }),
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
                if let Some(runner) = &mut self.runner {
                    runner.emit_pages(&self.port);
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

    pub(super) fn report(&mut self, turn: RequestId, result: Result<RequestSummary, EngineError>) {
        match result {
            Ok(summary) => {
                self.port.emit(EngineEvent::Finished { turn, summary: Box::new(summary) });
            }
            Err(error) => {
                self.fail(turn, &error);
            }
        }
    }

    pub(super) fn fail(&self, turn: RequestId, error: &EngineError) -> bool {
        self.port.emit(EngineEvent::Failed { turn, sentence: sentence(error), bad_input: error.is_bad_input() })
    }

    /// A device that cannot be measured is found out by the next turn.
    fn measure_links(&mut self) {
        if let (Some(gpu), Some(runner)) = (&self.gpu, &self.runner)
            && let Ok(peaks) = link_bandwidth::measure(gpu, runner.info.kv.kv_dir.as_deref())
        {
            self.port.emit(EngineEvent::Links(peaks));
        }
    }

    fn library(&mut self, action: &LibraryAction) {
        let done = match action {
            LibraryAction::List { kv_dir } => open_library(kv_dir.as_deref()).and_then(|(c, l)| saved_documents::list(&c, &l)),
            LibraryAction::Remove { kv_dir, id } => open_library(kv_dir.as_deref()).and_then(|(c, l)| {
                saved_documents::remove(&c, &l, id)?;
                saved_documents::list(&c, &l)
            }),
        };
        match done {
            Ok(saved) => self.port.emit(EngineEvent::Library(saved)),
            Err(error) => self.port.emit(EngineEvent::Notice(as_sentence(&error.to_string()))),
        };
    }

    fn load(&mut self, source: &ModelSource, options: LoadOptions) {
        self.runner = None;
        let watch = self.port.cancel_flag();
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
        let mut gpu_options = GpuOptions { adapter: options.gpu.clone(), ..self.gpu_options.clone() };
        gpu_options.overrides.checked_shaders = options.checked_shaders;
        let healthy = self.gpu.as_ref().is_some_and(|g| g.check().is_ok()) && self.gpu_options == gpu_options;
        // The header is read before a device is opened: a wrong file must not need a GPU to be called wrong.
        let result = crate::engine::runner::open(source).and_then(|file| {
            if !healthy {
                self.gpu = None;
                self.gpu = Some(self.devices.take_or_open(&gpu_options)?);
            }
            let Some(gpu) = &self.gpu else { return Err(EngineError::NoModel) };
            self.port.emit(EngineEvent::Device(Box::new(DeviceFacts::look(gpu, options.kv_dir.as_deref()))));
            ModelRunner::load(gpu, &self.hub, self.hook.clone(), file, source, &options, &mut progress)
        });
        self.gpu_options = gpu_options;
        self.options = options;
        match result {
            Ok(runner) => {
                let info = Box::new(runner.info.clone());
                self.port.emit(EngineEvent::ModelLoaded(info));
                self.runner.insert(runner).emit_notices(&self.port);
            }
            Err(error) => {
                let bad_input = error.is_bad_input();
                self.port.emit(EngineEvent::ModelFailed { sentence: sentence(&error), bad_input });
            }
        }
    }

    fn ask(
        &mut self,
        turn: RequestId,
        messages: &[Message],
        documents: &[DocumentRef],
        sampling: Sampling,
        max_tokens: usize,
        policy: AttentionMode,
    ) -> Result<(), EngineError> {
        let watch = self.port.cancel_flag();
        let began = Instant::now();
        let runner = self.runner.as_mut().ok_or(EngineError::NoModel)?;
        let prompt = runner.encode(messages, true)?;
        runner.steps.end_phase(Phase::Tokenize, began);
        if let Some(note) = prompt.note {
            self.port.emit(EngineEvent::Notice(note));
        }
        runner.begin_text(&prompt.tokens, messages);
        let begins = document_tokens(runner, messages, documents, &prompt.tokens);
        let sequence = Sequence::new(turn, prompt.tokens, sampling, max_tokens, watch).reading(policy).tokenized(began.elapsed());
        self.run_all(vec![sequence], begins);
        Ok(())
    }

    fn read(&mut self, turn: RequestId, text: String, documents: &[DocumentRef]) -> Result<(), EngineError> {
        let watch = self.port.cancel_flag();
        let runner = self.runner.as_mut().ok_or(EngineError::NoModel)?;
        let began = Instant::now();
        let messages = [Message { role: Role::User, content: text }];
        let mut prompt = runner.encode(&messages, false)?.tokens;
        runner.steps.end_phase(Phase::Tokenize, began);
        runner.begin_text(&prompt, &messages);
        prompt.truncate(prompt.len().saturating_sub(READ_MARGIN).max(1));
        let begins = match documents {
            [only] => Some(DocumentTokens { tokens: prompt.clone(), documents: vec![(only.clone(), prompt.len())] }),
            _ => document_tokens(runner, &messages, documents, &prompt),
        };
        let sequence = Sequence::new(turn, prompt, Sampling::default(), 0, watch);
        self.run_all(vec![sequence], begins);
        Ok(())
    }

    /// Runs what remembers how far it has come: again after every damaged page that was repaired and every device that was
    /// rebuilt.
    pub(super) fn until_done<T>(
        &mut self,
        mut run: impl FnMut(&Gpu, &mut ModelRunner, &EnginePort) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let (mut rebuilds, mut repaired) = (0, HashSet::new());
        loop {
            let result = match (&self.gpu, &mut self.runner) {
                (Some(gpu), Some(runner)) => run(gpu, runner, &self.port),
                _ => Err(EngineError::NoModel),
            };
            match result {
                Err(EngineError::Kv(KvError::Missing(group))) => {
                    if repaired.is_empty() {
                        self.port.emit(EngineEvent::Notice(as_sentence(&KvError::Missing(group).to_string())));
                    }
                    if !self.recompute_group(group, &mut repaired)? {
                        self.disable_disk_tier();
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
    fn disable_disk_tier(&mut self) {
        if let (Some(gpu), Some(runner)) = (&self.gpu, &mut self.runner) {
            runner.disable_disk_tier(gpu);
        }
    }

    /// Computes a damaged group again, and before it what it needs and is damaged too. False where one of them is lost for
    /// the second time in this turn: what is lost as soon as it was written again is lost to a disk that cannot be read.
    fn recompute_group(&mut self, group: u32, repaired: &mut HashSet<u32>) -> Result<bool, EngineError> {
        let (Some(gpu), Some(runner)) = (&self.gpu, &mut self.runner) else { return Err(EngineError::NoModel) };
        let mut todo = vec![group];
        if !repaired.insert(group) {
            return Ok(false);
        }
        while let Some(group) = todo.last().copied() {
            match runner.recompute_group(gpu, group) {
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
        if let Some(runner) = &mut self.runner {
            runner.pacer.reset();
            if let Some(gpu) = &self.gpu {
                runner.reset_context(gpu);
            }
            // What led to the failure may be among it.
            runner.emit_notices(&self.port);
        }
    }

    /// Opens the device again and puts the model on it. The conversation's tokens are read again by the turn.
    fn rebuild(&mut self, why: &EngineError) -> Result<(), EngineError> {
        self.port.emit(EngineEvent::Notice(format!("{why}; it is being reopened and the conversation read again")));
        if let Some(runner) = &mut self.runner {
            runner.pacer.reset();
        }
        self.gpu = None;
        let gpu = Gpu::open(&self.gpu_options)?;
        if let Some(runner) = &mut self.runner {
            runner.reload(&gpu, &self.hub, &self.options)?;
        }
        self.gpu = Some(gpu);
        Ok(())
    }
}

fn open_library(chosen: Option<&Path>) -> Result<(Catalog, StoreRoot), SavedError> {
    let root = saved_documents::library_root(chosen)?;
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

/// Documents that a prompt begins with: the tokens of each, and of all before it, are those that its prefill ahead of the
/// first question has, as far as `prompt` has the same. None if there are none.
pub(super) fn document_tokens(
    runner: &ModelRunner,
    messages: &[Message],
    documents: &[DocumentRef],
    prompt: &[u32],
) -> Option<DocumentTokens> {
    let first = messages.iter().position(|m| m.role == Role::User)?;
    let mut ahead = messages.get(..=first)?.to_vec();
    let text = std::mem::take(&mut ahead.get_mut(first)?.content);
    let (mut ends, mut end) = (Vec::new(), 0);
    for document in documents {
        ahead.get_mut(first)?.content = text.get(..document.end_byte)?.to_owned();
        let mut tokens = runner.encode(&ahead, false).ok()?.tokens;
        tokens.truncate(tokens.len().saturating_sub(READ_MARGIN));
        end = tokens.iter().zip(prompt).take_while(|(a, b)| a == b).count().max(end);
        ends.push((document.clone(), end));
    }
    let tokens = prompt.get(..end)?.to_vec();
    (!ends.is_empty()).then_some(DocumentTokens { tokens, documents: ends })
}
