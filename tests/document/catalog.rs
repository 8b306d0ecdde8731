//! Catalog of saved documents: round trips, and recovery from corruption.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use strata::document::catalog::{Catalog, CatalogEntry, CatalogError, PrecedingDocument, ReadState};

fn entry(id: &str, last_used: i64) -> CatalogEntry {
    CatalogEntry {
        id: id.to_owned(),
        content_hash: "c0".repeat(32),
        name: "book.txt".into(),
        after: vec![PrecedingDocument { name: "first \"1\".txt".into(), content_hash: "d0".repeat(32) }],
        bytes: 500_000,
        pages: 160,
        model: "tiny".into(),
        model_fingerprint: "f0".repeat(32),
        kv_dtype: "f16".into(),
        tokens: 130_000,
        saved_tokens: 64,
        kv_bytes: 4 << 30,
        state: ReadState::Partial,
        prefill_seconds: 12.5,
        created: 100,
        last_used,
    }
}

fn opened(root: &Path) -> Catalog {
    let (catalog, note) = Catalog::open(root).unwrap();
    assert_eq!(note, None);
    catalog
}

fn id(n: u32) -> String {
    format!("{n:08x}{}", "0".repeat(24))
}

#[test]
fn reopened_catalog_has_its_entries() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("a/library");
    let named = CatalogEntry { name: "Jörg 📚 «книга»\n第一章.txt".into(), ..entry(&id(1), 5) };
    opened(&root).upsert(&named).unwrap();
    assert_eq!(opened(&root).get(&id(1)).unwrap(), Some(named));
    assert_eq!(opened(&root).get("absent").unwrap(), None);
}

#[test]
fn updated_entry_keeps_its_time_of_creation() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = opened(dir.path());
    catalog.upsert(&entry(&id(1), 5)).unwrap();
    let whole = CatalogEntry { state: ReadState::Read, saved_tokens: 130_000, created: 900, last_used: 900, ..entry(&id(1), 0) };
    catalog.upsert(&whole).unwrap();
    assert_eq!(catalog.list().unwrap(), [CatalogEntry { created: 100, ..whole }]);
}

#[test]
fn prefix_finds_one_document_or_fails_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = opened(dir.path());
    for n in [0xabcd_0000, 0xabcd_1000, 0x1234_0000] {
        catalog.upsert(&entry(&id(n), 0)).unwrap();
    }
    assert_eq!(catalog.find("12").unwrap().id, id(0x1234_0000));
    assert_eq!(catalog.find(" ABCD1 ").unwrap().id, id(0xabcd_1000));
    assert_eq!(catalog.find(&id(0xabcd_0000)).unwrap().short_id(), "abcd0000");
    assert!(matches!(catalog.find("abcd"), Err(CatalogError::Ambiguous { n: 2, .. })));
    for nothing in ["", " ", "f", "%", "_", "é", "1234' OR '1'='1"] {
        assert!(matches!(catalog.find(nothing), Err(CatalogError::NoSuch { .. })), "{nothing}");
    }
}

#[test]
fn least_recently_used_skips_the_given_ids() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = opened(dir.path());
    for (n, used) in [(1, 30), (2, 10), (3, 20)] {
        catalog.upsert(&entry(&id(n), used)).unwrap();
    }
    let first = |except: &[&str]| catalog.least_recently_used(except).unwrap().map(|e| e.id);
    assert_eq!(first(&[]), Some(id(2)));
    assert_eq!(first(&[&id(2)]), Some(id(3)));
    assert_eq!(first(&[&id(1), &id(2), &id(3)]), None);
    assert!(catalog.touch(&id(2), 40).unwrap());
    assert_eq!(catalog.list().unwrap().iter().map(|e| e.last_used).collect::<Vec<_>>(), [40, 30, 20]);
    assert!(catalog.remove(&id(3)).unwrap());
    assert!(!catalog.remove(&id(3)).unwrap() && !catalog.touch(&id(3), 50).unwrap());
    assert_eq!(first(&[]), Some(id(1)));
}

