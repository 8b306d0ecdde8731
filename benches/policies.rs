//! What policies read, and how long they take for it, with the KV on the disk: LeoAM next to the baselines of its paper.
//!
//! `cargo bench --bench policies` · `STRATA_BENCH_TOKENS` length of the document (12288 otherwise) · `STRATA_BENCH_DIR` folder
//! for the library (the build's own otherwise) · `STRATA_BENCH_DECODE` tokens of each answer (64 otherwise).
//!
//! Every ratio is of one run. The disk is held to the speed at which reading all pages of a step takes 2.9 times as long as
//! computing it does with all of them in VRAM: the paper's machine (LeoAM, section 3.4: 290 ms and 100 ms). VRAM has room for a
//! fifth of the KV, RAM for two fifths. Prefill is shared: the document is read once, exactly.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a bench prints, and ends where it fails")]

#[path = "common/mod.rs"]
mod common;

use strata::base::{Bytes, LinkLimits, Tiers};
use strata::engine::{Amount, LoadOptions, PolicyKind, SelectiveSpec};

use common::{Document, N_ROUNDS, close, engine, median, setting};

const QUESTION: &str = "Quote the passage that says the annual budget";
/// Time to read all pages of a step over the time to compute it.
const IO_OVER_COMPUTE: f64 = 2.9;

struct Row {
    name: String,
    ms_per_token: f64,
    chosen: Option<strata::engine::ChosenSummary>,
    read_bytes: u64,
}

fn row(name: &str, document: &Document, options: &LoadOptions) -> Row {
    let handle = engine(options.clone());
    let (mut millis, mut last) = (Vec::new(), None);
    // What the first answer finds in tiers that are cold does not count.
    for round in 0..=N_ROUNDS {
        let (_, summary) = document.ask(&handle, true, QUESTION);
        if round > 0 {
            millis.push(1e3 / summary.tokens_per_s);
        }
        last = Some(summary);
    }
    close(handle);
    let last = last.unwrap();
    let n_steps = last.generated_tokens.max(1) as u64;
    Row {
        name: name.into(),
        ms_per_token: median(millis),
        read_bytes: last.moved_bytes.disk_to_ram / n_steps,
        chosen: last.chosen,
    }
}

fn main() {
    let dir = common::folder();
    let n_tokens = setting("STRATA_BENCH_TOKENS", 12_288);
    let base = LoadOptions { kv_dir: Some(dir.path().to_owned()), context: Some(n_tokens + 4096), ..LoadOptions::default() };
    let handle = engine(base.clone());
    let document = Document::new(&handle, n_tokens, setting("STRATA_BENCH_DECODE", 64));
    let (_, fresh) = document.ask(&handle, true, QUESTION);
    close(handle);
    let kv_bytes = fresh.prompt_tokens as u64 * 3072;
    let mut rows = vec![row("full, all in VRAM", &document, &base)];
    let nvme = (kv_bytes as f64 / (IO_OVER_COMPUTE * rows[0].ms_per_token / 1e3)) as u64;
    let offloaded = |kind: Option<PolicyKind>| LoadOptions {
        budgets: Tiers { vram: Some(Bytes(kv_bytes / 5)), ram: Some(Bytes(kv_bytes * 2 / 5)), disk: None },
        limits: LinkLimits { nvme: Some(nvme), ..LinkLimits::default() },
        policy: kind.map(|kind| SelectiveSpec { kind, amount: Amount::Rate(0.1), ..SelectiveSpec::default() }),
        ..base.clone()
    };
    rows.push(row("full, offloaded", &document, &offloaded(None)));
    for kind in [PolicyKind::H2o, PolicyKind::H2oChunked, PolicyKind::Window, PolicyKind::LeoAm] {
        rows.push(row(kind.name(), &document, &offloaded(Some(kind))));
    }
    println!("\n## {} tokens, VRAM 1/5 and RAM 2/5 of the KV, disk held to {}/s\n", fresh.prompt_tokens, Bytes(nvme));
    println!("| policy | ms per token | read from the disk per token | read | reuse | evaluations per step | evaluation, ms |");
    println!("|---|---|---|---|---|---|---|");
    for row in &rows {
        let chosen = row.chosen.as_ref().map_or("- | - | - | -".to_owned(), |c| {
            let (read, reuse) = (c.share_read * 100.0, c.reuse * 100.0);
            format!("{read:.0} % | {reuse:.0} % | {:.0} | {:.1}", c.evaluations_per_step, c.evaluation_ms_per_step)
        });
        println!("| {} | {:.1} | {} | {chosen} |", row.name, row.ms_per_token, Bytes(row.read_bytes));
    }
    let of = |name: &str| rows.iter().find(|r| r.name == name).unwrap().ms_per_token;
    println!("\nthe better of h2o and h2o-chunked over leoam: {:.2}x", of("h2o").min(of("h2o-chunked")) / of("leoam"));
}
