//! I/O backend tests: equal bytes, bounded queues, returned memory, fallbacks.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use strata::base::{Bytes, Rng};
use strata::kv::store::{
    Cancel, Disk, Folder, Io, IoBuffer, IoConfig, IoKind, IoOp, IoRequest, MemoryFolder, OpenMode, SlabPool, Storage, write_all,
};

use crate::common::real_folders;
use crate::kill::run_this_test_as_a_child;

const FILE_BYTES: usize = 4 << 20;

fn contents() -> Vec<u8> {
    let mut rng = Rng::new(9);
    (0..FILE_BYTES / 4).flat_map(|_| rng.next_u32().to_le_bytes()).collect()
}

fn open(folder: &dyn Folder, direct: bool) -> Arc<dyn Storage> {
    drop(folder.lock(true).unwrap());
    folder.open("data", OpenMode { create: true, direct }).unwrap()
}

fn request(storage: &Arc<dyn Storage>, tag: u64, offset: u64, len: usize, buffer: IoBuffer) -> IoRequest {
    IoRequest { tag, storage: Arc::clone(storage), offset, len, buffer, cancel: Cancel::default() }
}

fn config(kind: IoKind) -> IoConfig {
    IoConfig { force: Some(kind), ..IoConfig::default() }
}

/// Writes through the backend, reads back in random order, and compares.
fn round_trip(io: &Io, storage: &Arc<dyn Storage>, name: &str) {
    let expected = contents();
    let pool = SlabPool::new(Bytes(4 << 20));
    storage.set_len(FILE_BYTES as u64).unwrap();
    let block = 64 << 10;
    for (i, part) in expected.chunks(block).enumerate() {
        let mut slab = pool.take(block).unwrap();
        slab.copy_from_slice(part);
        let buffer = IoBuffer::Write(Arc::new(slab));
        io.submit(request(storage, i as u64, (i * block) as u64, block, buffer)).unwrap();
        if io.n_outstanding() > 20 {
            io.next(Duration::from_secs(20)).unwrap().result.unwrap();
        }
    }
    while io.n_outstanding() > 0 {
        let done = io.next(Duration::from_secs(20)).unwrap();
        assert_eq!((done.op, done.len), (IoOp::Write, block));
        done.result.unwrap();
    }
    let mut rng = Rng::new(4);
    let offsets: Vec<u64> = (0..200).map(|_| u64::from(rng.uniform(1000)) * 4096).collect();
    let mut n_seen = 0;
    let mut check = |done: strata::kv::store::IoDone| {
        done.result.unwrap();
        let at = offsets[done.tag as usize] as usize;
        let slab = done.buffer.unwrap().into_read().unwrap();
        assert!(slab[..done.len] == expected[at..at + done.len], "{name}: wrong bytes at {at}");
        n_seen += 1;
    };
    for (tag, offset) in offsets.iter().enumerate() {
        let len = ((tag % 16 + 1) * 4096).min(FILE_BYTES - *offset as usize);
        while io.n_outstanding() >= 40 {
            check(io.next(Duration::from_secs(20)).unwrap());
        }
        let slab = pool.take(64 << 10).unwrap();
        io.submit(request(storage, tag as u64, *offset, len, IoBuffer::Read(slab))).unwrap();
    }
    while io.n_outstanding() > 0 {
        check(io.next(Duration::from_secs(20)).unwrap());
    }
    assert_eq!(n_seen, 200);
    assert_eq!(pool.usage().in_use, Bytes(0));
}

#[test]
fn both_backends_read_the_same_bytes_from_every_kind_of_folder() {
    let dirs = real_folders();
    for kind in [IoKind::Uring, IoKind::Threads] {
        for register_buffers in [true, false] {
            let io = Io::start(&IoConfig { register_buffers, ..config(kind) }).unwrap();
            for (name, dir) in &dirs {
                let folder = Disk::new(dir.path().join(format!("{kind}-{register_buffers}")));
                round_trip(&io, &open(&folder, true), name);
                let folder = Disk::buffered(dir.path().join(format!("{kind}-{register_buffers}-buffered")));
                let storage = open(&folder, true);
                assert!(!storage.is_direct());
                round_trip(&io, &storage, name);
            }
            round_trip(&io, &open(&MemoryFolder::new(), true), "memory");
            let counts = io.counts();
            assert_eq!((counts.n_failed, counts.n_done > 500), (0, true));
            if io.info().kind == IoKind::Uring {
                assert!(counts.n_fixed_file > 500);
                assert_eq!((counts.n_fixed_buffer > 500, counts.n_unregistered > 0), (register_buffers, !register_buffers));
            }
        }
    }
}