#[test]
fn corrupt_catalog_is_renamed_and_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("library.sqlite");
    let many = opened(dir.path());
    for n in 0..200 {
        many.upsert(&entry(&id(n), 0)).unwrap();
    }
    drop(many);
    let whole = std::fs::read(&file).unwrap();
    let mut torn = whole.clone();
    torn[5000..9000].fill(0xa5);
    let no_header = [&[0u8; 100][..], &whole[100..]].concat();
    for (what, bytes) in [
        ("text", b"this is no database, but it is longer than a header would be. ".repeat(20)),
        ("a torn page", torn),
        ("cut off", whole[..6000].to_vec()),
        ("no header", no_header),
    ] {
        std::fs::write(&file, &bytes).unwrap();
        let (catalog, note) = Catalog::open(dir.path()).unwrap();
        assert!(note.is_some_and(|n| n.contains("corrupt")), "{what}");
        assert_eq!(catalog.list().unwrap(), [], "{what}");
        assert_eq!(std::fs::read(dir.path().join("library.sqlite.damaged")).unwrap(), bytes, "{what}");
        catalog.upsert(&entry(&id(1), 0)).unwrap();
        drop(catalog);
        assert_eq!(opened(dir.path()).list().unwrap().len(), 1, "{what}");
    }
}

#[test]
fn catalog_with_other_columns_is_corrupt() {
    let dir = tempfile::tempdir().unwrap();
    for sql in [
        "CREATE TABLE documents (id TEXT)",
        "CREATE TABLE documents (id TEXT); PRAGMA user_version = 1",
        "PRAGMA user_version = 1",
        "PRAGMA user_version = -3",
    ] {
        let _ = std::fs::remove_file(dir.path().join("library.sqlite"));
        rusqlite::Connection::open(dir.path().join("library.sqlite")).unwrap().execute_batch(sql).unwrap();
        let (catalog, note) = Catalog::open(dir.path()).unwrap();
        assert!(note.is_some() && catalog.list().unwrap().is_empty(), "{sql}");
    }
}

#[test]
fn catalog_of_a_newer_strata_is_rejected_and_left_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    opened(dir.path()).upsert(&entry(&id(1), 0)).unwrap();
    let file = dir.path().join("library.sqlite");
    rusqlite::Connection::open(&file).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    let error = Catalog::open(dir.path()).unwrap_err();
    assert!(matches!(error, CatalogError::Newer { found: 99, .. }), "{error}");
    assert!(!dir.path().join("library.sqlite.damaged").exists());
}

#[test]
fn catalog_opened_twice_shows_the_other_changes() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (opened(dir.path()), opened(dir.path()));
    std::thread::scope(|scope| {
        for (catalog, from) in [(first, 0u32), (second, 1000)] {
            scope.spawn(move || (from..from + 30).for_each(|n| catalog.upsert(&entry(&id(n), 0)).unwrap()));
        }
    });
    assert_eq!(opened(dir.path()).list().unwrap().len(), 60);
}

#[test]
fn catalog_without_a_usable_folder_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let error = Catalog::open(&dir.path().join("file/library")).unwrap_err();
    assert!(matches!(error, CatalogError::Folder { .. }) && error.to_string().contains("choose another folder"), "{error}");
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_the_catalog() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("library");
    let catalog = opened(&root);
    catalog.upsert(&entry(&id(1), 0)).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&root), 0o700);
    let files: Vec<_> = std::fs::read_dir(&root).unwrap().map(|f| f.unwrap().path()).collect();
    assert!(files.len() > 1, "{files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

/// Operation on a catalog.
#[derive(Debug, Clone)]
enum Step {
    Put(u8, i64, String),
    Touch(u8, i64),
    Remove(u8),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..6u8, 0..100i64, ".{0,20}").prop_map(|(n, used, name)| Step::Put(n, used, name)),
        (0..6u8, 0..100i64).prop_map(|(n, now)| Step::Touch(n, now)),
        (0..6u8).prop_map(Step::Remove),
        Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn catalog_after_any_steps_equals_a_map(steps in steps()) {
        let dir = tempfile::tempdir().unwrap();
        let mut catalog = opened(dir.path());
        let mut model: BTreeMap<String, CatalogEntry> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put(n, used, name) => {
                    let entry = CatalogEntry { name, ..entry(&id(n.into()), used) };
                    catalog.upsert(&entry).unwrap();
                    model.insert(entry.id.clone(), entry);
                }
                Step::Touch(n, now) => {
                    let known = model.get_mut(&id(n.into()));
                    prop_assert_eq!(catalog.touch(&id(n.into()), now).unwrap(), known.is_some());
                    if let Some(entry) = known {
                        entry.last_used = entry.last_used.max(now);
                    }
                }
                Step::Remove(n) => {
                    prop_assert_eq!(catalog.remove(&id(n.into())).unwrap(), model.remove(&id(n.into())).is_some());
                }
                Step::Reopen => catalog = opened(dir.path()),
            }
        }
        let mut expected: Vec<CatalogEntry> = model.into_values().collect();
        expected.sort_by_key(|e| (std::cmp::Reverse(e.last_used), e.id.clone()));
        prop_assert_eq!(catalog.list().unwrap(), expected);
    }
}
