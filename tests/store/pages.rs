//! Page tests without faults: put, commit, read back, in every kind of folder.

use std::sync::Arc;

use strata::base::Bytes;
use strata::kv::store::{
    Cancel, Folder, Io, IoConfig, MemoryFolder, PageId, PageKind, PageState, PageStore, SlabPool, StoreError,
};

use crate::common::{N_LAYER, create_filled, n_intact, open_store, payload, put_group, real_folders, spec, store_in, tokens};

#[test]
fn committed_pages_are_read_back_after_reopening_on_disk_tmpfs_and_memory() {
    let dirs = real_folders();
    let mut folders: Vec<Arc<dyn Folder>> = vec![Arc::new(MemoryFolder::new())];
    folders.extend(dirs.iter().map(|(_, dir)| store_in(dir).1));
    for folder in folders {
        let (mut store, report) = open_store(&folder, 40);
        assert!(report.is_new && report.replaced.is_none());
        for group in 0..40 {
            put_group(&mut store, group);
        }
        assert_eq!(store.n_committed(), 0);
        store.commit().unwrap();
        assert_eq!((store.n_committed(), store.state(PageId::kv(0, 39))), (40, PageState::Committed));
        let before = store.disk_bytes();
        drop(store);
        let (mut store, report) = PageStore::open(Arc::clone(&folder), &spec(), &tokens(40)).unwrap();
        assert_eq!((report.n_complete, report.n_damaged, store.n_complete_prefix()), (40, 0, 40));
        assert_eq!(n_intact(&mut store), 40 * N_LAYER as usize);
        assert_eq!(store.disk_bytes(), before);
        let verified = store.verify(|_, _| true).unwrap();
        assert_eq!((verified.n_pages, verified.n_checked, verified.n_bad), (120, 120, 0));
    }
}

#[test]
fn group_is_visible_after_reopening_only_when_every_layer_was_there_at_a_commit() {
    let folder: Arc<dyn Folder> = Arc::new(MemoryFolder::new());
    let (mut store, _) = open_store(&folder, 4);
    put_group(&mut store, 0);
    let page = PageId::kv(0, 1);
    store.put(page, &payload(page, 0, 9000)).unwrap();
    store.commit().unwrap();
    put_group(&mut store, 2);
    drop(store);
    let (mut store, report) = open_store(&folder, 4);
    assert_eq!((report.n_complete, report.n_damaged, store.n_complete_prefix()), (1, 0, 1));
    assert_eq!(n_intact(&mut store), N_LAYER as usize);
    // The prefill resumes where it stopped, at the same offsets.
    for group in 1..4 {
        put_group(&mut store, group);
        store.commit().unwrap();
    }
    assert_eq!(n_intact(&mut store), 4 * N_LAYER as usize);
}

#[test]
fn page_is_written_once() {
    let folder: Arc<dyn Folder> = Arc::new(MemoryFolder::new());
    create_filled(&folder, 2);
    let (mut store, _) = open_store(&folder, 2);
    let page = PageId::kv(1, 1);
    assert!(matches!(store.put(page, &payload(page, 1, 9000)), Err(StoreError::AlreadyWritten { .. })));
    assert!(matches!(store.put(PageId::kv(1, 2), &[0; 9000]), Err(StoreError::OutOfRange { .. })), "no such group");
    assert!(matches!(store.put(PageId::kv(N_LAYER, 1), &[0; 9000]), Err(StoreError::OutOfRange { .. })), "no such layer");
    let activation = PageId { kind: PageKind::Activation, layer: 0, group: 0 };
    assert!(store.put(activation, &[]).is_err(), "this store has no activation pages");
    assert!(matches!(store.put(page, &[0; 8999]), Err(StoreError::WrongSize { .. })));
}

#[test]
fn activation_pages_complete_a_group_in_place_of_keys_and_values() {
    let folder: Arc<dyn Folder> = Arc::new(MemoryFolder::new());
    let mut with = spec();
    with.activation_page_bytes = 5000;
    let (mut store, _) = PageStore::open_or_create(Arc::clone(&folder), &with, &tokens(2)).unwrap();
    for layer in 0..N_LAYER {
        let kind = if layer == 1 { PageKind::Activation } else { PageKind::Kv };
        let page = PageId { kind, layer, group: 1 };
        let len = store.geometry().payload_of(kind);
        store.put(page, &payload(page, 0, len)).unwrap();
    }
    store.commit().unwrap();
    drop(store);
    let (mut store, report) = PageStore::open(folder, &with, &tokens(2)).unwrap();
    assert_eq!((report.n_complete, store.n_complete_prefix(), store.is_group_complete(1)), (1, 0, true));
    let page = PageId { kind: PageKind::Activation, layer: 1, group: 1 };
    assert_eq!(store.get(page).unwrap(), Some(payload(page, 0, 5000)));
    assert!(!store.is_present(PageId::kv(1, 1)));
}

