//! Both ends of the channel pair between a front end and the engine worker.
//!
//! ```text
//! UI / CLI ── EngineCommand ─► [bounded] ─► worker
//!     ▲                                       │
//!     └── EngineEvent ◄─ [bounded] ◄── wake() ┘        stop: a flag that overtakes the queue
//! ```
//! Invariants: 1. [`EngineHandle::send`] and [`EngineHandle::poll`] never block. 2. The worker may block on a full event
//! channel; a front end that went away unblocks it. 3. `stop` ends the turn that runs now, within one submit; of several
//! that run at once all, or one by its id. 4. A handle that is dropped ends its worker and waits until that has put
//! everything down: a process that ends under a driver at work can crash in it, and what was asked for last (a removal, a
//! save) would be cut off.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};

use crate::base::limits::CHANNEL_DEPTH;
use crate::engine::api::{EngineCommand, EngineEvent, RequestId};

/// How long a worker may take to end. One that takes longer hangs in its driver, and is left behind.
const GOODBYE: Duration = Duration::from_secs(20);

/// Between two looks at whether it has.
const PATIENCE: Duration = Duration::from_millis(50);

/// A front end's end.
pub struct EngineHandle {
    commands: Sender<EngineCommand>,
    events: Receiver<EngineEvent>,
    stops: Arc<CancelFlags>,
    watches_pages: Arc<AtomicBool>,
    detail: Arc<AtomicU8>,
    /// The worker's, where it has one.
    thread: Option<JoinHandle<()>>,
}

/// The worker's end.
pub struct EnginePort {
    /// what to do next
    pub commands: Receiver<EngineCommand>,
    events: Sender<EngineEvent>,
    stops: Arc<CancelFlags>,
    watches_pages: Arc<AtomicBool>,
    detail: Arc<AtomicU8>,
    wake: Box<dyn Fn() + Send>,
}

/// How much of what the engine does the front end wants to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// nothing
    Nothing,
    /// every event, with one device time for each submit
    Events,
    /// every event, and in one step of sixteen a device time for each kind of work in each layer
    Parts,
}

/// What was stopped.
#[derive(Default)]
struct CancelFlags {
    /// how often everything was
    all: AtomicU64,
    /// single turns of the command that runs now
    turns: Mutex<Vec<RequestId>>,
}

/// Remembers how many stops there had been when a turn began.
#[derive(Clone)]
pub struct CancelFlag {
    stops: Arc<CancelFlags>,
    seen: u64,
    turn: Option<RequestId>,
}

impl CancelFlag {
    /// The user pressed stop since this watch was taken.
    pub fn stopped(&self) -> bool {
        let is_one = |turn| self.stops.turns.lock().unwrap_or_else(PoisonError::into_inner).contains(&turn);
        self.stops.all.load(Ordering::Acquire) != self.seen || self.turn.is_some_and(is_one)
    }

    /// The same for one of several turns that run at once, which can be stopped alone.
    pub fn of(&self, turn: RequestId) -> CancelFlag {
        CancelFlag { turn: Some(turn), ..self.clone() }
    }
}

impl EngineHandle {
    /// A connected pair. `wake` is called after every event (a window asks for a repaint there).
    pub fn pair(wake: impl Fn() + Send + 'static) -> (EngineHandle, EnginePort) {
        let (command_tx, command_rx) = bounded(CHANNEL_DEPTH);
        let (event_tx, event_rx) = bounded(CHANNEL_DEPTH);
        let stops = Arc::new(CancelFlags::default());
        let (detail, watches_pages) = (Arc::new(AtomicU8::new(Detail::Nothing as u8)), Arc::new(AtomicBool::default()));
        let handle = EngineHandle {
            commands: command_tx,
            events: event_rx,
            stops: stops.clone(),
            detail: detail.clone(),
            watches_pages: watches_pages.clone(),
            thread: None,
        };
        let wake = Box::new(wake);
        (handle, EnginePort { commands: command_rx, events: event_tx, stops, detail, watches_pages, wake })
    }

    /// The worker runs there: dropping the handle waits for it.
    pub(super) fn wait_for(&mut self, thread: JoinHandle<()>) {
        self.thread = Some(thread);
    }

    /// Queues a command. False when the queue is full or the worker is gone.
    pub fn send(&self, command: EngineCommand) -> bool {
        match self.commands.try_send(command) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    /// The next event, if there is one.
    pub fn poll(&self) -> Option<EngineEvent> {
        self.events.try_recv().ok()
    }

    /// The next event, waiting up to `timeout`. `Err(true)` when the worker is gone.
    ///
    /// # Errors
    /// `false` on a timeout, `true` when no event can come any more.
    pub fn wait(&self, timeout: Duration) -> Result<EngineEvent, bool> {
        self.events.recv_timeout(timeout).map_err(|e| e == RecvTimeoutError::Disconnected)
    }

    /// Ends the turn that runs now (prefill or decode); turns asked for later are not affected.
    pub fn stop(&self) {
        self.stops.all.fetch_add(1, Ordering::AcqRel);
    }

    /// Asks for [`EngineEvent::Telemetry`] in this detail from the next step on.
    pub fn observe(&self, detail: Detail) {
        self.detail.store(detail as u8, Ordering::Relaxed);
    }

    /// Somebody looks at where pages are, or nobody does any more: [`EngineEvent::Pages`] comes with every turn meanwhile.
    pub fn watch_pages(&self, on: bool) {
        self.watches_pages.store(on, Ordering::Relaxed);
    }

    /// Ends one of the turns that run at once; the others go on.
    pub fn stop_turn(&self, turn: RequestId) {
        self.stops.turns.lock().unwrap_or_else(PoisonError::into_inner).push(turn);
    }
}

impl Drop for EngineHandle {
    fn drop(&mut self) {
        self.stop();
        let mut told = self.send(EngineCommand::Shutdown);
        let Some(thread) = self.thread.take() else { return };
        let asked_at = Instant::now();
        while !thread.is_finished() {
            if asked_at.elapsed() > GOODBYE {
                return;
            }
            // A worker that waits to report goes on when its event is taken; a turn that was asked for earlier may begin
            // only now, and the queue may have been full.
            let _ = self.events.recv_timeout(PATIENCE);
            self.stop();
            told = told || self.send(EngineCommand::Shutdown);
        }
        let _ = thread.join();
    }
}

impl EnginePort {
    /// Reports an event and wakes the front end. False when the front end is gone.
    pub fn emit(&self, event: EngineEvent) -> bool {
        let sent = self.events.send(event).is_ok();
        (self.wake)();
        sent
    }

    /// The front end wants to see at least this much.
    pub fn is_observed(&self, detail: Detail) -> bool {
        self.detail.load(Ordering::Relaxed) >= detail as u8
    }

    /// Somebody looks at where pages are.
    pub fn watches_pages(&self) -> bool {
        self.watches_pages.load(Ordering::Relaxed)
    }

    /// A watch for stops from now on.
    pub fn cancel_flag(&self) -> CancelFlag {
        self.stops.turns.lock().unwrap_or_else(PoisonError::into_inner).clear();
        CancelFlag { stops: self.stops.clone(), seen: self.stops.all.load(Ordering::Acquire), turn: None }
    }
}
