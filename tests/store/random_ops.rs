//! Random operations compared with an in-memory model: put, commit, read, crash at any write, reopen.

use std::collections::BTreeSet;
use std::sync::Arc;

use strata::base::Rng;
use strata::kv::store::{Fault, FaultInjectingFolder, FaultOp, Folder, MemoryFolder, PageId, PageStore, Rule};

use crate::common::{N_LAYER, payload, spec, tokens};

const N_GROUPS: u32 = 10;

/// Pages that must be present (committed), and pages that may be (written).
#[derive(Default)]
struct Model {
    committed: BTreeSet<PageId>,
    written: BTreeSet<PageId>,
}

impl Model {
    fn has_group(pages: &BTreeSet<PageId>, group: u32) -> bool {
        (0..N_LAYER).all(|l| pages.contains(&PageId::kv(l, group)))
    }

    /// Moves the pages of complete groups to committed.
    fn commit(&mut self) {
        let all: BTreeSet<PageId> = self.committed.union(&self.written).copied().collect();
        let complete = |p: &&PageId| Model::has_group(&all, p.group);
        self.committed = all.iter().filter(complete).copied().collect();
        self.written.retain(|p| !self.committed.contains(p));
    }

    /// A group that lost a page is incomplete, so its other pages may be missing too.
    fn check(&self, store: &mut PageStore, history: &str) {
        for page in (0..N_GROUPS).flat_map(|g| (0..N_LAYER).map(move |l| PageId::kv(l, g))) {
            let got = store.get(page).unwrap_or(None);
            match got {
                Some(bytes) => {
                    assert_eq!(bytes, payload(page, 0, 9000), "{page} has wrong bytes after {history}");
                    assert!(self.committed.contains(&page) || self.written.contains(&page), "{page} was never put: {history}");
                }
                None => assert!(!self.committed.contains(&page), "{page} was committed and is missing after {history}"),
            }
        }
    }
}

fn open(folder: &Arc<dyn Folder>) -> PageStore {
    PageStore::open_or_create(Arc::clone(folder), &spec(), &tokens(N_GROUPS)).unwrap().0
}

/// Runs one random history. Returns the number of committed pages at its end.
fn history(seed: u64) -> usize {
    let mut rng = Rng::new(seed);
    let mut memory = MemoryFolder::new();
    let mut faulty = FaultInjectingFolder::new(Arc::new(memory.clone()));
    let mut folder: Arc<dyn Folder> = Arc::new(faulty.clone());
    let mut store = open(&folder);
    let mut model = Model::default();
    let mut said = format!("seed {seed}:");
    for _ in 0..60 {
        match rng.uniform(12) {
            0..7 => {
                let group = rng.uniform(N_GROUPS);
                for layer in 0..1 + rng.uniform(N_LAYER) {
                    let page = PageId::kv(layer, group);
                    if store.put(page, &payload(page, 0, 9000)).is_ok() {
                        model.written.insert(page);
                    }
                }
            }
            7..9 => {
                store.commit().unwrap();
                model.commit();
                said += " commit";
            }
            9 => {
                drop(store);
                model.check(&mut open(&folder), &(said.clone() + " close"));
                store = open(&folder);
                model.written.retain(|p| store.is_present(*p));
                said += " reopen";
            }
            n => {
                // A power failure at some write or sync of a commit, or without a commit.
                if n == 10 {
                    let op = if rng.uniform(2) == 0 { FaultOp::Write } else { FaultOp::Sync };
                    faulty.add(Rule::once(op, "", u64::from(rng.uniform(6)), Fault::PowerCut));
                    let mut after = Model { committed: model.committed.clone(), written: model.written.clone() };
                    after.commit();
                    if store.commit().is_ok() {
                        model = after;
                    } else {
                        model.written.extend(after.committed.difference(&model.committed));
                    }
                }
                drop(store);
                memory = memory.crashed(u64::from(rng.next_u32()));
                faulty = FaultInjectingFolder::new(Arc::new(memory.clone()));
                folder = Arc::new(faulty.clone());
                said += " crash";
                store = open(&folder);
                model.check(&mut store, &said);
                let n_lost = model.written.len();
                model.written.retain(|p| store.is_present(*p));
                said += &format!("(-{})", n_lost - model.written.len());
            }
        }
    }
    model.check(&mut store, &said);
    model.committed.len()
}

#[test]
fn store_agrees_with_its_model_through_random_crashes() {
    let committed: usize = (0..120).map(history).sum();
    assert!(committed > 120 * 3, "some histories commit: {committed}");
}
