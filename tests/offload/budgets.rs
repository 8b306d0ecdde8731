//! Budget tests: pages that fit, pages that do not, and the errors.

use strata::base::Bytes;
use strata::kv::offload::{DiskBacking, OffloadError, OffloadTiers, PageLocation, Retention};
use strata::kv::store::PageId;
use strata::telemetry::{FaultKind, Hub};

use crate::common::{
    N_LAYER, SLOT_BYTES, assert_within, config, create_filled, fetch_intact, memory, pages, payload, put_group, save, store,
    threads, tiers,
};

#[test]
fn document_far_larger_than_ram_round_trips_under_the_minimum_budget() {
    let folder = memory();
    let mut offload = create_filled(config(3), &folder, 30);
    assert!(pages(30).iter().all(|p| fetch_intact(&mut offload, *p)));
    assert_eq!((offload.counts().n_pages_written, offload.n_unsaved()), (90, 0));
    assert_within(&offload);
    assert_eq!(offload.usage().ram.budget, Bytes(3 * SLOT_BYTES));
}

#[test]
fn ram_budget_below_the_minimum_is_refused_with_numbers() {
    let folder = memory();
    let backing = DiskBacking::Saved(store(&folder, 2).into());
    let error = OffloadTiers::new(config(2), threads(), backing, Hub::new(1).lane("engine")).unwrap_err();
    assert!(error.to_string().contains("at least 36.0 KiB is needed") && error.to_string().contains("--ram-budget"), "{error}");
    let mut other = config(30);
    other.page_bytes = 8000;
    let error = OffloadTiers::new(other, threads(), DiskBacking::Saved(store(&folder, 2).into()), Hub::new(1).lane("engine"))
        .unwrap_err();
    assert!(matches!(error, OffloadError::ShapeMismatch { .. }), "{error}");
}

#[test]
fn full_ram_without_a_disk_refuses_the_next_page_with_all_numbers() {
    let mut offload = OffloadTiers::new(config(9), threads(), DiskBacking::None, Hub::new(1).lane("engine")).unwrap();
    (0..3).for_each(|g| put_group(&mut offload, g, Retention::InRam).unwrap());
    let error = put_group(&mut offload, 3, Retention::InRam).unwrap_err();
    let expected = OffloadError::NoRoom {
        page: PageId::kv(0, 3),
        wanted: Bytes(SLOT_BYTES),
        ram: Bytes(9 * SLOT_BYTES),
        ram_budget: Bytes(9 * SLOT_BYTES),
        disk: Bytes(0),
        disk_budget: Bytes(0),
    };
    assert_eq!(error, expected);
    offload.plan(&pages(3), true);
    assert!(pages(3).iter().all(|p| fetch_intact(&mut offload, *p)));
    offload.truncate(2 * 64);
    assert_eq!(offload.location(PageId::kv(0, 2)), PageLocation::Missing);
    put_group(&mut offload, 2, Retention::InRam).unwrap();
    assert!(!offload.flush(), "there is no disk tier");
    assert!(offload.close().0.is_none());
}

#[test]
fn page_of_another_size_layer_or_kind_is_refused() {
    let mut offload = tiers(config(9), &memory(), 4);
    for (page, len) in [(PageId::kv(0, 0), 8999), (PageId::kv(N_LAYER, 0), 9000)] {
        assert!(matches!(offload.put(page, &vec![0; len], Retention::InRam), Err(OffloadError::WrongPage { .. })));
    }
}

#[test]
fn replicas_of_pages_in_vram_are_dropped_once_written() {
    let folder = memory();
    let mut offload = tiers(config(40), &folder, 8);
    (0..8).for_each(|g| put_group(&mut offload, g, Retention::OnDiskOnly).unwrap());
    assert!(offload.flush());
    assert_eq!(offload.usage().ram.now, Bytes(0));
    assert!(pages(8).iter().all(|p| offload.location(*p) == PageLocation::Disk));
    // A page that leaves VRAM now needs no write.
    put_group(&mut offload, 0, Retention::InRam).unwrap();
    assert_eq!((offload.location(PageId::kv(0, 0)), offload.counts().n_pages_written), (PageLocation::Ram, 24));
    offload.set_retention(PageId::kv(0, 0), Retention::OnDiskOnly);
    assert_eq!(offload.location(PageId::kv(0, 0)), PageLocation::Disk);
}

