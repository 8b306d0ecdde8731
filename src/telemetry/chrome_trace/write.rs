//! Writer of traces, event by event.
//!
//! ```text
//! groups of tracks: threads (phases, steps, selection, encode, recompute, faults) · gpu by family · links · waits · tiers
//! ```
//! 1. Spans of one track never overlap. Concurrent spans of a link go to further tracks of it ("disk to ram 2").
//! 2. Every event is written as it is added; memory grows with the number of tracks only.

use std::collections::HashMap;
use std::io::{self, Write};

use super::{RunInfo, word};
use crate::telemetry::event::{Event, EventKind, KernelFamily, Link, NO_LAYER, WaitCause};
use crate::telemetry::hub::Snapshot;

/// Groups of tracks in drawing order; a track's process id is the index of its group, from 1.
const GROUPS: [&str; 5] = ["threads", "gpu", "links", "waits", "tiers"];
const TIERS_PID: usize = 5;

/// Largest number of tracks of one name, more than a ring is deep; beyond it spans overlap on a track.
const MAX_TRACKS_PER_NAME: usize = 256;

/// Kinds of spans of a thread, outermost first.
const LEVELS: [&str; 6] = ["phase", "step", "recompute", "choose", "encode", "fault"];

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Name {
    Thread { lane: String, level: usize },
    Gpu(KernelFamily),
    Link(Link),
    Wait(WaitCause),
}

impl Name {
    fn of(kind: &EventKind, lane: &str) -> Option<Name> {
        let level = match *kind {
            EventKind::PageMove { link, .. } => return Some(Name::Link(link)),
            EventKind::GpuPass { family, .. } => return Some(Name::Gpu(family)),
            EventKind::Wait { cause } => return Some(Name::Wait(cause)),
            EventKind::Tier { .. } | EventKind::Pages { .. } | EventKind::Hiding { .. } | EventKind::Mass { .. } => return None,
            EventKind::Phase(_) => 0,
            EventKind::Step { .. } => 1,
            EventKind::Recompute { .. } => 2,
            EventKind::Choose { .. } => 3,
            EventKind::Encode => 4,
            EventKind::Fault { .. } => 5,
        };
        Some(Name::Thread { lane: lane.to_owned(), level })
    }

    fn pid(&self) -> usize {
        match self {
            Name::Thread { .. } => 1,
            Name::Gpu(_) => 2,
            Name::Link(_) => 3,
            Name::Wait(_) => 4,
        }
    }

    fn text(&self) -> String {
        match self {
            Name::Thread { lane, level } => format!("{lane}: {}", LEVELS[*level]),
            Name::Gpu(family) => family.name().to_owned(),
            Name::Link(link) => link.name().to_owned(),
            Name::Wait(cause) => cause.name().to_owned(),
        }
    }

    /// Rank within its group; lanes follow the order of their first event.
    fn order(&self) -> usize {
        match self {
            Name::Thread { level, .. } => *level,
            Name::Gpu(family) => *family as usize,
            Name::Link(link) => *link as usize,
            Name::Wait(cause) => *cause as usize,
        }
    }
}

struct Track {
    tid: usize,
    busy_until_ns: u64,
}

/// A trace that is being written.
pub struct ChromeTrace<W: Write> {
    out: W,
    tracks: HashMap<Name, Vec<Track>>,
    n_tracks: usize,
    n_dropped: u64,
    run: RunInfo,
}

