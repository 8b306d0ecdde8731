//! Crash test: `kill -9` of `strata ask` at random moments of loading, prefill and decode, repeatedly on one store.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use strata::base::Rng;
use strata::kv::store::format::{HEADER_BLOCK_BYTES, HeaderBlock, SUPER_SLOT_BYTES, Superblock};
use strata::kv::store::{Disk, OpenReport, PageStore, StoreError, VerifyReport};

use crate::saved::{Answer, Scenario, TINY, answered};

/// Number of kills.
const N_KILLS: usize = 100;
/// Number of kills between two runs that may finish.
const N_KILLS_PER_ROUND: usize = 10;
/// Page groups that one prefill chunk completes at once, with so little VRAM.
const CHUNK_GROUPS: usize = 2;
/// Tokens of the answer.
const N_TOKENS: u32 = 8;

/// Progress and timing of a run that is never killed.
struct Usual {
    text: String,
    /// page groups of the document
    n_groups: u64,
    /// from the start until the weights are in VRAM
    load: Duration,
    /// from then until the first chunk is prefilled
    set_up: Duration,
    chunk: Duration,
    token: Duration,
}

/// Progress of a run when it was killed.
#[derive(Default)]
struct Killed {
    /// tokens prefilled, as printed
    n_read: u64,
    text: String,
    /// groups in its store's index just before
    n_visible: u64,
    /// true if it finished before the kill
    has_ended: bool,
}

fn json(line: &str) -> Option<Value> {
    serde_json::from_str(line).ok()
}

/// The moment from which the delay before a kill counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Start,
    /// the weights are in VRAM
    Loaded,
    /// this many chunks are prefilled
    Chunks(u32),
    /// this many tokens are printed
    Tokens(u32),
}

impl From {
    /// Number and kind of the lines up to this moment.
    fn lines(self) -> (u32, fn(&Value) -> bool) {
        match self {
            From::Start => (0, |_| true),
            From::Loaded => (1, |l| l["phase"] == "load" && l["share"].as_f64() == Some(1.0)),
            From::Chunks(n) => (n, |l| l["phase"] == "prefill"),
            From::Tokens(n) => (n, |l| l["event"] == "token"),
        }
    }
}

fn usual(scenario: &Scenario, document: &Path) -> Usual {
    let kv = scenario.path("usual");
    let began = Instant::now();
    let mut child = scenario.ask(&kv, document, &TINY).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut until = |moment: From| {
        let is_now = moment.lines().1;
        assert!(lines.by_ref().any(|l| json(&l).is_some_and(|l| is_now(&l))), "{moment:?} was not reached");
        began.elapsed()
    };
    let load = until(From::Loaded);
    let set_up = until(From::Chunks(1)) - load;
    let summary = lines.last().and_then(|l| json(&l)).unwrap();
    assert!(child.wait().unwrap().success());
    let millis = |field: &str| Duration::from_secs_f64(summary[field].as_f64().unwrap() / 1e3);
    let text = scenario.dense(document);
    assert_eq!(summary["text"], text.as_str());
    let n_groups = n_whole(&kv);
    let prompt_tokens = summary["prompt_tokens"].as_u64().unwrap();
    let n_chunks = prompt_tokens.div_ceil(64 * CHUNK_GROUPS as u64) as u32;
    Usual { text, n_groups, load, set_up, chunk: millis("prefill_ms") / n_chunks, token: millis("decode_ms") / N_TOKENS }
}

/// Folder of the only store; None until it is created.
fn store_folder(kv_dir: &Path) -> Option<PathBuf> {
    std::fs::read_dir(kv_dir).ok()?.filter_map(|e| Some(e.ok()?.path())).find(|p| p.is_dir())
}

