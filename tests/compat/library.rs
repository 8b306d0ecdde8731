//! Saved-document fixture: a library of one document in f16, q8 and q4, resumed and written again by the current program.
//!
//! Store: the header is 256 bytes and then token ids; its random id and the checksum over it differ in every store.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Once;

use serde_json::{Value, json};
use tempfile::TempDir;
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

use crate::answers::is_recorded_device;
use crate::{DTYPES, device, fixture, path_text, recorded, recording, run, schema, scratch, user_version};

const FILE: &str = "library.zip";
const QUESTION: &str = "What does the document say about the harbour office?";
/// Bytes of a header that no two stores share: its random id, and the checksum over it.
const OWN_BYTES: [std::ops::Range<usize>; 2] = [16..24, 248..256];
/// Files of a store that depend on the document and the model alone, where the device is the same.
const PAYLOADS: [&str; 2] = ["abstracts", "kv-0000.arena"];
const CATALOG_SQL: &str = "CREATE TABLE documents ( id TEXT PRIMARY KEY NOT NULL, content_hash TEXT NOT NULL, name TEXT NOT NULL, \
    bytes INTEGER NOT NULL CHECK (bytes >= 0), pages INTEGER NOT NULL CHECK (pages >= 0), model TEXT NOT NULL, \
    model_fingerprint TEXT NOT NULL, kv_dtype TEXT NOT NULL, tokens INTEGER NOT NULL CHECK (tokens >= 0), \
    saved_tokens INTEGER NOT NULL CHECK (saved_tokens >= 0), kv_bytes INTEGER NOT NULL CHECK (kv_bytes >= 0), \
    state TEXT NOT NULL CHECK (state IN ('read', 'partial')), prefill_seconds REAL NOT NULL, created INTEGER NOT NULL, \
    last_used INTEGER NOT NULL ) STRICT";

/// The fixture's library, unpacked; while recording, it is written first.
pub fn unpacked() -> TempDir {
    static PACKED: Once = Once::new();
    if recording().is_some() {
        PACKED.call_once(|| pack(written().path()));
    }
    let dir = scratch();
    ZipArchive::new(File::open(fixture(FILE)).unwrap()).unwrap().extract(dir.path()).unwrap();
    dir
}

/// A library that the program of now writes.
fn written() -> TempDir {
    let dir = scratch();
    for dtype in DTYPES {
        let note = fixture("note.md");
        run(["library", "add", path_text(&note), "--kv-dtype", dtype, "--kv-dir", path_text(dir.path()), "--json"]).lines();
    }
    dir
}

/// Names of the files of a library, below its folder, in order.
fn files(root: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            names.extend(files(&entry.path()).into_iter().map(|below| format!("{name}/{below}")));
        } else {
            names.push(name);
        }
    }
    names.sort();
    names
}

fn pack(root: &Path) {
    let mut zip = ZipWriter::new(File::create(fixture(FILE)).unwrap());
    for name in files(root) {
        zip.start_file(&name, SimpleFileOptions::default()).unwrap();
        zip.write_all(&std::fs::read(root.join(&name)).unwrap()).unwrap();
    }
    zip.finish().unwrap();
}

