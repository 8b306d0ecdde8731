//! KV cache in three tiers: VRAM, RAM and disk.
//!
//! ```text
//! vram: tail, pool, staging buffers ◄─► transfer (a thread) ◄─► offload: RAM, and disk through store
//!   ▲ layout: division of the budget    ▲ residency: frame of each page
//! page bounds ─► policy: tokens that attention reads ─► pipeline: fraction of them to transfer compressed
//! ```
//! 1. A page is 64 tokens of one layer, all KV heads.
//! 2. Only `residency` and [`offload`] change the location of a page. It stays readable at the old one until the copy is complete.
//! 3. Full attention reads every page in any tier; a [`policy`] selects the pages that matter.
//!
//! # The life of a page
//! Out, from the tail to the disk:
//! 1. Append: new tokens are written to the tail, a ring of pages of each layer ([`VramCache::tail`]).
//! 2. Seal: once the page has 64 tokens, [`VramCache::record_seal`] records its copies out of the tail.
//! 3. Quantization: for a quantized page format, [`VramCache::record_seal`] runs the shader
//!    [`quantize_pages`](crate::gpu::kernels::quantize_pages) before it copies the page anywhere.
//! 4. Frame: `residency` assigns a frame in the pool ([`VramCache::segment`]), if one is free. Attention reads the page there.
//! 5. Readback: a page that has no frame, may lose it, or is to be saved is copied to a readback buffer ([`PageReadback`]).
//!    The transfer thread gets the buffer by [`VramCache::readback_submitted`].
//! 6. RAM: the transfer thread stores the page in a slab ([`OffloadTiers::put`](offload::OffloadTiers::put)).
//! 7. Disk write: `start_writes` (`kv/offload/write_back.rs`) builds the request with
//!    [`StoreChain::begin_write`](store::StoreChain::begin_write), which finds the page's place in the arena file of its
//!    document, and submits it through `IoQueue` to [`Io`](store::Io): io_uring or threads. RAM caches the page, or drops it
//!    ([`Retention`](offload::Retention)).
//! 8. Commit: once every layer of its page group is written, the page becomes durable
//!    ([`PageStore::begin_commit`](store::PageStore::begin_commit)). A scratch store is never committed.
//!
//! Back, from the disk to attention:
//! 1. Stream: attention needs a page without a frame ([`VramCache::begin_pass`]), or a [`policy`] has selected one
//!    ([`VramCache::begin_selected`]). The page becomes part of a transfer plan.
//! 2. Read-ahead: the offload tiers read runs of pages along that plan ([`OffloadTiers::plan`](offload::OffloadTiers::plan)).
//!    They verify every checksum. A corrupt page is missing, and its page group is recomputed.
//! 3. Staging buffer: the transfer thread fetches the page ([`OffloadTiers::fetch`](offload::OffloadTiers::fetch)) and writes it
//!    to a staging buffer, compressed for a fraction theta of the pages ([`quantize_page`]).
//! 4. Transfer: [`VramCache::next_filled`] waits for the [`StagedBatch`]; [`VramCache::record_slot`] copies it to the GPU, where
//!    compressed pages are dequantized.
//! 5. Frame: if a frame is free, the page becomes resident. Otherwise attention reads it once, in its staging buffer.

mod bandwidth_limit;
pub mod budget;
mod cpu_scores;
mod error;
mod layout;
pub mod occupancy;
pub mod offload;
mod page_rows;
pub mod policy;
mod quantize_page;
mod reposition;
mod residency;
mod spec;
pub mod store;
mod transfer;
mod vram;

pub use error::KvError;
pub use layout::{SegmentShape, VramPlan, plan_pool};
pub use quantize_page::quantize_page;
pub use reposition::{Reposition, ReusableGroups, page_numbers, repositioned_page, reusable_groups, rotation};
pub use spec::{BLOCKS_PER_PAGE, KvSpec};
pub use transfer::{OffloadReport, PageReadback};
pub use vram::{
    BlockTable, CodecRates, PageSwap, PagedBuffer, RamKeys, RamRun, RamSegment, SelectedStream, StagedBatch, StreamCost,
    VramCache,
};
