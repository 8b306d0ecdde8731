//! Disk budget tests: evicts whole stores, least recently used first, never an open one.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use strata::base::Bytes;
use strata::kv::store::{PageStore, StoreError, StoreRoot};

use crate::common::{create_filled, open_store, spec, tokens};

/// A store root with the stores a, b and c, last used in this order.
fn library() -> (tempfile::TempDir, StoreRoot) {
    let dir = tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let library = StoreRoot::open(dir.path().join("kv")).unwrap();
    for (name, age) in [("c", 100), ("a", 300), ("b", 200)] {
        create_filled(&library.folder(name).unwrap(), 4);
        let used = SystemTime::now() - Duration::from_secs(age);
        File::options().write(true).open(library.root().join(name).join("lock")).unwrap().set_modified(used).unwrap();
    }
    (dir, library)
}

fn names(library: &StoreRoot) -> Vec<String> {
    library.stores().unwrap().into_iter().map(|s| s.name).collect()
}

#[test]
fn stores_are_evicted_in_lru_order_until_the_budget_holds() {
    let (_dir, library) = library();
    assert_eq!(names(&library), ["a", "b", "c"]);
    let (total, each) = (library.total().unwrap(), library.info("a").unwrap().bytes);
    assert!(each.0 > 3 * 4 * 9000 && total.0 == 3 * each.0, "{total} {each}");
    assert_eq!(library.evict(total, Bytes(0), &[]).unwrap().removed, []);
    let eviction = library.evict(total, Bytes(1), &[]).unwrap();
    assert_eq!((eviction.removed[0].name.as_str(), eviction.removed.len(), eviction.total), ("a", 1, Bytes(2 * each.0)));
    assert_eq!((names(&library), library.total().unwrap()), (vec!["b".into(), "c".into()], eviction.total));
    // Opening a store updates its last use.
    drop(open_store(&library.folder("b").unwrap(), 4));
    assert_eq!(names(&library), ["c", "b"]);
    assert_eq!(library.evict(Bytes(0), Bytes(0), &["b"]).unwrap().removed[0].name, "c");
    assert_eq!(names(&library), ["b"]);
}

#[test]
fn store_in_use_is_never_removed() {
    let (_dir, library) = library();
    let (mut store, _) = open_store(&library.folder("a").unwrap(), 4);
    let eviction = library.evict(Bytes(0), Bytes(0), &[]).unwrap();
    assert_eq!((eviction.in_use, eviction.removed.len(), names(&library)), (vec!["a".into()], 2, vec!["a".into()]));
    assert!(eviction.total.0 > 0);
    assert!(matches!(library.remove("a"), Err(StoreError::Locked { .. })));
    assert_eq!(crate::common::n_intact(&mut store), 12);
    drop(store);
    library.remove("a").unwrap();
    assert!(matches!(library.remove("a"), Err(StoreError::Absent { .. })));
    assert!(!library.root().join("a").exists());
}

#[test]
fn names_cannot_leave_the_library() {
    let (_dir, library) = library();
    for name in ["", ".", "..", "../kv", "a/b", "/etc", "a b", "ä"] {
        assert!(matches!(library.folder(name), Err(StoreError::BadName { .. })), "{name}");
        assert!(library.remove(name).is_err() && library.info(name).is_none());
    }
}

#[test]
fn missing_root_folder_is_empty_and_not_an_error() {
    let (_dir, library) = library();
    fs::remove_dir_all(library.root()).unwrap();
    assert_eq!((names(&library).len(), library.total().unwrap()), (0, Bytes(0)));
    assert!(PageStore::open(library.folder("a").unwrap(), &spec(), &tokens(4)).is_err());
    create_filled(&library.folder("a").unwrap(), 4);
    assert_eq!(names(&library), ["a"]);
}
