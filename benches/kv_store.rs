//! Store I/O benchmark: read bandwidth of the I/O backends, compared with fio on the same file, block size and depth.
//!
//! `cargo bench --bench kv_store` · `STRATA_BENCH_BYTES` size of the file (default 512 MiB) · more settings in
//! [`disk`].
//!
//! Random reads past the page cache. The bytes are checked before timing. Without fio its columns are empty. Goals:
//! 0.95 of fio at 128 KiB, 0.90 at 16 KiB.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a bench prints, and ends where it fails")]

mod disk_common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use disk_common::{DEPTH, Setup, fio_rate, interleaved, rates, ratio};
use strata::base::{Bytes, Rng};
use strata::kv::store::{
    Cancel, Disk, Folder, Io, IoBuffer, IoConfig, IoKind, IoRequest, OpenMode, SlabPool, Storage, write_all,
};

/// Size of one write, a multiple of every block.
const PIECE: u64 = 4 << 20;
/// Reads waiting in the queue.
const WAITING_BYTES: usize = 512 << 10;
/// Timeout of a read.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Order of the fio reads.
const RANDOM: [&str; 2] = ["--rw=randread", "--norandommap=1"];

/// Every 4 KiB of the file begin with their index, and are incompressible.
fn make_file(setup: &Setup, n_bytes: u64) -> Arc<dyn Storage> {
    let folder = Disk::new(&setup.dir);
    drop(folder.lock(true).unwrap());
    let storage = folder.open("data", OpenMode { create: true, direct: true }).unwrap();
    let mut slab = SlabPool::new(Bytes(PIECE)).take(PIECE as usize).unwrap();
    let mut rng = Rng::new(1);
    slab.as_chunks_mut::<4>().0.iter_mut().for_each(|w| *w = rng.next_u32().to_le_bytes());
    storage.allocate(n_bytes).unwrap();
    for at in (0..n_bytes).step_by(PIECE as usize) {
        for (i, page) in (0u64..).zip(slab.chunks_exact_mut(4096)) {
            page[..8].copy_from_slice(&(at / 4096 + i).to_le_bytes());
        }
        write_all(&*storage, &slab, at).unwrap();
    }
    storage.sync().unwrap();
    storage
}

/// Bytes per second of random reads of `block` bytes for `time`. If `check`, every block is verified.
fn read_rate(io: &Io, storage: &Arc<dyn Storage>, n_bytes: u64, block: usize, time: Duration, check: bool) -> f64 {
    // The disk has `DEPTH` of the slabs and the others wait in the queue, so that the disk never waits for this thread.
    // There are no more, because a virtual disk is faster if they fit the CPU cache, as those of fio do.
    let n_slabs = DEPTH as usize + WAITING_BYTES / block;
    // As large as in the app: memory smaller than a huge page would be read in small pages, which takes half as long
    // again.
    let pool = SlabPool::new(Bytes(64 << 20));
    let mut rng = Rng::new(block as u64);
    let n_blocks = (n_bytes / block as u64) as u32;
    let mut submit = |slab| {
        let offset = u64::from(rng.uniform(n_blocks)) * block as u64;
        let (storage, buffer, cancel) = (Arc::clone(storage), IoBuffer::Read(slab), Cancel::default());
        io.submit(IoRequest { tag: offset, storage, offset, len: block, buffer, cancel }).unwrap();
    };
    (0..n_slabs).for_each(|_| submit(pool.take(block).unwrap()));
    let (began, mut n_read) = (Instant::now(), 0);
    while began.elapsed() < time {
        let done = io.next(TIMEOUT).expect("the disk must respond");
        done.result.unwrap();
        let slab = done.buffer.unwrap().into_read().unwrap();
        if check {
            let numbers = slab[..block].chunks(4096).map(|p| u64::from_le_bytes(*p.first_chunk().unwrap()));
            assert!(numbers.eq((done.tag / 4096..).take(block / 4096)), "wrong bytes at {}", done.tag);
        }
        n_read += block;
        submit(slab);
    }
    let rate = n_read as f64 / began.elapsed().as_secs_f64();
    while io.n_outstanding() > 0 {
        io.next(TIMEOUT).expect("the disk must respond").result.unwrap();
    }
    rate
}

fn main() {
    let Some(setup) = Setup::new("kv_store_bench") else { return };
    let requested = std::env::var("STRATA_BENCH_BYTES").map_or(512 << 20, |text| text.parse::<Bytes>().unwrap().0);
    let n_bytes = requested.next_multiple_of(PIECE);
    let storage = make_file(&setup, n_bytes);
    let direct = if storage.is_direct() { "direct" } else { "through the page cache" };
    setup.introduce(&format!("Random reads of {}, {direct}, depth {DEPTH}, next to fio's io_uring", Bytes(n_bytes)));
    println!("| block | backend | MB/s | fio MB/s | ratio |\n|---|---|---|---|---|");
    for block in [128 << 10, 16 << 10] {
        for kind in [IoKind::Uring, IoKind::Threads] {
            let io = Io::start(&IoConfig { force: Some(kind), depth: DEPTH, ..IoConfig::default() }).unwrap();
            // Checked and warmed up before timing.
            read_rate(&io, &storage, n_bytes, block, setup.time, true);
            let mut ours = || Some(read_rate(&io, &storage, n_bytes, block, setup.time, false));
            let mut theirs = || fio_rate(&setup, &setup.dir.join("data"), block as u64, u64::from(DEPTH), &RANDOM);
            let [ours, theirs] = interleaved(&setup, [&mut ours, &mut theirs]);
            let (name, ratio) = (io.info().kind, ratio(&ours, &theirs));
            println!("| {} | {name} | {} | {} | {ratio} |", Bytes(block as u64), rates(&ours), rates(&theirs));
        }
    }
}
