//! Reader of saved traces: untrusted bytes, parsed event by event, never all in memory at once.
//!
//! Limits: [`MAX_BYTES`] of text, [`MAX_EVENTS`], [`MAX_LANES`] of [`MAX_NAME_BYTES`] each, [`MAX_NS`]. A trace above a limit
//! is rejected, not truncated.

use std::borrow::Cow;
use std::fmt;
use std::io::Read;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::RunInfo;
use crate::telemetry::counters::AtomicCounters;
use crate::telemetry::event::{Cause, Event, EventKind, FaultKind, KernelFamily, Link, NO_LAYER, Phase, StepKind, WaitCause};
use crate::telemetry::hub::{LaneSnapshot, Snapshot};

/// Largest number of events of a trace.
pub const MAX_EVENTS: usize = 2_000_000;
/// Largest text of a trace, bytes.
const MAX_BYTES: u64 = 1 << 30;
const MAX_LANES: usize = 64;
const MAX_NAME_BYTES: usize = 256;
/// Latest time, nanoseconds (52 days): up to here microseconds with three decimals are exact.
const MAX_NS: f64 = (1u64 << 52) as f64;

/// A trace as read from a file.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// events and their totals
    pub snapshot: Snapshot,
    /// description of the run
    pub run: RunInfo,
    /// events of other programs
    pub n_foreign: u64,
}

/// Error of a trace that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// malformed, or over a limit
    #[error("Strata cannot read this trace: {0}. Open a trace that Strata wrote")]
    Malformed(#[from] serde_json::Error),
    /// every event is from another program
    #[error("this trace has no events of Strata, only {n_foreign} of other programs. Open a trace that Strata wrote")]
    Foreign {
        /// events of other programs
        n_foreign: u64,
    },
}

/// Reads a trace from `from`, which should be buffered.
///
/// # Errors
/// Malformed text, text over a limit, or a trace of another program.
pub fn read(from: impl Read) -> Result<Recording, ReadError> {
    let mut json = serde_json::Deserializer::from_reader(from.take(MAX_BYTES));
    let mut recording = File.deserialize(&mut json)?;
    json.end()?;
    if recording.snapshot.lanes.is_empty() && recording.n_foreign > 0 {
        return Err(ReadError::Foreign { n_foreign: recording.n_foreign });
    }
    let counters = AtomicCounters::default();
    for lane in &mut recording.snapshot.lanes {
        lane.sort();
        lane.events.iter().for_each(|event| counters.count(&event.kind, event.duration_ns));
    }
    let n_dropped = recording.snapshot.counters.n_dropped;
    recording.snapshot.counters = counters.load();
    recording.snapshot.counters.n_dropped = n_dropped;
    Ok(recording)
}

/// Visitor of the file's top-level object.
struct File;

/// Visitor of the list of events.
struct Events<'a>(&'a mut Recording);

#[derive(Deserialize, Default)]
#[serde(default)]
struct Other {
    n_dropped: u64,
    run: RunInfo,
}

/// A list entry, of any program.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Entry {
    ph: String,
    cat: String,
    name: String,
    ts: f64,
    dur: f64,
    args: Args,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Args {
    link: Option<String>,
    cause: Option<String>,
    layer: Option<u32>,
    group: u32,
    n_pages: u32,
    bytes: u64,
    estimated: bool,
    first_token: u32,
    n_tokens: u32,
    resident: u32,
    fetched: u32,
    recomputed: u32,
    skipped: u32,
    vram: u64,
    ram: u64,
    disk: u64,
    theta_permille: u32,
    expected_io_us: u32,
    io_us: u32,
    expected_compute_us: u32,
    compute_us: u32,
    kept_ppm: u32,
    best_ppm: u32,
}

impl<'de> DeserializeSeed<'de> for File {
    type Value = Recording;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Recording, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for File {
    type Value = Recording;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with traceEvents")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Recording, A::Error> {
        let mut recording = Recording::default();
        let mut has_events = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "traceEvents" if !has_events => {
                    map.next_value_seed(Events(&mut recording))?;
                    has_events = true;
                }
                "otherData" => {
                    let other: Other = map.next_value()?;
                    recording.snapshot.counters.n_dropped = other.n_dropped;
                    recording.run = other.run;
                }
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        if has_events { Ok(recording) } else { Err(A::Error::missing_field("traceEvents")) }
    }
}

