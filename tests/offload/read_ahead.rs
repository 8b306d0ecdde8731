//! Reading ahead: in which order, how much at once, what is counted, what stays in RAM.

use strata::kv::offload::{DiskBacking, OffloadError, OffloadTiers, PageLocation, Retention};
use strata::kv::store::{Disk, Folder, Io, IoConfig, IoKind, PageId};
use strata::telemetry::{Cause, EventKind, Hub, Link, WaitCause};

use crate::common::{
    N_LAYER, PAGE_BYTES, SLOT_BYTES, assert_within, config, filled, memory, pages, payload, save, store, take_right, threads,
    tiers,
};

#[test]
fn cyclic_plan_over_ten_times_the_ram_is_read_in_order_and_right_every_time() {
    let folder = memory();
    save(&folder, 40);
    let mut offload = tiers(config(12), &folder, 40);
    let pages = pages(40);
    offload.plan(&pages, true);
    for lap in 0..4 {
        for page in &pages {
            assert!(take_right(&mut offload, *page), "lap {lap}: {page}");
        }
        assert_within(&offload);
    }
    let counts = offload.counts();
    assert_eq!(counts.n_taken_at_once + counts.n_taken_late, 4 * 120);
    // Every page is read once a lap, but for the copies, and for what was read ahead of the fifth lap.
    assert_eq!(counts.disk_to_ram, counts.n_pages_read * SLOT_BYTES);
    assert!(counts.n_pages_read < 4 * 120, "copies are not read again: {counts:?}");
    assert_eq!(offload.moved_bytes().disk_to_ram, counts.disk_to_ram);
}

#[test]
fn copies_that_stay_are_those_of_the_first_groups_and_spare_their_reads() {
    for is_opened in [false, true] {
        let folder = memory();
        let mut offload = if is_opened {
            save(&folder, 20);
            tiers(config(80), &folder, 20)
        } else {
            filled(config(80), &folder, 20)
        };
        let pages = pages(20);
        offload.plan(&pages, true);
        for _ in 0..2 {
            assert!(pages.iter().all(|p| take_right(&mut offload, *p)));
        }
        offload.plan(&[], true);
        let held: Vec<PageId> = pages.iter().filter(|p| offload.has(**p) == PageLocation::Ram).copied().collect();
        let last = held.iter().map(|p| p.group).max().unwrap();
        assert!(held.len() >= 20, "{} copies in 80 slots", held.len());
        assert!(held.len() > (N_LAYER * last) as usize, "the first groups, all layers: {held:?}");
    }
}

#[test]
fn nothing_is_read_before_it_is_asked_for_where_reading_ahead_is_off() {
    let folder = memory();
    save(&folder, 10);
    let mut without = config(30);
    without.read_ahead = false;
    let mut offload = tiers(without, &folder, 10);
    let pages = pages(10);
    offload.plan(&pages, true);
    offload.poll_completions();
    assert_eq!(offload.counts().n_reads + offload.usage().ram.now.0, 0);
    assert!(take_right(&mut offload, pages[0]));
    assert_eq!((offload.counts().n_pages_read, offload.has(pages[1])), (1, PageLocation::Disk));
    // A layer asked for as a whole is on its way as a whole.
    offload.request(&pages[10..15]);
    assert!(pages[10..15].iter().all(|p| matches!(offload.has(*p), PageLocation::OnItsWay | PageLocation::Ram)));
    assert!(pages[10..15].iter().all(|p| take_right(&mut offload, *p)));
    assert_eq!(offload.counts().n_pages_read, 6);
}

#[test]
fn neighboring_pages_of_a_layer_come_in_one_read() {
    let folder = memory();
    save(&folder, 32);
    let mut offload = tiers(config(2400), &folder, 32);
    let pages = pages(32);
    offload.plan(&pages, false);
    assert!(pages.iter().all(|p| take_right(&mut offload, *p)));
    let counts = offload.counts();
    assert_eq!((counts.n_pages_read, counts.n_reads), (96, 6), "16 pages of 12 KiB in a read");
}

#[test]
fn pages_out_of_turn_and_held_by_the_caller_are_served_or_refused_never_waited_for_in_vain() {
    let folder = memory();
    save(&folder, 20);
    let mut offload = tiers(config(3), &folder, 20);
    let pages = pages(20);
    offload.plan(&pages, false);
    for i in [30, 2, 59, 31, 0, 0] {
        assert!(take_right(&mut offload, pages[i]), "{i}");
    }
    let held: Vec<_> = [7, 8].iter().map(|i| offload.take(pages[*i]).unwrap()).collect();
    assert_eq!(offload.take(pages[9]).unwrap_err(), OffloadError::Held(pages[9]));
    assert!(*held[0] == *payload(pages[7], 0), "and what is held stays what it is");
    drop(held);
    assert!(take_right(&mut offload, pages[9]));
    assert!(!take_right(&mut offload, PageId::kv(0, 999)));
    assert!(!take_right(&mut offload, PageId::kv(N_LAYER, 0)));
    assert_within(&offload);
}

#[test]
fn movements_are_recorded_as_they_are_counted() {
    let folder = memory();
    let hub = Hub::new(10_000);
    let mut offload =
        OffloadTiers::new(config(20), threads(), DiskBacking::Saved(store(&folder, 20)), hub.lane("engine")).unwrap();
    for page in (0..20).flat_map(|g| (0..N_LAYER).map(move |l| PageId::kv(l, g))) {
        offload.put(page, &payload(page, 0), Retention::InRam).unwrap();
    }
    assert!(offload.flush());
    let pages = pages(20);
    offload.plan(&pages, true);
    assert!(pages.iter().all(|p| take_right(&mut offload, *p)));
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
fn slow_link_is_waited_for_and_said_to_be_the_cause() {
    let folder = memory();
    save(&folder, 4);
    let mut slow = config(30);
    slow.nvme_limit = Some(1 << 20);
    let mut offload = tiers(slow, &folder, 4);
    let pages = pages(4);
    let began = std::time::Instant::now();
    offload.plan(&pages, false);
    assert!(pages.iter().all(|p| take_right(&mut offload, *p)));
    let least = 12 * SLOT_BYTES * 1000 / (1 << 20);
    assert!(began.elapsed().as_millis() as u64 >= least, "{:?} for {least} ms of bytes", began.elapsed());
    let counts = offload.counts();
    assert!(counts.wait(WaitCause::LinkLimit).n_waits > 0 && counts.reading.as_millis() as u64 >= least, "{counts:?}");
}

#[test]
fn real_files_are_read_alike_by_both_backends_and_where_no_memory_can_be_registered() {
    let dir = tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder: std::sync::Arc<dyn Folder> = std::sync::Arc::new(Disk::new(dir.path().join("document")));
    save(&folder, 40);
    for (kind, register_buffers) in [(IoKind::Uring, true), (IoKind::Uring, false), (IoKind::Threads, false)] {
        let io = Io::start(&IoConfig { force: Some(kind), register_buffers, ..IoConfig::default() }).unwrap();
        if io.info().kind != kind {
            eprintln!("skipped: {kind}: {}", io.info().reason);
            continue;
        }
        let backing = DiskBacking::Saved(store(&folder, 40));
        let mut offload = OffloadTiers::new(config(20), io, backing, Hub::new(1).lane("engine")).unwrap();
        let pages = pages(40);
        offload.plan(&pages, true);
        for _ in 0..3 {
            assert!(pages.iter().all(|p| take_right(&mut offload, *p)), "{kind}");
        }
        assert_within(&offload);
        assert_eq!(offload.take(pages[0]).unwrap().len() as u64, PAGE_BYTES);
    }
}
