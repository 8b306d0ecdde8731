//! Every fault of a disk, as the tiers answer it: computed again, kept in RAM, or refused with a sentence.

use std::sync::Arc;

use strata::base::Bytes;
use strata::kv::offload::{OffloadTiers, PageLocation, Retention};
use strata::kv::store::{Fault, FaultInjectingFolder, FaultOp, Folder, MemoryFolder, PageId, PageStore, Rule, StoreError};
use strata::telemetry::FaultKind;

use crate::common::{
    N_LAYER, assert_within, config, memory, pages, payload, put_group, save, spec, store, take_right, tiers, tokens,
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

/// Takes all pages in order; how many were missing.
#[track_caller]
fn n_missing(offload: &mut OffloadTiers, n_groups: u32) -> usize {
    let pages = pages(n_groups);
    offload.plan(&pages, false);
    pages.iter().filter(|p| !take_right(offload, **p)).count()
}

#[test]
fn page_that_is_damaged_or_cannot_be_read_is_missing_alone_and_may_be_put_again() {
    // In the second case the read of a whole run fails, and once more that of its first page alone.
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
            pages[..8].iter().filter(|p| !take_right(&mut offload, **p)).copied().collect()
        };
        let most = if matches!(fault, Fault::Torn(_)) { 8 } else { 1 };
        assert!((1..=most).contains(&missing.len()), "{fault:?}: {missing:?}");
        let said = offload.faults();
        assert!(said.len() == 1 && said[0].kind == kind && said[0].text.contains("computed again"), "{said:?}");
        for page in missing {
            assert_eq!(offload.has(page), PageLocation::Missing);
            offload.put(page, &payload(page, 0), Retention::OnDiskOnly).unwrap();
        }
        assert!(offload.flush());
        assert_eq!(n_missing(&mut offload, 16), 0);
        offload.close();
        assert_eq!(store(&folder, 16).n_complete_prefix(), 16);
    }
}

#[test]
fn transient_faults_of_reads_and_writes_are_not_noticed() {
    for fault in [Fault::Short(4096), Fault::Interrupted, Fault::Again] {
        let (faulty, folder) = faulty(0);
        for op in [FaultOp::Read, FaultOp::Write] {
            faulty.add(Rule { op, file: "", skip: 3, times: 40, fault });
        }
        let mut offload = tiers(config(10), &folder, 20);
        (0..20).for_each(|g| put_group(&mut offload, g, Retention::InRam).unwrap());
        assert!(offload.flush(), "{fault:?}");
        assert_eq!((n_missing(&mut offload, 20), offload.faults()), (0, Vec::new()), "{fault:?}");
        assert!(faulty.n_injected() >= 40, "{fault:?}: {}", faulty.n_injected());
    }
}

#[test]
fn disk_that_fills_or_fails_in_the_middle_keeps_pages_in_ram_and_goes_on_when_it_can() {
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
        let said = offload.faults();
        assert!(said.len() == 1 && said[0].kind == kind && said[0].text.contains("nothing more is saved"), "{said:?}");
        assert_eq!(offload.needs_room().is_some(), kind == FaultKind::NoSpace);
        assert_eq!(n_missing(&mut offload, 40), 0, "{op:?} {fault:?}");
        assert_within(&offload);
        faulty.clear();
        offload.resume(Bytes(1 << 40));
        assert!(offload.flush(), "{:?}", offload.faults());
        offload.close();
        let mut offload = tiers(config(20), &folder, 40);
        assert_eq!(n_missing(&mut offload, 40), 0, "{op:?} {fault:?}");
    }
}

#[test]
fn memory_for_reads_serves_pages_while_the_disk_takes_none_and_reads_again_afterwards() {
    let (faulty, folder) = faulty(20);
    let mut offload = tiers(config(100), &folder, 20);
    assert_eq!(n_missing(&mut offload, 20), 0);
    faulty.add(Rule::always(FaultOp::Write, ARENA, Fault::NoSpace));
    offload.append_tokens(&[1; 64 * 40]);
    let n = (20..60).find(|g| put_group(&mut offload, *g, Retention::InRam).is_err()).unwrap();
    assert!((n - 20) * N_LAYER >= 85, "{n} groups in 100 pages of memory");
    assert_within(&offload);
    assert_eq!(n_missing(&mut offload, n), 0, "what is on the disk is still read");
    assert_within(&offload);
    faulty.clear();
    offload.resume(Bytes(1 << 40));
    assert!(offload.flush() || offload.n_unsaved() < N_LAYER as usize, "{:?}", offload.faults());
    for _ in 0..3 {
        assert_eq!(n_missing(&mut offload, n), 0);
        assert_within(&offload);
    }
}

#[test]
fn write_that_fails_once_costs_nothing_when_ram_is_full() {
    let (faulty, folder) = faulty(0);
    faulty.add(Rule::once(FaultOp::Write, ARENA, 20, Fault::Failed));
    let mut offload = tiers(config(6), &folder, 40);
    (0..40).for_each(|g| put_group(&mut offload, g, Retention::InRam).unwrap());
    offload.resume(Bytes(1 << 40));
    assert!(offload.flush());
    assert_eq!((n_missing(&mut offload, 40), offload.counts().n_pages_written), (0, 120));
}

