//! The real folder: who may read it, who may write it, what happens when it goes away.

use std::fs;
use std::sync::Arc;

use strata::kv::store::{Folder, PageStore, StoreError};

use crate::common::{N_LAYER, filled, n_right, opened, put_group, real_folders, spec, store_in, tokens};
use crate::kill::run_this_test_as_a_child;

#[test]
#[cfg(unix)]
fn files_are_their_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for (_, dir) in real_folders() {
        let (path, folder) = store_in(&dir);
        // Also where the folder was there before, open to all.
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        filled(&folder, 2);
        assert_eq!(mode(&path), 0o700);
        let files: Vec<_> = fs::read_dir(&path).unwrap().map(|f| f.unwrap().path()).collect();
        assert!(files.len() >= 4, "{files:?}");
        files.iter().for_each(|f| assert_eq!(mode(f), 0o600, "{f:?}"));
    }
}

#[test]
fn store_has_one_writer_in_this_process_and_among_others() {
    let name = "disk::store_has_one_writer_in_this_process_and_among_others";
    if let Some(path) = std::env::var_os("STRATA_TEST_SECOND") {
        let folder: Arc<dyn Folder> = Arc::new(strata::kv::store::Disk::new(path));
        let error = PageStore::open_or_create(folder, &spec(), &tokens(2)).unwrap_err();
        assert!(matches!(error, StoreError::Locked { .. }), "{error}");
        eprintln!("said: {error}");
        return;
    }
    let (_, dir) = real_folders().swap_remove(0);
    let (path, folder) = store_in(&dir);
    let (mut store, _) = opened(&folder, 2);
    let second: Arc<dyn Folder> = Arc::new(strata::kv::store::Disk::new(&path));
    let error = PageStore::open(Arc::clone(&second), &spec(), &tokens(2)).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }) && error.to_string().contains("another chat"), "{error}");
    let output = run_this_test_as_a_child(name, &[("STRATA_TEST_SECOND", path.as_os_str())]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(&format!("(process {})", std::process::id())), "{said}");
    put_group(&mut store, 0);
    store.commit().unwrap();
    drop(store);
    assert_eq!(n_right(&mut opened(&second, 2).0), N_LAYER as usize);
}

#[test]
fn folder_deleted_replaced_or_emptied_while_open_is_noticed_and_not_made_anew() {
    let (_, dir) = real_folders().swap_remove(0);
    for (replace, empty) in [(false, false), (true, false), (true, true)] {
        let (path, folder) = store_in(&dir);
        let (mut store, _) = opened(&folder, 40);
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
        assert_eq!(n_right(&mut store), 2 * N_LAYER as usize, "open files live on");
        assert_eq!(path.exists(), replace);
        drop(store);
        let (store, report) = opened(&folder, 40);
        assert!(report.is_new);
        drop(store);
        fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn store_that_is_not_there_is_absent_and_leaves_no_trace() {
    let (_, dir) = real_folders().swap_remove(0);
    let (path, folder) = store_in(&dir);
    assert!(matches!(PageStore::open(folder, &spec(), &tokens(2)), Err(StoreError::Absent { .. })));
    assert!(!path.exists());
}

#[test]
fn folder_that_may_not_be_written_is_a_sentence() {
    // A file where the folder should be is refused to everyone, root included.
    let (_, dir) = real_folders().swap_remove(0);
    let (path, folder) = store_in(&dir);
    fs::write(&path, "in the way").unwrap();
    let error = PageStore::open_or_create(folder, &spec(), &tokens(2)).unwrap_err();
    assert!(error.to_string().contains("document"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"in the way");
}