#[test]
fn abstracts_are_stored_in_rows_and_a_corrupt_row_is_not_used() {
    let memory = MemoryFolder::new();
    let folder: Arc<dyn Folder> = Arc::new(memory.clone());
    let mut with = spec();
    with.abstract_bytes = 64;
    let row = |group: u8| vec![group + 1; 64 * N_LAYER as usize];
    let (mut store, _) = PageStore::open_or_create(Arc::clone(&folder), &with, &tokens(3)).unwrap();
    for group in [0, 2] {
        put_group(&mut store, group);
        store.put_abstracts(group, &row(group as u8)).unwrap();
    }
    put_group(&mut store, 1);
    store.commit().unwrap();
    drop(store);
    let (store, _) = PageStore::open(Arc::clone(&folder), &with, &tokens(3)).unwrap();
    let (rows, good) = store.read_abstracts().unwrap();
    assert_eq!((good, &rows[..192], &rows[384..]), (vec![true, false, true], &row(0)[..], &row(2)[..]));
    drop(store);
    let mut bytes = memory.bytes("abstracts").unwrap();
    bytes[400] ^= 1;
    memory.set_bytes("abstracts", bytes);
    let (store, _) = PageStore::open(folder, &with, &tokens(3)).unwrap();
    assert_eq!(store.read_abstracts().unwrap().1, [true, false, false]);
}

#[test]
fn rewind_keeps_only_pages_with_the_same_prefix() {
    let folder: Arc<dyn Folder> = Arc::new(MemoryFolder::new());
    create_filled(&folder, 2);
    let (mut store, _) = open_store(&folder, 2);
    store.append_tokens(&(0..123).collect::<Vec<u32>>());
    assert_eq!(store.n_groups(), 4, "5 + 123 tokens");
    for group in 2..4 {
        put_group(&mut store, group);
    }
    store.commit().unwrap();
    drop(store);
    let (mut store, report) = open_store(&folder, 2);
    assert_eq!((report.n_complete, store.tokens().len()), (4, 2 * 64 + 128));
    assert_eq!(n_intact(&mut store), 12);
    // Another answer replaces the last: the group with other tokens must be recomputed.
    store.rewind(2 * 64 + 70);
    assert_eq!(store.n_groups(), 3);
    store.append_tokens(&[9; 58]);
    assert_eq!((store.n_groups(), store.is_group_complete(2), store.is_group_complete(3)), (4, true, false));
    store.commit().unwrap();
    drop(store);
    let (mut store, report) = open_store(&folder, 2);
    assert_eq!((report.n_complete, report.n_damaged, store.n_groups()), (3, 0, 4));
    assert_eq!(n_intact(&mut store), 9);
    store.rewind(0);
    assert_eq!(store.tokens().len(), 2 * 64 + 5, "the tokens of the document stay");
}

#[test]
fn runs_read_adjacent_pages_at_once_and_stop_at_a_hole() {
    let folder: Arc<dyn Folder> = Arc::new(MemoryFolder::new());
    let (mut store, _) = open_store(&folder, 20);
    for group in (0..20).filter(|g| *g != 5) {
        put_group(&mut store, group);
    }
    let run = store.run_at(PageKind::Kv, 2, 1, 64).unwrap();
    assert_eq!((run.first_group, run.n_pages), (1, 4));
    assert!(store.run_at(PageKind::Kv, 2, 5, 64).is_none());
    let pool = SlabPool::new(Bytes(1 << 20));
    let io = Io::start(&IoConfig::default()).unwrap();
    let slab = pool.take(store.run_bytes(run)).unwrap();
    io.submit(store.begin_read(run, slab, 77, &Cancel::default()).unwrap()).unwrap();
    let done = io.next(std::time::Duration::from_secs(10)).unwrap();
    assert_eq!(done.tag, 77);
    assert!(store.finish_read(run, &done).bad.is_empty());
    let slab = done.buffer.unwrap().into_read().unwrap();
    for (page, at) in run.pages().zip((0..).step_by(store.geometry().slot_of(PageKind::Kv) as usize)) {
        assert_eq!(slab[at..at + 9000], payload(page, 0, 9000)[..], "{page}");
    }
}

