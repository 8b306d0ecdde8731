//! Disk fault tests: the page is recomputed, stays in RAM, or is refused with an error.

use std::sync::Arc;

use strata::base::Bytes;
use strata::kv::offload::{OffloadTiers, PageLocation, Retention};
use strata::kv::store::{Fault, FaultInjectingFolder, FaultOp, Folder, MemoryFolder, PageId, PageStore, Rule, StoreError};
use strata::telemetry::FaultKind;

use crate::common::{
    N_LAYER, assert_within, config, fetch_intact, memory, pages, payload, put_group, save, spec, store, tiers, tokens,
};

const ARENA: &str = "kv-";

fn faulty(n_saved: u32) -> (FaultInjectingFolder, Arc<dyn Folder>) {
    let inner = memory();
    if n_saved > 0 {
        save(&inner, n_saved);
    }
    let faulty = FaultInjectingFolder::new(inner);
    (faulty.clone(), Arc::new(faulty))
}

/// Fetches all pages in order. Returns the number of missing ones.
#[track_caller]
fn n_missing(offload: &mut OffloadTiers, n_groups: u32) -> usize {
    let pages = pages(n_groups);
    offload.plan(&pages, false);
    pages.iter().filter(|p| !fetch_intact(offload, **p)).count()
}

#[test]
fn corrupt_or_unreadable_page_alone_is_missing_and_can_be_put_again() {
    // In the second case the read of a whole run fails, then the single read of its first page.
    for (fault, times, kind) in [
        (Fault::BitFlip(12_345), 1, FaultKind::Checksum),
        (Fault::Failed, 2, FaultKind::Read),
        (Fault::Torn(5000), 1, FaultKind::Checksum),
    ] {
        let (faulty, folder) = faulty(16);
        let mut offload = tiers(config(300), &folder, 16);
        faulty.add(Rule { op: FaultOp::Read, file: ARENA, skip: 0, times, fault });
        let missing: Vec<PageId> = {
            let pages = pages(16);
            offload.plan(&pages[..8], false);
            pages[..8].iter().filter(|p| !fetch_intact(&mut offload, **p)).copied().collect()
        };
        let most = if matches!(fault, Fault::Torn(_)) { 8 } else { 1 };
        assert!((1..=most).contains(&missing.len()), "{fault:?}: {missing:?}");
        let notices = offload.take_notices();
        assert!(notices.len() == 1 && notices[0].kind == kind && notices[0].text.contains("computed again"), "{notices:?}");
        for page in missing {
            assert_eq!(offload.location(page), PageLocation::Missing);
            offload.put(page, &payload(page, 0), Retention::OnDiskOnly).unwrap();
        }
        assert!(offload.flush());
        assert_eq!(n_missing(&mut offload, 16), 0);
        offload.close();
        assert_eq!(store(&folder, 16).n_complete_prefix(), 16);
    }
}

#[test]
fn transient_faults_of_reads_and_writes_cause_no_notice() {
    for fault in [Fault::Short(4096), Fault::Interrupted, Fault::Again] {
        let (faulty, folder) = faulty(0);
        for op in [FaultOp::Read, FaultOp::Write] {
            faulty.add(Rule { op, file: "", skip: 3, times: 40, fault });
        }
        let mut offload = tiers(config(10), &folder, 20);
        (0..20).for_each(|g| put_group(&mut offload, g, Retention::InRam).unwrap());
        assert!(offload.flush(), "{fault:?}");
        assert_eq!((n_missing(&mut offload, 20), offload.take_notices()), (0, Vec::new()), "{fault:?}");
        assert!(faulty.n_injected() >= 40, "{fault:?}: {}", faulty.n_injected());
    }
}

