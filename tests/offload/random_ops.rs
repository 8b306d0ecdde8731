//! Random operations compared with a map, on disks that work, fail on writes, or fail on reads.

use std::collections::HashMap;
use std::sync::Arc;

use strata::base::{Bytes, Rng};
use strata::kv::offload::{OffloadConfig, OffloadError, OffloadTiers, PageLocation, Retention};
use strata::kv::store::{Fault, FaultInjectingFolder, FaultOp, Folder, MemoryFolder, PageId, Rule};

use crate::common::{N_LAYER, assert_within, config, payload, tiers};

const N_DOCUMENT: u32 = 6;
const MAX_GROUPS: u32 = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disk {
    Works,
    /// some writes, extensions and syncs fail
    WritesFail,
    /// some reads and writes fail or are corrupt
    ReadsFail,
}

struct History {
    rng: Rng,
    disk: Disk,
    faulty: FaultInjectingFolder,
    folder: Arc<dyn Folder>,
    config: OffloadConfig,
    tiers: OffloadTiers,
    /// pages put and not truncated: their version, and their retention
    model: HashMap<PageId, (u32, Retention)>,
    n_tokens: usize,
    n_fetched: usize,
    n_missing: usize,
}

impl History {
    fn new(seed: u64, disk: Disk) -> Self {
        let mut rng = Rng::new(seed);
        let faulty = FaultInjectingFolder::new(Arc::new(MemoryFolder::new()));
        let folder: Arc<dyn Folder> = Arc::new(faulty.clone());
        let mut config = config(u64::from(3 + rng.uniform(30)));
        config.read_ahead = rng.uniform(4) > 0;
        if disk == Disk::WritesFail && rng.uniform(2) == 0 {
            config.disk_budget = Bytes(u64::from(20 + rng.uniform(1200)) << 10);
        }
        let offload = tiers(config.clone(), &folder, N_DOCUMENT);
        let n_tokens = N_DOCUMENT as usize * 64;
        History { rng, disk, faulty, folder, config, tiers: offload, model: HashMap::new(), n_tokens, n_fetched: 0, n_missing: 0 }
    }

    fn n_groups(&self) -> u32 {
        (self.n_tokens / 64) as u32
    }