/// Groups in the index of a store while another process has it open.
fn n_visible(kv_dir: &Path) -> Option<u64> {
    let folder = store_folder(kv_dir)?;
    let mut block = vec![0; HEADER_BLOCK_BYTES as usize];
    std::fs::File::open(folder.join("header")).ok()?.read_exact(&mut block).ok()?;
    let store_id = HeaderBlock::decode(&block).ok()?.store_id;
    let index = std::fs::read(folder.join("index")).ok()?;
    let slots = index.chunks(SUPER_SLOT_BYTES as usize).take(2);
    let newest = slots.filter_map(|slot| Superblock::decode(slot, store_id).ok()).max_by_key(|s| s.seq)?;
    Some(newest.n_committed)
}

/// The only store, if there is one.
fn opened(kv_dir: &Path) -> Option<(PageStore, OpenReport)> {
    let folder = store_folder(kv_dir)?;
    loop {
        match PageStore::open_existing(Arc::new(Disk::new(&folder))) {
            // A child that the other chain is just starting has a copy of the lock for a moment.
            Err(StoreError::Locked { .. }) => sleep(Duration::from_millis(1)),
            Err(StoreError::Absent { .. }) => return None,
            opened => return Some(opened.unwrap()),
        }
    }
}

/// Groups that a run would resume from, after every page of them was read and verified.
fn n_whole(kv_dir: &Path) -> u64 {
    let Some((mut store, report)) = opened(kv_dir) else { return 0 };
    assert!(report.n_damaged == 0 && !report.recovered, "{report:?}");
    let n = store.n_complete_prefix();
    assert_eq!(n, store.n_committed(), "there are no gaps");
    let n_pages = u64::from(n * store.geometry().n_layer);
    assert_eq!(store.verify(|_, _| true).unwrap(), VerifyReport { n_pages, n_checked: n_pages, n_bad: 0 });
    u64::from(n)
}

/// Starts a run and kills it this long `after` a moment of it.
fn run_and_kill(command: &mut std::process::Command, kv_dir: &Path, from: From, after: Duration) -> Killed {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let (mut n_left, is_counted) = from.lines();
    let mut seen: Vec<Value> = Vec::new();
    while n_left > 0
        && let Some(line) = lines.by_ref().find_map(|l| json(&l))
    {
        n_left -= u32::from(is_counted(&line));
        seen.push(line);
    }
    sleep(after);
    let n_visible = n_visible(kv_dir).unwrap_or(0);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut killed = Killed { n_visible, ..Killed::default() };
    // The last line may be incomplete.
    for line in seen.into_iter().chain(lines.filter_map(|l| json(&l))) {
        match line["event"].as_str() {
            Some("progress") if line["phase"] == "prefill" => killed.n_read = line["done"].as_u64().unwrap(),
            Some("token") => killed.text += line["text"].as_str().unwrap(),
            Some("summary") => killed.has_ended = true,
            _ => {}
        }
    }
    killed
}

/// Series of kills on one store, which is created anew after each finished run.
struct Chain<'a> {
    scenario: &'a Scenario,
    document: &'a Path,
    usual: &'a Usual,
    kv_dir: PathBuf,
    backend: &'static str,
    rng: Rng,
    /// scale of the usual delays: a less busy machine finishes sooner
    pace: f64,
    /// kills during loading, prefill, decode
    n_in: [usize; 3],
    /// histogram of the number of lost groups
    n_lost: [usize; 8],
}

