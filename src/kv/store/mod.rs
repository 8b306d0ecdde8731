//! KV page store: pages of one document on disk, written once, with a checksum that every read verifies.
//!
//! ```text
//! pages in RAM ─ begin_write ─► Io (ring │ threads) ─► arena files        commit ─► index: visible, all layers at once
//! pages in RAM ◄─ finish_read ─ Io (ring │ threads) ◄─ arena files        open   ─► page table, from the index alone
//! ```
//!
//! # The folder of a store (folder 0700, files 0600)
//! ```text
//! lock                   locked while the store is open; holds the process id of the owner
//! header                 identity of the pages (model, settings, document), and the token ids
//! index                  superblock in two slots, then one entry per page group
//! kv-0000.arena ...      K,V pages, 1 GiB a file
//! activation-0000.arena  activation pages, if a planner stores them instead of K,V
//! abstracts              one row per group, if a policy needs abstracts
//! ```
//!
//! # File format (little-endian; one cell is 8 bytes; [`format`] asserts sizes and offsets)
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
//! The checksum of a page (XXH3, 64 bits) is seeded with its identity: store, kind, layer, group, and the hash of all
//! tokens up to its end. So valid bytes at the wrong place, of another store, or after other tokens fail the check like
//! a flipped bit. Identity and checksum are in the entry of the group, not beside the payload. A 4 KiB block beside
//! each page would be 1.6 % of a 256 KiB page and 12 % of a 32 KiB page, but all metadata may take at most 2 %. In the
//! entry they take 0.01 to 0.2 %, and a payload is read directly into the buffer of its user.
//!
//! # Invariants
//! 1. A payload is returned only if its checksum matches. A page that fails the check is missing, and is recomputed.
//! 2. A page is written once. If a page of a group is missing, only the pages of that group are written again, in
//!    place.
//! 3. A commit makes groups visible all at once: it syncs payloads, then writes the superblock to the older slot. After
//!    `kill -9` or a power failure, the last commit that returned is intact. With one commit per group, at most one
//!    group is lost. A prefill resumes at [`PageStore::n_complete_prefix`].
//! 4. The page table in memory is built from the entries, each with its own checksum. The superblock only bounds the
//!    valid entries. If both slots are corrupt, every intact entry is valid, and reads find the corrupt pages.
//! 5. One process and one [`PageStore`] per folder. The lock is released by the operating system when the process
//!    exits.
//! 6. Memory that the kernel may write to belongs to the I/O thread until the operation completes ([`io`]).
//! 7. The store does not depend on the GPU or the engine: plain data in, plain data out.
//!
//! # Faults and responses
//! | fault | response |
//! |---|---|
//! | short read, EINTR, EAGAIN | reads the rest, or retries |
//! | EIO on a read, flipped bit, torn page, truncated file | the page is [missing](PageState::Missing) |
//! | EIO or ENOSPC on a write | the page stays missing, the error names it, later writes may succeed |
//! | failed sync, deleted folder | open pages stay readable, later writes are [refused](StoreError::Latched) |
//! | flipped bit in an entry | the group is missing |
//! | flipped bit in a superblock slot | the other slot is valid; if both are corrupt, see invariant 4 |
//! | corrupt header, other version, model, settings or document | the whole store is refused, or replaced |
//! | a second process | [`StoreError::Locked`] |
//! | no ring, no registered memory, no direct files | threads, plain reads, the page cache: same bytes, see [`IoInfo`] |
//!
//! # Limits
//! 1024 layers, 64 MiB a page, 2^26 tokens. A 64-bit checksum protects against accidents, not against an attacker with
//! write access to the user's files.
//!
//! Sources: redb (two commit slots, byte diagrams, storage behind a small trait) and TigerBeetle (superblock, fault
//! model of the test storage). Extents by layer are new here: they make the pages of one layer one read.

mod abstracts;
mod backend;
mod chain;
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

pub use backend::{Cancel, IoBuffer, IoConfig, IoCounts, IoDone, IoInfo, IoKind, IoRequest, is_cancelled, perform};
pub use chain::StoreChain;
pub use commit::{CommitJob, CommitResult};
pub use disk::Disk;
pub use error::StoreError;
pub use fault_injection::{Fault, FaultInjectingFolder, FaultOp, Rule};
pub use format::{PAGE_TOKENS, PageId, PageKind};
pub use geometry::{Geometry, Place, StoreSpec, arena_name};
pub use io::Io;
pub use memory_folder::MemoryFolder;
pub use open::OpenReport;
pub use page_store::{PageRun, PageState, PageStore, ReadOutcome};
pub use slab::{PoolUse, Region, Slab, SlabPool};
pub use storage::{Folder, IoOp, LockGuard, OpenMode, Storage, read_exact, write_all};
pub use store_root::{Eviction, StoreInfo, StoreRoot};
pub use verify::VerifyReport;

/// Free bytes for this user on the file system of `path`. None if the operating system does not report them.
pub fn free_bytes(path: &std::path::Path) -> Option<crate::base::Bytes> {
    #[cfg(target_os = "linux")]
    return linux::free_bytes(path).map(crate::base::Bytes);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        None
    }
}