impl<W: Write> ChromeTrace<W> {
    /// Begins a trace; `out` should be buffered.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        for (i, group) in GROUPS.iter().enumerate() {
            let (comma, pid) = (if i == 0 { "" } else { "," }, i + 1);
            write!(out, "{comma}\n{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{pid},\"args\":{{\"name\":\"{group}\"}}}}")?;
            write!(out, ",\n{{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":{pid},\"args\":{{\"sort_index\":{pid}}}}}")?;
        }
        Ok(ChromeTrace { out, tracks: HashMap::new(), n_tracks: 0, n_dropped: 0, run: RunInfo::default() })
    }

    /// Sets the description of the run.
    pub fn describe(&mut self, run: RunInfo) {
        self.run = run;
    }

    /// Writes every event of `snapshot`.
    ///
    /// # Errors
    /// Those of the output.
    pub fn add(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        for lane in &snapshot.lanes {
            for event in &lane.events {
                self.event(event, &lane.name)?;
            }
        }
        self.n_dropped = snapshot.counters.n_dropped;
        Ok(())
    }

    /// Ends the trace and writes the number of events lost to full rings.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self) -> io::Result<W> {
        let run = serde_json::to_string(&self.run)?;
        write!(self.out, "\n],\"otherData\":{{\"n_dropped\":{},\"run\":{run}}}}}\n", self.n_dropped)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn event(&mut self, event: &Event, lane: &str) -> io::Result<()> {
        let Some(name) = Name::of(&event.kind, lane) else { return self.sample(event, lane) };
        let (pid, ts) = (name.pid(), Micros(event.begin_ns));
        let tid = self.tid(name, event)?;
        let (label, cat) = (label(&event.kind), cat(&event.kind, lane));
        if matches!(event.kind, EventKind::Fault { .. }) {
            return write!(
                self.out,
                ",\n{{\"ph\":\"i\",\"s\":\"t\",\"name\":\"{label}\",\"cat\":{cat},\"pid\":{pid},\"tid\":{tid},\"ts\":{ts}}}"
            );
        }
        let dur = Micros(event.duration_ns);
        write!(
            self.out,
            ",\n{{\"ph\":\"X\",\"name\":\"{label}\",\"cat\":{cat},\"pid\":{pid},\"tid\":{tid},\"ts\":{ts},\"dur\":{dur},\"args\":"
        )?;
        self.args(&event.kind)?;
        self.out.write_all(b"}")
    }

    fn args(&mut self, kind: &EventKind) -> io::Result<()> {
        let out = &mut self.out;
        match *kind {
            EventKind::PageMove { link, layer, group, n_pages, bytes, cause } => write!(
                out,
                "{{\"link\":\"{}\",\"layer\":{layer},\"group\":{group},\"n_pages\":{n_pages},\"bytes\":{bytes},\"cause\":\"{}\"}}",
                link.name(),
                cause.name()
            ),
            EventKind::GpuPass { layer: NO_LAYER, estimated, .. } => write!(out, "{{\"estimated\":{estimated}}}"),
            EventKind::GpuPass { layer, estimated, .. } => write!(out, "{{\"layer\":{layer},\"estimated\":{estimated}}}"),
            EventKind::Step { first_token, n_tokens, .. } => {
                write!(out, "{{\"first_token\":{first_token},\"n_tokens\":{n_tokens}}}")
            }
            EventKind::Choose { layer } => write!(out, "{{\"layer\":{layer}}}"),
            EventKind::Recompute { layer, n_tokens } => write!(out, "{{\"layer\":{layer},\"n_tokens\":{n_tokens}}}"),
            _ => out.write_all(b"{}"),
        }
    }

    fn sample(&mut self, event: &Event, lane: &str) -> io::Result<()> {
        let ts = Micros(event.begin_ns);
        let (label, cat) = (label(&event.kind), cat(&event.kind, lane));
        write!(self.out, ",\n{{\"ph\":\"C\",\"name\":\"{label}\",\"cat\":{cat},\"pid\":{TIERS_PID},\"ts\":{ts},\"args\":")?;
        match event.kind {
            EventKind::Tier { vram, ram, disk } => write!(self.out, "{{\"vram\":{vram},\"ram\":{ram},\"disk\":{disk}}}}}"),
            EventKind::Pages { resident, fetched, recomputed, skipped } => write!(
                self.out,
                "{{\"resident\":{resident},\"fetched\":{fetched},\"recomputed\":{recomputed},\"skipped\":{skipped}}}}}"
            ),
            EventKind::Hiding { layer, theta_permille, expected_io_us, io_us, expected_compute_us, compute_us } => write!(
                self.out,
                "{{\"layer\":{layer},\"theta_permille\":{theta_permille},\"expected_io_us\":{expected_io_us},\"io_us\":{io_us},\
                 \"expected_compute_us\":{expected_compute_us},\"compute_us\":{compute_us}}}}}"
            ),
            EventKind::Mass { layer, kept_ppm, best_ppm } => {
                write!(self.out, "{{\"layer\":{layer},\"kept_ppm\":{kept_ppm},\"best_ppm\":{best_ppm}}}}}")
            }
            _ => self.out.write_all(b"{}}"),
        }
    }

    /// Id of the first track of that name that is free for `event`; a new track if none is.
    fn tid(&mut self, name: Name, event: &Event) -> io::Result<usize> {
        let tracks = self.tracks.entry(name.clone()).or_default();
        let full = tracks.len() >= MAX_TRACKS_PER_NAME;
        if let Some(track) = tracks.iter_mut().find(|t| t.busy_until_ns <= event.begin_ns || full) {
            track.busy_until_ns = track.busy_until_ns.max(event.end_ns());
            return Ok(track.tid);
        }
        self.n_tracks += 1;
        let tid = self.n_tracks;
        tracks.push(Track { tid, busy_until_ns: event.end_ns() });
        let n = tracks.len();
        let text = if n == 1 { name.text() } else { format!("{} {n}", name.text()) };
        let (pid, text) = (name.pid(), serde_json::Value::from(text));
        let sort = name.order() * MAX_TRACKS_PER_NAME + n;
        let out = &mut self.out;
        write!(out, ",\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{pid},\"tid\":{tid},\"args\":{{\"name\":{text}}}}}")?;
        write!(
            out,
            ",\n{{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":{pid},\"tid\":{tid},\"args\":{{\"sort_index\":{sort}}}}}"
        )?;
        Ok(tid)
    }
}

/// Lane and kind, as a JSON string.
fn cat(kind: &EventKind, lane: &str) -> serde_json::Value {
    serde_json::Value::from(format!("{lane},{}", word(kind)))
}

fn label(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::PageMove { cause, .. } => cause.name(),
        EventKind::Wait { cause } => cause.name(),
        EventKind::GpuPass { family, .. } => family.name(),
        EventKind::Encode => "encode",
        EventKind::Choose { .. } => "choose",
        EventKind::Step { kind, .. } => kind.name(),
        EventKind::Pages { .. } => "pages of a step",
        EventKind::Tier { .. } => "KV bytes by tier",
        EventKind::Hiding { .. } => "hiding of a layer",
        EventKind::Mass { .. } => "mass kept of a layer",
        EventKind::Recompute { .. } => "recompute",
        EventKind::Phase(phase) => phase.name(),
        EventKind::Fault { kind } => kind.name(),
    }
}

/// Nanoseconds, printed as microseconds.
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}
