//! Store format tests: files of other stores or versions, truncated files, corruption at any byte.

use std::sync::Arc;

use strata::base::Rng;
use strata::kv::store::format::{GroupEntry, HeaderBlock, Superblock};
use strata::kv::store::{Folder, MemoryFolder, PageId, PageStore, StoreError, StoreSpec};

use crate::common::{N_LAYER, create_filled, n_intact, open_store, put_group, spec, tokens};

const N_GROUPS: u32 = 6;
const N_PAGES: usize = (N_GROUPS * N_LAYER) as usize;

fn create() -> MemoryFolder {
    let memory = MemoryFolder::new();
    let folder: Arc<dyn Folder> = Arc::new(memory.clone());
    create_filled(&folder, N_GROUPS);
    memory
}

fn open(memory: &MemoryFolder) -> Result<PageStore, StoreError> {
    let folder: Arc<dyn Folder> = Arc::new(memory.clone());
    PageStore::open(folder, &spec(), &tokens(N_GROUPS)).map(|(store, _)| store)
}

#[test]
fn store_of_another_model_tokenizer_setting_type_or_document_is_refused_by_name() {
    let memory = create();
    let folder: Arc<dyn Folder> = Arc::new(memory.clone());
    type Change = (&'static str, fn(&mut StoreSpec));
    let changes: [Change; 6] = [
        ("another model", |s| s.model_hash[31] ^= 1),
        ("another tokenizer", |s| s.tokenizer_hash[0] ^= 1),
        ("other rope or quantization settings", |s| s.settings_hash[7] ^= 1),
        ("another KV type", |s| s.layout = "q8/block16".into()),
        ("other page sizes", |s| s.kv_page_bytes += 1),
        ("other page sizes", |s| s.n_layer += 1),
    ];
    for (what, change) in changes {
        let mut other = spec();
        change(&mut other);
        let error = PageStore::open(Arc::clone(&folder), &other, &tokens(N_GROUPS)).unwrap_err();
        assert!(matches!(error, StoreError::Foreign { .. }) && error.to_string().contains(what), "{error}");
    }
    let mut ids = tokens(N_GROUPS);
    *ids.last_mut().unwrap() ^= 1;
    let error = PageStore::open(Arc::clone(&folder), &spec(), &ids).unwrap_err();
    assert!(error.to_string().contains("another document"), "{error}");
    // The refused store is still intact.
    assert_eq!(n_intact(&mut open(&memory).unwrap()), N_PAGES);
    let (mut store, report) = PageStore::open_or_create(folder, &spec(), &ids).unwrap();
    assert!(report.replaced.unwrap().to_string().contains("another document"));
    assert_eq!(n_intact(&mut store), 0);
}

#[test]
fn store_opened_read_only_returns_its_spec_and_changes_nothing() {
    let memory = create();
    let mut index = memory.bytes("index").unwrap();
    let len = index.len();
    index[len - 1] ^= 1;
    memory.set_bytes("index", index.clone());
    let folder: Arc<dyn Folder> = Arc::new(memory.clone());
    for _ in 0..2 {
        let (mut store, report) = PageStore::open_existing(Arc::clone(&folder)).unwrap();
        assert_eq!((store.spec(), store.tokens()), (&spec(), &tokens(N_GROUPS)[..]));
        assert_eq!((report.n_damaged, report.n_complete), (1, N_GROUPS - 1));
        assert_eq!(n_intact(&mut store), N_PAGES - N_LAYER as usize);
        assert_eq!(memory.bytes("index").unwrap(), index);
    }
    let nothing: Arc<dyn Folder> = Arc::new(MemoryFolder::new());
    assert!(matches!(PageStore::open_existing(nothing), Err(StoreError::Absent { .. })));
}

#[test]
fn store_of_another_version_is_refused_with_both_numbers() {
    let memory = create();
    let mut bytes = memory.bytes("header").unwrap();
    bytes[8..12].copy_from_slice(&77u32.to_le_bytes());
    memory.set_bytes("header", bytes);
    let error = open(&memory).unwrap_err();
    assert!(matches!(error, StoreError::OtherVersion { found: 77, known: 1, .. }), "{error}");
    assert!(error.to_string().contains("77") && error.is_unusable_content());
}

#[test]
fn arena_index_or_header_of_another_store_never_yields_a_page() {
    let (ours, theirs) = (create(), create());
    for file in ["kv-0000.arena", "index"] {
        let memory = ours.copied();
        memory.set_bytes(file, theirs.bytes(file).unwrap());
        // The payloads of both are equal, but each is valid only in its own store.
        let found = n_intact(&mut open(&memory).unwrap());
        assert_eq!(found, if file == "index" { 0 } else { N_PAGES }, "{file}");
    }
    let memory = ours.copied();
    memory.set_bytes("header", theirs.bytes("header").unwrap());
    assert_eq!(n_intact(&mut open(&memory).unwrap()), 0);
}

#[test]
fn swapped_pages_are_missing() {
    let memory = create();
    let geometry = *open(&memory).unwrap().geometry();
    let (a, b) = (geometry.place(PageId::kv(0, 0)).offset as usize, geometry.place(PageId::kv(1, 3)).offset as usize);
    let mut bytes = memory.bytes("kv-0000.arena").unwrap();
    let len = geometry.slot_bytes[0] as usize;
    let (first, second) = (bytes[a..a + len].to_vec(), bytes[b..b + len].to_vec());
    bytes[a..a + len].copy_from_slice(&second);
    bytes[b..b + len].copy_from_slice(&first);
    memory.set_bytes("kv-0000.arena", bytes);
    let mut store = open(&memory).unwrap();
    assert_eq!(n_intact(&mut store), N_PAGES - 2);
    assert!(!store.is_present(PageId::kv(0, 0)) && !store.is_present(PageId::kv(1, 3)));
}

#[test]
fn bit_flips_anywhere_lose_pages_but_never_yield_a_wrong_page() {
    let memory = create();
    let mut rng = Rng::new(11);
    let mut n_lost = 0;
    for file in ["header", "index", "kv-0000.arena"] {
        let whole = memory.bytes(file).unwrap();
        for _ in 0..60 {
            let copy = memory.copied();
            let mut bytes = whole.clone();
            let at = rng.uniform(bytes.len() as u32) as usize;
            bytes[at] ^= 1 << rng.uniform(8);
            copy.set_bytes(file, bytes);
            match open(&copy) {
                Ok(mut store) => n_lost += N_PAGES - n_intact(&mut store),
                Err(error) => assert!(error.is_unusable_content(), "{file} at {at}: {error}"),
            }
        }
    }
    assert!(n_lost > 20, "some flips hit pages: {n_lost}");
}

#[test]
fn bit_flip_in_a_page_loses_only_that_page_which_can_be_rewritten() {
    let memory = create();
    let page = PageId::kv(2, 4);
    let geometry = *open(&memory).unwrap().geometry();
    let mut bytes = memory.bytes("kv-0000.arena").unwrap();
    bytes[geometry.place(page).offset as usize + 8999] ^= 0x10;
    memory.set_bytes("kv-0000.arena", bytes);
    let folder: Arc<dyn Folder> = Arc::new(memory);
    let (mut store, _) = open_store(&folder, N_GROUPS);
    assert_eq!(store.get(page).unwrap(), None);
    assert_eq!(n_intact(&mut store), N_PAGES - 1);
    assert_eq!(store.n_complete_prefix(), 4);
    let again = crate::common::payload(page, 0, 9000);
    store.put(page, &again).unwrap();
    store.commit().unwrap();
    drop(store);
    assert_eq!(n_intact(&mut open_store(&folder, N_GROUPS).0), N_PAGES);
}

#[test]
fn one_corrupt_superblock_slot_loses_at_most_one_commit_and_two_lose_no_intact_page() {
    let memory = MemoryFolder::new();
    let folder: Arc<dyn Folder> = Arc::new(memory.clone());
    let (mut store, _) = open_store(&folder, N_GROUPS);
    for group in 0..N_GROUPS {
        put_group(&mut store, group);
        store.commit().unwrap();
    }
    drop(store);
    // Seven commits, counting the first, empty one: the last is in slot 1.
    let with = |slots: &[usize]| {
        let copy = memory.copied();
        let mut bytes = copy.bytes("index").unwrap();
        slots.iter().for_each(|s| bytes[s * 4096 + 30] ^= 4);
        copy.set_bytes("index", bytes);
        let folder: Arc<dyn Folder> = Arc::new(copy);
        let (mut store, report) = open_store(&folder, N_GROUPS);
        (n_intact(&mut store), report.recovered)
    };
    assert_eq!(with(&[0]), (N_PAGES, false));
    assert_eq!(with(&[1]), (N_PAGES - N_LAYER as usize, false));
    assert_eq!(with(&[0, 1]), (N_PAGES, true));
}

#[test]
fn truncated_files_lose_pages_but_never_yield_a_wrong_page() {
    let memory = create();
    let geometry = *open(&memory).unwrap().geometry();
    let last = geometry.place(PageId::kv(N_LAYER - 1, N_GROUPS - 1)).offset as usize + 3 * 4096;
    let mut rng = Rng::new(5);
    for file in ["header", "index", "kv-0000.arena"] {
        let whole = memory.bytes(file).unwrap();
        let mut cuts: Vec<usize> = (0..25).map(|_| rng.uniform(whole.len() as u32) as usize).collect();
        cuts.extend([0, 1, 255, 4095, 4096, 8192, whole.len() - 1]);
        for cut in cuts.into_iter().filter(|c| *c <= whole.len()) {
            let copy = memory.copied();
            copy.set_bytes(file, whole[..cut].to_vec());
            match open(&copy) {
                Ok(mut store) => {
                    let n = n_intact(&mut store);
                    let may_be_whole = file == "index" || (file == "kv-0000.arena" && cut >= last);
                    assert!(n < N_PAGES || may_be_whole, "{file} at {cut}: {n}");
                }
                Err(error) => assert!(error.is_unusable_content(), "{file} at {cut}: {error}"),
            }
            // The store can always be completed again.
            let folder: Arc<dyn Folder> = Arc::new(copy);
            let (mut store, _) = open_store(&folder, N_GROUPS);
            n_intact(&mut store);
            for group in 0..N_GROUPS {
                for layer in (0..N_LAYER).filter(|l| !store.is_present(PageId::kv(*l, group))).collect::<Vec<_>>() {
                    let page = PageId::kv(layer, group);
                    store.put(page, &crate::common::payload(page, 0, 9000)).unwrap();
                }
            }
            store.commit().unwrap();
            drop(store);
            assert_eq!(n_intact(&mut open_store(&folder, N_GROUPS).0), N_PAGES, "{file} at {cut}");
        }
    }
}

#[test]
fn interrupted_creation_leaves_no_store_and_is_retried() {
    let memory = create();
    let mut bytes = memory.bytes("header").unwrap();
    bytes[..4096].fill(0);
    memory.set_bytes("header", bytes);
    assert!(matches!(open(&memory), Err(StoreError::Absent { .. })));
    let folder: Arc<dyn Folder> = Arc::new(memory);
    let (mut store, report) = open_store(&folder, N_GROUPS);
    assert!(report.is_new && report.replaced.is_none());
    assert_eq!(n_intact(&mut store), 0);
}

#[test]
fn missing_arena_means_missing_pages() {
    let memory = create();
    let folder: Arc<dyn Folder> = Arc::new(memory);
    folder.remove("kv-0000.arena").unwrap();
    let (mut store, report) = open_store(&folder, N_GROUPS);
    assert_eq!((n_intact(&mut store), report.n_damaged, report.replaced.is_none()), (0, N_PAGES as u64, true));
}

#[test]
fn decoders_take_any_bytes_without_panic() {
    let mut rng = Rng::new(3);
    for len in [0, 1, 7, 63, 64, 65, 127, 128, 255, 256, 4096] {
        for _ in 0..50 {
            let mut bytes: Vec<u8> = (0..len).map(|_| rng.next_u32() as u8).collect();
            for magic in [&b"STRATAKV"[..], b"STRATASB", b"GRP1", b""] {
                let n = magic.len().min(len);
                bytes[..n].copy_from_slice(&magic[..n]);
                assert!(HeaderBlock::decode(&bytes).is_err());
                assert!(Superblock::decode(&bytes, 1).is_err());
                assert!(GroupEntry::decode(&bytes, 0, 1, 40).is_err());
            }
        }
    }
}