impl<'de> DeserializeSeed<'de> for Events<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut n_events = 0;
        while let Some(entry) = seq.next_element::<Entry>()? {
            if entry.ph == "M" {
                continue;
            }
            let Some((lane, kind)) = entry.lane_and_kind() else {
                self.0.n_foreign += 1;
                continue;
            };
            n_events += 1;
            if n_events > MAX_EVENTS {
                return Err(A::Error::custom(format!("it has more than {MAX_EVENTS} events")));
            }
            let event =
                entry.event(kind).ok_or_else(|| A::Error::custom(format!("it has a time of {} or {}", entry.ts, entry.dur)))?;
            let lane = lane_mut(&mut self.0.snapshot.lanes, lane)
                .ok_or_else(|| A::Error::custom("it has too many lanes, or too long a lane name"))?;
            lane.events.push(event);
        }
        Ok(())
    }
}

fn lane_mut<'a>(lanes: &'a mut Vec<LaneSnapshot>, name: &str) -> Option<&'a mut LaneSnapshot> {
    let place = lanes.iter().position(|lane| lane.name == name).unwrap_or(lanes.len());
    if place == lanes.len() {
        if place == MAX_LANES || name.len() > MAX_NAME_BYTES {
            return None;
        }
        lanes.push(LaneSnapshot { name: Cow::Owned(name.to_owned()), events: Vec::new(), n_dropped: 0 });
    }
    lanes.get_mut(place)
}

impl Entry {
    /// Lane and kind; None if the entry is not of Strata.
    fn lane_and_kind(&self) -> Option<(&str, EventKind)> {
        let (lane, word) = self.cat.rsplit_once(',')?;
        let (args, name) = (&self.args, self.name.as_str());
        let layer = args.layer.unwrap_or(NO_LAYER);
        let kind = match word {
            "move" => EventKind::PageMove {
                link: Link::named(args.link.as_deref()?)?,
                layer,
                group: args.group,
                n_pages: args.n_pages,
                bytes: args.bytes,
                cause: Cause::named(args.cause.as_deref()?)?,
            },
            "wait" => EventKind::Wait { cause: WaitCause::named(name)? },
            "gpu" => EventKind::GpuPass { family: KernelFamily::named(name)?, layer, estimated: args.estimated },
            "encode" => EventKind::Encode,
            "choose" => EventKind::Select { layer },
            "step" => EventKind::Step { kind: StepKind::named(name)?, first_token: args.first_token, n_tokens: args.n_tokens },
            "pages" => {
                let &Args { resident, fetched, recomputed, skipped, .. } = args;
                EventKind::Pages { resident, fetched, recomputed, skipped }
            }
            "tiers" => EventKind::Tier { vram: args.vram, ram: args.ram, disk: args.disk },
            "recompute" => EventKind::Recompute { layer, n_tokens: args.n_tokens },
            "hiding" => {
                let &Args { theta_permille, expected_io_us, io_us, expected_compute_us, compute_us, .. } = args;
                EventKind::Overlap { layer, theta_permille, expected_io_us, io_us, expected_compute_us, compute_us }
            }
            "mass" => EventKind::Mass { layer, kept_ppm: args.kept_ppm, best_ppm: args.best_ppm },
            "phase" => EventKind::Phase(Phase::named(name)?),
            "fault" => EventKind::Fault { kind: FaultKind::named(name)? },
            _ => return None,
        };
        Some((lane, kind))
    }

    /// The event; None if its times are out of range.
    fn event(&self, kind: EventKind) -> Option<Event> {
        let ns = |micros: f64| {
            let ns = (micros * 1e3).round();
            (0.0..=MAX_NS).contains(&ns).then_some(ns as u64)
        };
        Some(Event { begin_ns: ns(self.ts)?, duration_ns: ns(self.dur)?, kind })
    }
}