#[test]
fn full_or_failing_disk_leaves_pages_in_ram_and_saving_resumes() {
    for (op, fault, kind) in [
        (FaultOp::Write, Fault::NoSpace, FaultKind::NoSpace),
        (FaultOp::Grow, Fault::NoSpace, FaultKind::NoSpace),
        (FaultOp::Write, Fault::Failed, FaultKind::Write),
        (FaultOp::Write, Fault::Denied, FaultKind::Write),
    ] {
        let (faulty, folder) = faulty(0);
        let mut offload = tiers(config(200), &folder, 40);
        (0..10).for_each(|g| put_group(&mut offload, g, Retention::InRam).unwrap());
        assert!(offload.flush());
        faulty.add(Rule::always(op, ARENA, fault));
        (10..40).for_each(|g| put_group(&mut offload, g, Retention::InRam).unwrap());
        assert!(!offload.flush() && !offload.is_writing_back(), "{op:?} {fault:?}");
        let notices = offload.take_notices();
        assert!(
            notices.len() == 1 && notices[0].kind == kind && notices[0].text.contains("nothing more is saved"),
            "{notices:?}"
        );
        assert_eq!(offload.needs_room().is_some(), kind == FaultKind::NoSpace);
        assert_eq!(n_missing(&mut offload, 40), 0, "{op:?} {fault:?}");
        assert_within(&offload);
        faulty.clear();
        offload.resume(Bytes(1 << 40));
        assert!(offload.flush(), "{:?}", offload.take_notices());
        offload.close();
        let mut offload = tiers(config(20), &folder, 40);
        assert_eq!(n_missing(&mut offload, 40), 0, "{op:?} {fault:?}");
    }
}

#[test]
fn read_ahead_memory_is_lent_to_pages_while_the_disk_is_full() {
    let (faulty, folder) = faulty(20);
    let mut offload = tiers(config(100), &folder, 20);
    assert_eq!(n_missing(&mut offload, 20), 0);
    faulty.add(Rule::always(FaultOp::Write, ARENA, Fault::NoSpace));
    offload.append_tokens(&[1; 64 * 40]);
    let n = (20..60).find(|g| put_group(&mut offload, *g, Retention::InRam).is_err()).unwrap();
    assert!((n - 20) * N_LAYER >= 85, "{n} groups in 100 pages of memory");
    assert_within(&offload);
    assert_eq!(n_missing(&mut offload, n), 0, "pages on disk are still readable");
    assert_within(&offload);
    faulty.clear();
    offload.resume(Bytes(1 << 40));
    assert!(offload.flush() || offload.n_unsaved() < N_LAYER as usize, "{:?}", offload.take_notices());
    for _ in 0..3 {
        assert_eq!(n_missing(&mut offload, n), 0);
        assert_within(&offload);
    }
}

#[test]
fn single_failed_write_loses_no_page_if_ram_is_full() {
    let (faulty, folder) = faulty(0);
    faulty.add(Rule::once(FaultOp::Write, ARENA, 20, Fault::Failed));
    let mut offload = tiers(config(6), &folder, 40);
    (0..40).for_each(|g| put_group(&mut offload, g, Retention::InRam).unwrap());
    offload.resume(Bytes(1 << 40));
    assert!(offload.flush());
    assert_eq!((n_missing(&mut offload, 40), offload.counts().n_pages_written), (0, 120));
}

#[test]
fn failed_sync_stops_saving_permanently_but_not_reading() {
    for file in [ARENA, "index", "folder"] {
        let (faulty, folder) = faulty(0);
        let mut offload = tiers(config(100), &folder, 20);
        faulty.add(Rule::once(FaultOp::Sync, file, 0, Fault::Failed));
        (0..10).for_each(|g| put_group(&mut offload, g, Retention::InRam).unwrap());
        assert!(!offload.flush(), "{file}");
        offload.resume(Bytes(1 << 40));
        (10..20).for_each(|g| put_group(&mut offload, g, Retention::InRam).unwrap());
        assert!(!offload.flush() && !offload.is_writing_back(), "{file}");
        let notices = offload.take_notices();
        assert!(!notices.is_empty() && notices.iter().all(|n| n.kind == FaultKind::Write), "{file}: {notices:?}");
        assert_eq!(n_missing(&mut offload, 20), 0, "{file}");
        offload.close();
        // After a failed sync, every page is correct or missing.
        let mut again = tiers(config(20), &folder, 20);
        n_missing(&mut again, 20);
    }
}

