//! Shared helpers: offload tiers over a small store, and distinct payloads.

use std::sync::Arc;

use strata::base::{Bytes, Rng};
use strata::kv::offload::{DiskBacking, OffloadConfig, OffloadError, OffloadTiers, Retention};
use strata::kv::store::{Folder, Io, IoConfig, IoKind, MemoryFolder, PageId, PageStore, StoreSpec};
use strata::telemetry::Hub;

/// Layers of the small model.
pub const N_LAYER: u32 = 3;
/// Payload of a page; does not fill its slot.
pub const PAGE_BYTES: u64 = 9000;
/// Bytes of a page in RAM and on disk.
pub const SLOT_BYTES: u64 = 12_288;

pub fn spec() -> StoreSpec {
    StoreSpec {
        model_hash: [1; 32],
        tokenizer_hash: [2; 32],
        settings_hash: [3; 32],
        layout: "f16/block16".into(),
        n_layer: N_LAYER,
        kv_page_bytes: PAGE_BYTES,
        activation_page_bytes: 0,
        abstract_bytes: 0,
    }
}

/// Token ids of a document of `n_groups` groups.
pub fn tokens(n_groups: u32) -> Vec<u32> {
    (0..n_groups * 64).map(|i| i.wrapping_mul(2_654_435_761) >> 8).collect()
}

/// Payload that is unique to the page and its version.
pub fn payload(page: PageId, version: u32) -> Vec<u8> {
    let seed = [u64::from(page.layer), u64::from(page.group), u64::from(version)];
    let mut rng = Rng::new(seed.into_iter().fold(7u64, |a, b| a.wrapping_mul(1_000_003).wrapping_add(b)));
    (0..PAGE_BYTES.div_ceil(4)).flat_map(|_| rng.next_u32().to_le_bytes()).take(PAGE_BYTES as usize).collect()
}

/// RAM for `ram_pages` pages, and practically unlimited disk space.
pub fn config(ram_pages: u64) -> OffloadConfig {
    OffloadConfig {
        ram_budget: Bytes(ram_pages * SLOT_BYTES),
        disk_budget: Bytes(1 << 40),
        nvme_limit: None,
        page_bytes: PAGE_BYTES,
        n_layer: N_LAYER,
        read_ahead: true,
    }
}

pub fn threads() -> Io {
    Io::start(&IoConfig { force: Some(IoKind::Threads), depth: 4, ..IoConfig::default() }).unwrap()
}

pub fn memory() -> Arc<dyn Folder> {
    Arc::new(MemoryFolder::new())
}

pub fn store(folder: &Arc<dyn Folder>, n_groups: u32) -> PageStore {
    PageStore::open_or_create(Arc::clone(folder), &spec(), &tokens(n_groups)).unwrap().0
}

/// Tiers over the store of a document of `n_groups` groups.
pub fn tiers(config: OffloadConfig, folder: &Arc<dyn Folder>, n_groups: u32) -> OffloadTiers {
    OffloadTiers::new(config, threads(), DiskBacking::Saved(store(folder, n_groups).into()), Hub::new(1).lane("engine")).unwrap()
}

/// All pages of `n_groups` groups in the order of attention: layer by layer.
pub fn pages(n_groups: u32) -> Vec<PageId> {
    (0..N_LAYER).flat_map(|l| (0..n_groups).map(move |g| PageId::kv(l, g))).collect()
}

/// Puts a group, as prefill does when it seals one.
pub fn put_group(offload: &mut OffloadTiers, group: u32, retention: Retention) -> Result<(), OffloadError> {
    (0..N_LAYER).map(|l| PageId::kv(l, group)).try_for_each(|page| offload.put(page, &payload(page, 0), retention))
}

/// Tiers with `n_groups` groups put and saved.
pub fn create_filled(config: OffloadConfig, folder: &Arc<dyn Folder>, n_groups: u32) -> OffloadTiers {
    let mut offload = tiers(config, folder, n_groups);
    (0..n_groups).for_each(|g| put_group(&mut offload, g, Retention::InRam).unwrap());
    assert!(offload.flush(), "{:?}", offload.take_notices());
    offload
}

/// Saves `n_groups` groups in a folder.
pub fn save(folder: &Arc<dyn Folder>, n_groups: u32) {
    create_filled(config(40), folder, n_groups).close();
}

/// Fetches a page and checks its bytes. False if it is missing.
#[track_caller]
pub fn fetch_intact(offload: &mut OffloadTiers, page: PageId) -> bool {
    match offload.fetch(page) {
        Ok(bytes) => {
            assert!(*bytes == *payload(page, 0), "{page} was returned with wrong bytes");
            true
        }
        Err(OffloadError::Missing(missing)) => {
            assert_eq!(missing, page);
            false
        }
        Err(error) => panic!("{page}: {error}"),
    }
}

/// Checks that neither budget was ever exceeded.
#[track_caller]
pub fn assert_within(offload: &OffloadTiers) {
    let usage = offload.usage();
    for tier in [usage.ram, usage.disk] {
        assert!(tier.now <= tier.peak && tier.peak <= tier.budget, "{usage:?}");
    }
}