impl Chain<'_> {
    fn command(&self) -> std::process::Command {
        let mut command = self.scenario.ask(&self.kv_dir, self.document, &TINY);
        command.env("STRATA_IO", self.backend);
        command
    }

    fn fraction(&mut self, of: Duration) -> Duration {
        of.mul_f64(self.pace * f64::from(self.rng.uniform(1 << 20)) / f64::from(1 << 20))
    }

    /// False if the run finished before the kill.
    fn kill_once(&mut self) -> bool {
        let before = n_whole(&self.kv_dir);
        let (usual, most) = (self.usual, self.usual.n_groups);
        let n_chunks = (most - before).div_ceil(CHUNK_GROUPS as u64) as u32;
        let (from, length) = match self.rng.uniform(10) {
            0 => (From::Start, usual.load),
            1 => (From::Loaded, usual.set_up),
            _ if n_chunks > 0 => (From::Chunks(1 + self.rng.uniform(n_chunks)), usual.chunk),
            _ => (From::Tokens(1 + self.rng.uniform(N_TOKENS - 1)), usual.token),
        };
        let after = self.fraction(length);
        let killed = run_and_kill(&mut self.command(), &self.kv_dir, from, after);
        let n = n_whole(&self.kv_dir);
        assert!(usual.text.starts_with(&killed.text), "'{}' is not a prefix of '{}'", killed.text, usual.text);
        assert!(n >= before, "{n} groups are left of {before}");
        // Tokens of the question are in pages too, but not part of the document.
        assert!(n >= killed.n_visible.min(most), "{n} groups are left of {}", killed.n_visible);
        if killed.n_read > 0 {
            assert!(killed.n_read > 64 * before, "it did not resume from {before} groups");
            let lost = (killed.n_read / 64).min(most).saturating_sub(n);
            self.n_lost[lost as usize] += 1;
        }
        if killed.has_ended {
            assert_eq!(killed.text, usual.text);
            self.pace /= 2.0;
            return false;
        }
        self.pace = (self.pace * 1.1).min(1.0);
        self.n_in[usize::from(killed.n_read > 0) + usize::from(!killed.text.is_empty())] += 1;
        true
    }

    /// A full run resumes from the store and gives the same answer as a fresh run; then a new store is begun.
    fn finish_round(&mut self) {
        let n = n_whole(&self.kv_dir);
        let answer: Answer = answered(&mut self.command());
        assert_eq!((answer.text.as_str(), answer.cached_tokens), (self.usual.text.as_str(), 64 * n), "{:?}", answer.notices);
        assert_eq!(answer.number("pages", "recomputed"), 0);
        assert_eq!(n_whole(&self.kv_dir), self.usual.n_groups);
        std::fs::remove_dir_all(&self.kv_dir).unwrap();
    }

    fn run(&mut self, n_kills: usize) {
        for n_ended in 0..=4 * n_kills {
            while self.kill_once() {
                let n: usize = self.n_in.iter().sum();
                if n.is_multiple_of(N_KILLS_PER_ROUND) || n == n_kills {
                    self.finish_round();
                }
                if n == n_kills {
                    return;
                }
            }
            assert!(n_ended < 4 * n_kills, "most runs end before they are killed");
            // With a complete store, only decode could be killed.
            std::fs::remove_dir_all(&self.kv_dir).unwrap();
        }
    }
}

#[test]
fn ask_killed_at_any_moment_resumes_and_gives_the_same_answer() {
    let Some(scenario) = Scenario::new("ask_killed_at_any_moment") else { return };
    let document = scenario.document(0..2);
    let usual = usual(&scenario, &document);
    let shm = tempfile::Builder::new().tempdir_in("/dev/shm").ok();
    let chain = |kv_dir: PathBuf, backend, seed| Chain {
        scenario: &scenario,
        document: &document,
        usual: &usual,
        kv_dir,
        backend,
        rng: Rng::new(seed),
        pace: 1.0,
        n_in: [0; 3],
        n_lost: [0; 8],
    };
    // One store on disk and one where syncing is free, side by side.
    let mut chains = [
        chain(scenario.path("kv"), "uring", 1),
        chain(shm.as_ref().map_or_else(|| scenario.path("kv-2"), |dir| dir.path().join("kv")), "threads", 2),
    ];
    std::thread::scope(|scope| {
        for chain in &mut chains {
            scope.spawn(|| chain.run(N_KILLS / 2));
        }
    });
    for Chain { backend, n_in, n_lost, .. } in &chains {
        eprintln!("{backend}: killed while loading, reading, answering: {n_in:?}; groups read and lost: {n_lost:?}");
        assert!(n_in[1] > 0 && n_in[2] > 0, "{n_in:?}");
    }
    // Where syncing is free, at most the last prefilled chunk and one group before it are lost.
    if shm.is_some() {
        assert!(chains[1].n_lost.iter().skip(CHUNK_GROUPS + 2).all(|n| *n == 0), "{:?}", chains[1].n_lost);
    }
}