#[test]
fn folder_deleted_while_in_use_stops_saving_with_a_notice() {
    let disk = MemoryFolder::new();
    let folder: Arc<dyn Folder> = Arc::new(disk.clone());
    let mut offload = tiers(config(100), &folder, 30);
    (0..10).for_each(|g| put_group(&mut offload, g, Retention::InRam).unwrap());
    assert!(offload.flush());
    disk.delete();
    (10..30).for_each(|g| put_group(&mut offload, g, Retention::InRam).unwrap());
    assert!(!offload.flush());
    let notices = offload.take_notices();
    assert!(notices.len() == 1 && notices[0].text.contains("is gone"), "{notices:?}");
    assert_eq!(n_missing(&mut offload, 30), 0);
}

#[test]
fn cached_copy_of_a_page_that_is_corrupt_on_disk_is_written_again() {
    let (faulty, folder) = faulty(8);
    let mut offload = tiers(config(100), &folder, 8);
    faulty.add(Rule::once(FaultOp::Read, ARENA, 0, Fault::BitFlip(77)));
    let page = PageId::kv(0, 0);
    offload.plan(&[page], false);
    // The page leaves VRAM while it is being read ahead, so RAM has a copy before the corruption is detected.
    offload.put(page, &payload(page, 0), Retention::InRam).unwrap();
    while offload.location(page) != PageLocation::Ram || offload.counts().n_bad_pages == 0 {
        offload.poll_completions();
    }
    assert!(fetch_intact(&mut offload, page));
    assert!(offload.flush());
    assert_eq!((offload.counts().n_pages_written, offload.n_unsaved()), (1, 0));
    offload.close();
    assert_eq!(store(&folder, 8).n_complete_prefix(), 8);
}

#[test]
fn second_owner_of_a_store_gets_an_error_with_the_first() {
    let folder = memory();
    let offload = tiers(config(10), &folder, 2);
    let error = PageStore::open_or_create(Arc::clone(&folder), &spec(), &tokens(2)).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }) && error.to_string().contains("is in use by"), "{error}");
    let (store, _) = offload.close();
    assert!(store.is_some());
    drop(store);
    assert!(PageStore::open_or_create(folder, &spec(), &tokens(2)).is_ok());
}

#[test]
fn run_with_one_bad_page_returns_the_others() {
    let disk = MemoryFolder::new();
    let folder: Arc<dyn Folder> = Arc::new(disk.clone());
    save(&folder, 16);
    let place = store(&folder, 16).geometry().place(PageId::kv(1, 7)).offset as usize;
    let mut bytes = disk.bytes("kv-0000.arena").unwrap();
    bytes[place + 77] ^= 4;
    // The file is also truncated in the last layer.
    let end = store(&folder, 16).geometry().place(PageId::kv(2, 12)).offset as usize;
    bytes.truncate(end);
    disk.set_bytes("kv-0000.arena", bytes);
    let mut offload = tiers(config(300), &folder, 16);
    assert_eq!(n_missing(&mut offload, 16), 1 + 4);
    assert_eq!(offload.counts().n_bad_pages, 1, "pages past the end were known to be missing on opening");
    assert_eq!(u64::from(16 * N_LAYER) - 4, offload.counts().n_pages_read);
}

#[test]
fn invalidated_group_is_written_again_as_a_whole() {
    let disk = MemoryFolder::new();
    let folder: Arc<dyn Folder> = Arc::new(disk.clone());
    save(&folder, 8);
    let mut bytes = disk.bytes("kv-0000.arena").unwrap();
    for layer in 0..N_LAYER {
        bytes[store(&folder, 8).geometry().place(PageId::kv(layer, 5)).offset as usize] ^= 1;
    }
    disk.set_bytes("kv-0000.arena", bytes);
    let mut offload = tiers(config(20), &folder, 8);
    assert!(!fetch_intact(&mut offload, PageId::kv(0, 5)));
    offload.invalidate_group(5);
    assert!(pages(8).iter().all(|page| (offload.location(*page) == PageLocation::Missing) == (page.group == 5)));
    put_group(&mut offload, 5, Retention::OnDiskOnly).unwrap();
    assert!(offload.flush());
    assert_eq!((offload.counts().n_pages_written, offload.counts().n_bad_pages), (u64::from(N_LAYER), 1));
    assert_eq!(n_missing(&mut offload, 8), 0);
    offload.close();
    assert_eq!(store(&folder, 8).n_complete_prefix(), 8);
}
