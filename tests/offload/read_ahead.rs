//! Read-ahead tests: order, read sizes, statistics, cached copies.

use strata::kv::offload::{DiskBacking, OffloadError, OffloadTiers, PageLocation, Retention};
use strata::kv::store::{Disk, Folder, Io, IoConfig, IoKind, PageId};
use strata::telemetry::{Cause, EventKind, Hub, Link, WaitCause};

use crate::common::{
    N_LAYER, PAGE_BYTES, SLOT_BYTES, assert_within, config, create_filled, fetch_intact, memory, pages, payload, save, store,
    threads, tiers,
};

#[test]
fn cyclic_plan_over_ten_times_the_ram_is_read_in_order_in_every_lap() {
    let folder = memory();
    save(&folder, 40);
    let mut offload = tiers(config(12), &folder, 40);
    let pages = pages(40);
    offload.plan(&pages, true);
    for lap in 0..4 {
        for page in &pages {
            assert!(fetch_intact(&mut offload, *page), "lap {lap}: {page}");
        }
        assert_within(&offload);
    }
    let counts = offload.counts();
    assert_eq!(counts.n_fetched_at_once + counts.n_fetched_after_wait, 4 * 120);
    // Each lap reads every page once, except for the cached copies and the read-ahead of the fifth lap.
    assert_eq!(counts.disk_to_ram, counts.n_pages_read * SLOT_BYTES);
    assert!(counts.n_pages_read < 4 * 120, "copies are not read again: {counts:?}");
    assert_eq!(offload.moved_bytes().disk_to_ram, counts.disk_to_ram);
}

#[test]
fn cached_copies_are_those_of_the_first_groups() {
    for is_opened in [false, true] {
        let folder = memory();
        let mut offload = if is_opened {
            save(&folder, 20);
            tiers(config(80), &folder, 20)
        } else {
            create_filled(config(80), &folder, 20)
        };
        let pages = pages(20);
        offload.plan(&pages, true);
        for _ in 0..2 {
            assert!(pages.iter().all(|p| fetch_intact(&mut offload, *p)));
        }
        offload.plan(&[], true);
        let cached: Vec<PageId> = pages.iter().filter(|p| offload.location(**p) == PageLocation::Ram).copied().collect();
        let last = cached.iter().map(|p| p.group).max().unwrap();
        assert!(cached.len() >= 20, "{} copies in 80 slots", cached.len());
        assert!(cached.len() > (N_LAYER * last) as usize, "the first groups, all layers: {cached:?}");
    }
}

#[test]
fn pages_are_read_only_when_fetched_if_read_ahead_is_off() {
    let folder = memory();
    save(&folder, 10);
    let mut without = config(30);
    without.read_ahead = false;
    let mut offload = tiers(without, &folder, 10);
    let pages = pages(10);
    offload.plan(&pages, true);
    offload.poll_completions();
    assert_eq!(offload.counts().n_reads + offload.usage().ram.now.0, 0);
    assert!(fetch_intact(&mut offload, pages[0]));
    assert_eq!((offload.counts().n_pages_read, offload.location(pages[1])), (1, PageLocation::Disk));
    // A requested layer is read as a whole.
    offload.request(&pages[10..15]);
    assert!(pages[10..15].iter().all(|p| matches!(offload.location(*p), PageLocation::InFlight | PageLocation::Ram)));
    assert!(pages[10..15].iter().all(|p| fetch_intact(&mut offload, *p)));
    assert_eq!(offload.counts().n_pages_read, 6);
}

#[test]
fn adjacent_pages_of_a_layer_are_one_read() {
    let folder = memory();
    save(&folder, 32);
    let mut offload = tiers(config(2400), &folder, 32);
    let pages = pages(32);
    offload.plan(&pages, false);
    assert!(pages.iter().all(|p| fetch_intact(&mut offload, *p)));
    let counts = offload.counts();
    assert_eq!((counts.n_pages_read, counts.n_reads), (96, 6), "16 pages of 12 KiB in a read");
}

