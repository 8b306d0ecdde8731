//! Disk folder tests: permissions, locking, deletion while open.

use std::fs;
use std::sync::Arc;

use strata::kv::store::{Folder, PageStore, StoreError};

use crate::common::{N_LAYER, create_filled, n_intact, open_store, put_group, real_folders, spec, store_in, tokens};
use crate::kill::run_this_test_as_a_child;

#[test]
#[cfg(unix)]
fn files_are_private_to_their_owner() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for (_, dir) in real_folders() {
        let (path, folder) = store_in(&dir);
        // Also if the folder existed before, open to all.
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        create_filled(&folder, 2);
        assert_eq!(mode(&path), 0o700);
        let files: Vec<_> = fs::read_dir(&path).unwrap().map(|f| f.unwrap().path()).collect();
        assert!(files.len() >= 4, "{files:?}");
        files.iter().for_each(|f| assert_eq!(mode(f), 0o600, "{f:?}"));
    }
}

#[test]
fn store_has_one_writer_in_and_across_processes() {
    let name = "disk::store_has_one_writer_in_and_across_processes";
    if let Some(path) = std::env::var_os("STRATA_TEST_SECOND") {
        let folder: Arc<dyn Folder> = Arc::new(strata::kv::store::Disk::new(path));
        let error = PageStore::open_or_create(folder, &spec(), &tokens(2)).unwrap_err();
        assert!(matches!(error, StoreError::Locked { .. }), "{error}");
        eprintln!("error: {error}");
        return;
    }
    let (_, dir) = real_folders().swap_remove(0);
    let (path, folder) = store_in(&dir);
    let (mut store, _) = open_store(&folder, 2);
    let second: Arc<dyn Folder> = Arc::new(strata::kv::store::Disk::new(&path));
    let error = PageStore::open(Arc::clone(&second), &spec(), &tokens(2)).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }) && error.to_string().contains("another chat"), "{error}");
    let output = run_this_test_as_a_child(name, &[("STRATA_TEST_SECOND", path.as_os_str())]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(&format!("(process {})", std::process::id())), "{said}");
    put_group(&mut store, 0);
    store.commit().unwrap();
    drop(store);
    assert_eq!(n_intact(&mut open_store(&second, 2).0), N_LAYER as usize);
}

#[test]
fn folder_deleted_replaced_or_emptied_while_open_is_detected_and_not_recreated() {
    let (_, dir) = real_folders().swap_remove(0);
    for (replace, empty) in [(false, false), (true, false), (true, true)] {
        let (path, folder) = store_in(&dir);
        let (mut store, _) = open_store(&folder, 40);
        put_group(&mut store, 0);
        store.commit().unwrap();
        if empty {
            fs::read_dir(&path).unwrap().for_each(|f| fs::remove_file(f.unwrap().path()).unwrap());
        } else {
            fs::remove_dir_all(&path).unwrap();
            if replace {
                fs::create_dir(&path).unwrap();
            }
        }
        put_group(&mut store, 1);
        assert!(matches!(store.commit(), Err(StoreError::Gone { .. })));
        assert_eq!(n_intact(&mut store), 2 * N_LAYER as usize, "open files stay readable");
        assert_eq!(path.exists(), replace);
        drop(store);
        let (store, report) = open_store(&folder, 40);
        assert!(report.is_new);
        drop(store);
        fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn opening_a_missing_store_reports_absent_and_creates_nothing() {
    let (_, dir) = real_folders().swap_remove(0);
    let (path, folder) = store_in(&dir);
    assert!(matches!(PageStore::open(folder, &spec(), &tokens(2)), Err(StoreError::Absent { .. })));
    assert!(!path.exists());
}

#[test]
fn folder_that_cannot_be_written_is_an_error() {
    // A file at the path of the folder fails for every user, root included.
    let (_, dir) = real_folders().swap_remove(0);
    let (path, folder) = store_in(&dir);
    fs::write(&path, "in the way").unwrap();
    let error = PageStore::open_or_create(folder, &spec(), &tokens(2)).unwrap_err();
    assert!(error.to_string().contains("document"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"in the way");
}
