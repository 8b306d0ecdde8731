//! The closed set of things that can happen, each a few numbers.
//!
//! 1. `Copy`, at most [`MAX_EVENT_BYTES`], no text. 2. A new kind of event is a new variant here, and its place in
//!    `chrome` and `counters` follows from the compiler's complaints.
//!
//! Units: nanoseconds of [`super::now`], bytes, tokens, pages of 64 tokens of one layer.

/// Largest size of an [`Event`], bytes.
pub const MAX_EVENT_BYTES: usize = 48;
const _: () = assert!(size_of::<Event>() <= MAX_EVENT_BYTES);

/// The layer of what belongs to none (embedding, logits, sampling).
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
            /// Every one, in the order of their discriminants.
            pub const ALL: [Self; [$(Self::$variant),+].len()] = [$(Self::$variant),+];

            /// As exports and panels write it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }

            /// The one of that name.
            pub fn named(text: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|x| x.name() == text)
            }
        }
    };
}

named! {
    /// A way that pages travel between two tiers.
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
    /// Why pages moved.
    Cause {
        /// attention reads them now
        Attention = "attention",
        /// attention is expected to read them
        Prefetch = "prefetch",
        /// a saved document comes back
        Restore = "restore",
        /// the replica on disk, written behind
        WriteBehind = "write behind",
        /// the tier above is full
        Spill = "spill",
        /// in place of a page that was found damaged
        Repair = "repair",
    }
}

named! {
    /// What a thread waited for.
    WaitCause {
        /// the device to finish
        Gpu = "gpu",
        /// the disk
        Disk = "disk",
        /// room in the RAM tier
        RamFull = "ram full",
        /// a staging slot of an upload
        UploadSlot = "upload slot",
        /// the link limiter (`--limit`)
        LinkLimit = "link limit",
        /// a commit of the store
        Commit = "commit",
        /// results from the device
        Readback = "readback",
        /// pages that attention reads next
        Pages = "pages",
    }
}

named! {
    /// What a compute pass does.
    KernelFamily {
        /// layer norms, residual adds
        Norm = "norm",
        /// matrix products
        Linear = "linear",
        /// attention and its merge
        Attention = "attention",
        /// rotary embedding and the append to the cache
        Rope = "rope",
        /// a full page group made ready to leave
        Seal = "seal",
        /// scores by which a policy chooses
        Evaluation = "evaluation",
        /// logits to candidates
        Sample = "sample",
        /// copies
        Copy = "copy",
        /// the rest, and whatever nobody marked
        Other = "other",
    }
}

named! {
    /// What a step of the engine does.
    StepKind {
        /// reads a chunk of the prompt
        Prefill = "prefill",
        /// makes one token
        Decode = "decode",
        /// brings a saved document back
        Restore = "restore",
        /// computes again what was damaged
        Repair = "repair",
    }
}

named! {
    /// A part of an answer, as the strip below it shows them.
    Phase {
        /// file to text
        Ingest = "ingest",
        /// text to token ids
        Tokenize = "tokenize",
        /// saved pages
        Restore = "restore",
        /// prompt
        Prefill = "prefill",
        /// last prompt token to first answer token
        FirstToken = "first token",
        /// the answer
        Decode = "decode",
    }
}

named! {
    /// What went wrong and was dealt with.
    FaultKind {
        /// a read failed or was short
        Read = "read",
        /// a write failed
        Write = "write",
        /// the disk or its budget is full
        NoSpace = "no space",
        /// a page does not match its checksum
        Checksum = "checksum",
        /// a file of another model, version or document
        Foreign = "foreign",
        /// the device was lost
        Device = "device",
    }
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// pages moved between tiers; begins with the request, ends when they can be used
    PageMove {
        /// from where to where
        link: Link,
        /// model layer
        layer: u32,
        /// first page group
        group: u32,
        /// pages
        n_pages: u32,
        /// as they traveled (compressed)
        bytes: u64,
        /// why
        cause: Cause,
    },
    /// a thread stood still
    Wait {
        /// for what
        cause: WaitCause,
    },
    /// the device computed
    GpuPass {
        /// what
        family: KernelFamily,
        /// model layer, or [`NO_LAYER`]
        layer: u32,
        /// seen by the CPU, because the device has no clock to ask
        estimated: bool,
    },
    /// the CPU recorded and submitted commands
    Encode,
    /// a policy chose what attention reads
    Choose {
        /// model layer
        layer: u32,
    },
    /// a step of the engine
    Step {
        /// of which kind
        kind: StepKind,
        /// position of its first token
        first_token: u32,
        /// tokens
        n_tokens: u32,
    },
    /// how a step came by the pages it read
    Pages {
        /// in VRAM already
        resident: u32,
        /// moved there
        fetched: u32,
        /// computed again
        recomputed: u32,
        /// left out by the policy
        skipped: u32,
    },
    /// KV bytes in each tier, a sample
    Tier {
        /// bytes
        vram: u64,
        /// bytes
        ram: u64,
        /// bytes
        disk: u64,
    },
    /// K,V computed again in place of being fetched
    Recompute {
        /// model layer
        layer: u32,
        /// tokens
        n_tokens: u32,
    },
    /// how well moving a layer's pages hid behind computing: what was expected, and what it came to
    Hiding {
        /// model layer
        layer: u32,
        /// thousandths of the bytes that traveled as INT4
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
    /// attention mass of a layer, of complete pages, in a step in which it was sampled: means over KV heads
    Mass {
        /// model layer
        layer: u32,
        /// millionths that went to what was chosen
        kept_ppm: u32,
        /// millionths that as many tokens could have held at most
        best_ppm: u32,
    },
    /// a part of an answer
    Phase(Phase),
    /// something went wrong and was dealt with
    Fault {
        /// of which kind
        kind: FaultKind,
    },
}

/// What happened and when. An event without an extent has a duration of 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// when it began, nanoseconds of [`super::now`]
    pub begin_ns: u64,
    /// how long it took
    pub duration_ns: u64,
    /// what it was
    pub kind: EventKind,
}

impl Event {
    /// From `begin_ns` to `end_ns`.
    pub fn span(kind: EventKind, begin_ns: u64, end_ns: u64) -> Event {
        Event { begin_ns, duration_ns: end_ns.saturating_sub(begin_ns), kind }
    }

    /// When it ended.
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
