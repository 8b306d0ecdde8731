//! Power failure tests: after a failure at any write, all committed pages are present and correct.

use std::sync::Arc;

use strata::base::Rng;
use strata::kv::offload::{PageLocation, Retention};
use strata::kv::store::{Fault, FaultInjectingFolder, FaultOp, Folder, MemoryFolder, PageId, Rule};

use crate::common::{N_LAYER, config, fetch_intact, put_group, tiers};

const N_GROUPS: u32 = 20;

#[test]
fn every_committed_group_is_intact_after_a_power_failure_at_any_write() {
    let (mut n_cut, mut n_found_pages) = (0, 0);
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let memory = MemoryFolder::new();
        let faulty = FaultInjectingFolder::new(Arc::new(memory.clone()));
        let folder: Arc<dyn Folder> = Arc::new(faulty.clone());
        let mut offload = tiers(config(200), &folder, N_GROUPS);
        let op = if rng.uniform(3) == 0 { FaultOp::Sync } else { FaultOp::Write };
        faulty.add(Rule::once(op, "", u64::from(rng.uniform(if op == FaultOp::Sync { 12 } else { 70 })), Fault::PowerCut));
        let mut n_durable = 0;
        for group in 0..N_GROUPS {
            put_group(&mut offload, group, Retention::InRam).unwrap();
            if rng.uniform(3) == 0 && offload.flush() {
                n_durable = group + 1;
            }
        }
        n_cut += u32::from(faulty.n_injected() > 0);
        // Dropped without close, as when a process dies.
        drop(offload);
        let folder: Arc<dyn Folder> = Arc::new(memory.crashed(seed));
        let mut offload = tiers(config(10), &folder, N_GROUPS);
        let n_found = offload.store().unwrap().n_complete_prefix();
        assert!(n_found >= n_durable, "seed {seed}: {n_found} of {n_durable} groups");
        for page in (0..N_GROUPS).flat_map(|g| (0..N_LAYER).map(move |l| PageId::kv(l, g))) {
            let was_there = offload.location(page) == PageLocation::Disk;
            let exists = fetch_intact(&mut offload, page);
            assert!(exists || page.group >= n_durable, "seed {seed}: {page}");
            n_found_pages += usize::from(was_there && exists);
        }
    }
    assert!(n_cut > 60 && n_found_pages > 500, "{n_cut} cuts, {n_found_pages} pages found");
}
