//! Kill tests: `kill -9` of a real process during a prefill, many times on one store.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use strata::base::{Bytes, Rng};
use strata::kv::store::{Cancel, Folder, Io, IoConfig, PageId, PageKind, PageStore, SlabPool};

use crate::common::{N_LAYER, n_intact, open_store, payload, real_folders, store_in};

const N_GROUPS: u32 = 400;
const N_KILLS: u32 = 30;
const FOLDER: &str = "STRATA_TEST_PREFILL";

/// Runs one test of this binary in a child process.
pub fn run_this_test_as_a_child(test: &str, variables: &[(&str, &OsStr)]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).envs(variables.iter().copied());
    command
}

/// The child: writes pages to the store, group by group, and prints each commit.
fn prefill(path: &OsStr) {
    let folder: Arc<dyn Folder> = Arc::new(strata::kv::store::Disk::new(path));
    let (mut store, _) = open_store(&folder, N_GROUPS);
    let io = Io::start(&IoConfig::from_env()).unwrap();
    let pool = SlabPool::new(Bytes(4 << 20));
    for group in store.n_complete_prefix()..N_GROUPS {
        write_group(&mut store, &io, &pool, group);
        store.commit().unwrap();
        // Bypasses the test harness and flushes: the parent relies on every line it has read.
        let mut out = std::io::stdout().lock();
        writeln!(out, "committed {group}").and_then(|()| out.flush()).unwrap();
    }
}

fn write_group(store: &mut PageStore, io: &Io, pool: &SlabPool, group: u32) {
    for layer in 0..N_LAYER {
        let page = PageId::kv(layer, group);
        let mut slab = pool.take(store.geometry().slot_of(PageKind::Kv) as usize).unwrap();
        slab[..9000].copy_from_slice(&payload(page, 0, 9000));
        io.submit(store.begin_write(page, &Arc::new(slab), u64::from(layer), &Cancel::default()).unwrap()).unwrap();
    }
    for _ in 0..N_LAYER {
        let done = io.next(Duration::from_secs(20)).unwrap();
        store.finish_write(PageId::kv(done.tag as u32, group), done.result).unwrap();
    }
}

/// Starts a child and kills it. Returns the last group that it reported as committed.
fn run_and_kill(path: &OsStr, backend: &str, rng: &mut Rng) -> Option<u32> {
    let name = "kill::prefill_killed_at_random_moments_loses_at_most_one_group";
    let mut child = run_this_test_as_a_child(name, &[(FOLDER, path), ("STRATA_IO", backend.as_ref())])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let said = |line: &String| line.rsplit_once("committed ").and_then(|(_, n)| n.parse::<u32>().ok());
    // Some lines, then a random moment within a group.
    let n_lines = rng.uniform(8);
    let mut last = (0..n_lines).filter_map(|_| lines.by_ref().find_map(|l| said(&l))).last();
    std::thread::sleep(Duration::from_micros(u64::from(rng.uniform(if n_lines == 0 { 40_000 } else { 4_000 }))));
    child.kill().unwrap();
    child.wait().unwrap();
    last = lines.filter_map(|l| said(&l)).last().or(last);
    last
}

#[test]
fn prefill_killed_at_random_moments_loses_at_most_one_group() {
    if let Some(path) = std::env::var_os(FOLDER) {
        return prefill(&path);
    }
    let mut rng = Rng::new(20);
    let dirs = real_folders();
    let (mut n_mid_group, mut n_progress) = (0, 0);
    for kill in 0..N_KILLS {
        let (name, dir) = &dirs[kill as usize % dirs.len()];
        let (path, folder) = store_in(dir);
        let backend = if kill % 4 < 2 { "uring" } else { "threads" };
        let last = run_and_kill(path.as_os_str(), backend, &mut rng);
        let (mut store, report) = open_store(&folder, N_GROUPS);
        assert!(report.replaced.is_none() && !report.recovered, "{name}, kill {kill}: {report:?}");
        assert_eq!(report.n_damaged, 0, "{name}, kill {kill}");
        let n = store.n_complete_prefix();
        // Every reported commit is there. A commit may have completed just before it was reported.
        assert!(n >= last.map_or(0, |l| l + 1), "{name}, kill {kill}: {n} groups, but {last:?} was committed");
        assert_eq!(n, store.n_committed());
        assert_eq!(n_intact(&mut store), (n * N_LAYER) as usize, "{name}, kill {kill}");
        // A fast disk reaches the end: start over.
        drop(store);
        if n == N_GROUPS {
            std::fs::remove_dir_all(path).unwrap();
        }
        n_progress += u32::from(last.is_some());
        n_mid_group += u32::from(last.is_some_and(|l| n == l + 1));
    }
    assert!(n_progress > N_KILLS / 2 && n_mid_group > N_KILLS / 4, "{n_progress} with progress, {n_mid_group} mid-group");
}
