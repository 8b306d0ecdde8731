//! How fast the store's backends read, next to fio on the same file with the same block size and depth.
//!
//! `cargo bench --bench kv_store` · `STRATA_BENCH_DIR` the folder to read in (the build's own otherwise) · `STRATA_BENCH_BYTES`
//! size of the file (512 MiB otherwise) · `STRATA_BENCH_SECONDS` time of each measurement (2 otherwise).
//!
//! Every measurement is random reads past the page cache, taken in turns, so that both see the same disk. The bytes are
//! checked before anything is timed. Where fio is not installed its columns stay empty.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a bench prints, and ends where it fails")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use strata::base::{Bytes, Rng};
use strata::kv::store::{
    Cancel, Disk, Folder, Io, IoBuffer, IoConfig, IoKind, IoRequest, OpenHow, PageId, PageKind, SlabPool, Storage, Store,
    StoreSpec, write_all,
};

const DEPTH: u32 = 32;
const N_ROUNDS: usize = 5;

struct Setup {
    dir: PathBuf,
    bytes: u64,
    time: Duration,
}

fn setup() -> Setup {
    let of = |name: &str| std::env::var(name).ok();
    let dir = of("STRATA_BENCH_DIR").map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let bytes = of("STRATA_BENCH_BYTES").map_or(512 << 20, |text| text.parse::<Bytes>().unwrap().0);
    let seconds: f64 = of("STRATA_BENCH_SECONDS").map_or(2.0, |text| text.parse().unwrap());
    Setup { dir: dir.join("kv_store_bench"), bytes, time: Duration::from_secs_f64(seconds) }
}

/// Block `i` of the file begins with its number, and is not compressible.
fn make_file(setup: &Setup) -> Arc<dyn Storage> {
    let folder = Disk::new(&setup.dir);
    drop(folder.lock(true).unwrap());
    let storage = folder.open("data", OpenHow { create: true, direct: true }).unwrap();
    let block = 4 << 20;
    let mut slab = SlabPool::new(Bytes(block)).take(block as usize).unwrap();
    let mut rng = Rng::new(1);
    slab.as_chunks_mut::<4>().0.iter_mut().for_each(|w| *w = rng.next_u32().to_le_bytes());
    storage.allocate(setup.bytes).unwrap();
    for at in (0..setup.bytes / block * block).step_by(block as usize) {
        for (i, page) in (0u64..).zip(slab.chunks_exact_mut(4096)) {
            page[..8].copy_from_slice(&(at / 4096 + i).to_le_bytes());
        }
        write_all(&*storage, &slab, at).unwrap();
    }
    storage.sync().unwrap();
    storage
}

/// Bytes per second of random reads of `block` bytes at the depth; every block is checked where `check`.
fn read_rate(io: &Io, storage: &Arc<dyn Storage>, setup: &Setup, block: usize, check: bool) -> f64 {
    // The disk has `DEPTH` of them, the others wait in the queue, so that it never waits for this thread.
    let n_slabs = 4 * DEPTH as usize;
    let pool = SlabPool::new(Bytes((n_slabs * block) as u64));
    let mut rng = Rng::new(block as u64);
    let n_blocks = (setup.bytes / (4 << 20) * (4 << 20) / block as u64) as u32;
    let mut submit = |slab| {
        let offset = u64::from(rng.below(n_blocks)) * block as u64;
        let (storage, buffer, cancel) = (Arc::clone(storage), IoBuffer::Read(slab), Cancel::default());
        io.submit(IoRequest { tag: offset, storage, offset, len: block, buffer, cancel }).unwrap();
    };
    (0..n_slabs).for_each(|_| submit(pool.take(block).unwrap()));
    let (began, mut n_bytes) = (Instant::now(), 0);
    while began.elapsed() < setup.time {
        let done = io.next(Duration::from_secs(30)).expect("the disk answers");
        done.result.unwrap();
        let slab = done.buffer.unwrap().into_read().unwrap();
        if check {
            let numbers = slab[..block].chunks(4096).map(|p| u64::from_le_bytes(*p.first_chunk().unwrap()));
            assert!(numbers.eq((done.tag / 4096..).take(block / 4096)), "wrong bytes at {}", done.tag);
        }
        n_bytes += block;
        submit(slab);
    }
    let rate = n_bytes as f64 / began.elapsed().as_secs_f64();
    while io.n_outstanding() > 0 {
        io.next(Duration::from_secs(30)).expect("the disk answers").result.unwrap();
    }
    rate
}

