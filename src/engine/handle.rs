//! Engine handle and port: the two ends of the channels between a front end and the engine worker.
//!
//! ```text
//! UI / CLI ── EngineCommand ─► [bounded] ─► worker
//!     ▲                                       │
//!     └── EngineEvent ◄─ [bounded] ◄── wake() ┘        stop: a flag that bypasses the queue
//! ```
//! 1. [`EngineHandle::send`] and [`EngineHandle::poll`] never block.
//! 2. The worker may block on a full event channel; dropping the handle unblocks it.
//! 3. `stop` ends the running request after its current chunk or token; of a batch, all requests or one by its id.
//! 4. Dropping the handle ends the worker and waits for it. A process that exits while its driver is busy can crash, and
//!    the last command (a removal, a save) would be cut off.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};

use crate::base::limits::CHANNEL_DEPTH;
use crate::engine::api::{EngineCommand, EngineEvent, RequestId};

/// Maximum wait for the worker to end. After that it hangs in its driver and is detached.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);

/// Poll interval of that wait.
const SHUTDOWN_POLL: Duration = Duration::from_millis(50);

/// The front end's side of the channels.
pub struct EngineHandle {
    commands: Sender<EngineCommand>,
    events: Receiver<EngineEvent>,
    stops: Arc<CancelFlags>,
    watches_pages: Arc<AtomicBool>,
    detail: Arc<AtomicU8>,
    /// thread of the worker, if it has its own
    thread: Option<JoinHandle<()>>,
}

/// The worker's side of the channels.
pub struct EnginePort {
    /// commands in order
    pub commands: Receiver<EngineCommand>,
    events: Sender<EngineEvent>,
    stops: Arc<CancelFlags>,
    watches_pages: Arc<AtomicBool>,
    detail: Arc<AtomicU8>,
    wake: Box<dyn Fn() + Send>,
}

/// Level of detail of the telemetry that a front end requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// no telemetry
    Nothing,
    /// every event, with one device time per submit
    Events,
    /// every event, and in one of 32 steps a device time per kernel family and layer
    Parts,
}

/// Cancellations so far.
#[derive(Default)]
struct CancelFlags {
    /// number of times that everything was stopped
    all: AtomicU64,
    /// stopped requests of the running command
    requests: Mutex<Vec<RequestId>>,
}

/// Cancellation flag of a request: compares the number of stops with that at its start.
#[derive(Clone)]
pub struct CancelFlag {
    stops: Arc<CancelFlags>,
    seen: u64,
    request: Option<RequestId>,
}

impl CancelFlag {
    /// True if the request was stopped after this flag was created.
    pub fn stopped(&self) -> bool {
        let is_one = |request| self.stops.requests.lock().unwrap_or_else(PoisonError::into_inner).contains(&request);
        self.stops.all.load(Ordering::Acquire) != self.seen || self.request.is_some_and(is_one)
    }

    /// Flag of one request of a batch, which can be stopped alone.
    pub fn of(&self, request: RequestId) -> CancelFlag {
        CancelFlag { request: Some(request), ..self.clone() }
    }
}

impl EngineHandle {
    /// Creates a connected pair. `wake` is called after every event (a window requests a repaint).
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

    /// Sets the worker thread, for which dropping the handle waits.
    pub(super) fn wait_for(&mut self, thread: JoinHandle<()>) {
        self.thread = Some(thread);
    }

    /// Queues a command. False if the queue is full or the worker has ended.
    pub fn send(&self, command: EngineCommand) -> bool {
        match self.commands.try_send(command) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    /// The next event, if any.
    pub fn poll(&self) -> Option<EngineEvent> {
        self.events.try_recv().ok()
    }

    /// Waits for the next event, up to `timeout`.
    ///
    /// # Errors
    /// `false` on a timeout, `true` if the worker has ended.
    pub fn wait(&self, timeout: Duration) -> Result<EngineEvent, bool> {
        self.events.recv_timeout(timeout).map_err(|e| e == RecvTimeoutError::Disconnected)
    }

    /// Stops everything that is running (prefill or decode). Later requests are not affected.
    pub fn stop(&self) {
        self.stops.all.fetch_add(1, Ordering::AcqRel);
    }

    /// Requests [`EngineEvent::Telemetry`] in this detail from the next step on.
    pub fn observe(&self, detail: Detail) {
        self.detail.store(detail as u8, Ordering::Relaxed);
    }

    /// Turns [`EngineEvent::Pages`] of every request on or off.
    pub fn watch_pages(&self, on: bool) {
        self.watches_pages.store(on, Ordering::Relaxed);
    }

    /// Stops one request of the running batch; the others continue.
    pub fn stop_request(&self, request: RequestId) {
        self.stops.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    }
}

impl Drop for EngineHandle {
    fn drop(&mut self) {
        self.stop();
        let mut is_queued = self.send(EngineCommand::Shutdown);
        let Some(thread) = self.thread.take() else { return };
        let began = Instant::now();
        while !thread.is_finished() {
            if began.elapsed() > SHUTDOWN_TIMEOUT {
                return;
            }
            // Taking an event unblocks a worker that waits to send one. An earlier request may start only now, and the
            // queue may have been full.
            let _ = self.events.recv_timeout(SHUTDOWN_POLL);
            self.stop();
            is_queued = is_queued || self.send(EngineCommand::Shutdown);
        }
        let _ = thread.join();
    }
}

impl EnginePort {
    /// Sends an event and wakes the front end. False if the front end has gone.
    pub fn emit(&self, event: EngineEvent) -> bool {
        let sent = self.events.send(event).is_ok();
        (self.wake)();
        sent
    }

    /// True if the front end requests at least this detail.
    pub fn is_observed(&self, detail: Detail) -> bool {
        self.detail.load(Ordering::Relaxed) >= detail as u8
    }

    /// True if the front end requests page maps.
    pub fn watches_pages(&self) -> bool {
        self.watches_pages.load(Ordering::Relaxed)
    }

    /// A flag for stops from now on. Forgets earlier stops of single requests.
    pub fn cancel_flag(&self) -> CancelFlag {
        self.stops.requests.lock().unwrap_or_else(PoisonError::into_inner).clear();
        CancelFlag { stops: self.stops.clone(), seen: self.stops.all.load(Ordering::Acquire), request: None }
    }
}
