//! Every fault of a disk, as the tiers answer it: computed again, kept in RAM, or refused with a sentence.

use std::sync::Arc;

use strata::base::Bytes;
use strata::kv::lower::{Keep, Lower, Where};
use strata::kv::store::{Fault, FaultOp, Faulty, Folder, Memory, PageId, Rule, Store, StoreError};
use strata::telemetry::FaultKind;

use crate::common::{
    N_LAYER, assert_within, config, lower, memory, pages, payload, put_group, save, spec, store, take_right, tokens,
};

const ARENA: &str = "kv-";

fn faulty(n_saved: u32) -> (Faulty, Arc<dyn Folder>) {
    let inner = memory();
    if n_saved > 0 {
        save(&inner, n_saved);
    }
    let faulty = Faulty::new(inner);
    (faulty.clone(), Arc::new(faulty))
}

/// Takes all pages in order; how many were missing.
#[track_caller]
fn n_missing(lower: &mut Lower, n_groups: u32) -> usize {
    let pages = pages(n_groups);
    lower.plan(&pages, false);
    pages.iter().filter(|p| !take_right(lower, **p)).count()
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
        let mut lower = lower(config(300), &folder, 16);
        faulty.add(Rule { op: FaultOp::Read, file: ARENA, skip: 0, times, fault });
        let missing: Vec<PageId> = {
            let pages = pages(16);
            lower.plan(&pages[..8], false);
            pages[..8].iter().filter(|p| !take_right(&mut lower, **p)).copied().collect()
        };
        let most = if matches!(fault, Fault::Torn(_)) { 8 } else { 1 };
        assert!((1..=most).contains(&missing.len()), "{fault:?}: {missing:?}");
        let said = lower.faults();
        assert!(said.len() == 1 && said[0].kind == kind && said[0].text.contains("computed again"), "{said:?}");
        for page in missing {
            assert_eq!(lower.has(page), Where::Missing);
            lower.put(page, &payload(page, 0), Keep::DiskOnly).unwrap();
        }
        assert!(lower.flush());
        assert_eq!(n_missing(&mut lower, 16), 0);
        lower.close();
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
        let mut lower = lower(config(10), &folder, 20);
        (0..20).for_each(|g| put_group(&mut lower, g, Keep::Ram).unwrap());
        assert!(lower.flush(), "{fault:?}");
        assert_eq!((n_missing(&mut lower, 20), lower.faults()), (0, Vec::new()), "{fault:?}");
        assert!(faulty.n_struck() >= 40, "{fault:?}: {}", faulty.n_struck());
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
        let mut tiers = lower(config(200), &folder, 40);
        (0..10).for_each(|g| put_group(&mut tiers, g, Keep::Ram).unwrap());
        assert!(tiers.flush());
        faulty.add(Rule::always(op, ARENA, fault));
        (10..40).for_each(|g| put_group(&mut tiers, g, Keep::Ram).unwrap());
        assert!(!tiers.flush() && !tiers.is_saving(), "{op:?} {fault:?}");
        let said = tiers.faults();
        assert!(said.len() == 1 && said[0].kind == kind && said[0].text.contains("nothing more is saved"), "{said:?}");
        assert_eq!(tiers.needs_room().is_some(), kind == FaultKind::NoSpace);
        assert_eq!(n_missing(&mut tiers, 40), 0, "{op:?} {fault:?}");
        assert_within(&tiers);
        faulty.clear();
        tiers.resume(Bytes(1 << 40));
        assert!(tiers.flush(), "{:?}", tiers.faults());
        tiers.close();
        let mut tiers = lower(config(20), &folder, 40);
        assert_eq!(n_missing(&mut tiers, 40), 0, "{op:?} {fault:?}");
    }
}

#[test]
fn memory_for_reads_serves_pages_while_the_disk_takes_none_and_reads_again_afterwards() {
    let (faulty, folder) = faulty(20);
    let mut lower = lower(config(100), &folder, 20);
    assert_eq!(n_missing(&mut lower, 20), 0);
    faulty.add(Rule::always(FaultOp::Write, ARENA, Fault::NoSpace));
    lower.append_tokens(&[1; 64 * 40]);
    let n = (20..60).find(|g| put_group(&mut lower, *g, Keep::Ram).is_err()).unwrap();
    assert!((n - 20) * N_LAYER >= 85, "{n} groups in 100 pages of memory");
    assert_within(&lower);
    assert_eq!(n_missing(&mut lower, n), 0, "what is on the disk is still read");
    assert_within(&lower);
    faulty.clear();
    lower.resume(Bytes(1 << 40));
    assert!(lower.flush() || lower.n_unsaved() < N_LAYER as usize, "{:?}", lower.faults());
    for _ in 0..3 {
        assert_eq!(n_missing(&mut lower, n), 0);
        assert_within(&lower);
    }
}

#[test]
fn write_that_fails_once_costs_nothing_when_ram_is_full() {
    let (faulty, folder) = faulty(0);
    faulty.add(Rule::once(FaultOp::Write, ARENA, 20, Fault::Failed));
    let mut lower = lower(config(6), &folder, 40);
    (0..40).for_each(|g| put_group(&mut lower, g, Keep::Ram).unwrap());
    lower.resume(Bytes(1 << 40));
    assert!(lower.flush());
    assert_eq!((n_missing(&mut lower, 40), lower.counts().n_pages_written), (0, 120));
}

