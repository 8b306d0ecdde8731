//! What the tests share: a small model's store, payloads that can be told apart, folders of every kind.

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

/// The ids of a document of this many groups and 5 tokens more.
pub fn tokens(n_groups: u32) -> Vec<u32> {
    (0..n_groups * 64 + 5).map(|i| i.wrapping_mul(2_654_435_761) >> 8).collect()
}

/// Bytes that no other page, and no other version of this page, has.
pub fn payload(page: PageId, version: u32, len: u64) -> Vec<u8> {
    let seed = [u64::from(page.layer), u64::from(page.group), page.kind as u64, u64::from(version)];
    let mut rng = Rng::new(seed.into_iter().fold(7u64, |a, b| a.wrapping_mul(1_000_003).wrapping_add(b)));
    (0..len.div_ceil(4)).flat_map(|_| rng.next_u32().to_le_bytes()).take(len as usize).collect()
}

/// Puts all pages of a group.
pub fn put_group(store: &mut PageStore, group: u32) {
    for layer in 0..store.geometry().n_layer {
        let page = PageId::kv(layer, group);
        let bytes = payload(page, 0, store.geometry().payload_of(PageKind::Kv));
        store.put(page, &bytes).unwrap();
    }
}

/// What a page reads as, compared with what was put: none where it is missing.
pub fn reads_right(store: &mut PageStore, page: PageId) -> Option<bool> {
    let wanted = payload(page, 0, store.geometry().payload_of(page.kind));
    store.get(page).ok().flatten().map(|got| got == wanted)
}

/// Every page of the store that can be read is right; how many there are.
#[track_caller]
pub fn n_right(store: &mut PageStore) -> usize {
    let mut n = 0;
    for group in 0..store.n_groups() {
        for layer in 0..store.geometry().n_layer {
            let page = PageId::kv(layer, group);
            if let Some(is_right) = reads_right(store, page) {
                assert!(is_right, "{page} was served with wrong bytes");
                n += 1;
            }
        }
    }
    n
}

/// A store with these groups committed, closed again.
pub fn filled(folder: &Arc<dyn Folder>, n_groups: u32) {
    let (mut store, _) = PageStore::open_or_create(Arc::clone(folder), &spec(), &tokens(n_groups)).unwrap();
    for group in 0..n_groups {
        put_group(&mut store, group);
    }
    store.commit().unwrap();
}

/// Opens or makes the small store.
pub fn opened(folder: &Arc<dyn Folder>, n_groups: u32) -> (PageStore, OpenReport) {
    PageStore::open_or_create(Arc::clone(folder), &spec(), &tokens(n_groups)).unwrap()
}

/// A folder on the disk of the build, and one in memory-backed files where the system has such.
pub fn real_folders() -> Vec<(&'static str, tempfile::TempDir)> {
    let disk = tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut folders = vec![("disk", disk)];
    match tempfile::Builder::new().tempdir_in("/dev/shm") {
        Ok(shm) => folders.push(("tmpfs", shm)),
        Err(_) => eprintln!("skipped: tmpfs: no /dev/shm"),
    }
    folders
}

/// A store's folder under one of those.
pub fn store_in(dir: &tempfile::TempDir) -> (PathBuf, Arc<dyn Folder>) {
    let path = dir.path().join("document");
    (path.clone(), Arc::new(Disk::new(path)))
}