#[test]
fn sync_that_failed_ends_saving_for_good_and_nothing_else() {
    for file in [ARENA, "index", "folder"] {
        let (faulty, folder) = faulty(0);
        let mut offload = tiers(config(100), &folder, 20);
        faulty.add(Rule::once(FaultOp::Sync, file, 0, Fault::Failed));
        (0..10).for_each(|g| put_group(&mut offload, g, Retention::InRam).unwrap());
        assert!(!offload.flush(), "{file}");
        offload.resume(Bytes(1 << 40));
        (10..20).for_each(|g| put_group(&mut offload, g, Retention::InRam).unwrap());
        assert!(!offload.flush() && !offload.is_writing_back(), "{file}");
        let said = offload.faults();
        assert!(!said.is_empty() && said.iter().all(|n| n.kind == FaultKind::Write), "{file}: {said:?}");
        assert_eq!(n_missing(&mut offload, 20), 0, "{file}");
        offload.close();
        // What a failed sync left is found right or missing.
        let mut again = tiers(config(20), &folder, 20);
        n_missing(&mut again, 20);
    }
}

#[test]
fn folder_deleted_while_running_ends_saving_with_a_sentence_and_the_answer_goes_on() {
    let disk = MemoryFolder::new();
    let folder: Arc<dyn Folder> = Arc::new(disk.clone());
    let mut offload = tiers(config(100), &folder, 30);
    (0..10).for_each(|g| put_group(&mut offload, g, Retention::InRam).unwrap());
    assert!(offload.flush());
    disk.delete();
    (10..30).for_each(|g| put_group(&mut offload, g, Retention::InRam).unwrap());
    assert!(!offload.flush());
    let said = offload.faults();
    assert!(said.len() == 1 && said[0].text.contains("is gone"), "{said:?}");
    assert_eq!(n_missing(&mut offload, 30), 0);
}

#[test]
fn copy_whose_page_on_the_disk_turns_out_damaged_is_written_again() {
    let (faulty, folder) = faulty(8);
    let mut offload = tiers(config(100), &folder, 8);
    faulty.add(Rule::once(FaultOp::Read, ARENA, 0, Fault::BitFlip(77)));
    let page = PageId::kv(0, 0);
    offload.plan(&[page], false);
    // The page leaves VRAM while it is being read ahead, so that a copy is here before the damage is known.
    offload.put(page, &payload(page, 0), Retention::InRam).unwrap();
    while offload.has(page) != PageLocation::Ram || offload.counts().n_bad_pages == 0 {
        offload.poll_completions();
    }
    assert!(take_right(&mut offload, page));
    assert!(offload.flush());
    assert_eq!((offload.counts().n_pages_written, offload.n_unsaved()), (1, 0));
    offload.close();
    assert_eq!(store(&folder, 8).n_complete_prefix(), 8);
}

#[test]
fn second_process_or_chat_on_a_store_is_told_who_has_it() {
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
fn run_with_one_bad_page_serves_the_others() {
    let disk = MemoryFolder::new();
    let folder: Arc<dyn Folder> = Arc::new(disk.clone());
    save(&folder, 16);
    let place = store(&folder, 16).geometry().place(PageId::kv(1, 7)).offset as usize;
    let mut bytes = disk.bytes("kv-0000.arena").unwrap();
    bytes[place + 77] ^= 4;
    // The file is also cut off in the last layer.
    let end = store(&folder, 16).geometry().place(PageId::kv(2, 12)).offset as usize;
    bytes.truncate(end);
    disk.set_bytes("kv-0000.arena", bytes);
    let mut offload = tiers(config(300), &folder, 16);
    assert_eq!(n_missing(&mut offload, 16), 1 + 4);
    assert_eq!(offload.counts().n_bad_pages, 1, "what is past the end was known when the store was opened");
    assert_eq!(u64::from(16 * N_LAYER) - 4, offload.counts().n_pages_read);
}

#[test]
fn group_given_up_is_written_again_whole_though_only_one_page_was_found_damaged() {
    let disk = MemoryFolder::new();
    let folder: Arc<dyn Folder> = Arc::new(disk.clone());
    save(&folder, 8);
    let mut bytes = disk.bytes("kv-0000.arena").unwrap();
    for layer in 0..N_LAYER {
        bytes[store(&folder, 8).geometry().place(PageId::kv(layer, 5)).offset as usize] ^= 1;
    }
    disk.set_bytes("kv-0000.arena", bytes);
    let mut offload = tiers(config(20), &folder, 8);
    assert!(!take_right(&mut offload, PageId::kv(0, 5)));
    offload.invalidate_group(5);
    assert!(pages(8).iter().all(|page| (offload.has(*page) == PageLocation::Missing) == (page.group == 5)));
    put_group(&mut offload, 5, Retention::OnDiskOnly).unwrap();
    assert!(offload.flush());
    assert_eq!((offload.counts().n_pages_written, offload.counts().n_bad_pages), (u64::from(N_LAYER), 1));
    assert_eq!(n_missing(&mut offload, 8), 0);
    offload.close();
    assert_eq!(store(&folder, 8).n_complete_prefix(), 8);
}
