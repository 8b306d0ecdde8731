//! Events: the closed set of things that can happen, each a few numbers.
//!
//! 1. `Copy`, at most [`MAX_EVENT_BYTES`], no text. 2. A new kind of event is a new variant here; exhaustive matches in
//!    `chrome_trace` and `counters` then fail to compile until they handle it.
//!
//! Units: nanoseconds of [`super::now`], bytes, tokens, pages of 64 tokens of one layer.

/// Largest size of an [`Event`], bytes.
pub const MAX_EVENT_BYTES: usize = 48;
const _: () = assert!(size_of::<Event>() <= MAX_EVENT_BYTES);

/// Layer of events that belong to none (embedding, logits, sampling).
pub const NO_LAYER: u32 = u32::MAX;

/// An enum of plain names that can be listed, indexed by `as usize`, and printed.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$variant_doc])* $variant),+
        }

        impl $name {
            /// All variants, in the order of their discriminants.
            pub const ALL: [Self; [$(Self::$variant),+].len()] = [$(Self::$variant),+];

            /// Name in exports and panels.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }

            /// The variant of that name.
            pub fn named(text: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|x| x.name() == text)
            }
        }
    };
}

named! {
    /// A direction of transfer between two tiers.
    Link {
        /// NVMe read
        DiskToRam = "disk to ram",
        /// upload
        RamToVram = "ram to vram",
        /// readback
        VramToRam = "vram to ram",
        /// NVMe write
        RamToDisk = "ram to disk",
    }
}

named! {
    /// Reason for a transfer of pages.
    Cause {
        /// attention needs them now
        Attention = "attention",
        /// attention is predicted to need them
        Prefetch = "prefetch",
        /// restore of a saved document
        Restore = "restore",
        /// write-back of the copy on disk
        WriteBack = "write behind",
        /// eviction from a full tier
        Spill = "spill",
        /// replacement of a corrupt page
        Repair = "repair",
    }
}

named! {
    /// Reason for a wait of a thread.
    WaitCause {
        /// the GPU
        Gpu = "gpu",
        /// the disk
        Disk = "disk",
        /// room in the RAM tier
        RamFull = "ram full",
        /// a staging buffer of an upload
        UploadSlot = "upload slot",
        /// the bandwidth limit (`--limit`)
        LinkLimit = "link limit",
        /// a commit of the store
        Commit = "commit",
        /// results from the GPU
        Readback = "readback",
        /// pages that attention needs next
        Pages = "pages",
    }
}

named! {
    /// Kind of work of a compute pass.
    KernelFamily {
        /// layer norms, residual adds
        Norm = "norm",
        /// matrix products
        Linear = "linear",
        /// attention and its merge
        Attention = "attention",
        /// rotary embedding and the append to the cache
        Rope = "rope",
        /// quantization of a full page group
        Seal = "seal",
        /// scores for a policy's selection
        Evaluation = "evaluation",
        /// reduction of logits to candidates
        Sample = "sample",
        /// copies
        Copy = "copy",
        /// everything without a mark of its own
        Other = "other",
    }
}

named! {
    /// Kind of an engine step.
    StepKind {
        /// prefills one chunk of the prompt
        Prefill = "prefill",
        /// generates one token
        Decode = "decode",
        /// restores a saved document
        Restore = "restore",
        /// recomputes corrupt pages
        Repair = "repair",
    }
}

named! {
    /// A phase of an answer, as the timeline below it shows them.
    Phase {
        /// file to text
        Ingest = "ingest",
        /// text to token ids
        Tokenize = "tokenize",
        /// restore of saved pages
        Restore = "restore",
        /// prefill of the prompt
        Prefill = "prefill",
        /// last prompt token to first answer token
        FirstToken = "first token",
        /// generation of the answer
        Decode = "decode",
    }
}

named! {
    /// A fault that was handled.
    FaultKind {
        /// a read failed or was short
        Read = "read",
        /// a write failed
        Write = "write",
        /// the disk or its budget is full
        NoSpace = "no space",
        /// a page does not match its checksum
        Checksum = "checksum",
        /// a file belongs to another model, version or document
        Foreign = "foreign",
        /// the GPU was lost
        Device = "device",
    }
}

