//! What kind of thing an event is: events of one track are drawn on one line, whichever thread recorded them.
//!
//! ```text
//! EventKind ─► Track::of ─► History (a series each), chrome (a track each), timeline (a lane each)
//! ```

use super::event::{EventKind, KernelFamily, Link, WaitCause};

/// A kind of event without its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Track {
    /// parts of an answer
    Phase,
    /// steps of the engine
    Step,
    /// the device computes
    Gpu(KernelFamily),
    /// pages move
    Link(Link),
    /// K,V are computed again
    Recompute,
    /// the CPU records commands
    Encode,
    /// a policy chooses
    Choose,
    /// a thread stands still
    Wait(WaitCause),
    /// faults
    Fault,
    /// samples: how a step came by its pages
    Pages,
    /// samples: bytes in each tier
    Tier,
    /// samples: forecast and outcome of a layer
    Hiding,
    /// samples: attention mass that a policy kept of a layer
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

    /// As exports and panels write it.
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
