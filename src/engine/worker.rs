//! Engine worker: the thread that owns the device and the model, runs commands in order and emits events.
//!
//! ```text
//! EngineCommand ─► load │ generate │ generate batch │ prefill │ logits │ score │ bench ─► EngineEvent
//!                          └ device lost: reopen, reload, continue
//! ```
//! * Every command ends in exactly one final event (loaded/failed, finished/failed, counted).
//! * No command panics the thread: an error is one sentence for the user.
//! * The device is opened with the first model, after the window is visible.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crate::document::catalog::Catalog;

use crate::gpu::{DevicePool, Gpu, GpuError, GpuOptions, tuner};
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

/// Capacity of a telemetry lane, events.
const EVENTS_PER_LANE: usize = 1 << 16;
/// Maximum number of device rebuilds during one request.
const MAX_REBUILDS: usize = 2;

/// Starts the engine thread, which ends with its handle. `wake` is called after every event.
pub fn spawn(wake: impl Fn() + Send + 'static) -> EngineHandle {
    spawn_with(wake, None, Arc::default())
}

/// Same as [`spawn`], with a hook on the folders of stores. The device comes from `devices`, and returns there when the
/// engine ends.
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
            gpu_options: GpuOptions { adapter: None, overrides: devices.overrides() },
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
        // Frees everything before the port closes, which the front end waits for.
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
            EngineCommand::Generate { request, messages, documents, sampling, max_tokens, policy } => {
                if let Err(error) = self.generate(request, &messages, &documents, sampling, max_tokens, policy) {
                    self.fail(request, &error);
                }
            }
            EngineCommand::GenerateBatch { requests, documents, sampling, max_tokens } => {
                self.generate_batch(&requests, &documents, sampling, max_tokens);
            }
            EngineCommand::Prefill { request, text, documents } => {
                if let Err(error) = self.prefill(request, text, &documents) {
                    self.fail(request, &error);
                }
            }
            EngineCommand::Count { request, messages, offsets } => {
                let runner = self.runner.as_ref().ok_or(EngineError::NoModel);
                match runner.and_then(|runner| runner.count(&messages, &offsets)) {
                    Ok((tokens, positions)) => self.port.emit(EngineEvent::Counted { request, tokens, positions }),
                    Err(error) => self.fail(request, &error),
                };
            }
            EngineCommand::Logits { request, tokens } => {
                let result = self.logits(request, &tokens);
                self.report(request, result);
            }
            EngineCommand::Score { request, tokens, n_prefix } => {
                let result = self.score(request, tokens, n_prefix);
                self.report(request, result);
            }
            EngineCommand::Bench { request, tests } => {
                let result = self.bench(request, &tests);
                self.report(request, result);
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

    pub(super) fn report(&mut self, request: RequestId, result: Result<RequestSummary, EngineError>) {
        match result {
            Ok(summary) => {
                self.port.emit(EngineEvent::Finished { request, summary: Box::new(summary) });
            }
            Err(error) => {
                self.fail(request, &error);
            }
        }
    }

    pub(super) fn fail(&self, request: RequestId, error: &EngineError) -> bool {
        self.port.emit(EngineEvent::Failed { request, sentence: sentence(error), bad_input: error.is_bad_input() })
    }

    /// Measures the link bandwidth, and the peaks for kernels. If the device is lost, the next request notices it.
    fn measure_links(&mut self) {
        if let (Some(gpu), Some(runner)) = (&self.gpu, &self.runner)
            && let Ok(peaks) = link_bandwidth::measure(gpu, runner.info.kv.kv_dir.as_deref())
        {
            self.port.emit(EngineEvent::Links(peaks));
            if let Ok(peaks) = link_bandwidth::measure_kernels(gpu) {
                self.port.emit(EngineEvent::Kernels(peaks, runner.work_shape()));
            }
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
        // The header is read before a device is opened, so that a wrong file is an error without a GPU too.
        let result = crate::engine::runner::open(source).and_then(|file| {
            if !healthy {
                self.gpu = None;
                self.gpu = Some(tuned(|| self.devices.take_or_open(&gpu_options))?);
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

    fn generate(
        &mut self,
        request: RequestId,
        messages: &[Message],
        documents: &[DocumentRef],
        sampling: Sampling,
        max_tokens: usize,
        policy: AttentionMode,
    ) -> Result<(), EngineError> {
        let watch = self.port.cancel_flag();
        let began = Instant::now();
        let runner = self.runner.as_mut().ok_or(EngineError::NoModel)?;
        let mut prompt = runner.encode(messages, true)?;
        runner.steps.end_phase(Phase::Tokenize, began);
        if let Some(note) = runner.text()?.new_note(&mut prompt) {
            self.port.emit(EngineEvent::Notice(note));
        }
        runner.begin_text(&prompt.tokens, messages);
        let begins = document_tokens(runner, messages, documents, &prompt.tokens);
        let sequence =
            Sequence::new(request, prompt.tokens, sampling, max_tokens, watch).with_attention(policy).tokenized(began.elapsed());
        self.run_all(vec![sequence], begins);
        Ok(())
    }

    fn prefill(&mut self, request: RequestId, text: String, documents: &[DocumentRef]) -> Result<(), EngineError> {
        let watch = self.port.cancel_flag();
        let runner = self.runner.as_mut().ok_or(EngineError::NoModel)?;
        let began = Instant::now();
        let messages = [Message { role: Role::User, content: text }];
        let mut prompt = runner.encode(&messages, false)?.tokens;
        runner.steps.end_phase(Phase::Tokenize, began);
        runner.begin_text(&prompt, &messages);
        prompt.truncate(prompt.len().saturating_sub(READ_MARGIN).max(1));
        let begins = match documents {
            // A document is prefilled by itself to be saved so.
            [only] => {
                let documents = vec![(only.clone(), prompt.len())];
                Some(DocumentTokens { tokens: prompt.clone(), documents, n_head: 0, is_exact: true })
            }
            _ => document_tokens(runner, &messages, documents, &prompt),
        };
        let sequence = Sequence::new(request, prompt, Sampling::default(), 0, watch);
        self.run_all(vec![sequence], begins);
        Ok(())
    }

    /// Calls `run` until it succeeds: again after each repair of a damaged page and each rebuild of the device. `run` continues
    /// where it stopped.
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
                    self.clean_up();
                    return Err(error);
                }
                done => return done,
            }
        }
    }

    /// Disables the disk tier: the context is prefilled again, into VRAM and RAM alone.
    fn disable_disk_tier(&mut self) {
        if let (Some(gpu), Some(runner)) = (&self.gpu, &mut self.runner) {
            runner.disable_disk_tier(gpu);
        }
    }

    /// Recomputes a damaged group, after those damaged groups that it needs. False if one of them is lost a second time during
    /// this request: the disk then cannot be read.
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

    /// Cleans up after a failed request: discards its recorded commands and resets the context.
    fn clean_up(&mut self) {
        if let Some(runner) = &mut self.runner {
            runner.pacer.reset();
            if let Some(gpu) = &self.gpu {
                runner.reset_context(gpu);
            }
            // The notices may have the cause of the failure.
            runner.emit_notices(&self.port);
        }
    }

    /// Reopens the device and loads the model onto it. The running request then prefills its tokens again.
    fn rebuild(&mut self, why: &EngineError) -> Result<(), EngineError> {
        self.port.emit(EngineEvent::Notice(format!("{why}; it is being reopened and the conversation read again")));
        if let Some(runner) = &mut self.runner {
            runner.pacer.reset();
        }
        self.gpu = None;
        let gpu = tuned(|| Gpu::open(&self.gpu_options))?;
        if let Some(runner) = &mut self.runner {
            runner.reload(&gpu, &self.hub, &self.options)?;
        }
        self.gpu = Some(gpu);
        Ok(())
    }
}

/// A device, with the kernels that are the fastest on it.
fn tuned(open: impl FnMut() -> Result<Gpu, GpuError>) -> Result<Gpu, GpuError> {
    Ok(tuner::open_tuned(open, tuner::default_folder().as_deref())?.0)
}

fn open_library(kv_dir: Option<&Path>) -> Result<(Catalog, StoreRoot), SavedError> {
    let root = saved_documents::library_root(kv_dir)?;
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

/// Documents that a prompt begins with. The tokens of each, with all before it, are those of its prefill without a question,
/// as far as `prompt` begins with them. None if there are no documents.
pub(super) fn document_tokens(
    runner: &ModelRunner,
    messages: &[Message],
    documents: &[DocumentRef],
    prompt: &[u32],
) -> Option<DocumentTokens> {
    let first = messages.iter().position(|m| m.role == Role::User)?;
    let mut prefix = messages.get(..=first)?.to_vec();
    let text = std::mem::take(&mut prefix.get_mut(first)?.content);
    let common = |tokens: &[u32]| tokens.iter().zip(prompt).take_while(|(a, b)| a == b).count();
    let n_head = if runner.storage.reuses_anywhere() { common(&runner.encode(&prefix, false).ok()?.tokens) } else { 0 };
    let (mut ends, mut end) = (Vec::new(), 0);
    for document in documents {
        prefix.get_mut(first)?.content = text.get(..document.end_byte)?.to_owned();
        let mut tokens = runner.encode(&prefix, false).ok()?.tokens;
        tokens.truncate(tokens.len().saturating_sub(READ_MARGIN));
        end = common(&tokens).max(end);
        ends.push((document.clone(), end));
    }
    let tokens = prompt.get(..end)?.to_vec();
    (!ends.is_empty()).then_some(DocumentTokens { tokens, documents: ends, n_head, is_exact: false })
}
