//! What the engine makes of its own events: the overlap of an answer, and the trace file.
//!
//! ```text
//! hub (engine, gpu, transfer, disk) ─► drained after every step ─┬─► intervals of compute and I/O ─► overlap of the turn
//!                                                                └─► Chrome trace, where one was asked for
//! ```
//! The engine is the one drainer of the hub; a front end that observes gets what was drained. Owner thread: the engine.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

use crate::engine::api::ModelInfo;
use crate::engine::error::EngineError;
use crate::kv::policy::PolicySpec;
use crate::telemetry::chrome_trace::{ChromeTrace, RunInfo};
use crate::telemetry::overlap::{Interval, intervals, is_compute, is_io, overlap};
use crate::telemetry::{Hub, Snapshot};

/// Drains the hub and keeps what a summary needs.
pub(in crate::engine) struct TraceRecorder {
    hub: Arc<Hub>,
    snapshot: Snapshot,
    compute: Vec<Interval>,
    io: Vec<Interval>,
    trace: Option<ChromeTrace<BufWriter<File>>>,
}

impl TraceRecorder {
    /// An observer of `hub` that writes a trace to `path`, if any.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(in crate::engine) fn new(hub: &Arc<Hub>, path: Option<&Path>) -> Result<TraceRecorder, EngineError> {
        let failed = |e: std::io::Error| EngineError::Trace(e.to_string());
        let trace = match path {
            Some(path) => Some(ChromeTrace::new(BufWriter::new(File::create(path).map_err(failed)?)).map_err(failed)?),
            None => None,
        };
        Ok(TraceRecorder { hub: hub.clone(), snapshot: Snapshot::default(), compute: Vec::new(), io: Vec::new(), trace })
    }

    /// Says what the trace is of.
    pub(in crate::engine) fn describe(&mut self, info: &ModelInfo, policy: Option<PolicySpec>) {
        if let Some(trace) = &mut self.trace {
            let policy = policy.map_or_else(|| "everything".to_owned(), |spec| spec.kind.to_string());
            let (model, adapter) = (info.name.clone(), info.adapter.clone());
            trace.describe(RunInfo { strata: env!("CARGO_PKG_VERSION").to_owned(), model, adapter, policy, text: Vec::new() });
        }
    }

    /// A trace is being written.
    pub(in crate::engine) fn is_tracing(&self) -> bool {
        self.trace.is_some()
    }

    /// Takes what has happened since the last time.
    ///
    /// # Errors
    /// A trace that cannot be written; it ends there.
    pub(in crate::engine) fn look(&mut self) -> Result<(), EngineError> {
        self.hub.drain_into(&mut self.snapshot);
        self.compute.extend(intervals(&self.snapshot, is_compute));
        self.io.extend(intervals(&self.snapshot, is_io));
        if let Some(trace) = &mut self.trace
            && let Err(error) = trace.add(&self.snapshot)
        {
            self.trace = None;
            return Err(EngineError::Trace(error.to_string()));
        }
        Ok(())
    }

    /// What was seen last, to hand on.
    pub(in crate::engine) fn take(&mut self) -> Snapshot {
        std::mem::take(&mut self.snapshot)
    }

    /// Begins a turn at `now`: what was before does not count.
    pub(in crate::engine) fn begin(&mut self) {
        self.compute.clear();
        self.io.clear();
    }

    /// The share of the shorter of compute and I/O between `begin_ns` and `end_ns` that the other hid.
    pub(in crate::engine) fn overlap(&self, begin_ns: u64, end_ns: u64) -> Option<f64> {
        let within = |all: &[Interval]| -> Vec<Interval> {
            let cut = all.iter().map(|(from, to)| ((*from).max(begin_ns), (*to).min(end_ns)));
            cut.filter(|(from, to)| from < to).collect()
        };
        overlap(&within(&self.compute), &within(&self.io), end_ns.saturating_sub(begin_ns))
    }
}

impl Drop for TraceRecorder {
    fn drop(&mut self) {
        // A trace that cannot be ended is still one that Perfetto reads up to there.
        let _ = self.look();
        if let Some(trace) = self.trace.take() {
            let _ = trace.finish();
        }
    }
}
