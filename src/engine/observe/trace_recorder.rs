//! Trace recorder: drains the engine's own events, for the overlap of an answer and the trace file.
//!
//! ```text
//! hub (engine, gpu, transfer, disk) ─► drained after every step ─┬─► intervals of compute and I/O ─► overlap of an answer
//!                                                                └─► Chrome trace, if requested
//! ```
//! Only the engine drains the hub; an observing front end gets the drained snapshot. Owner thread: the engine.

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

/// Drained events of the hub, and the intervals that a summary needs.
pub(in crate::engine) struct TraceRecorder {
    hub: Arc<Hub>,
    snapshot: Snapshot,
    compute: Vec<Interval>,
    io: Vec<Interval>,
    trace: Option<ChromeTrace<BufWriter<File>>>,
}

impl TraceRecorder {
    /// A recorder of `hub` that writes a trace to `path`, if any.
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

    /// Writes model, adapter and policy to the trace.
    pub(in crate::engine) fn describe(&mut self, info: &ModelInfo, policy: Option<PolicySpec>) {
        if let Some(trace) = &mut self.trace {
            let policy = policy.map_or_else(|| "everything".to_owned(), |spec| spec.kind.to_string());
            let (model, adapter) = (info.name.clone(), info.adapter.clone());
            trace.describe(RunInfo { strata: env!("CARGO_PKG_VERSION").to_owned(), model, adapter, policy, text: Vec::new() });
        }
    }

    /// True if a trace is being written.
    pub(in crate::engine) fn is_tracing(&self) -> bool {
        self.trace.is_some()
    }

    /// Drains the events since the last call.
    ///
    /// # Errors
    /// The trace cannot be written; it ends there.
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

    /// Takes the last drained snapshot.
    pub(in crate::engine) fn take(&mut self) -> Snapshot {
        std::mem::take(&mut self.snapshot)
    }

    /// Begins a request: drops earlier intervals.
    pub(in crate::engine) fn begin(&mut self) {
        self.compute.clear();
        self.io.clear();
    }

    /// Hidden fraction of the shorter of compute and I/O between `begin_ns` and `end_ns`, 0 to 1. None if either is empty.
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
        // Perfetto also reads a trace without an end.
        let _ = self.look();
        if let Some(trace) = self.trace.take() {
            let _ = trace.finish();
        }
    }
}
