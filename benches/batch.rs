//! Batch benchmark: several questions on one document at once; tokens per second of all answers together, with full
//! attention and with policies, with the KV in VRAM and mostly on disk.
//!
//! `cargo bench --bench batch` · `STRATA_BENCH_TOKENS` length of the document (default 12288) · `STRATA_BENCH_DIR`
//! folder for the library (default: build folder) · `STRATA_BENCH_DECODE` tokens per answer (default 32).
//!
//! Every ratio is from one run. As in `policies`, disk bandwidth is limited so that reading the KV beyond VRAM and RAM
//! takes 2.9 times as long as computing a step of one question with all KV in VRAM (LeoAM §3.4). VRAM has room for a
//! fifth of the KV and twice the tails of eight questions, RAM for two fifths; the first layers stay off the disk. Each
//! question asks for another passage, none of which ends within 128 tokens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a bench prints, and ends where it fails")]

#[path = "common/mod.rs"]
mod common;

use strata::base::{Bytes, LinkLimits, Tiers};
use strata::engine::{LoadOptions, PolicyKind, PolicySpec, SelectionBudget};

use common::{Document, N_ROUNDS, RAM_SHARE, VRAM_SHARE, disk_speed, engine, median, setting};

/// The largest batch comes first, because its reserve stays.
const COUNTS: [usize; 3] = [8, 4, 1];
/// Time to read the KV on disk, relative to the time to compute a step.
const IO_OVER_COMPUTE: f64 = 2.9;
/// Bytes of a tail of two pages of the built-in model.
const TAIL_BYTES: u64 = 2 * 64 * 3072;

struct Row {
    name: &'static str,
    /// by number of questions
    tokens_per_s: Vec<f64>,
    read_bytes_per_token: Vec<f64>,
}

fn row(name: &'static str, document: &Document, options: &LoadOptions) -> Row {
    let handle = engine(options.clone());
    let mut row = Row { name, tokens_per_s: Vec::new(), read_bytes_per_token: Vec::new() };
    for n in COUNTS {
        let (mut speeds, mut read) = (Vec::new(), 0.0);
        // The first answers, with cold tiers, do not count.
        for round in 0..=N_ROUNDS {
            let summaries = document.generate_batch(&handle, n);
            // The first token of each answer is from prefill. The longest answer has all steps.
            let n_tokens: usize = summaries.iter().map(|s| s.generated_tokens - 1).sum();
            let decode_ms = summaries.iter().map(|s| s.decode_ms).fold(0.0, f64::max);
            if round > 0 {
                speeds.push(n_tokens as f64 / decode_ms * 1e3);
            }
            read = summaries.iter().map(|s| s.moved_bytes.disk_to_ram).max().unwrap() as f64 / n_tokens as f64;
        }
        row.tokens_per_s.push(median(speeds));
        row.read_bytes_per_token.push(read);
    }
    drop(handle);
    row
}

fn main() {
    let dir = common::folder();
    let n_tokens = setting("STRATA_BENCH_TOKENS", 12_288);
    let base = LoadOptions { kv_dir: Some(dir.path().to_owned()), context: Some(n_tokens + 4096), ..LoadOptions::default() };
    let handle = engine(base.clone());
    let document = Document::new(&handle, n_tokens, setting("STRATA_BENCH_DECODE", 32));
    let fresh = document.generate_batch(&handle, 1).remove(0);
    drop(handle);
    let of = |kind| PolicySpec { kind, amount: SelectionBudget::Rate(0.1), is_forced: true, ..PolicySpec::default() };
    let leoam = of(PolicyKind::LeoAm);
    let kv_bytes = fresh.prompt_tokens as f64 * 3072.0;
    let mut rows = vec![row("full, all in VRAM", &document, &base)];
    let nvme = disk_speed(kv_bytes, IO_OVER_COMPUTE, 1e3 / rows[0].tokens_per_s[2]);
    let offloaded = |policy| LoadOptions {
        budgets: Tiers {
            vram: Some(Bytes((kv_bytes * VRAM_SHARE) as u64 + 16 * TAIL_BYTES)),
            ram: Some(Bytes((kv_bytes * RAM_SHARE) as u64)),
            disk: None,
        },
        limits: LinkLimits { nvme: Some(nvme), ..LinkLimits::default() },
        policy,
        ..base.clone()
    };
    rows.push(row("leoam, all in VRAM", &document, &LoadOptions { policy: Some(leoam), ..base.clone() }));
    rows.push(row("full, offloaded", &document, &offloaded(None)));
    rows.push(row("leoam, offloaded", &document, &offloaded(Some(leoam))));
    rows.push(row("h2o, offloaded", &document, &offloaded(Some(of(PolicyKind::H2o)))));
    rows.push(row("h2o-chunked, offloaded", &document, &offloaded(Some(of(PolicyKind::H2oChunked)))));
    println!("\n## {} tokens, disk held to {}/s\n", fresh.prompt_tokens, Bytes(nvme));
    println!("| | questions | tokens/s together | over one question | read from the disk per token |");
    println!("|---|---|---|---|---|");
    for row in &rows {
        for (i, n) in COUNTS.iter().enumerate().rev() {
            let (speed, read) = (row.tokens_per_s[i], Bytes(row.read_bytes_per_token[i] as u64));
            println!("| {} | {n} | {speed:.1} | {:.2}x | {read} |", row.name, speed / row.tokens_per_s[2]);
        }
    }
    let [_, _, full, selected, h2o, chunked] = rows.as_slice() else { unreachable!("six rows") };
    for (i, n) in COUNTS.iter().enumerate().rev() {
        let speed = |row: &Row| row.tokens_per_s[i];
        let (over_full, over_h2o) = (speed(selected) / speed(full), speed(selected) / speed(h2o).max(speed(chunked)));
        println!("leoam, offloaded, {n} at once: {over_full:.2}x of full, {over_h2o:.2}x of the better of h2o and h2o-chunked");
    }
}
