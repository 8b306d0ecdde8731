//! Scratch stores: a disk tier that nobody keeps.

use std::sync::Arc;

use strata::kv::lower::{Backing, Keep, Lower, SCRATCH_PREFIX, remove_stale_scratch, scratch};
use strata::kv::store::{Library, Store};
use strata::telemetry::Hub;

use crate::common::{config, pages, put_group, spec, take_right, threads, tokens};

fn library() -> (tempfile::TempDir, Library) {
    let dir = tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let library = Library::open(dir.path().join("library")).unwrap();
    (dir, library)
}

#[test]
fn scratch_store_carries_a_context_larger_than_ram_and_is_gone_afterwards() {
    for is_closed in [true, false] {
        let (_dir, library) = library();
        let backing = Backing::Scratch(scratch(&library, &spec(), &[]).unwrap());
        let mut lower = Lower::new(config(6), threads(), backing, Hub::new(1).lane("engine")).unwrap();
        assert_eq!(library.stores().unwrap().len(), 1);
        lower.append_tokens(&tokens(30));
        (0..30).for_each(|g| put_group(&mut lower, g, Keep::Ram).unwrap());
        let pages = pages(30);
        lower.plan(&pages, true);
        assert!(pages.iter().all(|p| take_right(&mut lower, *p)));
        assert_eq!(lower.counts().n_commits, 0, "there is nothing to keep");
        if is_closed {
            assert!(lower.close().0.is_none());
        } else {
            drop(lower);
        }
        assert_eq!(library.stores().unwrap(), []);
    }
}

#[test]
fn leftovers_of_dead_processes_are_removed_and_those_in_use_and_documents_are_not() {
    let (_dir, library) = library();
    let name = format!("{SCRATCH_PREFIX}999999-0");
    let make = |name: &str| Store::open_or_create(library.folder(name).unwrap(), &spec(), &tokens(1)).unwrap().0;
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