#[test]
fn sync_that_failed_ends_saving_for_good_and_nothing_else() {
    for file in [ARENA, "index", "folder"] {
        let (faulty, folder) = faulty(0);
        let mut lower = lower(config(100), &folder, 20);
        faulty.add(Rule::once(FaultOp::Sync, file, 0, Fault::Failed));
        (0..10).for_each(|g| put_group(&mut lower, g, Keep::Ram).unwrap());
        assert!(!lower.flush(), "{file}");
        lower.resume(Bytes(1 << 40));
        (10..20).for_each(|g| put_group(&mut lower, g, Keep::Ram).unwrap());
        assert!(!lower.flush() && !lower.is_saving(), "{file}");
        let said = lower.faults();
        assert!(!said.is_empty() && said.iter().all(|n| n.kind == FaultKind::Write), "{file}: {said:?}");
        assert_eq!(n_missing(&mut lower, 20), 0, "{file}");
        lower.close();
        // What a failed sync left is found right or missing.
        let mut again = crate::common::lower(config(20), &folder, 20);
        n_missing(&mut again, 20);
    }
}

#[test]
fn folder_deleted_while_running_ends_saving_with_a_sentence_and_the_answer_goes_on() {
    let disk = Memory::new();
    let folder: Arc<dyn Folder> = Arc::new(disk.clone());
    let mut lower = lower(config(100), &folder, 30);
    (0..10).for_each(|g| put_group(&mut lower, g, Keep::Ram).unwrap());
    assert!(lower.flush());
    disk.delete();
    (10..30).for_each(|g| put_group(&mut lower, g, Keep::Ram).unwrap());
    assert!(!lower.flush());
    let said = lower.faults();
    assert!(said.len() == 1 && said[0].text.contains("is gone"), "{said:?}");
    assert_eq!(n_missing(&mut lower, 30), 0);
}

#[test]
fn copy_whose_page_on_the_disk_turns_out_damaged_is_written_again() {
    let (faulty, folder) = faulty(8);
    let mut lower = lower(config(100), &folder, 8);
    faulty.add(Rule::once(FaultOp::Read, ARENA, 0, Fault::BitFlip(77)));
    let page = PageId::kv(0, 0);
    lower.plan(&[page], false);
    // The page leaves VRAM while it is being read ahead, so that a copy is here before the damage is known.
    lower.put(page, &payload(page, 0), Keep::Ram).unwrap();
    while lower.has(page) != Where::Ram || lower.counts().n_bad_pages == 0 {
        lower.pump();
    }
    assert!(take_right(&mut lower, page));
    assert!(lower.flush());
    assert_eq!((lower.counts().n_pages_written, lower.n_unsaved()), (1, 0));
    lower.close();
    assert_eq!(store(&folder, 8).n_complete_prefix(), 8);
}

#[test]
fn second_process_or_chat_on_a_store_is_told_who_has_it() {
    let folder = memory();
    let lower = lower(config(10), &folder, 2);
    let error = Store::open_or_create(Arc::clone(&folder), &spec(), &tokens(2)).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }) && error.to_string().contains("is in use by"), "{error}");
    let (store, _) = lower.close();
    assert!(store.is_some());
    drop(store);
    assert!(Store::open_or_create(folder, &spec(), &tokens(2)).is_ok());
}

#[test]
fn run_with_one_bad_page_serves_the_others() {
    let disk = Memory::new();
    let folder: Arc<dyn Folder> = Arc::new(disk.clone());
    save(&folder, 16);
    let place = store(&folder, 16).geometry().place(PageId::kv(1, 7)).offset as usize;
    let mut bytes = disk.bytes("kv-0000.arena").unwrap();
    bytes[place + 77] ^= 4;
    // The file is also cut off in the last layer.
    let end = store(&folder, 16).geometry().place(PageId::kv(2, 12)).offset as usize;
    bytes.truncate(end);
    disk.set_bytes("kv-0000.arena", bytes);
    let mut lower = lower(config(300), &folder, 16);
    assert_eq!(n_missing(&mut lower, 16), 1 + 4);
    assert_eq!(lower.counts().n_bad_pages, 1, "what is past the end was known when the store was opened");
    assert_eq!(u64::from(16 * N_LAYER) - 4, lower.counts().n_pages_read);
}

#[test]
fn group_given_up_is_written_again_whole_though_only_one_page_was_found_damaged() {
    let disk = Memory::new();
    let folder: Arc<dyn Folder> = Arc::new(disk.clone());
    save(&folder, 8);
    let mut bytes = disk.bytes("kv-0000.arena").unwrap();
    for layer in 0..N_LAYER {
        bytes[store(&folder, 8).geometry().place(PageId::kv(layer, 5)).offset as usize] ^= 1;
    }
    disk.set_bytes("kv-0000.arena", bytes);
    let mut lower = lower(config(20), &folder, 8);
    assert!(!take_right(&mut lower, PageId::kv(0, 5)));
    lower.lose_group(5);
    assert!(pages(8).iter().all(|page| (lower.has(*page) == Where::Missing) == (page.group == 5)));
    put_group(&mut lower, 5, Keep::DiskOnly).unwrap();
    assert!(lower.flush());
    assert_eq!((lower.counts().n_pages_written, lower.counts().n_bad_pages), (u64::from(N_LAYER), 1));
    assert_eq!(n_missing(&mut lower, 8), 0);
    lower.close();
    assert_eq!(store(&folder, 8).n_complete_prefix(), 8);
}
