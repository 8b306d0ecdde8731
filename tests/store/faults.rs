//! Fault tests: every disk fault, injected below the store and below both I/O backends.

use std::sync::Arc;
use std::time::Duration;

use strata::base::Bytes;
use strata::kv::store::{
    Cancel, Disk, Fault, FaultInjectingFolder, FaultOp, Folder, Io, IoConfig, IoCounts, IoKind, MemoryFolder, PageId, PageKind,
    PageStore, Rule, SlabPool, StoreError,
};

use crate::common::{N_LAYER, create_filled, n_intact, open_store, payload, put_group, spec, tokens};

const N_GROUPS: u32 = 4;
const N_PAGES: usize = (N_GROUPS * N_LAYER) as usize;
const ARENA: &str = "kv-";

fn faulty_memory() -> (FaultInjectingFolder, Arc<dyn Folder>) {
    let inner: Arc<dyn Folder> = Arc::new(MemoryFolder::new());
    create_filled(&inner, N_GROUPS);
    let faulty = FaultInjectingFolder::new(inner);
    (faulty.clone(), Arc::new(faulty))
}

#[test]
fn short_and_interrupted_reads_complete() {
    for fault in [Fault::Short(4096), Fault::Short(1), Fault::Interrupted, Fault::Again] {
        let (faulty, folder) = faulty_memory();
        let times = if matches!(fault, Fault::Short(1)) { 3 } else { 40 };
        for file in ["header", "index", ARENA] {
            faulty.add(Rule { op: FaultOp::Read, file, skip: 0, times, fault });
        }
        let (mut store, report) = open_store(&folder, N_GROUPS);
        assert!(report.replaced.is_none() && report.n_damaged == 0, "{fault:?}: {report:?}");
        assert_eq!(n_intact(&mut store), N_PAGES, "{fault:?}");
        assert!(faulty.n_injected() >= 6, "{fault:?}: {}", faulty.n_injected());
    }
}

#[test]
fn short_and_interrupted_writes_complete() {
    for fault in [Fault::Short(512), Fault::Interrupted, Fault::Again] {
        let faulty = FaultInjectingFolder::new(Arc::new(MemoryFolder::new()));
        faulty.add(Rule { op: FaultOp::Write, file: "", skip: 0, times: 60, fault });
        let folder: Arc<dyn Folder> = Arc::new(faulty.clone());
        create_filled(&folder, N_GROUPS);
        assert_eq!(faulty.n_injected(), 60);
        assert_eq!(n_intact(&mut open_store(&folder, N_GROUPS).0), N_PAGES);
    }
}

#[test]
fn endless_interruption_is_an_error_not_a_hang() {
    let (faulty, folder) = faulty_memory();
    let (mut store, _) = open_store(&folder, N_GROUPS);
    faulty.add(Rule::always(FaultOp::Read, ARENA, Fault::Again));
    assert!(store.get(PageId::kv(0, 0)).is_err());
    assert!(!store.is_present(PageId::kv(0, 0)));
}

#[test]
fn eio_on_a_page_loses_only_that_page_which_can_be_rewritten() {
    let (faulty, folder) = faulty_memory();
    let (mut store, _) = open_store(&folder, N_GROUPS);
    faulty.add(Rule::once(FaultOp::Read, ARENA, 0, Fault::Failed));
    let page = PageId::kv(1, 2);
    let error = store.get(page).unwrap_err();
    assert!(error.to_string().contains("kv-0000.arena"), "{error}");
    assert_eq!((store.is_present(page), n_intact(&mut store)), (false, N_PAGES - 1));
    store.put(page, &payload(page, 0, 9000)).unwrap();
    store.commit().unwrap();
    assert_eq!(n_intact(&mut store), N_PAGES);
}

#[test]
fn eio_while_opening_is_an_error_and_discards_nothing() {
    for file in ["header", "index"] {
        let (faulty, folder) = faulty_memory();
        faulty.add(Rule::once(FaultOp::Read, file, 0, Fault::Failed));
        let error = PageStore::open_or_create(Arc::clone(&folder), &spec(), &tokens(N_GROUPS)).unwrap_err();
        assert!(matches!(error, StoreError::Io { op: "read", .. }), "{error}");
        assert_eq!(n_intact(&mut open_store(&folder, N_GROUPS).0), N_PAGES);
    }
}

