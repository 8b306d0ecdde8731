//! The file: its rights, and what becomes of one that is damaged, newer, locked or cut short.

use std::path::Path;

use strata::chats::{ChatStore, ChatsError};

use crate::common::asked;

fn filled(dir: &Path) {
    ChatStore::open(dir).unwrap().apply(&asked(1, "Where?", "Here.")).unwrap();
}

fn file(dir: &Path) -> std::path::PathBuf {
    dir.join("chats.sqlite")
}

type Damage = fn(&mut Vec<u8>);

#[test]
fn damaged_file_is_refused_in_a_sentence_and_left_as_it_is() {
    let damages: [(&str, Damage); 4] = [
        ("no database", |bytes| *bytes = b"This is a letter, and no database at all. ".repeat(40)),
        ("its first page", |bytes| bytes[20..80].fill(0xee)),
        ("its middle", |bytes| {
            let half = bytes.len() / 4;
            bytes[half..half * 2].fill(0xa5);
        }),
        ("cut short", |bytes| bytes.truncate(5000)),
    ];
    for (what, damage) in damages {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path());
        let mut bytes = std::fs::read(file(dir.path())).unwrap();
        damage(&mut bytes);
        std::fs::write(file(dir.path()), &bytes).unwrap();
        let error = ChatStore::open(dir.path()).unwrap_err();
        assert!(matches!(error, ChatsError::Corrupt { .. }), "{what}: {error:?}");
        assert!(error.to_string().contains("chats.sqlite"), "{error}");
        assert_eq!(std::fs::read(file(dir.path())).unwrap(), bytes, "{what}");
    }
}

#[test]
fn file_of_a_newer_strata_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    rusqlite::Connection::open(file(dir.path())).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let before = std::fs::read(file(dir.path())).unwrap();
    assert!(matches!(ChatStore::open(dir.path()), Err(ChatsError::Newer { found: 99, .. })));
    assert_eq!(std::fs::read(file(dir.path())).unwrap(), before);
}

#[test]
fn second_window_is_told_that_the_first_has_the_chats() {
    let dir = tempfile::tempdir().unwrap();
    let first = ChatStore::open(dir.path()).unwrap();
    let error = ChatStore::open(dir.path()).unwrap_err();
    assert!(matches!(error, ChatsError::Locked { .. }), "{error:?}");
    drop(first);
    ChatStore::open(dir.path()).unwrap();
}

#[test]
fn empty_file_is_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(file(dir.path()), b"").unwrap();
    assert!(ChatStore::open(dir.path()).unwrap().list().unwrap().is_empty());
}

#[cfg(unix)]
#[test]
fn chats_are_readable_by_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("data/chats");
    let mut store = ChatStore::open(&root).unwrap();
    store.apply(&asked(1, "Where?", "Here.")).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&root), 0o700);
    for entry in std::fs::read_dir(&root).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
}

#[test]
fn folder_that_cannot_be_made_is_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), b"x").unwrap();
    let error = ChatStore::open(&dir.path().join("file/chats")).unwrap_err();
    assert!(matches!(error, ChatsError::Folder { .. }) && error.to_string().contains("file/chats"), "{error}");
}