/// fio's bytes per second; none where it is not installed.
fn fio_rate(setup: &Setup, block: usize) -> Option<f64> {
    let path = setup.dir.join("data");
    let output = Command::new("fio")
        // Its memory in huge pages too, as the slabs are; worth a third at 128 KiB.
        .env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
        .args(["--name=read", "--rw=randread", "--ioengine=io_uring", "--direct=1", "--fixedbufs=1", "--registerfiles=1"])
        .args(["--norandommap=1", "--time_based=1", "--group_reporting=1", "--output-format=json"])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--bs={block}"))
        .arg(format!("--iodepth={DEPTH}"))
        .arg(format!("--size={}", setup.bytes / (4 << 20) * (4 << 20)))
        .arg(format!("--runtime={}ms", setup.time.as_millis()))
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    // Some versions say a word before the JSON.
    let json: serde_json::Value = serde_json::from_str(text.get(text.find('{')?..)?).ok()?;
    json["jobs"][0]["read"]["bw_bytes"].as_f64()
}

fn mean_sd(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let spread = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len().max(1) as f64;
    (mean, spread.sqrt())
}

fn shown(values: &[f64]) -> String {
    let (mean, sd) = mean_sd(values);
    if values.is_empty() { "-".into() } else { format!("{:.0} ± {:.0}", mean / 1e6, sd / 1e6) }
}

fn compare_with_fio(setup: &Setup) {
    let storage = make_file(setup);
    let direct = if storage.is_direct() { "direct" } else { "through the page cache" };
    println!("file {} of {}, {direct}, depth {DEPTH}, n = {N_ROUNDS}", setup.dir.display(), Bytes(setup.bytes));
    println!("| block   | backend  | MB/s            | fio MB/s        | ratio |");
    println!("|---------|----------|-----------------|-----------------|-------|");
    for block in [128 << 10, 16 << 10] {
        for kind in [IoKind::Uring, IoKind::Threads] {
            let io = Io::start(&IoConfig { force: Some(kind), depth: DEPTH, ..IoConfig::default() }).unwrap();
            // Checked, and warm, before anything counts.
            let checked = Setup { time: setup.time / 4, dir: setup.dir.clone(), ..*setup };
            read_rate(&io, &storage, &checked, block, true);
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..N_ROUNDS {
                std::thread::sleep(setup.time / 10);
                ours.push(read_rate(&io, &storage, setup, block, false));
                theirs.extend(fio_rate(setup, block));
            }
            let ratio = if theirs.is_empty() { "-".into() } else { format!("{:.3}", mean_sd(&ours).0 / mean_sd(&theirs).0) };
            let name = io.info().kind.to_string();
            println!(
                "| {:>7} | {name:<8} | {:>15} | {:>15} | {ratio:>5} |",
                Bytes(block as u64).to_string(),
                shown(&ours),
                shown(&theirs)
            );
        }
    }
}