#[test]
fn full_disk_during_prefill_keeps_committed_pages_and_resumes_when_space_is_free() {
    for (op, file) in [(FaultOp::Grow, ARENA), (FaultOp::Write, ARENA), (FaultOp::Write, "index")] {
        let faulty = FaultInjectingFolder::new(Arc::new(MemoryFolder::new()));
        let folder: Arc<dyn Folder> = Arc::new(faulty.clone());
        let (mut store, _) = open_store(&folder, 40);
        for group in 0..5 {
            put_group(&mut store, group);
        }
        store.commit().unwrap();
        faulty.add(Rule::always(op, file, Fault::NoSpace));
        let page = PageId::kv(0, 20);
        let error = match store.put(page, &payload(page, 0, 9000)) {
            Err(error) => error,
            Ok(()) => {
                put_rest(&mut store, 20);
                store.commit().unwrap_err()
            }
        };
        assert!(matches!(error, StoreError::NoSpace { .. }) && error.to_string().contains("disk is full"), "{error}");
        assert_eq!(n_intact(&mut store) / 15, 1, "present pages are still readable");
        faulty.clear();
        for layer in (0..N_LAYER).filter(|l| !store.is_present(PageId::kv(*l, 20))).collect::<Vec<_>>() {
            let page = PageId::kv(layer, 20);
            store.put(page, &payload(page, 0, 9000)).unwrap();
        }
        store.commit().unwrap();
        drop(store);
        let (mut store, report) = open_store(&folder, 40);
        assert_eq!((report.n_complete, n_intact(&mut store)), (6, 18), "{op:?} {file}");
    }
}

fn put_rest(store: &mut PageStore, group: u32) {
    for layer in 1..N_LAYER {
        let page = PageId::kv(layer, group);
        store.put(page, &payload(page, 0, 9000)).unwrap();
    }
}

#[test]
fn torn_write_that_reports_success_is_detected_on_read() {
    for fault in [Fault::Torn(512), Fault::Torn(4096), Fault::BitFlip(80_003)] {
        let faulty = FaultInjectingFolder::new(Arc::new(MemoryFolder::new()));
        let folder: Arc<dyn Folder> = Arc::new(faulty.clone());
        faulty.add(Rule::once(FaultOp::Write, ARENA, 4, fault));
        create_filled(&folder, N_GROUPS);
        let (mut store, _) = open_store(&folder, N_GROUPS);
        assert_eq!(n_intact(&mut store), N_PAGES - if fault == Fault::BitFlip(80_003) { 0 } else { 1 }, "{fault:?}");
    }
    // Bit 80_003 is in the padding after the payload; this one is in the payload.
    let faulty = FaultInjectingFolder::new(Arc::new(MemoryFolder::new()));
    let folder: Arc<dyn Folder> = Arc::new(faulty.clone());
    faulty.add(Rule::once(FaultOp::Write, ARENA, 4, Fault::BitFlip(71_999)));
    create_filled(&folder, N_GROUPS);
    assert_eq!(n_intact(&mut open_store(&folder, N_GROUPS).0), N_PAGES - 1);
}

#[test]
fn failed_sync_stops_saving_with_an_error_but_not_reading() {
    for file in [ARENA, "index"] {
        let faulty = FaultInjectingFolder::new(Arc::new(MemoryFolder::new()));
        let folder: Arc<dyn Folder> = Arc::new(faulty.clone());
        let (mut store, _) = open_store(&folder, N_GROUPS);
        put_group(&mut store, 0);
        store.commit().unwrap();
        put_group(&mut store, 1);
        faulty.add(Rule::once(FaultOp::Sync, file, 0, Fault::Failed));
        assert!(store.commit().is_err());
        let error = store.commit().unwrap_err();
        assert!(matches!(error, StoreError::Latched { .. }), "a second sync would report success: {error}");
        assert!(matches!(store.put(PageId::kv(0, 2), &[0; 9000]), Err(StoreError::Latched { .. })));
        assert_eq!(n_intact(&mut store), 2 * N_LAYER as usize);
        drop(store);
        assert!(open_store(&folder, N_GROUPS).1.n_complete >= 1);
    }
}

#[test]
fn permission_denied_is_an_error_and_changes_nothing() {
    for file in ["lock", "header", "index", ARENA] {
        let (faulty, folder) = faulty_memory();
        faulty.add(Rule::once(FaultOp::Open, file, 0, Fault::Denied));
        let error = PageStore::open_or_create(Arc::clone(&folder), &spec(), &tokens(N_GROUPS)).unwrap_err();
        assert!(matches!(error, StoreError::Denied { .. }) && error.to_string().contains("--kv-dir"), "{file}: {error}");
        assert_eq!(n_intact(&mut open_store(&folder, N_GROUPS).0), N_PAGES, "{file}");
    }
}

