//! Upload ring: staging buffers that several threads fill while the device copies others.
//!
//! ```text
//! free slot ─ write, on any thread ─► filled slot ─ copy, on the thread of the device ─► in VRAM, and the slot is free again
//! ```
//! Invariant: a slot belongs to the thread that took its number from [`UploadRing::free`] until [`UploadRing::copy`].
//!
//! Limits: RAM for all slots, and no more. The owner of the device must poll it, or no slot becomes free.

use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::buffer::Slice;
use super::device::Gpu;
use super::error::GpuError;
use super::host_memory::TransferQueue;
use super::recorder::Recorder;
use super::staging::StagingBuffer;

/// Interval for polling completed copies.
const POLL_EVERY: Duration = Duration::from_micros(50);

/// Staging buffers of equal size.
pub struct UploadRing {
    slots: Vec<StagingBuffer>,
    freed: Sender<usize>,
    free: Receiver<usize>,
}

/// A ring that the thread of the device fills itself, in the way in which KV pages are uploaded.
pub(super) struct PageUploads {
    ring: UploadRing,
    queue: Option<TransferQueue>,
}

impl PageUploads {
    /// `n_slots` of `slot_bytes` each.
    ///
    /// # Errors
    /// Out of memory, or a lost device.
    pub fn new(gpu: &Gpu, n_slots: usize, slot_bytes: u64) -> Result<PageUploads, GpuError> {
        let queue = gpu.transfer_queue().ok();
        let slot = |_| if queue.is_some() { gpu.sent_upload_buffer(slot_bytes) } else { gpu.upload_buffer(slot_bytes) };
        let slots = (0..n_slots).map(slot).collect::<Result<Vec<_>, _>>()?;
        Ok(PageUploads { ring: UploadRing::of(gpu, slots)?, queue })
    }

    /// Copies `bytes`, a multiple of 4, to `target`, and waits until they are there.
    ///
    /// # Errors
    /// A lost device.
    pub fn upload(&mut self, gpu: &Gpu, target: &Slice, bytes: &[u8]) -> Result<(), GpuError> {
        let slot_bytes = self.ring.slots.first().map_or(1, StagingBuffer::size) as usize;
        for (i, piece) in bytes.chunks(slot_bytes).enumerate() {
            let slot = loop {
                gpu.poll()?;
                if let Ok(slot) = self.ring.free.recv_timeout(POLL_EVERY) {
                    break slot;
                }
            };
            self.ring.write(slot, piece)?;
            if let Some(queue) = &mut self.queue {
                self.ring.slots[slot].send(queue, piece.len() as u64)?;
            }
            let target = target.buffer.slice(target.offset + (i * slot_bytes) as u64, piece.len() as u64);
            self.ring.copy(gpu, slot, &[UploadCopy { offset: 0, target }])?;
        }
        gpu.wait_idle()
    }
}

/// A range of a slot, and where its bytes go. Offset and size are multiples of 4.
pub struct UploadCopy {
    /// byte offset in the slot
    pub offset: u64,
    /// target, with the size
    pub target: Slice,
}

impl UploadRing {
    /// A ring of `n_slots` of `slot_bytes` each, all free.
    ///
    /// # Errors
    /// Out of memory, or a lost device.
    pub fn new(gpu: &Gpu, n_slots: usize, slot_bytes: u64) -> Result<UploadRing, GpuError> {
        let slots = (0..n_slots).map(|_| gpu.upload_buffer(slot_bytes)).collect::<Result<Vec<_>, _>>()?;
        UploadRing::of(gpu, slots)
    }

    fn of(gpu: &Gpu, slots: Vec<StagingBuffer>) -> Result<UploadRing, GpuError> {
        let (freed, free) = unbounded();
        let ring = UploadRing { slots, freed, free };
        (0..ring.slots.len()).for_each(|slot| ring.free_when_done(slot));
        gpu.poll()?;
        Ok(ring)
    }

    /// Numbers of free slots.
    pub fn free(&self) -> &Receiver<usize> {
        &self.free
    }

    /// Writes the first bytes of a slot.
    ///
    /// # Errors
    /// More bytes than it has.
    pub fn write(&self, slot: usize, bytes: &[u8]) -> Result<(), GpuError> {
        self.slots[slot].write(0, bytes)
    }

    /// Submits copies from a slot, which is free once they are done.
    ///
    /// # Errors
    /// A lost device, or a rejected copy.
    pub fn copy(&self, gpu: &Gpu, slot: usize, copies: &[UploadCopy]) -> Result<(), GpuError> {
        self.slots[slot].close();
        let mut recorder = Recorder::new();
        for copy in copies {
            recorder.copy(&self.slots[slot].slice(copy.offset, copy.target.size), &copy.target);
        }
        gpu.submit(&mut recorder)?;
        self.free_when_done(slot);
        Ok(())
    }

    fn free_when_done(&self, slot: usize) {
        let freed = self.freed.clone();
        self.slots[slot].map(move |is_mapped| {
            if is_mapped {
                // The ring may be gone, and its last slot with it.
                let _ = freed.send(slot);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::FeatureOverrides;
    use crate::gpu::testing::gpu_with;

    #[test]
    fn all_data_arrives_through_a_ring_that_is_smaller() {
        for no_host_memory in [false, true] {
            let overrides = FeatureOverrides { no_host_memory, ..FeatureOverrides::default() };
            let Some(gpu) = gpu_with("all_data_arrives_through_a_ring_that_is_smaller", overrides) else { return };
            let mut uploads = PageUploads::new(&gpu, 3, 4096).unwrap();
            let bytes: Vec<u8> = (0..100_000u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
            let target = gpu.buffer("target", bytes.len() as u64 + 256).unwrap();
            uploads.upload(&gpu, &target.slice(256, bytes.len() as u64), &bytes).unwrap();
            assert!(gpu.download(&target.slice(256, bytes.len() as u64)).unwrap() == bytes);
            assert_eq!(gpu.download(&target.slice(0, 256)).unwrap(), [0; 256]);
        }
    }
}