    fn put(&mut self, page: PageId, retention: Retention) {
        let version = self.model.get(&page).map_or(self.rng.next_u32() % 1000, |(version, _)| *version);
        match self.tiers.put(page, &payload(page, version), retention) {
            Ok(()) => drop(self.model.insert(page, (version, retention))),
            Err(OffloadError::NoRoom { .. }) => {
                assert!(self.disk != Disk::Works && !self.tiers.is_writing_back(), "there was room for {page}");
                assert!(retention == Retention::InRam);
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Fetches a page. A missing page must be allowed to be missing, and is put again.
    fn fetch(&mut self, page: PageId) {
        match (self.tiers.fetch(page), self.model.get(&page)) {
            (Ok(bytes), Some((version, _))) => {
                assert!(*bytes == *payload(page, *version), "{page} was returned with wrong bytes");
                self.n_fetched += 1;
            }
            (Ok(_), None) => panic!("{page} was never put"),
            (Err(OffloadError::Missing(_)), known) => {
                let may_be = known.is_none_or(|(_, retention)| match self.disk {
                    Disk::Works => false,
                    Disk::WritesFail => *retention == Retention::OnDiskOnly,
                    Disk::ReadsFail => true,
                });
                assert!(may_be, "{page} is lost");
                assert_eq!(self.tiers.location(page), PageLocation::Missing);
                self.n_missing += 1;
                if let Some((_, retention)) = self.model.remove(&page) {
                    self.put(page, retention);
                }
            }
            (Err(error), _) => panic!("{error}"),
        }
    }

    fn put_group(&mut self) {
        let group = (0..self.n_groups()).find(|g| (0..N_LAYER).any(|l| !self.model.contains_key(&PageId::kv(l, *g))));
        let retention = if self.rng.uniform(3) == 0 { Retention::OnDiskOnly } else { Retention::InRam };
        for layer in 0..if self.rng.uniform(8) == 0 { 1 } else { N_LAYER } {
            self.put(PageId::kv(layer, group.unwrap_or(0)), retention);
        }
    }

    /// Some laps over all pages in the order of attention, with a few out of order.
    fn attend(&mut self) {
        let n = self.n_groups();
        let pages: Vec<PageId> = (0..N_LAYER).flat_map(|l| (0..n).map(move |g| PageId::kv(l, g))).collect();
        let is_cyclic = self.rng.uniform(2) == 0;
        if self.rng.uniform(4) == 0 {
            self.tiers.request(&pages)
        } else {
            self.tiers.plan(&pages, is_cyclic)
        }
        for _ in 0..1 + self.rng.uniform(2) {
            for page in &pages {
                match self.rng.uniform(20) {
                    0 => {}
                    1 => {
                        let i = self.rng.uniform(pages.len() as u32) as usize;
                        self.fetch(pages[i]);
                    }
                    _ => self.fetch(*page),
                }
            }
            assert_within(&self.tiers);
        }
    }

    fn append_tokens(&mut self) {
        if self.n_groups() < MAX_GROUPS {
            let ids: Vec<u32> = (0..30 + self.rng.uniform(200)).map(|_| self.rng.next_u32()).collect();
            self.tiers.append_tokens(&ids);
            self.n_tokens += ids.len();
        }
    }

    fn truncate(&mut self) {
        let least = N_DOCUMENT as usize * 64;
        self.n_tokens = least + self.rng.uniform((self.n_tokens - least + 1) as u32) as usize;
        self.tiers.truncate(self.n_tokens);
        let n = self.n_groups();
        self.model.retain(|p, _| p.group < n);
    }

    fn inject_fault(&mut self) {
        if self.disk == Disk::Works {
            return;
        }
        let skip = u64::from(self.rng.uniform(20));
        let times = 1 + u64::from(self.rng.uniform(6));
        let add = |op, file, fault| self.faulty.add(Rule { op, file, skip, times, fault });
        match self.rng.uniform(if self.disk == Disk::ReadsFail { 9 } else { 5 }) {
            0 => add(FaultOp::Write, "kv-", Fault::Failed),
            1 => add(FaultOp::Write, "", Fault::NoSpace),
            2 => add(FaultOp::Grow, "kv-", Fault::NoSpace),
            3 => add(FaultOp::Write, "", Fault::Short(100)),
            4 => add(FaultOp::Sync, "", Fault::Failed),
            5 => add(FaultOp::Read, "kv-", Fault::Failed),
            6 => add(FaultOp::Read, "kv-", Fault::BitFlip(5555)),
            7 => add(FaultOp::Write, "kv-", Fault::Torn(4096)),
            _ => add(FaultOp::Read, "kv-", Fault::Short(4096)),
        }
    }

    fn repair(&mut self) {
        self.faulty.clear();
        self.tiers.resume(self.config.disk_budget);
    }

    fn reopen(self) -> Self {
        let History { rng, disk, faulty, folder, config, tiers: old, model, n_tokens, n_fetched, n_missing } = self;
        faulty.clear();
        let mut old = old;
        old.resume(config.disk_budget);
        let is_durable = old.flush();
        assert!(is_durable || disk != Disk::Works);
        old.close();
        let offload = tiers(config.clone(), &folder, N_DOCUMENT);
        let whole = |g: u32| (0..N_LAYER).all(|l| model.contains_key(&PageId::kv(l, g)));
        let on_disk = model.iter().filter(|(p, _)| offload.location(**p) == PageLocation::Disk).map(|(p, v)| (*p, *v)).collect();
        if disk == Disk::Works {
            assert!(
                model.keys().filter(|p| whole(p.group)).all(|p| offload.location(*p) == PageLocation::Disk),
                "a saved group is missing"
            );
        }
        let n_known = offload.store().unwrap().n_tokens();
        assert!(n_known == n_tokens || !is_durable, "{n_known} of {n_tokens} tokens");
        History { rng, disk, faulty, folder, config, tiers: offload, model: on_disk, n_tokens: n_known, n_fetched, n_missing }
    }

    fn run(mut self) -> (usize, usize) {
        for _ in 0..40 {
            match self.rng.uniform(14) {
                0..5 => self.put_group(),
                5..7 => self.attend(),
                7 => self.append_tokens(),
                8 => self.truncate(),
                9..11 => self.inject_fault(),
                11 => self.repair(),
                12 => drop(self.tiers.flush()),
                _ => self = self.reopen(),
            }
            assert_within(&self.tiers);
        }
        (self.n_fetched, self.n_missing)
    }
}

fn histories(disk: Disk, n: u64) -> (usize, usize) {
    (0..n).map(|seed| History::new(seed, disk).run()).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
}

#[test]
fn tiers_agree_with_a_map_through_random_operations() {
    let (n_fetched, _) = histories(Disk::Works, 60);
    assert!(n_fetched > 60 * 50, "{n_fetched}");
}

#[test]
fn tiers_lose_no_page_while_writes_fail() {
    let (n_fetched, _) = histories(Disk::WritesFail, 60);
    assert!(n_fetched > 60 * 30, "{n_fetched}");
}

#[test]
fn tiers_return_no_wrong_page_while_reads_are_corrupt() {
    let (n_fetched, n_missing) = histories(Disk::ReadsFail, 60);
    assert!(n_fetched > 60 * 30 && n_missing > 60, "{n_fetched}, {n_missing} missing");
}