#[test]
fn deleted_folder_is_detected_and_open_pages_stay_readable() {
    let memory = MemoryFolder::new();
    let folder: Arc<dyn Folder> = Arc::new(memory.clone());
    let (mut store, _) = open_store(&folder, 40);
    put_group(&mut store, 0);
    store.commit().unwrap();
    memory.delete();
    put_group(&mut store, 1);
    let error = store.commit().unwrap_err();
    assert!(matches!(error, StoreError::Gone { .. }) && error.to_string().contains("is gone"), "{error}");
    assert!(matches!(store.commit(), Err(StoreError::Latched { .. })));
    assert_eq!(n_intact(&mut store), 2 * N_LAYER as usize);
}

/// Reads every page through `io`. Returns the intact pages, the missing pages, and the I/O counters.
fn read_all(store: &mut PageStore, io: &Io) -> (usize, usize, IoCounts) {
    let pool = SlabPool::new(Bytes(8 << 20));
    let mut runs = Vec::new();
    for (layer, group) in (0..N_LAYER).flat_map(|l| (0..store.n_groups()).map(move |g| (l, g))) {
        let Some(run) = store.run_at(PageKind::Kv, layer, group, 1) else { continue };
        let slab = pool.take(store.run_bytes(run)).unwrap();
        io.submit(store.begin_read(run, slab, runs.len() as u64, &Cancel::default()).unwrap()).unwrap();
        runs.push(run);
    }
    let (mut right, mut bad) = (0, 0);
    for _ in 0..runs.len() {
        let done = io.next(Duration::from_secs(20)).unwrap();
        let run = runs[done.tag as usize];
        let outcome = store.finish_read(run, &done);
        bad += outcome.bad.len();
        if outcome.bad.is_empty() {
            let slab = done.buffer.unwrap().into_read().unwrap();
            let page = run.pages().next().unwrap();
            assert_eq!(slab[..9000], payload(page, 0, 9000)[..], "{page} was returned with wrong bytes");
            right += 1;
        }
    }
    (right, bad, io.counts())
}

#[test]
fn both_backends_complete_short_reads_retry_interrupted_ones_and_report_other_errors() {
    let dir = tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let inner: Arc<dyn Folder> = Arc::new(Disk::new(dir.path().join("document")));
    create_filled(&inner, N_GROUPS);
    for kind in [IoKind::Uring, IoKind::Threads] {
        let io = Io::start(&IoConfig { force: Some(kind), ..IoConfig::default() }).unwrap();
        if io.info().kind != kind {
            eprintln!("skipped: {kind}: {}", io.info().reason);
            continue;
        }
        let cases = [
            (Fault::Short(4096), 5, 0),
            (Fault::Interrupted, 5, 0),
            (Fault::Again, 30, 0),
            (Fault::Failed, 1, 1),
            (Fault::BitFlip(4321), 2, 2),
            (Fault::Torn(100), 1, 1),
        ];
        for (fault, times, n_bad) in cases {
            let before = io.counts();
            let faulty = FaultInjectingFolder::new(Arc::clone(&inner));
            let folder: Arc<dyn Folder> = Arc::new(faulty.clone());
            let (mut store, _) = open_store(&folder, N_GROUPS);
            faulty.add(Rule { op: FaultOp::Read, file: ARENA, skip: 1, times, fault });
            let (right, bad, counts) = read_all(&mut store, &io);
            assert_eq!((right, bad), (N_PAGES - n_bad, n_bad), "{kind} {fault:?}");
            assert_eq!(faulty.n_injected(), times, "{kind} {fault:?}: the fault must reach this backend");
            if kind == IoKind::Uring {
                let short = counts.n_short - before.n_short;
                let retried = counts.n_retried - before.n_retried;
                match fault {
                    Fault::Short(_) => assert!(short >= 5, "{short}"),
                    Fault::Interrupted | Fault::Again => assert!(retried >= 5, "{retried}"),
                    _ => assert_eq!((short, retried), (0, 0)),
                }
            }
        }
    }
}

#[test]
fn file_truncated_while_open_means_missing_pages_on_both_backends() {
    let dir = tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for kind in [IoKind::Uring, IoKind::Threads] {
        let path = dir.path().join(kind.to_string());
        let folder: Arc<dyn Folder> = Arc::new(Disk::new(&path));
        create_filled(&folder, N_GROUPS);
        let (mut store, _) = open_store(&folder, N_GROUPS);
        let arena = std::fs::OpenOptions::new().write(true).open(path.join("kv-0000.arena")).unwrap();
        arena.set_len(store.geometry().place(PageId::kv(1, 0)).offset + 5000).unwrap();
        let io = Io::start(&IoConfig { force: Some(kind), ..IoConfig::default() }).unwrap();
        let (right, bad, _) = read_all(&mut store, &io);
        assert_eq!((right, bad), (N_GROUPS as usize, N_PAGES - N_GROUPS as usize), "{kind}");
    }
}