#[test]
fn reads_past_the_end_fail_and_return_their_memory() {
    let (_, dir) = real_folders().swap_remove(0);
    for kind in [IoKind::Uring, IoKind::Threads] {
        for direct in [true, false] {
            let storage = open(&Disk::new(dir.path().join(format!("{kind}{direct}"))), direct);
            write_all(&*storage, &Aligned::new(8192), 0).unwrap();
            storage.set_len(6000).unwrap();
            let io = Io::start(&config(kind)).unwrap();
            let pool = SlabPool::new(Bytes(1 << 20));
            for (tag, offset) in [0, 4096, 8192, 1 << 40].into_iter().enumerate() {
                io.submit(request(&storage, tag as u64, offset, 8192, IoBuffer::Read(pool.take(8192).unwrap()))).unwrap();
            }
            for _ in 0..4 {
                let done = io.next(Duration::from_secs(20)).unwrap();
                assert_eq!(done.result.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof, "{kind} {direct} {}", done.tag);
                assert!(done.buffer.is_some());
            }
            assert_eq!(pool.usage().in_use, Bytes(0));
            let slab = pool.take(4096).unwrap();
            io.submit(request(&storage, 9, 0, 8192, IoBuffer::Read(slab))).unwrap();
            assert!(io.next(Duration::from_secs(20)).unwrap().result.is_err(), "longer than its slab");
        }
    }
}

/// A buffer that a direct file accepts.
struct Aligned(strata::kv::store::Slab);

impl Aligned {
    fn new(len: usize) -> Self {
        Aligned(SlabPool::new(Bytes(1 << 20)).take(len).unwrap())
    }
}

