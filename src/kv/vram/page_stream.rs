//! Page stream: batches of offloaded pages that attention waits for, in order, and those that have arrived.
//!
//! Owner: the engine thread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::kv::transfer::plan::{TransferBatch, TransferPlan};
use crate::kv::transfer::{FilledStaging, Transfer};

/// The stream of the transfer thread.
pub(super) struct PageStream {
    /// batches that attention waits for, in order
    pub batches: Vec<TransferBatch>,
    /// next batch that attention reads
    pub next: usize,
    /// filled staging buffers not read by attention yet
    pub arrived: VecDeque<FilledStaging>,
    /// group at which the stream stopped, because one of its pages is missing
    pub missing_group: Option<u32>,
    /// number of the plan; batches of older ones may still arrive
    pub epoch: u64,
    /// without overlap, a batch is transferred only when it is needed
    pub is_synchronous: bool,
    /// total cost
    pub cost: StreamCost,
}

/// Total cost of streams since the cache was created.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StreamCost {
    /// time attention waited for its next batch
    pub waited: Duration,
    /// time to fill staging buffers; it includes fetching pages to RAM, transferring uncompressed pages, and
    /// compressing others
    pub filling: Duration,
    /// see `filling`
    pub fetching: Duration,
    /// see `filling`
    pub transferring: Duration,
    /// bytes transferred uncompressed
    pub transferred_bytes: u64,
    /// pages transferred
    pub n_pages: u64,
    /// pages transferred compressed
    pub n_compressed_pages: u64,
}

impl StreamCost {
    /// Adds the cost of one batch, for which attention waited `waited`.
    pub(super) fn add(&mut self, waited: Duration, batch: &TransferBatch, filled: &FilledStaging, page_bytes: u64) {
        let n_pages = batch.groups.len() as u64;
        self.waited += waited;
        self.filling += Duration::from_nanos(filled.ended_ns.saturating_sub(filled.began_ns));
        self.fetching += filled.fetching;
        self.n_pages += n_pages;
        if batch.is_compressed {
            self.n_compressed_pages += n_pages;
        } else {
            self.transferring += filled.transferring;
            self.transferred_bytes += n_pages * page_bytes;
        }
    }
}

impl PageStream {
    /// A stream without batches.
    pub fn new(is_synchronous: bool) -> PageStream {
        PageStream {
            batches: Vec::new(),
            next: 0,
            arrived: VecDeque::new(),
            missing_group: None,
            epoch: 0,
            is_synchronous,
            cost: StreamCost::default(),
        }
    }

    /// The next batch that attention reads.
    pub fn next_batch(&self) -> Option<&TransferBatch> {
        self.batches.get(self.next)
    }

    /// Batches of a layer.
    pub fn of_layer(&self, layer: usize) -> impl Iterator<Item = &TransferBatch> {
        self.batches.iter().filter(move |batch| batch.layer as usize == layer)
    }

    /// Starts a new plan, and returns the filled staging buffers of the old one.
    pub fn start(&mut self, plan: TransferPlan, transfer: &Transfer) {
        self.epoch += 1;
        self.missing_group = None;
        for filled in self.arrived.drain(..) {
            transfer.return_slot(filled.slot);
        }
        transfer.plan(self.epoch, Arc::new(plan));
    }
}