#[test]
fn pages_out_of_order_or_in_use_by_the_caller_never_deadlock() {
    let folder = memory();
    save(&folder, 20);
    let mut offload = tiers(config(3), &folder, 20);
    let pages = pages(20);
    offload.plan(&pages, false);
    for i in [30, 2, 59, 31, 0, 0] {
        assert!(fetch_intact(&mut offload, pages[i]), "{i}");
    }
    let returned: Vec<_> = [7, 8].iter().map(|i| offload.fetch(pages[*i]).unwrap()).collect();
    assert_eq!(offload.fetch(pages[9]).unwrap_err(), OffloadError::BuffersInUse(pages[9]));
    assert!(*returned[0] == *payload(pages[7], 0), "a returned page does not change");
    drop(returned);
    assert!(fetch_intact(&mut offload, pages[9]));
    assert!(!fetch_intact(&mut offload, PageId::kv(0, 999)));
    assert!(!fetch_intact(&mut offload, PageId::kv(N_LAYER, 0)));
    assert_within(&offload);
}

#[test]
fn recorded_transfers_equal_the_statistics() {
    let folder = memory();
    let hub = Hub::new(10_000);
    let mut offload =
        OffloadTiers::new(config(20), threads(), DiskBacking::Saved(store(&folder, 20).into()), hub.lane("engine")).unwrap();
    for page in (0..20).flat_map(|g| (0..N_LAYER).map(move |l| PageId::kv(l, g))) {
        offload.put(page, &payload(page, 0), Retention::InRam).unwrap();
    }
    assert!(offload.flush());
    let pages = pages(20);
    offload.plan(&pages, true);
    assert!(pages.iter().all(|p| fetch_intact(&mut offload, *p)));
    assert_eq!(offload.counts().ram_to_disk, 60 * SLOT_BYTES, "every page is written once");
    let (counts, recorded) = (offload.counts(), hub.counters());
    for (link, bytes, n_pages) in [
        (Link::DiskToRam, counts.disk_to_ram, counts.n_pages_read),
        (Link::RamToDisk, counts.ram_to_disk, counts.n_pages_written),
    ] {
        assert_eq!((recorded.link(link).bytes, recorded.link(link).n_pages), (bytes, n_pages), "{link:?}");
    }
    for cause in WaitCause::ALL {
        assert_eq!(recorded.wait(cause).n_waits, counts.wait(cause).n_waits, "{cause:?}");
    }
    let moves = hub.snapshot().lanes[0].events.clone();
    assert!(moves.iter().any(|e| matches!(e.kind, EventKind::PageMove { cause: Cause::Prefetch, .. })));
    assert!(counts.reading > std::time::Duration::ZERO);
}

#[test]
fn waits_for_a_bandwidth_limit_are_attributed_to_it() {
    let folder = memory();
    save(&folder, 4);
    let mut slow = config(30);
    slow.nvme_limit = Some(1 << 20);
    let mut offload = tiers(slow, &folder, 4);
    let pages = pages(4);
    let began = std::time::Instant::now();
    offload.plan(&pages, false);
    assert!(pages.iter().all(|p| fetch_intact(&mut offload, *p)));
    let least = 12 * SLOT_BYTES * 1000 / (1 << 20);
    assert!(began.elapsed().as_millis() as u64 >= least, "{:?} for {least} ms of bytes", began.elapsed());
    let counts = offload.counts();
    assert!(counts.wait(WaitCause::LinkLimit).n_waits > 0 && counts.reading.as_millis() as u64 >= least, "{counts:?}");
}

#[test]
fn real_files_work_with_both_backends_and_without_registered_memory() {
    let dir = tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder: std::sync::Arc<dyn Folder> = std::sync::Arc::new(Disk::new(dir.path().join("document")));
    save(&folder, 40);
    for (kind, register_buffers) in [(IoKind::Uring, true), (IoKind::Uring, false), (IoKind::Threads, false)] {
        let io = Io::start(&IoConfig { force: Some(kind), register_buffers, ..IoConfig::default() }).unwrap();
        if io.info().kind != kind {
            eprintln!("skipped: {kind}: {}", io.info().reason);
            continue;
        }
        let backing = DiskBacking::Saved(store(&folder, 40).into());
        let mut offload = OffloadTiers::new(config(20), io, backing, Hub::new(1).lane("engine")).unwrap();
        let pages = pages(40);
        offload.plan(&pages, true);
        for _ in 0..3 {
            assert!(pages.iter().all(|p| fetch_intact(&mut offload, *p)), "{kind}");
        }
        assert_within(&offload);
        assert_eq!(offload.fetch(pages[0]).unwrap().len() as u64, PAGE_BYTES);
    }
}