fn bytes(root: &Path, name: &str) -> Vec<u8> {
    std::fs::read(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Catalog rows, without times and without sizes that the file system rounds up.
fn listed(root: &Path) -> Vec<Value> {
    let mut lines = run(["library", "list", "--json", "--kv-dir", path_text(root)]).lines();
    for line in &mut lines {
        for own in ["prefill_seconds", "last_used", "kv_bytes"] {
            assert!(line.as_object_mut().unwrap().remove(own).unwrap().as_f64() > Some(0.0), "{own}");
        }
    }
    lines.sort_by_key(|line| line["id"].to_string());
    lines
}

/// The answer to the question on the saved document, and what was read again for it.
fn resumed(root: &Path, dtype: &str) -> Value {
    let note = fixture("note.md");
    let args = ["ask", "--doc", path_text(&note), "--prompt", QUESTION, "--max-tokens", "12", "--temperature", "0", "--json"];
    let library = ["--kv-dtype", dtype, "--kv-dir", path_text(root)];
    let lines = run(args.iter().chain(&library)).lines();
    let notices: Vec<&Value> = lines.iter().filter(|l| l["event"] == "notice").map(|l| &l["text"]).collect();
    let prefill = lines.iter().filter(|l| l["phase"] == "prefill").map(|l| l["total"].clone()).next_back();
    let summary = lines.last().unwrap();
    json!({
        "cached_tokens": summary["cached_tokens"],
        "prompt_tokens": summary["prompt_tokens"],
        "prefill_total": prefill,
        "text": summary["text"],
        "notices": notices,
    })
}

#[test]
fn saved_document_is_resumed_and_answers_as_recorded() {
    if device("saved_document_is_resumed").is_none() {
        return;
    }
    let dir = unpacked();
    let saved = listed(dir.path());
    let now: Value = DTYPES.iter().map(|dtype| ((*dtype).to_owned(), resumed(dir.path(), dtype))).collect();
    assert_eq!(now, recorded("library.json", &now));
    for document in saved {
        let dtype = document["kv_dtype"].as_str().unwrap();
        assert_eq!(now[dtype]["cached_tokens"], document["saved_tokens"], "{dtype}: all that was saved is resumed");
    }
}

#[test]
fn saved_document_is_listed_and_verified_without_a_device() {
    let dir = unpacked();
    let now = json!(listed(dir.path()));
    assert_eq!(now, recorded("library_list.json", &now));
    for line in run(["library", "verify", "--json", "--kv-dir", path_text(dir.path())]).lines() {
        assert_eq!((&line["damaged"], &line["problem"], &line["in_use"]), (&0.into(), &Value::Null, &false.into()), "{line}");
    }
    let catalog = dir.path().join("library.sqlite");
    assert_eq!((schema(&catalog), user_version(&catalog)), (vec![CATALOG_SQL.to_owned()], 1));
}

#[test]
fn saved_document_written_now_has_the_files_and_bytes_of_the_fixture() {
    let Some(device) = device("saved_document_written_now") else { return };
    let (before, now) = (unpacked(), written());
    let (before, now) = (before.path(), now.path());
    assert_eq!(files(now), files(before), "file names, and with them the hashes of model, settings and tokens");
    assert_eq!(listed(now), listed(before));
    let catalog = now.join("library.sqlite");
    assert_eq!((schema(&catalog), user_version(&catalog)), (vec![CATALOG_SQL.to_owned()], 1));
    let is_same_device = is_recorded_device(&device);
    for name in files(now) {
        let (_, file) = name.rsplit_once('/').unwrap_or(("", &name));
        if file == "header" {
            let (mut was, mut is) = (bytes(before, &name), bytes(now, &name));
            OWN_BYTES.into_iter().for_each(|own| (was[own.clone()].fill(0), is[own].fill(0)).1);
            assert!(was == is, "{name}: the header's bytes differ");
        } else if file == "index" {
            let (was, is) = (bytes(before, &name), bytes(now, &name));
            assert_eq!((is.len(), &is[..12], &is[8192..8200]), (was.len(), &was[..12], &was[8192..8200]), "{name}");
        } else if PAYLOADS.contains(&file) && is_same_device {
            assert!(bytes(before, &name) == bytes(now, &name), "{name}: saved keys and values differ");
        }
    }
}

#[test]
fn saved_document_fixture_is_small() {
    let mut size = 0;
    for entry in std::fs::read_dir(fixture("")).unwrap() {
        let mut text = Vec::new();
        size += File::open(entry.unwrap().path()).unwrap().read_to_end(&mut text).unwrap();
    }
    assert!(size < 2 << 20, "{size} bytes of fixtures");
}
