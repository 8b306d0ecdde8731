//! Time attribution: which cause took each nanosecond of a step, an answer or a window.
//!
//! ```text
//! GPU passes   ░██████░░░███░░     each moment has one cause: GPU compute > wait > selection and encoding on the CPU
//! engine waits ██████░░░░░░░░░     > a step without a recorded cause (unattributed) > no step (idle)
//! encode       ░░░░░░██░░░░░░░
//! ```
//! 1. The parts add up to the length of the window, exactly.
//! 2. If the thread that fetches pages waits too, its cause replaces the engine's wait for pages.
//!
//! Units: nanoseconds of [`super::now`]. Cost: sorting the events of the window, so callers should cache the result.

use super::event::{Event, EventKind, KernelFamily, Phase, WaitCause};
use super::history::{ENGINE_LANE, History};

/// Cause that a moment is attributed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TimeCategory {
    /// recomputation of K and V
    Recompute,
    /// GPU compute
    Compute(KernelFamily),
    /// the engine waits
    Wait(WaitCause),
    /// a policy selects pages or tokens for attention
    Select,
    /// the CPU records commands
    Encode,
    /// tokenizing, or opening a saved document
    Phase(Phase),
    /// a step or a phase without an event that explains it
    Unattributed,
    /// no step and no phase
    Idle,
}

/// Time of a window, by cause.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attribution {
    /// causes with their time, longest first, without those of no time
    pub parts: Vec<(TimeCategory, u64)>,
    /// length of the window
    pub wall_ns: u64,
}

impl Attribution {
    /// The window from `from_ns` to `to_ns` of `history`.
    pub fn of(history: &History, from_ns: u64, to_ns: u64) -> Attribution {
        let mut edges = Vec::new();
        for series in history.series() {
            let is_engine = series.lane == ENGINE_LANE;
            for event in series.within(from_ns, to_ns) {
                let Some(claim) = Claim::of(event, is_engine) else { continue };
                let (begin, end) = (event.begin_ns.max(from_ns), event.end_ns().min(to_ns));
                if begin < end {
                    edges.push((begin, claim, 1));
                    edges.push((end, claim, -1));
                }
            }
        }
        edges.sort_unstable_by_key(|(at, ..)| *at);
        let mut sweep = Sweep::default();
        let mut at_ns = from_ns;
        for (edge_ns, claim, change) in edges {
            sweep.spend(edge_ns - at_ns);
            at_ns = edge_ns;
            sweep.active[claim.index()] += change;
        }
        sweep.spend(to_ns.saturating_sub(at_ns));
        Attribution { parts: sweep.parts(), wall_ns: to_ns.saturating_sub(from_ns) }
    }

    /// Time spent on `what`, nanoseconds.
    pub fn ns(&self, what: TimeCategory) -> u64 {
        self.parts.iter().find(|(category, _)| *category == what).map_or(0, |(_, ns)| *ns)
    }

    /// Share of the working time that some event explains, 0 to 1; None if there was no work.
    pub fn attributed_share(&self) -> Option<f64> {
        let work_ns = self.wall_ns - self.ns(TimeCategory::Idle);
        (work_ns > 0).then(|| 1.0 - self.ns(TimeCategory::Unattributed) as f64 / work_ns as f64)
    }
}

/// Claim of an event on the moments of its span.
#[derive(Debug, Clone, Copy)]
enum Claim {
    Recompute,
    Gpu(KernelFamily),
    /// of the engine thread
    Wait(WaitCause),
    Select,
    Encode,
    Phase(Phase),
    /// of a thread that fetches pages
    WorkerWait(WaitCause),
    Work,
}

const N_GPU: usize = KernelFamily::ALL.len();
const N_WAIT: usize = WaitCause::ALL.len();
const GPU: usize = 1;
const WAIT: usize = GPU + N_GPU;
const SELECT: usize = WAIT + N_WAIT;
const ENCODE: usize = SELECT + 1;
const PHASE: usize = ENCODE + 1;
const WORKER_WAIT: usize = PHASE + Phase::ALL.len();
const WORK: usize = WORKER_WAIT + N_WAIT;
const N_CLAIM: usize = WORK + 1;

impl Claim {
    fn of(event: &Event, is_engine: bool) -> Option<Claim> {
        match event.kind {
            EventKind::Recompute { .. } => Some(Claim::Recompute),
            EventKind::GpuPass { family, .. } => Some(Claim::Gpu(family)),
            EventKind::Wait { cause } if is_engine => Some(Claim::Wait(cause)),
            EventKind::Wait { cause } => Some(Claim::WorkerWait(cause)),
            EventKind::Encode if is_engine => Some(Claim::Encode),
            EventKind::Select { .. } if is_engine => Some(Claim::Select),
            EventKind::Phase(phase @ (Phase::Tokenize | Phase::Restore)) if is_engine => Some(Claim::Phase(phase)),
            EventKind::Step { .. } | EventKind::Phase(_) if is_engine => Some(Claim::Work),
            _ => None,
        }
    }

    fn index(self) -> usize {
        match self {
            Claim::Recompute => 0,
            Claim::Gpu(family) => GPU + family as usize,
            Claim::Wait(cause) => WAIT + cause as usize,
            Claim::Encode => ENCODE,
            Claim::Phase(phase) => PHASE + phase as usize,
            Claim::Select => SELECT,
            Claim::WorkerWait(cause) => WORKER_WAIT + cause as usize,
            Claim::Work => WORK,
        }
    }
}

/// Sweep over a window: counts of active claims, and time by the index of its claim (idle last).
struct Sweep {
    active: [i64; N_CLAIM],
    category_ns: [u64; N_CLAIM + 1],
}

impl Default for Sweep {
    fn default() -> Self {
        Sweep { active: [0; N_CLAIM], category_ns: [0; N_CLAIM + 1] }
    }
}

impl Sweep {
    fn spend(&mut self, ns: u64) {
        if ns > 0 {
            self.category_ns[self.cause()] += ns;
        }
    }

    /// Index of the cause of this moment.
    fn cause(&self) -> usize {
        let first = |range: std::ops::Range<usize>| range.into_iter().find(|i| self.active[*i] > 0);
        let is_for_pages = |i: &usize| *i == WAIT + WaitCause::Pages as usize;
        match first(0..WORKER_WAIT) {
            Some(i) if is_for_pages(&i) => first(WORKER_WAIT..WORK).map_or(i, |worker| worker - WORKER_WAIT + WAIT),
            Some(i) => i,
            None => first(WORK..N_CLAIM).unwrap_or(N_CLAIM),
        }
    }

    fn parts(&self) -> Vec<(TimeCategory, u64)> {
        let gpu = KernelFamily::ALL.iter().map(|family| (TimeCategory::Compute(*family), GPU + *family as usize));
        let waits = WaitCause::ALL.iter().map(|cause| (TimeCategory::Wait(*cause), WAIT + *cause as usize));
        let cpu = [(TimeCategory::Recompute, 0), (TimeCategory::Select, SELECT), (TimeCategory::Encode, ENCODE)];
        let phases = Phase::ALL.iter().map(|phase| (TimeCategory::Phase(*phase), PHASE + *phase as usize));
        let rest = [(TimeCategory::Unattributed, WORK), (TimeCategory::Idle, N_CLAIM)];
        let all = gpu.chain(waits).chain(cpu).chain(phases).chain(rest).map(|(category, i)| (category, self.category_ns[i]));
        let mut parts: Vec<(TimeCategory, u64)> = all.filter(|(_, ns)| *ns > 0).collect();
        parts.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        parts
    }
}