impl std::ops::Deref for Aligned {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

#[test]
fn refused_ring_falls_back_to_threads_with_the_reason() {
    // More entries than any kernel allows.
    let io = Io::start(&IoConfig { depth: 1 << 24, ..IoConfig::default() }).unwrap();
    let info = io.info();
    assert_eq!(info.kind, IoKind::Threads);
    assert!(info.reason.contains("cannot be created"), "{}", info.reason);
    let (_, dir) = real_folders().swap_remove(0);
    round_trip(&io, &open(&Disk::new(dir.path().join("d")), true), "refused");
    let io = Io::start(&config(IoKind::Threads)).unwrap();
    assert!(io.info().reason.contains("STRATA_IO=threads"));
}

#[test]
fn queue_is_bounded_and_returns_rejected_requests() {
    let (_, dir) = real_folders().swap_remove(0);
    let storage = open(&Disk::new(dir.path().join("d")), true);
    storage.set_len(1 << 20).unwrap();
    for kind in [IoKind::Uring, IoKind::Threads] {
        let io = Io::start(&IoConfig { queue: 4, depth: 2, ..config(kind) }).unwrap();
        let pool = SlabPool::new(Bytes(1 << 20));
        let read = |tag| request(&storage, tag, 0, 4096, IoBuffer::Read(pool.take(4096).unwrap()));
        (0..4).for_each(|tag| io.submit(read(tag)).unwrap());
        let back = io.submit(read(4)).unwrap_err();
        assert_eq!((back.tag, io.n_outstanding()), (4, 4));
        io.next(Duration::from_secs(20)).unwrap().result.unwrap();
        io.submit(*back).unwrap();
        (0..4).for_each(|_| io.next(Duration::from_secs(20)).unwrap().result.unwrap());
        assert!(io.try_next().is_none() && io.next(Duration::from_millis(1)).is_none());
    }
}

#[test]
fn cancelled_and_abandoned_requests_return_their_memory() {
    let (_, dir) = real_folders().swap_remove(0);
    let storage = open(&Disk::new(dir.path().join("d")), true);
    storage.set_len(8 << 20).unwrap();
    for kind in [IoKind::Uring, IoKind::Threads] {
        let io = Io::start(&IoConfig { depth: 2, ..config(kind) }).unwrap();
        let pool = SlabPool::new(Bytes(32 << 20));
        let cancel = Cancel::default();
        cancel.cancel();
        let slab = pool.take(4096).unwrap();
        io.submit(IoRequest { cancel, ..request(&storage, 1, 0, 4096, IoBuffer::Read(slab)) }).unwrap();
        let done = io.next(Duration::from_secs(20)).unwrap();
        assert_eq!(done.result.unwrap_err().to_string(), "cancelled");
        drop(done.buffer);
        // The owner is dropped with requests in flight: the threads exit, and no memory is lost or used twice.
        for tag in 0..64 {
            let slab = pool.take(256 << 10).unwrap();
            io.submit(request(&storage, tag, tag % 16 * (256 << 10), 256 << 10, IoBuffer::Read(slab))).unwrap();
        }
        drop(io);
        assert_eq!(pool.usage().in_use, Bytes(0), "{kind}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn direct_reads_bypass_the_page_cache() {
    let (name, dir) = real_folders().swap_remove(0);
    let storage = open(&Disk::new(dir.path().join("d")), true);
    if !storage.is_direct() {
        eprintln!("skipped: direct_reads_bypass_the_page_cache: {name} has no direct files");
        return;
    }
    for kind in [IoKind::Uring, IoKind::Threads] {
        let io = Io::start(&config(kind)).unwrap();
        round_trip(&io, &storage, name);
        assert_eq!(n_cached(&dir.path().join("d/data")), 0, "{kind}");
    }
    // The same through the page cache, to validate `n_cached`.
    let buffered = open(&Disk::buffered(dir.path().join("b")), true);
    round_trip(&Io::start(&config(IoKind::Threads)).unwrap(), &buffered, name);
    assert!(n_cached(&dir.path().join("b/data")) > 500);
}

/// Number of pages of a file in the page cache.
#[cfg(target_os = "linux")]
fn n_cached(path: &std::path::Path) -> usize {
    let file = fs::File::open(path).unwrap();
    // SAFETY: no process truncates this file while it is mapped, and it is not read through the mapping.
    let map = unsafe { memmap2::Mmap::map(&file).unwrap() };
    let mut resident = vec![0u8; map.len().div_ceil(4096)];
    // SAFETY: the address range belongs to the mapping, and the vector has one byte per page.
    let rc = unsafe { libc::mincore(map.as_ptr().cast_mut().cast(), map.len(), resident.as_mut_ptr()) };
    assert_eq!(rc, 0);
    resident.iter().filter(|r| **r & 1 == 1).count()
}

#[test]
#[cfg(target_os = "linux")]
fn memory_over_the_lock_limit_is_read_into_unregistered() {
    let name = "io::memory_over_the_lock_limit_is_read_into_unregistered";
    let (_, dir) = real_folders().swap_remove(0);
    if let Some(path) = std::env::var_os("STRATA_TEST_MEMLOCK") {
        let storage = open(&Disk::new(path), true);
        // SAFETY: only integers and a struct that outlives the call; the child does nothing else.
        unsafe {
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &none), 0);
            // Root has no limit on locked memory.
            if libc::geteuid() == 0 {
                assert_eq!(libc::setresuid(65534, 65534, 65534), 0);
            }
        }
        let io = Io::start(&IoConfig::default()).unwrap();
        round_trip(&io, &storage, "no locked memory");
        if io.info().kind == IoKind::Uring {
            let counts = io.counts();
            assert!(counts.n_unregistered > 0 && counts.n_fixed_buffer == 0, "{counts:?}");
        } else {
            eprintln!("no ring: {}", io.info().reason);
        }
        return;
    }
    let output = run_this_test_as_a_child(name, &[("STRATA_TEST_MEMLOCK", dir.path().join("d").as_os_str())]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn environment_selects_the_backend() {
    let name = "io::environment_selects_the_backend";
    if std::env::var_os("STRATA_TEST_CHILD").is_some() {
        assert_eq!(Io::start(&IoConfig::from_env()).unwrap().info().kind, IoKind::Threads);
        return;
    }
    let variables = [("STRATA_TEST_CHILD", "1".as_ref()), ("STRATA_IO", "threads".as_ref())];
    let output = run_this_test_as_a_child(name, &variables).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
