//! Saved documents corrupted between two runs: the next answer equals that of a fresh run, and the store is repaired.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use strata::base::Rng;
use strata::kv::store::format::{ENTRIES_OFFSET, SUPER_SLOT_BYTES};
use strata::kv::store::{Disk, PageId, PageStore};

use crate::run;
use crate::saved::{N_LAYER, PAGE_BYTES, Scenario, TINY, answered, only_store};

const ARENA: &str = "kv-0000.arena";
/// Complete page groups of the document.
const N_GROUPS: u64 = 5;

/// A saved document, and others to exchange files with.
struct Stores {
    ours: PathBuf,
    of_another_document: PathBuf,
    of_another_model: PathBuf,
}

/// One way to corrupt a store.
struct Corruption {
    what: &'static str,
    corrupt: fn(&Stores),
    /// groups that are not prefilled again, although they may be recomputed
    n_kept: RangeInclusive<u64>,
    /// notice for the user
    told: Option<&'static str>,
}

fn corruption(what: &'static str, n_kept: RangeInclusive<u64>, told: Option<&'static str>, corrupt: fn(&Stores)) -> Corruption {
    Corruption { what, corrupt, n_kept, told }
}

fn change(path: PathBuf, how: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(&path).unwrap();
    how(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|e| e.unwrap()) {
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Replaces our file with that of another document.
fn swap(stores: &Stores, file: &str) {
    std::fs::copy(stores.of_another_document.join(file), stores.ours.join(file)).unwrap();
}

/// Flips one bit in each part of a file.
fn flip(path: PathBuf, piece_bytes: u64) {
    let mut rng = Rng::new(3);
    change(path, |bytes| {
        for piece in bytes.chunks_mut(piece_bytes as usize) {
            piece[rng.uniform(piece.len() as u32) as usize] ^= 1 << rng.uniform(8);
        }
    });
}

fn flip_byte(path: PathBuf, offset: u64) {
    change(path, |bytes| bytes[offset as usize] ^= 0x10);
}

/// Bytes of a group's entry in the index: header, and one checksum per layer.
fn entry_offset(group: u64) -> u64 {
    ENTRIES_OFFSET + group * (64 + 8 * N_LAYER).next_multiple_of(64)
}

fn corruptions() -> Vec<Corruption> {
    const DAMAGED: Option<&str> = Some("damaged and must be computed again");
    const USELESS: Option<&str> = Some("cannot be used");
    const ALL: RangeInclusive<u64> = N_GROUPS..=N_GROUPS;
    const NONE: RangeInclusive<u64> = 0..=0;
    vec![
        corruption("arena cut off", NONE, None, |s| change(s.ours.join(ARENA), |b| b.truncate(b.len() / 2 + 777))),
        corruption("arena empty", NONE, None, |s| change(s.ours.join(ARENA), Vec::clear)),
        corruption("arena gone", NONE, None, |s| std::fs::remove_file(s.ours.join(ARENA)).unwrap()),
        corruption("arena of zeros", ALL, DAMAGED, |s| change(s.ours.join(ARENA), |b| b.fill(0))),
        corruption("a bit in every page", ALL, DAMAGED, |s| flip(s.ours.join(ARENA), PAGE_BYTES)),
        corruption("a bit in one page", ALL, DAMAGED, |s| flip_byte(s.ours.join(ARENA), 2 * PAGE_BYTES + 1000)),
        corruption("pages that changed places", ALL, DAMAGED, |s| {
            change(s.ours.join(ARENA), |b| b[..2 * PAGE_BYTES as usize].rotate_left(PAGE_BYTES as usize))
        }),
        corruption("arena of another document", ALL, DAMAGED, |s| swap(s, ARENA)),
        corruption("index empty", NONE, None, |s| change(s.ours.join("index"), Vec::clear)),
        corruption("index gone", NONE, None, |s| std::fs::remove_file(s.ours.join("index")).unwrap()),
        corruption("index cut off", 3..=3, None, |s| change(s.ours.join("index"), |b| b.truncate(entry_offset(3) as usize + 9))),
        corruption("index of another document", NONE, None, |s| swap(s, "index")),
        corruption("first superblock", 0..=N_GROUPS, None, |s| flip_byte(s.ours.join("index"), 24)),
        corruption("second superblock", 0..=N_GROUPS, None, |s| flip_byte(s.ours.join("index"), SUPER_SLOT_BYTES + 24)),
        corruption("both superblocks", ALL, None, |s| {
            flip_byte(s.ours.join("index"), 24);
            flip_byte(s.ours.join("index"), SUPER_SLOT_BYTES + 24);
        }),
        corruption("an entry", 2..=2, None, |s| flip_byte(s.ours.join("index"), entry_offset(2) + 70)),
        corruption("header", NONE, USELESS, |s| flip_byte(s.ours.join("header"), 70)),
        corruption("a token id", NONE, USELESS, |s| flip_byte(s.ours.join("header"), 4096 + 4 * 100)),
        corruption("header cut off", NONE, USELESS, |s| change(s.ours.join("header"), |b| b.truncate(5000))),
        corruption("header gone", NONE, None, |s| std::fs::remove_file(s.ours.join("header")).unwrap()),
        corruption("header of another document", NONE, USELESS, |s| swap(s, "header")),
        corruption("all of another document", NONE, USELESS, |s| copy_all(&s.of_another_document, &s.ours)),
        corruption("all of another model", NONE, USELESS, |s| copy_all(&s.of_another_model, &s.ours)),
        corruption("catalog", ALL, Some(""), |s| change(s.ours.with_file_name("library.sqlite"), |b| b.fill(0x5a))),
    ]
}

/// A valid store of the same tokens for another model, with pages that no model would produce.
fn make_another_models(ours: &Path, theirs: &Path) {
    let (mut store, _) = PageStore::open_existing(Arc::new(Disk::new(ours))).unwrap();
    let mut spec = store.spec().clone();
    spec.model_hash[0] ^= 1;
    let tokens = store.tokens().to_vec();
    let (mut other, _) = PageStore::open_or_create(Arc::new(Disk::new(theirs)), &spec, &tokens).unwrap();
    for page in (0..store.n_groups()).flat_map(|group| (0..N_LAYER as u32).map(move |layer| PageId::kv(layer, group))) {
        let mut payload = store.get(page).unwrap().unwrap().to_vec();
        payload.reverse();
        other.put(page, &payload).unwrap();
    }
    other.commit().unwrap();
    assert_eq!(u64::from(other.n_complete_prefix()), N_GROUPS);
}

#[test]
fn corrupt_files_never_change_the_answer_and_are_repaired() {
    let Some(scenario) = Scenario::new("corrupt_files") else { return };
    let (document, other) = (scenario.document(0..1), scenario.document(1..2));
    let [pristine, others, kv] = ["pristine", "others", "kv"].map(|name| scenario.path(name));
    let fresh = answered(&mut scenario.ask(&pristine, &document, &TINY)).text;
    assert_eq!(fresh, scenario.dense(&document));
    answered(&mut scenario.ask(&others, &other, &TINY));
    let stores = Stores {
        ours: kv.join(only_store(&pristine).file_name().unwrap()),
        of_another_document: only_store(&others),
        of_another_model: scenario.path("another-model"),
    };
    make_another_models(&only_store(&pristine), &stores.of_another_model);
    for Corruption { what, corrupt, n_kept, told } in corruptions() {
        let _ = std::fs::remove_dir_all(&kv);
        copy_all(&only_store(&pristine), &stores.ours);
        std::fs::copy(pristine.join("library.sqlite"), kv.join("library.sqlite")).unwrap();
        corrupt(&stores);
        let run_again = answered(&mut scenario.ask(&kv, &document, &TINY));
        assert_eq!(run_again.text, fresh, "{what}: {:?}", run_again.notices);
        let n_cached = run_again.cached_tokens / 64;
        assert!(n_kept.contains(&n_cached), "{what}: {n_cached} groups were not prefilled again, expected {n_kept:?}");
        if let Some(told) = told {
            assert!(run_again.notices.iter().any(|n| n.contains(told)), "{what}: {:?}", run_again.notices);
        }
        let n_recomputed = run_again.number("pages", "recomputed");
        assert_eq!(n_recomputed > 0, told.is_some_and(|t| t.contains("computed again")), "{what}: {n_recomputed}");
        let verified = run(["library", "verify", "--kv-dir", kv.to_str().unwrap()]);
        assert!(verified.code == Some(0) && verified.out.contains("whole: 30 pages"), "{what}: {}{}", verified.out, verified.err);
    }
}
