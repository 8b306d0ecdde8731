//! Selection of a queue for copies, next to the one that wgpu opens.
//!
//! ```text
//! queue families ─► a family that only copies │ a second queue of wgpu's family │ none
//! ```
//! A family that only copies is its own engine of the card (DMA), so it runs beside compute. Queues of another family that
//! computes are not used: they copy by shaders, which share the cores with the kernels.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ash::vk;

/// Family of which wgpu opens the first queue.
pub(super) const WGPU_FAMILY: u32 = 0;

/// A queue of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SelectedQueue {
    /// index of the family
    pub family: u32,
    /// index in the family
    pub index: u32,
}

impl SelectedQueue {
    /// The best queue for copies, given capabilities and number of queues of each family. None if wgpu has the only queue.
    pub fn of(families: impl IntoIterator<Item = (vk::QueueFlags, u32)>) -> Option<SelectedQueue> {
        let families: Vec<(vk::QueueFlags, u32)> = families.into_iter().collect();
        let only_copies = families.iter().position(|(flags, n_queues)| *n_queues > 0 && only_copies(*flags));
        let has_second = families.get(WGPU_FAMILY as usize).is_some_and(|(_, n_queues)| *n_queues > 1);
        match only_copies {
            Some(family) => Some(SelectedQueue { family: family as u32, index: 0 }),
            None => has_second.then_some(SelectedQueue { family: WGPU_FAMILY, index: 1 }),
        }
    }

    fn families(&self) -> Vec<u32> {
        if self.family == WGPU_FAMILY { Vec::new() } else { vec![WGPU_FAMILY, self.family] }
    }
}

/// The queue of a device, in use or not.
#[derive(Debug)]
pub(in crate::gpu) struct QueueSlot {
    /// the queue
    pub(super) selected: SelectedQueue,
    /// true while a transfer queue has it
    pub(super) in_use: Arc<AtomicBool>,
}

impl QueueSlot {
    /// The queue of a device that was opened with it.
    pub(super) fn new(selected: SelectedQueue) -> QueueSlot {
        QueueSlot { selected, in_use: Arc::default() }
    }

    /// Families that use buffers of both queues; empty if there is only one.
    pub fn families(&self) -> Vec<u32> {
        self.selected.families()
    }
}

/// True for a family that copies and does nothing else. Families for video copy as well, but are engines for something else.
fn only_copies(flags: vk::QueueFlags) -> bool {
    use vk::QueueFlags as Flags;
    let allowed = Flags::TRANSFER | Flags::SPARSE_BINDING | Flags::PROTECTED;
    flags.contains(Flags::TRANSFER) && allowed.contains(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPY: vk::QueueFlags = vk::QueueFlags::TRANSFER;
    const SPARSE: vk::QueueFlags = vk::QueueFlags::SPARSE_BINDING;

    fn all() -> vk::QueueFlags {
        vk::QueueFlags::GRAPHICS | vk::QueueFlags::COMPUTE | COPY
    }

    #[test]
    fn queue_for_copies_is_that_of_a_family_that_only_copies_or_a_second_one() {
        let compute = vk::QueueFlags::COMPUTE | COPY;
        let decode = vk::QueueFlags::VIDEO_DECODE_KHR | COPY | SPARSE;
        // Optical flow, which this version of ash has no name for.
        let flow = vk::QueueFlags::from_raw(0x100) | COPY | SPARSE;
        let queue = |family, index| Some(SelectedQueue { family, index });
        let nvidia = [(all() | SPARSE, 16), (COPY | SPARSE, 2), (compute | SPARSE, 8), (decode, 1), (flow, 1)];
        assert_eq!(SelectedQueue::of(nvidia), queue(1, 0));
        let older_nvidia = [(all() | SPARSE, 16), (decode, 1), (flow, 1), (COPY | SPARSE, 1)];
        assert_eq!(SelectedQueue::of(older_nvidia), queue(3, 0));
        let amd = [(all() | SPARSE, 1), (compute | SPARSE, 4), (decode, 1), (COPY | SPARSE, 2)];
        assert_eq!(SelectedQueue::of(amd), queue(3, 0));
        assert_eq!(SelectedQueue::of(amd[..3].iter().copied()), None, "the compute family is not for copies");
        assert_eq!(SelectedQueue::of([(all() | SPARSE, 1)]), None, "Intel");
        assert_eq!(SelectedQueue::of([(all() | SPARSE, 1), (compute, 1), (COPY, 1)]), queue(2, 0), "Intel with a copy engine");
        assert_eq!(SelectedQueue::of([(all(), 1)]), None, "lavapipe");
        assert_eq!(SelectedQueue::of([(all(), 4), (COPY, 0)]), queue(0, 1), "a second queue of the same family");
        assert_eq!(SelectedQueue::of([]), None);
        assert_eq!(queue(3, 0).map(|c| c.families()), Some(vec![0, 3]));
        assert_eq!(queue(0, 1).map(|c| c.families()), Some(vec![]));
    }
}
