//! `strata library` on saved documents: list, remove and verify. No model is loaded.

use std::path::{Path, PathBuf};

use serde_json::Value;
use strata::document::catalog::{Catalog, CatalogEntry, ReadState};
use strata::kv::store::{PageId, PageStore, StoreRoot, StoreSpec};

use crate::{Ran, run};

const FIRST: &str = "aaaa0000000000000000000000000001";
const SECOND: &str = "aabb0000000000000000000000000002";
const GONE: &str = "cc000000000000000000000000000003";
const UNLISTED: &str = "dd000000000000000000000000000004";

fn spec() -> StoreSpec {
    StoreSpec {
        model_hash: [1; 32],
        tokenizer_hash: [2; 32],
        settings_hash: [3; 32],
        layout: "f16/block16".into(),
        n_layer: 2,
        kv_page_bytes: 5000,
        activation_page_bytes: 0,
        abstract_bytes: 0,
    }
}

fn tokens() -> Vec<u32> {
    (0..4 * 64 + 3).collect()
}

fn entry(id: &str, name: &str, last_used: i64) -> CatalogEntry {
    CatalogEntry {
        id: id.into(),
        content_hash: "00".repeat(32),
        name: name.into(),
        after: Vec::new(),
        bytes: 1000,
        pages: 3,
        model: "tiny".into(),
        model_fingerprint: "11".repeat(32),
        kv_dtype: "q8".into(),
        tokens: 259,
        saved_tokens: 256,
        kv_bytes: 1,
        state: ReadState::Read,
        prefill_seconds: 12.5,
        created: 0,
        last_used,
    }
}

/// A library of two complete documents, one without its store, and an unknown store.
fn library() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let root = dir.path().join("library");
    let library = StoreRoot::open(&root).unwrap();
    let (catalog, _) = Catalog::open(&root).unwrap();
    for id in [FIRST, SECOND, UNLISTED] {
        let (mut store, _) = PageStore::open_or_create(library.folder(id).unwrap(), &spec(), &tokens()).unwrap();
        for (layer, group) in (0..2).flat_map(|l| (0..4).map(move |g| (l, g))) {
            store.put(PageId::kv(layer, group), &[layer as u8 * 16 + group as u8; 5000]).unwrap();
        }
        store.commit().unwrap();
    }
    catalog.upsert(&entry(FIRST, "first.txt", 86_400 * 365)).unwrap();
    catalog.upsert(&entry(SECOND, "zweites Büchlein.md", 86_400 * 800)).unwrap();
    catalog.upsert(&entry(GONE, "gone.txt", 100)).unwrap();
    (dir, root)
}

fn library_command(root: &Path, args: &[&str]) -> Ran {
    run(["library"].iter().chain(args).chain(&["--kv-dir", root.to_str().unwrap()]))
}

fn lines(ran: &Ran) -> Vec<Value> {
    ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn list_of_an_empty_library_reports_it_and_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("library");
    let ran = library_command(&root, &["list"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), ""));
    assert!(ran.err.contains("strata library add"), "{}", ran.err);
    assert_eq!(library_command(&root, &["list", "--json"]).out, "");
    assert_eq!(library_command(&root, &["verify"]).code, Some(0));
    library_command(&root, &["remove", "aa"]).assert_refused(2, "no document 'aa'");
    assert!(!root.exists());
}

