//! Restore benchmark: read bandwidth of a saved document, compared with the disk on the same file, and the metadata
//! overhead.
//!
//! `cargo bench --bench restore [name]` · names of the documents (default all); more settings in [`disk`].
//!
//! A document of 16 384 tokens is saved through the two offload tiers, as in the app. Restoring opens its store and
//! fetches every page, read ahead and with verified checksums: layer by layer as attention does, or in file order. The
//! disk bandwidth is that of fio on the same file in pieces of the same size: random reads for the first order,
//! sequential ones for the second. It uses as many buffers as fill the memory of the restore, and 32, which stay in the
//! CPU cache on a virtual disk, because fio does not read its buffers. Every byte is checked before timing.
//!
//! Goals: 0.9 of the disk bandwidth; metadata at most 2 % of f16 pages.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a bench prints, and ends where it fails")]

mod disk_common;

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk_common::{DEPTH, Setup, fio_rate, interleaved, rates, ratio};
use strata::base::{Bytes, Rng};
use strata::document::catalog::{Catalog, CatalogEntry, ReadState};
use strata::gpu::kernels::KvFormat;
use strata::kv::offload::{DiskBacking, OffloadConfig, OffloadTiers, Retention};
use strata::kv::store::{Folder, Geometry, Io, IoConfig, PAGE_TOKENS, PageId, PageKind, PageStore, StoreRoot, StoreSpec};
use strata::telemetry::Hub;

const N_TOKENS: u32 = 16_384;
const N_GROUPS: u32 = N_TOKENS / PAGE_TOKENS;
/// Orders of the fio reads.
const RANDOM: [&str; 2] = ["--rw=randread", "--norandommap=1"];
const SEQUENTIAL: [&str; 1] = ["--rw=read"];
const RESTORE_HEAD: &str = "\
    | document | page | read | in pieces of | opening ms | by layer | fio random | ratio | in file order | fio sequential | ratio | \
    with opening | fio, 32 buffers | by layer over it | in file order over it |\n\
    |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|";
const METADATA_HEAD: &str = "\
    | document | KV | token ids | header | index | catalog | metadata | padding of pages | unused slots |\n\
    |---|---|---|---|---|---|---|---|---|";
/// RAM tier: smaller than any document, so that no page comes from a cached copy.
const RAM: Bytes = Bytes(128 << 20);

/// A document of some model.
struct Subject {
    name: &'static str,
    element: KvFormat,
    n_layer: u32,
    n_kv_head: usize,
    head_dim: usize,
}

const fn subject(name: &'static str, element: KvFormat, n_layer: u32, n_kv_head: usize, head_dim: usize) -> Subject {
    Subject { name, element, n_layer, n_kv_head, head_dim }
}

const SUBJECTS: [Subject; 7] = [
    subject("built-in f16", KvFormat::F16, 6, 2, 64),
    subject("built-in q8", KvFormat::Q8, 6, 2, 64),
    subject("built-in q4", KvFormat::Q4, 6, 2, 64),
    subject("qwen2.5-0.5b f16", KvFormat::F16, 24, 2, 64),
    subject("llama-3.1-8b f16", KvFormat::F16, 32, 8, 128),
    subject("llama-3.1-8b q8", KvFormat::Q8, 32, 8, 128),
    subject("llama-3.1-8b q4", KvFormat::Q4, 32, 8, 128),
];

impl Subject {
    fn page_bytes(&self) -> u64 {
        self.element.page_bytes(self.n_kv_head, self.head_dim)
    }

    fn kv_bytes(&self) -> u64 {
        u64::from(N_GROUPS * self.n_layer) * self.page_bytes()
    }

    /// Id of its store and of its catalog entry.
    fn id(&self) -> String {
        format!("{:064x}", self.page_bytes() << 32 | u64::from(self.n_layer))
    }

    fn spec(&self) -> StoreSpec {
        StoreSpec {
            model_hash: [1; 32],
            tokenizer_hash: [2; 32],
            settings_hash: [3; 32],
            layout: "bench/block16".into(),
            n_layer: self.n_layer,
            kv_page_bytes: self.page_bytes(),
            activation_page_bytes: 0,
            abstract_bytes: 0,
        }
    }

    /// In the order of attention.
    fn pages_by_layer(&self) -> Vec<PageId> {
        (0..self.n_layer).flat_map(|layer| (0..N_GROUPS).map(move |group| PageId::kv(layer, group))).collect()
    }

    /// In the order of the arena files.
    fn pages_in_file_order(&self) -> Vec<PageId> {
        let mut pages = self.pages_by_layer();
        let geometry = geometry(self);
        pages.sort_by_key(|page| (geometry.place(*page).arena, geometry.place(*page).offset));
        pages
    }

