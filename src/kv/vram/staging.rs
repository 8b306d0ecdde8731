//! Staging buffers: uploads of transferred pages with their GPU ranges, and readback buffers.
//!
//! Owner: the engine thread. The transfer thread has a buffer from its mapping until it returns the buffer.

use std::collections::VecDeque;

use crate::gpu::{Gpu, Recorder, Slice, StagingBuffer, TransferQueue};
use crate::kv::error::KvError;
use crate::kv::layout::{BINDING_ALIGN_BYTES, VramPlan};
use crate::kv::spec::{BLOCKS_PER_PAGE, KvSpec};
use crate::kv::vram::int4_transfer::PageDequantizer;

/// Number of readback buffers: the GPU writes one while the transfer thread reads the others.
pub(super) const N_READBACKS: usize = 3;

/// Memory that upload buffers take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UploadPlaces {
    /// host memory, from the RAM budget
    pub in_ram: bool,
    /// buffers that the CPU maps, or those in which a transfer queue puts what it copies; in the plan
    pub in_vram: bool,
}

impl UploadPlaces {
    /// Those of a device. Without memory of its own, it has everything in RAM, and the plan is right as it is.
    pub fn of(gpu: &Gpu) -> UploadPlaces {
        let in_ram = gpu.has_own_memory() && gpu.host_memory().is_ok();
        UploadPlaces { in_ram, in_vram: !in_ram || gpu.has_transfer_queue().is_ok() }
    }
}

/// A staging buffer: its upload buffer, and its range in the staging pool.
pub(super) struct Slot {
    pub upload: StagingBuffer,
    pub pages: Slice,
}

/// The staging and readback buffers.
pub(super) struct StagingPool {
    pub slots: Vec<Slot>,
    /// GPU ranges of all staging buffers, contiguous
    pub buffer: Slice,
    /// decompresses INT4 pages; only for selective attention
    pub dequantizer: Option<PageDequantizer>,
    /// block table of one staging buffer
    pub table: Slice,
    pub readbacks: Vec<StagingBuffer>,
    /// sends the uploads; taken by the transfer thread
    pub queue: Option<TransferQueue>,
    pub free_readbacks: VecDeque<usize>,
}

impl StagingPool {
    /// Allocates all buffers, unmapped. Attention that selects pages may transfer them compressed.
    ///
    /// # Errors
    /// Out of VRAM, or a lost GPU.
    pub fn new(gpu: &Gpu, spec: &KvSpec, plan: &VramPlan, is_selective: bool) -> Result<StagingPool, KvError> {
        let bytes = plan.slot_pages as u64 * spec.page_bytes();
        let stride = bytes.next_multiple_of(BINDING_ALIGN_BYTES);
        let buffer = gpu.buffer("KV slots", plan.n_slots as u64 * stride)?;
        let queue = gpu.transfer_queue().ok();
        let mut slots = Vec::new();
        for i in 0..plan.n_slots {
            let upload = if queue.is_some() { gpu.sent_upload_buffer(bytes)? } else { gpu.upload_buffer(bytes)? };
            slots.push(Slot { upload, pages: buffer.slice(i as u64 * stride, bytes) });
        }
        let dequantizer = match is_selective {
            true => PageDequantizer::new(gpu, spec, plan.slot_pages, &buffer.all())?,
            false => None,
        };
        let table = gpu.buffer("KV slot table", spec.table_bytes(plan.slot_pages))?.all();
        let identity: Vec<usize> = (0..plan.slot_pages).collect();
        gpu.upload(&table, bytemuck::cast_slice(&spec.table(&identity, plan.slot_pages * BLOCKS_PER_PAGE)))?;
        let readback = plan.tail_pages as u64 * spec.page_bytes();
        let readbacks: Vec<StagingBuffer> =
            (0..N_READBACKS).map(|_| gpu.host_readback_buffer(readback)).collect::<Result<_, _>>()?;
        Ok(StagingPool {
            slots,
            buffer: buffer.all(),
            dequantizer,
            table,
            readbacks,
            queue,
            free_readbacks: (0..N_READBACKS).collect(),
        })
    }

    /// Records the dequantization of compressed pages from a staging buffer to page `at` of the staging pool.
    pub fn record_dequantize(&self, recorder: &mut Recorder, upload: &StagingBuffer, at: u64, n_pages: usize) {
        if let Some(dequantizer) = &self.dequantizer {
            dequantizer.record(recorder, upload, at, n_pages);
        }
    }
}
