//! The store: K,V pages of one document on a disk, written once, checked whenever they are read.
//!
//! ```text
//! pages in RAM ─ begin_write ─► Io (ring │ threads) ─► arena files        commit ─► index: visible, all layers at once
//! pages in RAM ◄─ finish_read ─ Io (ring │ threads) ◄─ arena files        open   ─► page table, from the index alone
//! ```
//!
//! # The folder of a store (folder 0700, files 0600)
//! ```text
//! lock                   held while the store is open; says who holds it
//! header                 whose pages these are, and the token ids
//! index                  superblock in two slots, then one entry per page group
//! kv-0000.arena ...      K,V pages, 1 GiB a file
//! activation-0000.arena  activation pages, where a planner keeps them instead
//! abstracts              one row per group, where a policy keeps them
//! ```
//!
//! # The bytes (little-endian; one cell is 8 bytes; sizes and offsets are asserted in [`format`](self::format))
//! ```text
//! header                                               index, slot s at 4096 * s, s = seq % 2
//!    0 │ magic "STRATAKV"                 │               0 │ magic "STRATASB"              │
//!    8 │ version u32    │ block size u32  │               8 │ version u32    │ 0            │
//!   16 │ store id: random                 │              16 │ store id                      │
//!   24 │ n_layer u32    │ page tokens 64  │              24 │ seq: counts commits           │
//!   32 │ bytes of a KV page               │              32 │ groups: high-water mark       │
//!   40 │ bytes of an activation page or 0 │              40 │ groups that are visible       │
//!   48 │ of an abstract │ groups / extent │              48 │ token ids                     │
//!   56 │ extents / arena│ 0               │              56 │ their hash              32 B  │
//!   64 │ model hash                 32 B  │              88 │ bytes of all arenas           │
//!   96 │ tokenizer hash             32 B  │              96 │ 0                       24 B  │
//!  128 │ rope and quant settings    32 B  │             120 │ checksum of the above         │
//!  160 │ hash of the token ids      32 B  │                 (zeros to 4096)
//!  192 │ number of token ids              │
//!  200 │ KV type and layout, ASCII  24 B  │            index, entry of group g at 8192 + g * entry bytes
//!  224 │ 0                          24 B  │               0 │ "GRP1"         │ group u32    │
//!  248 │ checksum of the above            │               8 │ seq that makes it visible     │
//!      (zeros to 4096)                                   16 │ store id                      │
//! 4096 │ token ids u32 ...                │              24 │ hash of all tokens so far 16 B│
//!                                                        40 │ checksum of the abstracts or 0│
//! arena: extents of E groups, layer by layer             48 │ 0                             │
//!      │ layer 0: group 0 .. E-1 │ layer 1: ...          56 │ checksum of the whole entry   │
//!        each slot a payload, zeros to 4096              64 │ checksum per page, KV by layer│
//!                                                           │ then activation by layer; 0: none
//!                                                           (zeros to a multiple of 64)
//! ```
//! A page's checksum (XXH3, 64 bits) is seeded with its identity: store, kind, layer, group, and the hash of all tokens up
//! to its end. So the right bytes in the wrong place, of another store, or after other tokens are as wrong as a flipped bit.
//! Identity and checksum stand in the group's entry and not beside the payload: a block of 4 KiB beside each page would be
//! 1.6 % of a 256 KiB page and 12 % of a 32 KiB page, where all metadata may take 2 %; this way it is 0.01 to 0.2 %, and
//! payloads are read straight to where they are used from.
//!
//! # Invariants
//! 1. No payload is handed out unless its checksum fits. What does not fit is missing, and is computed again.
//! 2. A page is written once. Only the pages of a group of which one was found missing are written again, in their own places.
//! 3. A commit makes groups visible all at once: payloads are synced, then the superblock is written to the slot of the older
//!    one. After `kill -9` or a power cut the last commit that returned is there, so what is lost is what was not committed:
//!    with a commit per group, at most one group. A prefill goes on at [`PageStore::n_complete_prefix`].
//! 4. The page table in memory comes from the entries, each of which carries its own checksum. The superblock only says how
//!    far they count: where both its slots are corrupt, every whole entry counts, and reading sorts out the rest.
//! 5. One process, one [`PageStore`] per folder, by a lock that the system releases when the process dies.
//! 6. Memory that the kernel may write to belongs to the I/O thread until the operation has ended ([`io`](self::io)).
//! 7. Nothing here knows of a device or of the engine: plain data in, plain data out.
//!
//! # Faults and answers
//! | fault | answer |
//! |---|---|
//! | short read, EINTR, EAGAIN | the rest is read, or it is tried again |
//! | EIO on a read, flipped bit, torn page, file cut off | that page is [missing](PageState::Missing) |
//! | EIO or ENOSPC on a write | that page stays missing, the sentence says which, later writes may succeed |
//! | a sync that failed, the folder deleted | what is open stays readable, later writes are [refused](StoreError::Latched) |
//! | flipped bit in an entry | that group is missing |
//! | flipped bit in a superblock slot | the other slot counts; both: see invariant 4 |
//! | header damaged, another version, model, settings or document | the whole store is refused, or replaced |
//! | a second process | [`StoreError::Locked`], a sentence |
//! | no ring, no registered memory, no direct files | threads, plain reads, the page cache: same bytes, see [`IoInfo`] |
//!
//! # Limits
//! 1024 layers, 64 MiB a page, 2^26 tokens. 64 bits of checksum are against accidents, not against an attacker who may write
//! to the user's own files.
//!
//! Source: the shape follows redb (two commit slots, design with byte diagrams, storage behind a small trait) and
//! TigerBeetle (superblock, fault model of the test storage); extents by layer are ours, so that one layer's pages are one
//! read.

mod abstracts;
mod commit;
mod disk;
pub mod disk_benchmark;
mod error;
mod fault_injection;
pub mod format;
mod geometry;
pub mod io;
#[cfg(target_os = "linux")]
mod linux;
mod memory_folder;
mod open;
mod page_store;
mod slab;
mod storage;
mod store_root;
mod thread_pool;
mod token_log;
mod verify;

pub use commit::{CommitJob, CommitResult};
pub use disk::Disk;
pub use error::StoreError;
pub use fault_injection::{Fault, FaultInjectingFolder, FaultOp, Rule};
pub use format::{PAGE_TOKENS, PageId, PageKind};
pub use geometry::{Geometry, Place, StoreSpec, arena_name};
pub use io::{Cancel, Io, IoBuffer, IoConfig, IoCounts, IoDone, IoInfo, IoKind, IoRequest, is_cancelled, perform};
pub use memory_folder::MemoryFolder;
pub use open::OpenReport;
pub use page_store::{PageRun, PageState, PageStore, ReadOutcome};
pub use slab::{PoolUse, Region, Slab, SlabPool};
pub use storage::{Folder, IoOp, LockGuard, OpenHow, Storage, read_exact, write_all};
pub use store_root::{Eviction, StoreInfo, StoreRoot};
pub use verify::VerifyReport;

/// Bytes that this user may still write to the file system of `path`, where the system says.
pub fn free_bytes(path: &std::path::Path) -> Option<crate::base::Bytes> {
    #[cfg(target_os = "linux")]
    return linux::free_bytes(path).map(crate::base::Bytes);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        None
    }
}
