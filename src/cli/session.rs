//! Session: one engine driven from the command line, which loads a model, runs requests and passes on their events.
//!
//! ```text
//! EngineCommand ─► EngineHandle ─► EngineEvent ─┬─ progress, notices ─► Console
//!                      ▲ stop                   ├─ tokens, rows ─► the command
//!                   Ctrl-C                      └─ Finished, Failed ─► Result
//! ```
//! Invariants: 1. Every wait checks for Ctrl-C. 2. A command that cannot continue cancels its request.

use std::time::Duration;

use super::console::Console;
use super::error::CliError;
use super::interrupt::Interrupt;
use crate::engine::{EngineCommand, EngineEvent, EngineHandle, LoadOptions, ModelInfo, ModelSource, RequestId, RequestSummary};

/// Longest wait for an event before the next check for Ctrl-C.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// An engine with its requests.
pub struct Session {
    engine: EngineHandle,
    interrupt: Interrupt,
    last_request: RequestId,
}

impl Session {
    /// A session on an engine that was just started.
    pub fn new(engine: EngineHandle, interrupt: Interrupt) -> Session {
        Session { engine, interrupt, last_request: 0 }
    }

    /// True if Ctrl-C was pressed.
    pub fn interrupted(&self) -> bool {
        self.interrupt.pressed()
    }

    /// Loads a model, and prints its progress and notices.
    ///
    /// # Errors
    /// The engine's message: a bad model, GPU or budget, or no GPU.
    pub fn load(&mut self, source: ModelSource, options: LoadOptions, console: &mut Console) -> Result<ModelInfo, CliError> {
        self.send(EngineCommand::LoadModel { source, options })?;
        loop {
            match self.next_event()? {
                None if self.interrupt.pressed() => return Err(CliError::Interrupted),
                None => {}
                Some(EngineEvent::ModelLoading { share, what }) => {
                    let line = format!("loading the model: {:3.0} % · {what}", share * 100.0);
                    let json = serde_json::json!({ "event": "progress", "phase": "load", "share": share, "what": what });
                    console.progress(&line, &json)?;
                }
                Some(EngineEvent::ModelLoaded(info)) => {
                    for note in &info.notes {
                        console.note(note)?;
                    }
                    return Ok(*info);
                }
                Some(EngineEvent::ModelFailed { sentence, bad_input }) => return Err(failure(sentence, bad_input)),
                Some(EngineEvent::Notice(text)) => console.note(&text)?,
                Some(_) => {}
            }
        }
    }

    /// Id of the next request.
    pub fn next_request(&mut self) -> RequestId {
        self.last_request += 1;
        self.last_request
    }

    /// Runs one request to its end. Events with content (`Token`, `LogitsRows`, `BenchResult`) go to `on_event`; if it fails, the
    /// request is cancelled and the error is returned.
    ///
    /// # Errors
    /// The engine's message, the error of `on_event`, or that the engine is gone.
    pub fn run_request(
        &mut self,
        request: RequestId,
        command: EngineCommand,
        console: &mut Console,
        mut on_event: impl FnMut(EngineEvent, &mut Console) -> Result<(), CliError>,
    ) -> Result<RequestSummary, CliError> {
        let mut cost = None;
        self.run_requests(&[request], command, console, |event, console| match event {
            EngineEvent::Finished { summary, .. } => {
                cost = Some(*summary);
                Ok(())
            }
            EngineEvent::Failed { sentence, bad_input, .. } => Err(failure(sentence, bad_input)),
            event => on_event(event, console),
        })?;
        cost.ok_or_else(engine_gone)
    }

    /// Runs a command of one or several requests until all of them have ended. Their ends go to `on_event` as well.
    ///
    /// # Errors
    /// The error of `on_event`, or that the engine is gone.
    pub fn run_requests(
        &mut self,
        requests: &[RequestId],
        command: EngineCommand,
        console: &mut Console,
        mut on_event: impl FnMut(EngineEvent, &mut Console) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        self.send(command)?;
        let mut n_left = requests.len();
        while n_left > 0 {
            // Repeated, because a cancellation that overtakes the start of the request would be lost.
            if self.interrupt.pressed() {
                self.engine.stop();
            }
            let handled = match self.next_event()? {
                None => Ok(()),
                Some(EngineEvent::Notice(text)) => console.note(&text),
                Some(event) if request_of(&event).is_none_or(|request| !requests.contains(&request)) => Ok(()),
                Some(EngineEvent::Prefill { done, total, tokens_per_s, .. }) => {
                    prefill_progress(console, done, total, tokens_per_s)
                }
                Some(event) => {
                    n_left -= usize::from(matches!(event, EngineEvent::Finished { .. } | EngineEvent::Failed { .. }));
                    on_event(event, console)
                }
            };
            if let Err(error) = handled {
                self.engine.stop();
                return Err(error);
            }
        }
        Ok(())
    }

    fn send(&self, command: EngineCommand) -> Result<(), CliError> {
        if self.engine.send(command) { Ok(()) } else { Err(engine_gone()) }
    }

    fn next_event(&self) -> Result<Option<EngineEvent>, CliError> {
        match self.engine.wait(POLL_INTERVAL) {
            Ok(event) => Ok(Some(event)),
            Err(false) => Ok(None),
            Err(true) => Err(engine_gone()),
        }
    }
}

/// Error for bad input (exit 2), or for a failure (exit 1).
pub fn failure(sentence: String, bad_input: bool) -> CliError {
    if bad_input { CliError::Input(sentence) } else { CliError::Failed(sentence) }
}

fn engine_gone() -> CliError {
    CliError::Failed("the engine ended unexpectedly. Check the GPU with `strata doctor`".to_owned())
}

/// Request id of an event; None for events of no request.
fn request_of(event: &EngineEvent) -> Option<RequestId> {
    match event {
        EngineEvent::Token { request, .. }
        | EngineEvent::LogitsRows { request, .. }
        | EngineEvent::BenchResult { request, .. }
        | EngineEvent::Prefill { request, .. }
        | EngineEvent::Finished { request, .. }
        | EngineEvent::Failed { request, .. } => Some(*request),
        _ => None,
    }
}

fn prefill_progress(console: &mut Console, done: usize, total: usize, tokens_per_s: f64) -> Result<(), CliError> {
    let share = if total == 0 { 1.0 } else { done as f64 / total as f64 };
    let left_secs = if tokens_per_s > 0.0 { total.saturating_sub(done) as f64 / tokens_per_s } else { 0.0 };
    let line = format!(
        "prefill: {:3.0} % · {done} of {total} tokens · {tokens_per_s:.0} tokens/s · ~{left_secs:.0} s left",
        share * 100.0
    );
    let json = serde_json::json!({
        "event": "progress", "phase": "prefill", "share": share, "done": done, "total": total, "tokens_per_s": tokens_per_s,
    });
    console.progress(&line, &json)
}