    fn entry(&self) -> CatalogEntry {
        let id = self.id();
        CatalogEntry {
            content_hash: id.clone(),
            name: "a-document-with-a-name-of-some-length.txt".into(),
            after: Vec::new(),
            bytes: u64::from(4 * N_TOKENS),
            pages: 40,
            model: self.name.into(),
            model_fingerprint: id.clone(),
            kv_dtype: "f16".into(),
            tokens: N_TOKENS as usize,
            saved_tokens: N_TOKENS as usize,
            kv_bytes: self.kv_bytes(),
            state: ReadState::Read,
            prefill_seconds: 1.0,
            created: 0,
            last_used: 0,
            id,
        }
    }
}

/// Incompressible payloads; every 4 KiB identify their page.
struct Payload(Vec<u8>);

impl Payload {
    fn new(n_bytes: u64) -> Payload {
        let mut rng = Rng::new(n_bytes);
        Payload((0..n_bytes.div_ceil(4)).flat_map(|_| rng.next_u32().to_le_bytes()).take(n_bytes as usize).collect())
    }

    fn of(&mut self, page: PageId) -> &[u8] {
        for (part, piece) in (0u16..).zip(self.0.chunks_mut(4096)) {
            let whose = u64::from(page.layer) << 48 | u64::from(page.group) << 16 | u64::from(part);
            piece[..8].copy_from_slice(&whose.to_le_bytes());
        }
        &self.0
    }
}

/// Library of the bench, with the measured document.
struct Saved<'a> {
    subject: &'a Subject,
    library: StoreRoot,
    tokens: Vec<u32>,
}

impl<'a> Saved<'a> {
    /// Saves the document.
    fn make(library: &StoreRoot, subject: &'a Subject, io: Io) -> (Saved<'a>, Io) {
        let saved = Saved { subject, library: library.clone(), tokens: (0..N_TOKENS).collect() };
        let (mut tiers, _) = saved.open(io);
        let mut payload = Payload::new(subject.page_bytes());
        for group in 0..N_GROUPS {
            let pages = (0..subject.n_layer).map(|layer| PageId::kv(layer, group));
            pages.for_each(|page| tiers.put(page, payload.of(page), Retention::OnDiskOnly).unwrap());
        }
        assert!(tiers.flush(), "{:?}", tiers.take_notices());
        let (_, io) = tiers.close();
        let (catalog, _) = Catalog::open(library.root()).unwrap();
        catalog.upsert(&subject.entry()).unwrap();
        (saved, io)
    }

    /// Tiers over the store, and the time to open them.
    fn open(&self, io: Io) -> (OffloadTiers, Duration) {
        let began = Instant::now();
        let config = OffloadConfig {
            ram_budget: RAM,
            disk_budget: Bytes(u64::MAX),
            nvme_limit: None,
            page_bytes: self.subject.page_bytes(),
            n_layer: self.subject.n_layer,
            read_ahead: true,
        };
        let folder: Arc<dyn Folder> = self.library.folder(&self.subject.id()).unwrap();
        let (store, _) = PageStore::open_or_create(folder, &self.subject.spec(), &self.tokens).unwrap();
        let tiers = OffloadTiers::new(config, io, DiskBacking::Saved(store.into()), Hub::new(1).lane("bench")).unwrap();
        (tiers, began.elapsed())
    }

    /// Fetches all pages once. If `check`, every byte is verified.
    fn restore(&self, io: Io, pages: &[PageId], check: bool) -> (Io, Restored) {
        let (mut tiers, opening) = self.open(io);
        let began = Instant::now();
        tiers.plan(pages, false);
        let mut payload = check.then(|| Payload::new(self.subject.page_bytes()));
        for page in pages {
            let bytes = tiers.fetch(*page).unwrap();
            if let Some(payload) = &mut payload {
                assert!(*bytes == *payload.of(*page), "{page} was restored with wrong bytes");
            }
        }
        let reading = began.elapsed();
        let ram_bytes = tiers.usage().ram.peak.0;
        (tiers.close().1, Restored { opening, reading, ram_bytes })
    }
}

struct Restored {
    opening: Duration,
    reading: Duration,
    ram_bytes: u64,
}

/// Restores repeatedly.
struct Restorer<'a> {
    saved: Saved<'a>,
    io: Option<Io>,
    openings_ms: Vec<f64>,
    /// bytes per second in file order, including the time to open
    with_opening: Vec<f64>,
}

impl Restorer<'_> {
    fn once(&mut self, pages: &[PageId], check: bool) -> Restored {
        let (io, restored) = self.saved.restore(self.io.take().unwrap(), pages, check);
        self.io = Some(io);
        restored
    }

    /// Bytes per second over the time of a measurement, without and with opening; bytes as transferred, including
    /// padding.
    fn rate(&mut self, setup: &Setup, pages: &[PageId]) -> [f64; 2] {
        let (mut opening, mut reading, mut n_times) = (Duration::ZERO, Duration::ZERO, 0.0);
        while opening + reading < setup.time {
            let restored = self.once(pages, false);
            (opening, reading, n_times) = (opening + restored.opening, reading + restored.reading, n_times + 1.0);
        }
        self.openings_ms.push(opening.as_secs_f64() * 1e3 / n_times);
        let n_bytes = n_times * (slot_bytes(self.saved.subject) * pages.len() as u64) as f64;
        [reading, opening + reading].map(|time| n_bytes / time.as_secs_f64())
    }
}