#[test]
fn list_shows_every_document_least_recently_used_last() {
    let (_dir, root) = library();
    let ran = library_command(&root, &["list"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    let rows: Vec<&str> = ran.out.lines().collect();
    for (row, parts) in rows.iter().zip([
        &["id", "state", "tokens", "on disk", "document"][..],
        &["aabb0000", "read", "259", "12.5 s", "1972-03-", "tiny q8", "zweites Büchlein.md"],
        &["aaaa0000", "read", "1971-01-01", "first.txt"],
        &["cc000000", "missing", "0 B", "gone.txt"],
        &["dd000000", "partial", "unknown"],
    ]) {
        assert!(parts.iter().all(|part| row.contains(part)), "{parts:?} in {row}");
    }
    assert_eq!(rows.len(), 5);
    let json = lines(&library_command(&root, &["list", "--json"]));
    assert_eq!((&json[1]["id"], &json[1]["state"], &json[1]["kv_dtype"]), (&FIRST.into(), &"read".into(), &"q8".into()));
    assert!(json[1]["kv_bytes"].as_u64().unwrap() > 8 * 5000, "size on disk: {}", json[1]);
    for field in ["name", "content_hash", "pages", "model", "tokens", "saved_tokens", "prefill_seconds", "last_used"] {
        assert!(json[0].get(field).is_some(), "{field}");
    }
}

#[test]
fn remove_takes_one_document_and_refuses_unknown_and_ambiguous_ids() {
    let (_dir, root) = library();
    library_command(&root, &["remove", "aa"]).assert_refused(2, "2 documents");
    library_command(&root, &["remove", "ffff"]).assert_refused(2, "strata library list");
    library_command(&root, &["remove", ".."]).assert_refused(2, "no document '..'");
    let ran = library_command(&root, &["remove", "AABB"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("zweites Büchlein.md"), "{}", ran.out);
    assert!(!root.join(SECOND).exists() && root.join(FIRST).exists());
    for (id, left) in [("cc", 2), ("dd", 1)] {
        assert_eq!(library_command(&root, &["remove", id]).code, Some(0), "{id}");
        assert_eq!(library_command(&root, &["list", "--json"]).out.lines().count(), left);
    }
}

#[test]
fn remove_of_a_document_in_use_is_refused_and_verify_skips_it() {
    let (_dir, root) = library();
    let folder = StoreRoot::at(&root).folder(FIRST).unwrap();
    let store = PageStore::open_or_create(folder, &spec(), &tokens()).unwrap();
    library_command(&root, &["remove", "aaaa"]).assert_refused(1, "in use");
    library_command(&root, &["remove", "cc"]);
    let ran = library_command(&root, &["verify"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("first.txt: not checked") && ran.out.contains("whole: 8 pages"), "{}", ran.out);
    drop(store);
    assert_eq!(library_command(&root, &["remove", "aaaa"]).code, Some(0));
}

#[test]
fn verify_finds_a_flipped_bit_each_time_and_repairs_nothing() {
    let (_dir, root) = library();
    library_command(&root, &["remove", "cc"]);
    let whole = library_command(&root, &["verify", "--json"]);
    assert_eq!(whole.code, Some(0), "{}", whole.err);
    assert!(lines(&whole).iter().all(|c| c["pages"] == 8 && c["damaged"] == 0));
    for (file, at) in [("kv-0000.arena", 100), ("index", 8192 + 70)] {
        let path = root.join(FIRST).join(file);
        let original = std::fs::read(&path).unwrap();
        let mut flipped = original.clone();
        flipped[at] ^= 4;
        std::fs::write(&path, &flipped).unwrap();
        for _ in 0..2 {
            let ran = library_command(&root, &["verify", "--json"]);
            assert_eq!(ran.code, Some(1), "{file}: {}", ran.out);
            let damaged: Vec<Value> = lines(&ran).into_iter().filter(|c| c["damaged"] != 0).collect();
            assert_eq!((damaged.len(), &damaged[0]["name"]), (1, &"first.txt".into()), "{file}");
            assert!(ran.err.contains("1 of 3"), "{}", ran.err);
        }
        assert_eq!(std::fs::read(&path).unwrap(), flipped, "{file}");
        std::fs::write(&path, &original).unwrap();
    }
    assert_eq!(library_command(&root, &["verify"]).code, Some(0));
}

#[test]
fn verify_reports_unreadable_stores_and_missing_documents() {
    let (_dir, root) = library();
    std::fs::write(root.join(FIRST).join("header"), [7; 5000]).unwrap();
    std::fs::remove_file(root.join(SECOND).join("index")).unwrap();
    let ran = library_command(&root, &["verify"]);
    assert_eq!(ran.code, Some(1));
    for part in ["first.txt: damaged", "zweites Büchlein.md: damaged", "gone.txt: damaged: its files are gone", "unknown: whole"]
    {
        assert!(ran.out.contains(part), "'{part}' is not in: {}", ran.out);
    }
}

#[test]
fn library_with_a_corrupt_catalog_reports_it_and_lists_the_stores() {
    let (_dir, root) = library();
    std::fs::write(root.join("library.sqlite"), "not a database, but long enough to have been one. ".repeat(50)).unwrap();
    let _ = std::fs::remove_file(root.join("library.sqlite-wal"));
    let ran = library_command(&root, &["list"]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.err.contains("damaged") && ran.out.lines().count() == 4, "{}{}", ran.err, ran.out);
    assert_eq!(library_command(&root, &["list"]).err, "");
}

#[test]
fn add_of_a_missing_file_is_refused_before_a_model_is_loaded() {
    let (_dir, root) = library();
    library_command(&root, &["add", "absent.txt"]).assert_refused(2, "absent.txt");
}
