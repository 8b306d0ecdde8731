//! Offload benchmark with the built-in model: resuming a saved document, and answering with most of the KV outside
//! VRAM.
//!
//! `cargo bench --bench tiers` · `STRATA_BENCH_TOKENS` length of the document (default 16384) · `STRATA_BENCH_DIR`
//! folder for the library (default: build folder) · `STRATA_BENCH_DECODE` tokens per answer (default 48).
//!
//! Every ratio is from one run. Link bandwidth is limited so that transferring the pages of a token takes as long as
//! everything else for that token (measured first, without limits). There a pipeline can gain most, a factor of two.
//! The baseline (`--pipeline off`) transfers the pages of a layer, then computes the layer, as FlexGen does. Answers
//! are compared before any figure is reported.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a bench prints, and ends where it fails")]

#[path = "common/mod.rs"]
mod common;

use strata::base::{Bytes, LinkLimits, Tiers};
use strata::engine::{LoadOptions, RequestSummary};

use common::{Document, N_ROUNDS, engine, median, setting};

const QUESTION: &str = "Quote the passage that says the annual budget";

/// A fresh prefill, then the same question in engines that find the document saved.
fn resume(document: &Document, options: &LoadOptions) -> RequestSummary {
    let handle = engine(options.clone());
    let (text, fresh) = document.ask(&handle, true, QUESTION);
    drop(handle);
    let mut first_tokens = Vec::new();
    for _ in 0..N_ROUNDS {
        let handle = engine(options.clone());
        let (again, summary) = document.ask(&handle, true, QUESTION);
        assert_eq!(again, text, "the saved document answers differently");
        assert!(summary.cached_tokens + 64 > fresh.prompt_tokens - 32, "it was prefilled again: {summary:?}");
        first_tokens.push(summary.first_token_ms);
        drop(handle);
    }
    let resumed = median(first_tokens);
    println!("\n## Resume of a saved document, {} tokens\n", fresh.prompt_tokens);
    println!("| | to the first token, ms | over fresh |\n|---|---|---|");
    println!("| fresh prefill | {:.0} | 1 |", fresh.first_token_ms);
    println!("| saved, new process's engine | {resumed:.0} | 1/{:.0} |", fresh.first_token_ms / resumed);

    fresh
}

struct Row {
    name: &'static str,
    tokens_per_s: f64,
    overlap: Option<f64>,
    attention: String,
}

fn decode(name: &'static str, document: &Document, options: &LoadOptions, text: &str) -> Row {
    let (mut rates, mut overlaps, mut attention) = (Vec::new(), Vec::new(), String::new());
    let handle = engine(options.clone());
    // The first answer, with a cold tier, does not count.
    for round in 0..=N_ROUNDS {
        let (again, summary) = document.ask(&handle, true, QUESTION);
        assert_eq!(again, text, "{name} answers differently");
        if let Some(budget) = options.budgets.vram {
            assert!(summary.kv_peak_bytes.vram <= budget.0, "{name}: {:?} over {budget}", summary.kv_peak_bytes);
        }
        if round > 0 {
            rates.push(summary.tokens_per_s);
            overlaps.extend(summary.overlap);
            attention = format!("{:?}", summary.attention);
        }
    }
    drop(handle);
    Row { name, tokens_per_s: median(rates), overlap: (!overlaps.is_empty()).then(|| median(overlaps)), attention }
}

fn offload(document: &Document, fresh: &RequestSummary, base: &LoadOptions) {
    let handle = engine(base.clone());
    let (text, _) = document.ask(&handle, true, QUESTION);
    drop(handle);
    let kv_bytes = fresh.prompt_tokens as u64 * 3072;
    let with = |vram: Option<u64>, ram: Option<u64>, limits: LinkLimits, synchronous: bool| LoadOptions {
        budgets: Tiers { vram: vram.map(Bytes), ram: ram.map(Bytes), disk: None },
        limits,
        synchronous,
        ..base.clone()
    };
    let mut rows = vec![decode("all in VRAM", document, &with(None, None, LinkLimits::default(), false), &text)];
    let tenth = Some(kv_bytes / 10);
    rows.push(decode("VRAM 1/10, RAM, no limit", document, &with(tenth, None, LinkLimits::default(), false), &text));
    let link = (kv_bytes as f64 * 0.9 * rows[1].tokens_per_s) as u64;
    let pcie = LinkLimits { pcie: Some(link), ..LinkLimits::default() };
    let nvme = LinkLimits { nvme: Some(link), ..LinkLimits::default() };
    rows.push(decode("VRAM 1/10, RAM, pipeline", document, &with(tenth, None, pcie, false), &text));
    rows.push(decode("VRAM 1/10, RAM, layer by layer", document, &with(tenth, None, pcie, true), &text));
    rows.push(decode("VRAM 1/10, RAM 1/10, disk, pipeline", document, &with(tenth, tenth, nvme, false), &text));
    rows.push(decode("VRAM 1/10, RAM 1/10, disk, layer by layer", document, &with(tenth, tenth, nvme, true), &text));
    println!(
        "\n## Exact answers with the KV 10 times the VRAM budget, {} tokens, links held to {}/s\n",
        fresh.prompt_tokens,
        Bytes(link)
    );
    println!("| KV | attention | tokens/s | of all in VRAM | overlap |\n|---|---|---|---|---|");
    for row in &rows {
        let overlap = row.overlap.map_or(String::from("-"), |o| format!("{o:.2}"));
        let share = row.tokens_per_s / rows[0].tokens_per_s;
        println!("| {} | {} | {:.1} | {share:.2} | {overlap} |", row.name, row.attention, row.tokens_per_s);
    }
    println!("\npipeline over layer by layer: {:.2}x from RAM, {:.2}x from the disk", ratio(&rows, 2), ratio(&rows, 4));
}

fn ratio(rows: &[Row], i: usize) -> f64 {
    rows[i].tokens_per_s / rows[i + 1].tokens_per_s
}

fn main() {
    let dir = common::folder();
    let n_tokens = setting("STRATA_BENCH_TOKENS", 16_384);
    let options = LoadOptions { kv_dir: Some(dir.path().to_owned()), context: Some(n_tokens + 4096), ..LoadOptions::default() };
    let handle = engine(options.clone());
    let document = Document::new(&handle, n_tokens, setting("STRATA_BENCH_DECODE", 48));
    drop(handle);
    let fresh = resume(&document, &options);
    offload(&document, &fresh, &options);
}