#[test]
fn full_disk_budget_stops_saving_with_one_notice_until_resumed() {
    let folder = memory();
    let mut tight = config(200);
    // One extent of 16 groups, plus a little.
    tight.disk_budget = Bytes(16 * u64::from(N_LAYER) * SLOT_BYTES + (32 << 10));
    let mut offload = tiers(tight, &folder, 40);
    (0..40).for_each(|g| put_group(&mut offload, g, Retention::InRam).unwrap());
    assert!(!offload.flush() && !offload.is_writing_back());
    assert_eq!(offload.n_unsaved(), 24 * N_LAYER as usize, "unwritten pages stay in RAM");
    let notices = offload.take_notices();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].kind == FaultKind::NoSpace && notices[0].text.contains("--disk-budget"), "{notices:?}");
    assert!(offload.needs_room().unwrap() > Bytes(0));
    assert!(pages(40).iter().all(|p| fetch_intact(&mut offload, *p)));
    assert_within(&offload);
    offload.resume(Bytes(1 << 30));
    assert!(offload.flush() && offload.is_writing_back() && offload.needs_room().is_none());
    assert_eq!((offload.n_unsaved(), offload.counts().n_pages_written), (0, 120));
    offload.close();
    assert_eq!(store(&folder, 40).n_committed(), 40);
}

#[test]
fn full_ram_and_disk_are_an_error_and_lose_no_earlier_page() {
    let folder = memory();
    let mut tight = config(20);
    tight.disk_budget = Bytes(32 << 10);
    let mut offload = tiers(tight, &folder, 40);
    let n = (0..40).find(|g| put_group(&mut offload, *g, Retention::InRam).is_err()).unwrap();
    assert!((5..=6).contains(&n), "{n}");
    let page = PageId::kv(2, 39);
    let error = offload.put(page, &payload(page, 0), Retention::InRam).unwrap_err();
    assert!(error.to_string().contains("--ram-budget or --disk-budget"), "{error}");
    offload.put(page, &payload(page, 0), Retention::OnDiskOnly).unwrap();
    assert_eq!(offload.location(page), PageLocation::Missing, "the caller still has it");
    assert!(pages(n).iter().all(|p| fetch_intact(&mut offload, *p)));
    assert_within(&offload);
}

#[test]
fn chat_tokens_and_their_pages_are_appended_and_truncated_after_the_document() {
    let folder = memory();
    save(&folder, 4);
    let mut offload = tiers(config(10), &folder, 4);
    let page = PageId::kv(1, 5);
    // Pages may be put before their tokens are appended; their writes wait for the tokens.
    offload.put(page, &payload(page, 0), Retention::InRam).unwrap();
    assert_eq!((offload.location(page), offload.counts().n_pages_written), (PageLocation::Ram, 0));
    offload.append_tokens(&[5; 130]);
    (4..6).for_each(|g| put_group(&mut offload, g, Retention::InRam).unwrap());
    assert!(offload.flush());
    offload.truncate(5 * 64 + 3);
    assert_eq!((offload.location(page), offload.location(PageId::kv(1, 4))), (PageLocation::Missing, PageLocation::Ram));
    offload.append_tokens(&[6; 64]);
    offload.put(page, &payload(page, 1), Retention::OnDiskOnly).unwrap();
    for layer in [0, 2] {
        let page = PageId::kv(layer, 5);
        offload.put(page, &payload(page, 1), Retention::OnDiskOnly).unwrap();
    }
    assert!(offload.flush());
    assert!(*offload.fetch(page).unwrap() == *payload(page, 1));
    offload.close();
    let mut offload = tiers(config(10), &folder, 4);
    assert_eq!(offload.store().unwrap().n_tokens(), 5 * 64 + 67);
    assert!(*offload.fetch(page).unwrap() == *payload(page, 1));
    assert!(fetch_intact(&mut offload, PageId::kv(1, 4)));
}

#[test]
fn pinned_pages_stay_in_ram_before_those_of_the_first_groups() {
    let folder = memory();
    drop(create_filled(config(60), &folder, 20).close());
    let mut offload = tiers(config(24), &folder, 20);
    let last: Vec<PageId> = (18..20).flat_map(|g| (0..N_LAYER).map(move |layer| PageId::kv(layer, g))).collect();
    let all = pages(20);
    let request_all = |offload: &mut OffloadTiers| {
        offload.request(&all);
        assert!(all.iter().all(|p| fetch_intact(offload, *p)));
    };
    request_all(&mut offload);
    assert!(last.iter().all(|p| offload.location(*p) != PageLocation::Ram) && offload.location(all[0]) == PageLocation::Ram);
    offload.pin(last.iter().copied().collect());
    request_all(&mut offload);
    assert!(last.iter().all(|p| offload.location(*p) == PageLocation::Ram), "they were fetched again and stay");
    assert_within(&offload);
}
