//! Shared parts of the disk benches: folder and duration, fio, alternating rounds, and statistics.
//!
//! `STRATA_BENCH_DIR` working folder (default: build folder) · `STRATA_BENCH_SECONDS` duration of each measurement ·
//! `STRATA_BENCH_ROUNDS` rounds, over which a ratio is the median.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// I/O depth, on both sides.
pub const DEPTH: u32 = 32;

/// Folder and duration.
pub struct Setup {
    /// folder of this bench, removed at its end
    pub dir: PathBuf,
    /// duration of one measurement
    pub time: Duration,
    pub n_rounds: usize,
}

impl Setup {
    /// Setup of the bench `name`. None if nothing should be measured, as in `cargo test --benches`.
    pub fn new(name: &str) -> Option<Setup> {
        if std::env::args().any(|a| a == "--test") {
            return None;
        }
        let of = |name: &str| std::env::var(name).ok();
        let dir = of("STRATA_BENCH_DIR").map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
        let seconds: f64 = of("STRATA_BENCH_SECONDS").map_or(0.5, |text| text.parse().unwrap());
        let n_rounds = of("STRATA_BENCH_ROUNDS").map_or(15, |text| text.parse().unwrap());
        Some(Setup { dir: dir.join(name), time: Duration::from_secs_f64(seconds), n_rounds })
    }

    /// Prints the conditions of the figures above a table.
    pub fn introduce(&self, title: &str) {
        let said = |program: &str, args: &[&str]| {
            let output = Command::new(program).args(args).output().ok();
            output.map_or_else(|| "unknown".into(), |o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
        };
        let n_cores = std::thread::available_parallelism().map_or(0, usize::from);
        let (commit, kernel) = (said("git", &["describe", "--always", "--dirty"]), said("uname", &["-sr"]));
        let seconds = self.time.as_secs_f64();
        println!("\n## {title}\n");
        println!(
            "commit {commit} · {kernel} · {n_cores} cores · {}",
            has_fio().unwrap_or_else(|| "no fio: assets/setup --benches".into())
        );
        println!(
            "MB/s: mean ± sd of {} rounds of {seconds} s, taken in turns; ratio: median of those of each round (quartiles)\n",
            self.n_rounds
        );
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.dir) {
            println!("{} could not be removed: {e}", self.dir.display());
        }
    }
}

/// Version of fio. None if it is not installed.
fn has_fio() -> Option<String> {
    let output = Command::new("fio").arg("--version").output().ok()?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// fio bandwidth on a file in the order `rw`, with io_uring, past the page cache. None if fio is not installed.
pub fn fio_rate(setup: &Setup, path: &Path, block: u64, depth: u64, rw: &[&str]) -> Option<f64> {
    let output = Command::new("fio")
        // fio also uses huge pages, like the slabs: with this and the alignment it is half again as fast at 128 KiB.
        .env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
        .arg("--iomem_align=2M")
        .args(["--name=read", "--ioengine=io_uring", "--direct=1", "--fixedbufs=1", "--registerfiles=1"])
        .args(["--time_based=1", "--group_reporting=1", "--output-format=json"])
        .args(rw)
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--bs={block}"))
        .arg(format!("--iodepth={depth}"))
        .arg(format!("--runtime={}ms", setup.time.as_millis()))
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    // Some versions print a line before the JSON.
    let json: serde_json::Value = serde_json::from_str(text.get(text.find('{')?..)?).ok()?;
    json["jobs"][0]["read"]["bw_bytes"].as_f64().filter(|rate| *rate > 0.0)
}

/// Runs all measurements in each round, starting with another one each time, so that none benefits from the state
/// another left.
pub fn interleaved<const N: usize>(setup: &Setup, measures: [&mut dyn FnMut() -> Option<f64>; N]) -> [Vec<f64>; N] {
    let mut found = [const { Vec::new() }; N];
    for round in 0..setup.n_rounds {
        for i in (0..N).map(|i| (round + i) % N) {
            found[i].extend(measures[i]());
        }
    }
    found
}

/// Ratio of each round: median and quartiles.
pub fn ratio(ours: &[f64], theirs: &[f64]) -> String {
    let mut sorted: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
    sorted.sort_by(f64::total_cmp);
    let at = |part: f64| sorted.get((part * (sorted.len().max(1) - 1) as f64).round() as usize);
    match (at(0.5), at(0.25), at(0.75)) {
        (Some(median), Some(low), Some(high)) => format!("{median:.3} ({low:.2}..{high:.2})"),
        _ => "-".into(),
    }
}

/// Mean and standard deviation in MB/s.
pub fn rates(values: &[f64]) -> String {
    if values.is_empty() {
        return "-".into();
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let spread = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
    format!("{:.0} ± {:.0}", mean / 1e6, spread.sqrt() / 1e6)
}
