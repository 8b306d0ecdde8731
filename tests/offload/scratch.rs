//! Scratch store tests: a disk tier that is not saved.

use std::sync::Arc;

use strata::kv::offload::{DiskBacking, OffloadTiers, Retention, SCRATCH_PREFIX, remove_stale_scratch, scratch};
use strata::kv::store::{PageStore, StoreRoot};
use strata::telemetry::Hub;

use crate::common::{config, fetch_intact, pages, put_group, spec, threads, tokens};

fn library() -> (tempfile::TempDir, StoreRoot) {
    let dir = tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let library = StoreRoot::open(dir.path().join("library")).unwrap();
    (dir, library)
}

#[test]
fn scratch_store_extends_ram_and_is_removed_afterwards() {
    for is_closed in [true, false] {
        let (_dir, library) = library();
        let backing = DiskBacking::Scratch(scratch(&library, &spec(), &[]).unwrap());
        let mut offload = OffloadTiers::new(config(6), threads(), backing, Hub::new(1).lane("engine")).unwrap();
        assert_eq!(library.stores().unwrap().len(), 1);
        offload.append_tokens(&tokens(30));
        (0..30).for_each(|g| put_group(&mut offload, g, Retention::InRam).unwrap());
        let pages = pages(30);
        offload.plan(&pages, true);
        assert!(pages.iter().all(|p| fetch_intact(&mut offload, *p)));
        assert_eq!(offload.counts().n_commits, 0, "there is nothing to retention");
        if is_closed {
            assert!(offload.close().0.is_none());
        } else {
            drop(offload);
        }
        assert_eq!(library.stores().unwrap(), []);
    }
}

#[test]
fn only_scratch_stores_of_dead_processes_are_removed() {
    let (_dir, library) = library();
    let name = format!("{SCRATCH_PREFIX}999999-0");
    let make = |name: &str| PageStore::open_or_create(library.folder(name).unwrap(), &spec(), &tokens(1)).unwrap().0;
    drop(make(&name));
    drop(make("document"));
    let in_use = scratch(&library, &spec(), &tokens(1)).unwrap();
    assert_eq!(remove_stale_scratch(&library).unwrap(), 1);
    let names: Vec<String> = library.stores().unwrap().into_iter().map(|s| s.name).collect();
    assert!(names.len() == 2 && !names.contains(&name) && names.contains(&"document".to_owned()), "{names:?}");
    drop(in_use);
    assert_eq!(library.stores().unwrap().len(), 1);
    assert!(Arc::strong_count(&library.folder("document").unwrap()) == 1);
}