#[test]
fn write_back_from_shared_slabs_writes_no_stale_bytes() {
    let memory = MemoryFolder::new();
    let folder: Arc<dyn Folder> = Arc::new(memory.clone());
    let (mut store, _) = open_store(&folder, 1);
    let pool = SlabPool::new(Bytes(1 << 20));
    let io = Io::start(&IoConfig::default()).unwrap();
    let mut slabs = Vec::new();
    for layer in 0..N_LAYER {
        let page = PageId::kv(layer, 0);
        let mut slab = pool.take(store.geometry().slot_of(PageKind::Kv) as usize).unwrap();
        slab.fill(0xEE);
        slab[..9000].copy_from_slice(&payload(page, 0, 9000));
        let slab = Arc::new(slab);
        io.submit(store.begin_write(page, &slab, u64::from(layer), &Cancel::default()).unwrap()).unwrap();
        assert_eq!(store.state(page), PageState::Writing);
        assert!(!store.is_present(page), "not before it is complete");
        // Meanwhile the page stays readable in RAM.
        assert_eq!(slab[..9000], payload(page, 0, 9000)[..]);
        slabs.push(slab);
    }
    for _ in 0..N_LAYER {
        let done = io.next(std::time::Duration::from_secs(10)).unwrap();
        store.finish_write(PageId::kv(done.tag as u32, 0), done.result).unwrap();
    }
    store.commit().unwrap();
    assert_eq!(n_intact(&mut store), N_LAYER as usize);
    assert!(!memory.bytes("kv-0000.arena").unwrap().windows(64).any(|w| w == [0xEE; 64]));
}

#[test]
fn commit_on_another_thread_leaves_later_pages_for_the_next_commit() {
    let folder: Arc<dyn Folder> = Arc::new(MemoryFolder::new());
    let (mut store, _) = open_store(&folder, 3);
    put_group(&mut store, 0);
    let job = store.begin_commit().unwrap().unwrap();
    assert_eq!(job.n_groups(), 1);
    let running = std::thread::spawn(move || job.run());
    put_group(&mut store, 1);
    assert!(store.begin_commit().unwrap().is_none(), "one at a time");
    store.finish_commit(running.join().unwrap()).unwrap();
    assert_eq!((store.n_committed(), store.state(PageId::kv(0, 1))), (1, PageState::Written));
    store.commit().unwrap();
    assert_eq!(store.n_committed(), 2);
    assert!(store.begin_commit().unwrap().is_none(), "nothing new");
}

#[test]
fn cancelled_read_does_not_change_the_state_of_its_pages() {
    let folder: Arc<dyn Folder> = Arc::new(MemoryFolder::new());
    create_filled(&folder, 1);
    let (mut store, _) = open_store(&folder, 1);
    let io = Io::start(&IoConfig::default()).unwrap();
    let cancel = Cancel::default();
    cancel.cancel();
    let run = store.run_at(PageKind::Kv, 0, 0, 1).unwrap();
    let slab = SlabPool::new(Bytes(1 << 20)).take(store.run_bytes(run)).unwrap();
    io.submit(store.begin_read(run, slab, 0, &cancel).unwrap()).unwrap();
    let outcome = store.finish_read(run, &io.next(std::time::Duration::from_secs(10)).unwrap());
    assert_eq!(outcome.bad, [PageId::kv(0, 0)], "its payload must not be used");
    assert!(matches!(outcome.error, Some(StoreError::Cancelled { .. })) && store.is_present(PageId::kv(0, 0)));
}

#[test]
fn tokens_rewound_during_a_commit_are_not_restored_by_it() {
    let folder: Arc<dyn Folder> = Arc::new(MemoryFolder::new());
    create_filled(&folder, 1);
    let (mut store, _) = open_store(&folder, 1);
    store.append_tokens(&[1; 123]);
    (1..3).for_each(|g| put_group(&mut store, g));
    let job = store.begin_commit().unwrap().unwrap();
    store.rewind(64 + 5 + 80);
    store.append_tokens(&[2; 43]);
    put_group(&mut store, 2);
    store.finish_commit(job.run()).unwrap();
    assert_eq!((store.n_committed(), store.state(PageId::kv(0, 2))), (2, PageState::Written));
    store.commit().unwrap();
    drop(store);
    let (mut store, report) = open_store(&folder, 1);
    assert_eq!((report.n_complete, report.n_damaged, store.tokens()[150], n_intact(&mut store)), (3, 0, 2, 9));
}