/// One row: the document is checked, then restored in turns with fio.
fn restore_row(setup: &Setup, saved: Saved<'_>, io: Io) -> Io {
    let subject = saved.subject;
    let (by_layer, in_file_order) = (subject.pages_by_layer(), subject.pages_in_file_order());
    let arena = setup.dir.join(subject.id()).join("kv-0000.arena");
    let restorer = RefCell::new(Restorer { saved, io: Some(io), openings_ms: Vec::new(), with_opening: Vec::new() });
    let piece = run_bytes(subject);
    let as_large = restorer.borrow_mut().once(&by_layer, true).ram_bytes / piece;
    let fio = |depth, order| fio_rate(setup, &arena, piece, depth, order);
    let [layer, file, random, sequential, shallow] = interleaved(
        setup,
        [
            &mut || Some(restorer.borrow_mut().rate(setup, &by_layer)[0]),
            &mut || {
                let mut restorer = restorer.borrow_mut();
                let [rate, with_opening] = restorer.rate(setup, &in_file_order);
                restorer.with_opening.push(with_opening);
                Some(rate)
            },
            &mut || fio(as_large, &RANDOM),
            &mut || fio(as_large, &SEQUENTIAL),
            &mut || fio(u64::from(DEPTH), &SEQUENTIAL),
        ],
    );
    let Restorer { io, openings_ms, with_opening, .. } = restorer.into_inner();
    let opening_ms = openings_ms.iter().sum::<f64>() / openings_ms.len().max(1) as f64;
    let (page, total) = (Bytes(subject.page_bytes()), Bytes(slot_bytes(subject) * by_layer.len() as u64));
    print!("| {} | {page} | {total} | {} | {opening_ms:.1} |", subject.name, Bytes(piece));
    print!(" {} | {} | {} |", rates(&layer), rates(&random), ratio(&layer, &random));
    print!(
        " {} | {} | {} | {} |",
        rates(&file),
        rates(&sequential),
        ratio(&file, &sequential),
        ratio(&with_opening, &sequential)
    );
    println!(" {} | {} | {} |", rates(&shallow), ratio(&layer, &shallow), ratio(&file, &shallow));
    io.unwrap()
}

fn geometry(subject: &Subject) -> Geometry {
    Geometry::new(&subject.spec()).unwrap()
}

/// Bytes of a page in the arena.
fn slot_bytes(subject: &Subject) -> u64 {
    geometry(subject).slot_of(PageKind::Kv)
}

/// Bytes of adjacent pages that are one read.
fn run_bytes(subject: &Subject) -> u64 {
    slot_bytes(subject) * u64::from(geometry(subject).extent_groups)
}

/// One row of metadata, from the file sizes.
fn metadata_row(setup: &Setup, subject: &Subject) -> String {
    let folder = setup.dir.join(subject.id());
    let of = |path: &Path| std::fs::metadata(path).map_or(0, |m| m.len());
    let (header, index, lock) = (of(&folder.join("header")), of(&folder.join("index")), of(&folder.join("lock")));
    let arenas: u64 = std::fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "arena"))
        .map(|path| of(&path))
        .sum();
    let catalog = of(&setup.dir.join("library.sqlite"));
    let kv = subject.kv_bytes();
    let share = |bytes: u64| format!("{:.3} %", 100.0 * bytes as f64 / kv as f64);
    let tokens = u64::from(4 * N_TOKENS);
    let padding = u64::from(N_GROUPS * subject.n_layer) * (slot_bytes(subject) - subject.page_bytes());
    format!(
        "| {} | {} | {tokens} | {} | {index} | {catalog} | {} | {} | {} |",
        subject.name,
        Bytes(kv),
        header + lock - tokens,
        share(header + lock + index + catalog),
        share(padding),
        share(arenas - kv - padding),
    )
}

fn main() {
    let Some(setup) = Setup::new("restore_bench") else { return };
    let requested: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let is_wanted = |s: &&Subject| requested.is_empty() || requested.iter().any(|w| s.name.contains(w.as_str()));
    let mut io = Io::start(&IoConfig::from_env()).unwrap();
    setup.introduce(&format!(
        "Restoring {N_TOKENS} tokens over {}, depth {}, checksums verified, next to fio's sequential reading of the arena",
        io.info().kind,
        io.info().depth
    ));
    println!("{RESTORE_HEAD}");
    let library = StoreRoot::open(&setup.dir).unwrap();
    let mut metadata = Vec::new();
    for subject in SUBJECTS.iter().filter(is_wanted) {
        let (saved, back) = Saved::make(&library, subject, io);
        metadata.push(metadata_row(&setup, subject));
        io = restore_row(&setup, saved, back);
        library.remove(&subject.id()).unwrap();
    }
    println!("\n## Metadata of {N_TOKENS} tokens, bytes, and as a share of the KV\n");
    println!("{METADATA_HEAD}");
    metadata.iter().for_each(|row| println!("{row}"));
}