/// Restores a saved document: every page read by layer in runs, and checked.
fn restore(setup: &Setup, spec: &StoreSpec) {
    let io = Io::start(&IoConfig { depth: DEPTH, ..IoConfig::default() }).unwrap();
    let group_bytes = spec.kv_page_bytes * u64::from(spec.n_layer);
    let n_groups = (setup.bytes / group_bytes) as u32;
    let tokens: Vec<u32> = (0..n_groups * 64).collect();
    let folder: Arc<dyn Folder> = Arc::new(Disk::new(setup.dir.join(format!("store-{}", spec.n_layer))));
    let (mut store, _) = Store::open_or_create(Arc::clone(&folder), spec, &tokens).unwrap();
    let began = Instant::now();
    let page = vec![0x5A; spec.kv_page_bytes as usize];
    for group in store.n_complete_prefix()..n_groups {
        (0..spec.n_layer).for_each(|layer| store.put(PageId::kv(layer, group), &page).unwrap());
        store.commit().unwrap();
    }
    let write = began.elapsed();
    drop(store);
    let began = Instant::now();
    let (mut store, _) = Store::open(Arc::clone(&folder), spec, &tokens).unwrap();
    let opened = began.elapsed();
    let n_bytes = u64::from(n_groups) * group_bytes;
    let meta = store.disk_bytes().0.saturating_sub(arena_bytes(&store));
    let mut rates = Vec::new();
    for _ in 0..N_ROUNDS {
        let began = Instant::now();
        read_all(&mut store, &io);
        rates.push(n_bytes as f64 / began.elapsed().as_secs_f64());
    }
    println!(
        "{} layers, pages of {}, {n_groups} groups, {}: written with a commit per group in {:.2} s, opened in {:.1} ms, \
         restored and checked at {} MB/s, metadata {:.2} % of the pages",
        spec.n_layer,
        Bytes(spec.kv_page_bytes),
        Bytes(n_bytes),
        write.as_secs_f64(),
        opened.as_secs_f64() * 1e3,
        shown(&rates),
        100.0 * meta as f64 / n_bytes as f64,
    );
}

fn arena_bytes(store: &Store) -> u64 {
    let extents = u64::from(store.n_groups()).div_ceil(u64::from(store.geometry().extent_groups));
    extents * store.geometry().extent_bytes(PageKind::Kv)
}

fn read_all(store: &mut Store, io: &Io) {
    let pool = SlabPool::new(Bytes(64 << 20));
    let mut runs = Vec::new();
    for layer in 0..store.geometry().n_layer {
        let mut group = 0;
        while let Some(run) = store.run_at(PageKind::Kv, layer, group, u32::MAX) {
            runs.push(run);
            group += run.n_pages;
        }
    }
    let mut next = 0;
    let mut n_checked = 0;
    while n_checked < runs.len() {
        while next < runs.len() && io.n_outstanding() < 2 * DEPTH as usize {
            let run = runs[next];
            let slab = pool.take(store.run_bytes(run)).unwrap();
            io.submit(store.begin_read(run, slab, next as u64, &Cancel::default()).unwrap()).unwrap();
            next += 1;
        }
        let done = io.next(Duration::from_secs(30)).expect("the disk answers");
        let outcome = store.finish_read(runs[done.tag as usize], &done);
        assert!(outcome.bad.is_empty(), "{outcome:?}");
        n_checked += 1;
    }
}

fn spec(n_layer: u32, kv_page_bytes: u64) -> StoreSpec {
    StoreSpec {
        model_hash: [1; 32],
        tokenizer_hash: [2; 32],
        settings_hash: [3; 32],
        layout: "f16/block16".into(),
        n_layer,
        kv_page_bytes,
        activation_page_bytes: 0,
        abstract_bytes: 0,
    }
}

fn clean(dir: &Path) {
    if let Err(e) = std::fs::remove_dir_all(dir) {
        println!("{} could not be removed: {e}", dir.display());
    }
}

fn main() {
    // `cargo test --benches` runs this with `--test`, where nothing is to be measured.
    if std::env::args().any(|a| a == "--test") {
        return;
    }
    let setup = setup();
    compare_with_fio(&setup);
    // The built-in model, and Llama-3.1-8B, in f16.
    restore(&setup, &spec(6, 32 << 10));
    restore(&setup, &spec(32, 256 << 10));
    clean(&setup.dir);
}
