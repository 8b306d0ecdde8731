//! Track: the kind of an event without its numbers. Events of one track share a line, whichever thread recorded them.
//!
//! ```text
//! EventKind ─► Track::of ─► History (one series each), chrome_trace (one track each), timeline (one lane each)
//! ```

use super::event::{EventKind, KernelFamily, Link, WaitCause};

/// A kind of event without its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Track {
    /// phases of an answer
    Phase,
    /// steps of the engine
    Step,
    /// GPU compute
    Gpu(KernelFamily),
    /// transfers of pages
    Link(Link),
    /// recomputation of K and V
    Recompute,
    /// recording of commands on the CPU
    Encode,
    /// selection by a policy
    Choose,
    /// waits of a thread
    Wait(WaitCause),
    /// faults
    Fault,
    /// samples: pages of a step, by how they got to VRAM
    Pages,
    /// samples: bytes in each tier
    Tier,
    /// samples: predicted and measured overlap of a layer
    Hiding,
    /// samples: attention mass on a policy's selection
    Mass,
}

impl Track {
    /// The track of an event.
    pub fn of(kind: &EventKind) -> Track {
        match *kind {
            EventKind::PageMove { link, .. } => Track::Link(link),
            EventKind::Wait { cause } => Track::Wait(cause),
            EventKind::GpuPass { family, .. } => Track::Gpu(family),
            EventKind::Encode => Track::Encode,
            EventKind::Choose { .. } => Track::Choose,
            EventKind::Step { .. } => Track::Step,
            EventKind::Pages { .. } => Track::Pages,
            EventKind::Tier { .. } => Track::Tier,
            EventKind::Recompute { .. } => Track::Recompute,
            EventKind::Hiding { .. } => Track::Hiding,
            EventKind::Mass { .. } => Track::Mass,
            EventKind::Phase(_) => Track::Phase,
            EventKind::Fault { .. } => Track::Fault,
        }
    }

    /// Name in exports and panels.
    pub const fn name(self) -> &'static str {
        match self {
            Track::Phase => "phase",
            Track::Step => "step",
            Track::Gpu(family) => family.name(),
            Track::Link(link) => link.name(),
            Track::Recompute => "recompute",
            Track::Encode => "encode",
            Track::Choose => "choose",
            Track::Wait(cause) => cause.name(),
            Track::Fault => "fault",
            Track::Pages => "pages of a step",
            Track::Tier => "KV bytes by tier",
            Track::Hiding => "hiding of a layer",
            Track::Mass => "mass kept of a layer",
        }
    }
}
