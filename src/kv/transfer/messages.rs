//! Messages between the engine and the transfer thread.
//!
//! ```text
//! engine ─ Message ─► transfer thread ─ TransferEvent ─► engine
//! ```

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;

use crate::gpu::{StagingBuffer, TransferQueue};
use crate::kv::error::KvError;
use crate::kv::occupancy::TierOccupancy;
use crate::kv::offload::{OffloadError, OffloadTiers, PageBytes, Retention};
use crate::kv::store::{Io, PageId};
use crate::kv::transfer::plan::TransferPlan;

/// A page in a readback buffer, to be offloaded.
#[derive(Debug, Clone, Copy)]
pub struct PageReadback {
    /// page
    pub page: PageId,
    /// byte offset in the buffer
    pub offset: u64,
    /// retention of the page in RAM
    pub retention: Retention,
}

/// Pages in RAM, in order. None if RAM cannot hold all of them at once.
pub(super) type PagedIn = Result<Option<Vec<PageBytes>>, OffloadError>;

/// Messages of the engine.
pub(super) enum Message {
    Open(Box<OffloadTiers>),
    Close(Sender<Option<Io>>),
    Buffers { slots: Vec<StagingBuffer>, readbacks: Vec<StagingBuffer>, queue: Option<TransferQueue> },
    Plan { epoch: u64, plan: Arc<TransferPlan> },
    SlotMapped(usize),
    ReadbackMapped(usize, Vec<PageReadback>),
    Append(Vec<u32>),
    Truncate(usize),
    DropRamCopies(Vec<PageId>),
    Pin(HashSet<PageId>),
    PageIn(Vec<PageId>, Sender<PagedIn>),
    Invalidate(u32),
    Flush(Sender<bool>),
    Report(Sender<()>),
    TierOccupancy(Box<TierOccupancy>, Sender<Box<TierOccupancy>>),
    End,
}

/// A batch of a plan in its staging buffer.
#[derive(Debug, Clone, Copy)]
pub struct FilledStaging {
    /// epoch of the plan
    pub epoch: u64,
    /// index of the batch in the plan
    pub index: usize,
    /// index of the staging buffer
    pub slot: usize,
    /// begin of filling
    pub began_ns: u64,
    /// end of filling
    pub ended_ns: u64,
    /// time until the pages were in RAM
    pub fetching: Duration,
    /// time on the link
    pub transferring: Duration,
}

/// Events of the transfer thread.
#[derive(Debug)]
pub enum TransferEvent {
    /// the next batch of the plan is in a staging buffer
    FilledStaging(FilledStaging),
    /// a readback buffer can be unmapped and reused
    Emptied(usize),
    /// a page of the plan is missing and must be recomputed
    Missing {
        /// epoch of the plan
        epoch: u64,
        /// the page
        page: PageId,
    },
    /// RAM and disk are full, or the disk has failed
    Failed(KvError),
    /// a notice for the user
    Notice(String),
}
