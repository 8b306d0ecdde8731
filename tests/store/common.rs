//! Shared helpers: the store of a small model, distinct payloads, folders of every kind.

use std::path::PathBuf;
use std::sync::Arc;

use strata::base::Rng;
use strata::kv::store::{Disk, Folder, OpenReport, PageId, PageKind, PageStore, StoreSpec};

/// Layers of the small model.
pub const N_LAYER: u32 = 3;

/// A small model: 3 layers, pages that do not fill their slots.
pub fn spec() -> StoreSpec {
    StoreSpec {
        model_hash: [1; 32],
        tokenizer_hash: [2; 32],
        settings_hash: [3; 32],
        layout: "f16/block16".into(),
        n_layer: N_LAYER,
        kv_page_bytes: 9000,
        activation_page_bytes: 0,
        abstract_bytes: 0,
    }
}

/// Token ids of a document of `n_groups` groups plus 5 tokens.
pub fn tokens(n_groups: u32) -> Vec<u32> {
    (0..n_groups * 64 + 5).map(|i| i.wrapping_mul(2_654_435_761) >> 8).collect()
}

/// Payload that is unique to the page and its version.
pub fn payload(page: PageId, version: u32, len: u64) -> Vec<u8> {
    let seed = [u64::from(page.layer), u64::from(page.group), page.kind as u64, u64::from(version)];
    let mut rng = Rng::new(seed.into_iter().fold(7u64, |a, b| a.wrapping_mul(1_000_003).wrapping_add(b)));
    (0..len.div_ceil(4)).flat_map(|_| rng.next_u32().to_le_bytes()).take(len as usize).collect()
}

/// Writes all pages of a group.
pub fn put_group(store: &mut PageStore, group: u32) {
    for layer in 0..store.geometry().n_layer {
        let page = PageId::kv(layer, group);
        let bytes = payload(page, 0, store.geometry().payload_of(PageKind::Kv));
        store.put(page, &bytes).unwrap();
    }
}

/// True if the page reads back as written. None if it is missing.
pub fn is_intact(store: &mut PageStore, page: PageId) -> Option<bool> {
    let expected = payload(page, 0, store.geometry().payload_of(page.kind));
    store.get(page).ok().flatten().map(|got| got == expected)
}

/// Checks the bytes of every readable page, and counts those pages.
#[track_caller]
pub fn n_intact(store: &mut PageStore) -> usize {
    let mut n = 0;
    for group in 0..store.n_groups() {
        for layer in 0..store.geometry().n_layer {
            let page = PageId::kv(layer, group);
            if let Some(is_right) = is_intact(store, page) {
                assert!(is_right, "{page} was returned with wrong bytes");
                n += 1;
            }
        }
    }
    n
}

/// Creates a store with `n_groups` committed groups, and closes it.
pub fn create_filled(folder: &Arc<dyn Folder>, n_groups: u32) {
    let (mut store, _) = PageStore::open_or_create(Arc::clone(folder), &spec(), &tokens(n_groups)).unwrap();
    for group in 0..n_groups {
        put_group(&mut store, group);
    }
    store.commit().unwrap();
}

/// Opens or creates the small store.
pub fn open_store(folder: &Arc<dyn Folder>, n_groups: u32) -> (PageStore, OpenReport) {
    PageStore::open_or_create(Arc::clone(folder), &spec(), &tokens(n_groups)).unwrap()
}

/// A folder on the build disk, and one on tmpfs if the system has it.
pub fn real_folders() -> Vec<(&'static str, tempfile::TempDir)> {
    let disk = tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut folders = vec![("disk", disk)];
    match tempfile::Builder::new().tempdir_in("/dev/shm") {
        Ok(shm) => folders.push(("tmpfs", shm)),
        Err(_) => eprintln!("skipped: tmpfs: no /dev/shm"),
    }
    folders
}

/// The folder of a store under one of those.
pub fn store_in(dir: &tempfile::TempDir) -> (PathBuf, Arc<dyn Folder>) {
    let path = dir.path().join("document");
    (path.clone(), Arc::new(Disk::new(path)))
}
