//! Staging buffers of every kind, filled by the transfer thread from the RAM tier.

use super::*;
use crate::base::Bytes;
use crate::gpu::kernels::KvFormat;
use crate::gpu::testing::gpu_with;
use crate::gpu::{FeatureOverrides, Gpu, Recorder};
use crate::kv::offload::{DiskBacking, OffloadConfig, Retention};
use crate::kv::store::IoConfig;
use crate::kv::transfer::plan::TransferBatch;

const SPEC: KvSpec = KvSpec { n_layer: 1, n_kv_head: 8, head_dim: 128, work: KvFormat::F16, sealed: KvFormat::F16 };
const N_GROUPS: u32 = 7;
const SLOT_PAGES: usize = 4;

fn payload(group: u32) -> Vec<u8> {
    (0..SPEC.page_bytes() as u32).map(|i| (i.wrapping_mul(2_654_435_761 + group) >> 13) as u8).collect()
}

/// RAM with all groups.
fn tiers(hub: &Hub) -> OffloadTiers {
    let config = OffloadConfig {
        ram_budget: Bytes(16 << 20),
        disk_budget: Bytes(0),
        nvme_limit: None,
        page_bytes: SPEC.page_bytes(),
        n_layer: 1,
        read_ahead: true,
    };
    let io = Io::start(&IoConfig::from_env()).unwrap();
    let mut tiers = OffloadTiers::new(config, io, DiskBacking::None, hub.lane("disk")).unwrap();
    (0..N_GROUPS).for_each(|group| tiers.put(PageId::kv(0, group), &payload(group), Retention::InRam).unwrap());
    tiers
}

/// Lets several threads write the pages of a batch, on machines with fewer cores too.
fn use_several_threads() {
    // Another test may have started the threads already, with as many as there are cores.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(4).build_global();
}

/// Transfers every group through `slot` alone, and returns what arrives in VRAM.
fn transferred(gpu: &Gpu, slot: &StagingBuffer, queue: Option<TransferQueue>) -> Vec<Vec<u8>> {
    use_several_threads();
    let hub = Hub::new(64);
    let transfer = Transfer::start(SPEC, None, &hub).unwrap();
    transfer.open(tiers(&hub));
    transfer.buffers(vec![slot.clone()], Vec::new(), queue);
    transfer.map_slot(0, slot);
    let groups: Vec<u32> = (0..N_GROUPS).collect();
    let batch = |groups: &[u32]| TransferBatch { layer: 0, groups: groups.to_vec(), is_compressed: false };
    let batches: Vec<TransferBatch> = groups.chunks(SLOT_PAGES).map(batch).collect();
    transfer.plan(1, Arc::new(TransferPlan { batches: batches.clone(), ..TransferPlan::default() }));
    let target = gpu.buffer("target", slot.size()).unwrap();
    let mut pages = Vec::new();
    for (index, batch) in batches.iter().enumerate() {
        let filled = loop {
            gpu.poll().unwrap();
            match transfer.next_event(Duration::from_millis(1)).unwrap() {
                Some(TransferEvent::FilledStaging(filled)) => break filled,
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        };
        assert_eq!((filled.index, filled.slot), (index, 0));
        // From here to `map_slot` the thread has no free slot, so it does not submit.
        let n_bytes = batch.groups.len() as u64 * SPEC.page_bytes();
        slot.close();
        let mut recorder = Recorder::new();
        recorder.copy(&slot.slice(0, n_bytes), &target.slice(0, n_bytes));
        gpu.submit(&mut recorder).unwrap();
        let bytes = gpu.download(&target.slice(0, n_bytes)).unwrap();
        pages.extend(bytes.chunks(SPEC.page_bytes() as usize).map(<[u8]>::to_vec));
        transfer.map_slot(0, slot);
    }
    pages
}

#[test]
fn pages_arrive_through_every_kind_of_staging_buffer() {
    let test = "pages_arrive_through_every_kind_of_staging_buffer";
    let want: Vec<Vec<u8>> = (0..N_GROUPS).map(payload).collect();
    let bytes = SLOT_PAGES as u64 * SPEC.page_bytes();
    for no_host_memory in [true, false] {
        let Some(gpu) = gpu_with(test, FeatureOverrides { no_host_memory, ..FeatureOverrides::default() }) else { return };
        let slot = gpu.upload_buffer(bytes).unwrap();
        assert_eq!(slot.is_in_host_memory(), gpu.host_memory().is_ok());
        assert!(transferred(&gpu, &slot, None) == want, "host memory: {:?}", gpu.host_memory());
    }
}

#[cfg(any(target_os = "linux", windows))]
#[test]
fn pages_arrive_through_a_transfer_queue() {
    // Copied by the CPU first, or from where they are if the driver imports their memory.
    for host_import in [Some(false), Some(true)] {
        let overrides = FeatureOverrides { host_import, ..FeatureOverrides::default() };
        let Some(gpu) = gpu_with("pages_arrive_through_a_transfer_queue", overrides) else { return };
        check_transfer_queue(gpu);
    }
}

#[cfg(any(target_os = "linux", windows))]
fn check_transfer_queue(mut gpu: Gpu) {
    // A device with one queue: the transfer thread and this one use it in turns.
    if gpu.has_transfer_queue().is_err() {
        gpu.share_queue();
    }
    let queue = gpu.transfer_queue().unwrap();
    assert_eq!(queue.imports(), gpu.imports_host_memory().is_ok());
    assert!(gpu.transfer_queue().is_err(), "one owner at a time");
    let slot = gpu.sent_upload_buffer(SLOT_PAGES as u64 * SPEC.page_bytes()).unwrap();
    assert!(slot.is_in_host_memory());
    gpu.wait_idle().unwrap();
    let want: Vec<Vec<u8>> = (0..N_GROUPS).map(payload).collect();
    assert!(transferred(&gpu, &slot, Some(queue)) == want);
    assert!(gpu.transfer_queue().is_ok(), "the thread has ended");
    assert!(gpu.upload_explanation().contains("a queue of their own"), "{}", gpu.upload_explanation());
}
