//! The engine thread: takes commands in order, owns the device and the model, reports events.
//!
//! ```text
//! EngineCommand ─► load │ ask │ read │ logits │ bench ─► EngineEvent
//!                          └ device lost? reopen, reload, go on
//! ```
//! * Every command ends in exactly one final event (loaded/failed, finished/failed, counted).
//! * No command panics the thread: errors are sentences.
//! * The device is opened with the first model, so that a window shows before it.

use std::sync::Arc;

use crate::gpu::{Gpu, GpuOptions};
use crate::telemetry::Hub;

use super::command::{EngineCommand, EngineEvent, LoadOptions, Message, ModelSource, Role, Sampling, TurnId, TurnSummary};
use super::error::EngineError;
use super::handle::{EngineHandle, EnginePort};
use super::loaded::Loaded;
use super::turn::Turn;

/// Events that a lane remembers between two looks.
const EVENTS_PER_LANE: usize = 1 << 16;
/// A device is rebuilt at most this often within one turn.
const MAX_REBUILDS: usize = 2;
/// Tokens at the end of a document that are left for the question's prefill: the template and the tokenizer may join them
/// differently with what follows.
const READ_MARGIN: usize = 8;

/// Starts the engine thread. `wake` is called after every event.
pub fn spawn(wake: impl Fn() + Send + 'static) -> EngineHandle {
    let (handle, port) = EngineHandle::pair(wake);
    let started = std::thread::Builder::new().name("strata-engine".into()).spawn(move || Worker::new(port).run());
    if let Err(error) = started {
        // The port went with the closure: every later `wait` answers that the engine is gone.
        eprintln!("strata: the engine thread could not be started ({error})");
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
}

impl Worker {
    pub(super) fn new(port: EnginePort) -> Worker {
        Worker {
            port,
            gpu: None,
            loaded: None,
            options: LoadOptions::default(),
            gpu_options: GpuOptions::default(),
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
    }

    fn handle(&mut self, command: EngineCommand) {
        match command {
            EngineCommand::LoadModel { source, options } => self.load(&source, options),
            EngineCommand::UnloadModel => {
                self.loaded = None;
                self.port.emit(EngineEvent::ModelUnloaded);
            }
            EngineCommand::Ask { turn, messages, document: _, sampling, max_tokens } => {
                let result = self.ask(turn, &messages, sampling, max_tokens);
                self.report(turn, result);
            }
            EngineCommand::Read { turn, text, document: _ } => {
                let result = self.read(turn, text);
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
            EngineCommand::Bench { turn, n_prompt, n_gen, depths, repetitions } => {
                let result = self.bench(turn, &n_prompt, &n_gen, &depths, repetitions);
                self.report(turn, result);
            }
            EngineCommand::Library(_) => {
                self.port.emit(EngineEvent::Library(Vec::new()));
            }
            EngineCommand::LoseDevice => {
                if let Some(gpu) = &self.gpu {
                    gpu.lose();
                }
            }
            EngineCommand::Shutdown => {}
        }
    }

    fn report(&mut self, turn: TurnId, result: Result<TurnSummary, EngineError>) {
        match result {
            Ok(summary) => {
                self.port.emit(EngineEvent::Finished { turn, summary: Box::new(summary) });
            }
            Err(error) => {
                self.fail(turn, &error);
            }
        }
    }

    fn fail(&self, turn: TurnId, error: &EngineError) -> bool {
        self.port.emit(EngineEvent::Failed { turn, sentence: sentence(error), bad_input: error.is_bad_input() })
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
            Loaded::load(gpu, &self.hub, file, source, &options, &mut progress)
        });
        self.gpu_options = gpu_options;
        self.options = options;
        match result {
            Ok(loaded) => {
                let info = Box::new(loaded.info.clone());
                self.loaded = Some(loaded);
                self.port.emit(EngineEvent::ModelLoaded(info));
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
        sampling: Sampling,
        max_tokens: usize,
    ) -> Result<TurnSummary, EngineError> {
        let watch = self.port.stop_watch();
        let loaded = self.loaded.as_ref().ok_or(EngineError::NoModel)?;
        let prompt = loaded.encode(messages, true)?;
        if let Some(note) = prompt.note {
            self.port.emit(EngineEvent::Notice(note));
        }
        self.run_turn(Turn::new(turn, prompt.tokens, sampling, max_tokens, watch))
    }

    fn read(&mut self, turn: TurnId, text: String) -> Result<TurnSummary, EngineError> {
        let watch = self.port.stop_watch();
        let loaded = self.loaded.as_ref().ok_or(EngineError::NoModel)?;
        let mut prompt = loaded.encode(&[Message { role: Role::User, content: text }], false)?.tokens;
        prompt.truncate(prompt.len().saturating_sub(READ_MARGIN).max(1));
        self.run_turn(Turn::new(turn, prompt, Sampling::default(), 0, watch))
    }

    fn run_turn(&mut self, mut turn: Turn) -> Result<TurnSummary, EngineError> {
        let mut rebuilds = 0;
        loop {
            let result = match (&self.gpu, &mut self.loaded) {
                (Some(gpu), Some(loaded)) => turn.run(gpu, loaded, &self.port),
                _ => Err(EngineError::NoModel),
            };
            match result {
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

    /// After a failed turn, what was recorded must not run with the next one, and the cache holds what it says.
    fn settle(&mut self) {
        if let Some(loaded) = &mut self.loaded {
            loaded.pace.reset();
            loaded.truncate(0);
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

/// An error as one sentence with a capital and a full stop.
fn sentence(error: &EngineError) -> String {
    let text = error.to_string();
    let mut chars = text.chars();
    let capital = chars.next().map(|c| c.to_uppercase().collect::<String>()).unwrap_or_default();
    let end = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{capital}{}{end}", chars.as_str())
}