/// Kind of an event, with its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// pages moved between tiers, from the request until they can be used
    PageMove {
        /// direction
        link: Link,
        /// model layer
        layer: u32,
        /// first page group
        group: u32,
        /// pages
        n_pages: u32,
        /// bytes transferred, after compression
        bytes: u64,
        /// reason
        cause: Cause,
    },
    /// a thread waited
    Wait {
        /// reason
        cause: WaitCause,
    },
    /// a compute pass on the GPU
    GpuPass {
        /// kind of work
        family: KernelFamily,
        /// model layer, or [`NO_LAYER`]
        layer: u32,
        /// timed by the CPU, because the GPU has no timestamps
        estimated: bool,
    },
    /// the CPU recorded and submitted commands
    Encode,
    /// a policy selected what attention reads
    Select {
        /// model layer
        layer: u32,
    },
    /// a step of the engine
    Step {
        /// kind
        kind: StepKind,
        /// position of its first token
        first_token: u32,
        /// tokens
        n_tokens: u32,
    },
    /// pages that a step needed, by how they got to VRAM
    Pages {
        /// in VRAM already
        resident: u32,
        /// fetched to VRAM
        fetched: u32,
        /// recomputed
        recomputed: u32,
        /// skipped by the policy
        skipped: u32,
    },
    /// sample: KV bytes in each tier
    Tier {
        /// bytes
        vram: u64,
        /// bytes
        ram: u64,
        /// bytes
        disk: u64,
    },
    /// K and V were recomputed instead of fetched
    Recompute {
        /// model layer
        layer: u32,
        /// tokens
        n_tokens: u32,
    },
    /// overlap of transfer and compute of one layer: prediction and measurement
    Overlap {
        /// model layer
        layer: u32,
        /// share of bytes transferred as INT4, thousandths
        theta_permille: u32,
        /// microseconds
        expected_io_us: u32,
        /// microseconds
        io_us: u32,
        /// microseconds
        expected_compute_us: u32,
        /// microseconds
        compute_us: u32,
    },
    /// sample of a layer's attention mass over complete pages in one step; means over KV heads
    Mass {
        /// model layer
        layer: u32,
        /// millionths on the selected tokens
        kept_ppm: u32,
        /// upper bound: millionths on the best selection of as many tokens
        best_ppm: u32,
    },
    /// a phase of an answer
    Phase(Phase),
    /// a fault that was handled
    Fault {
        /// kind
        kind: FaultKind,
    },
}

/// An event with its time; one without extent has a duration of 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// begin, nanoseconds of [`super::now`]
    pub begin_ns: u64,
    /// duration, nanoseconds
    pub duration_ns: u64,
    /// kind
    pub kind: EventKind,
}

impl Event {
    /// Event from `begin_ns` to `end_ns`.
    pub fn span(kind: EventKind, begin_ns: u64, end_ns: u64) -> Event {
        Event { begin_ns, duration_ns: end_ns.saturating_sub(begin_ns), kind }
    }

    /// End, nanoseconds.
    pub fn end_ns(&self) -> u64 {
        self.begin_ns.saturating_add(self.duration_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_indexes_follow_the_list() {
        fn check<T: Copy>(all: &[T], index: impl Fn(T) -> usize, name: impl Fn(T) -> &'static str) {
            let mut names: Vec<&str> = all.iter().map(|x| name(*x)).collect();
            assert!(all.iter().enumerate().all(|(i, x)| index(*x) == i));
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all.len());
        }
        check(&Link::ALL, |x| x as usize, Link::name);
        check(&Cause::ALL, |x| x as usize, Cause::name);
        check(&WaitCause::ALL, |x| x as usize, WaitCause::name);
        check(&KernelFamily::ALL, |x| x as usize, KernelFamily::name);
        check(&StepKind::ALL, |x| x as usize, StepKind::name);
        check(&Phase::ALL, |x| x as usize, Phase::name);
        check(&FaultKind::ALL, |x| x as usize, FaultKind::name);
    }

    #[test]
    fn span_that_ends_before_it_begins_has_no_extent() {
        let event = Event::span(EventKind::Encode, 9, 4);
        assert_eq!((event.begin_ns, event.duration_ns, event.end_ns()), (9, 0, 9));
    }
}
