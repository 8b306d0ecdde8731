//! Policy benchmark: pages read and time per step with the KV on disk, for LeoAM, the baselines of its paper, and each
//! of its parts.
//!
//! `cargo bench --bench policies` reads a document with the built-in model. Environment variables:
//!
//! * `STRATA_BENCH_SYNTHETIC` shape of a random model with a filled context instead, such as qwen2.5-0.5b, at
//!   `STRATA_BENCH_TYPE` (default Q4_0): as many layers as a real model, but unrelated queries, so that no selection is
//!   reused
//! * `STRATA_BENCH_TOKENS` length of the context (default 12288), `STRATA_BENCH_DECODE` tokens per answer (default 64)
//! * `STRATA_BENCH_IO` time to read from disk relative to the time to compute, percent (default 290)
//! * `STRATA_BENCH_DIR` folder for the library (default: build folder)
//!
//! Every ratio is from one run. VRAM has room for a fifth of the KV, RAM for two fifths. Disk bandwidth is limited so
//! that reading the other two fifths takes 2.9 times as long as computing a step with all KV in VRAM. That is the
//! machine of LeoAM §3.4 (40 % of the KV on disk, 290 ms and 100 ms). The warm-up is not timed. The parts are those of
//! LeoAM §6.3 Fig. 16: without a pipeline, token-level evaluation of all keys (base), abstracts, the tree; then all. Pages are
//! transferred and the CPU selects, as in the paper, even on a device that could read them where they are.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a bench prints, and ends where it fails")]

#[path = "common/mod.rs"]
mod common;

use strata::base::{Bytes, LinkLimits, Tiers};
use strata::engine::{
    BenchTests, EngineCommand, EngineEvent, EngineHandle, LoadOptions, ModelSource, PolicyKind, PolicySpec, SelectionSummary,
};

use common::{
    Document, N_ROUNDS, RAM_SHARE, VRAM_SHARE, disk_speed, engine, engine_of, median, question, setting, transferring_engine,
};

/// Index of the quoted passage.
const PASSAGE: usize = 4;

/// Subject of the benchmark.
enum Subject {
    /// answers about the document
    Document(Document),
    /// decode steps after this many synthetic tokens
    Filled { depth: usize, decode: usize },
}

/// Result of a step.
struct Step {
    ms: f64,
    n_tokens: usize,
    read_bytes: u64,
    selected: Option<SelectionSummary>,
}

struct Row {
    name: &'static str,
    step: Step,
}

impl Subject {
    fn time(&self, handle: &EngineHandle) -> Step {
        match self {
            Subject::Document(document) => {
                let (mut millis, mut last) = (Vec::new(), None);
                for round in 0..=N_ROUNDS {
                    let (_, summary) = document.ask(handle, true, &question(PASSAGE));
                    if round > 0 {
                        millis.push(1e3 / summary.tokens_per_s);
                    }
                    last = Some(summary);
                }
                let last = last.unwrap();
                let n_tokens = last.generated_tokens;
                let n_steps = n_tokens.max(1) as u64;
                Step {
                    ms: median(millis),
                    n_tokens,
                    read_bytes: last.moved_bytes.disk_to_ram / n_steps,
                    selected: last.selection,
                }
            }
            Subject::Filled { depth, decode } => {
                let tests = BenchTests {
                    n_prompt: Vec::new(),
                    n_gen: vec![*decode],
                    depths: vec![*depth],
                    fill: true,
                    repetitions: 1,
                    by_family: false,
                };
                handle.send(EngineCommand::Bench { request: 1, tests });
                loop {
                    match handle.wait(std::time::Duration::from_secs(3600)).unwrap() {
                        EngineEvent::BenchResult { row, .. } => {
                            let ms = 1e3 / median(row.samples);
                            return Step { ms, n_tokens: *decode, read_bytes: row.disk_bytes_per_token, selected: row.selection };
                        }
                        EngineEvent::Failed { sentence, .. } => panic!("{sentence}"),
                        _ => {}
                    }
                }
            }
        }
    }
}

fn main() {
    let dir = common::folder();
    let (n_tokens, decode) = (setting("STRATA_BENCH_TOKENS", 12_288), setting("STRATA_BENCH_DECODE", 64));
    let base = LoadOptions { kv_dir: Some(dir.path().to_owned()), context: Some(n_tokens + 4096), ..LoadOptions::default() };
    let (source, subject, kv_bytes) = subject(&base, n_tokens, decode);
    let row = |name: &'static str, options: &LoadOptions| {
        let (handle, _) = transferring_engine(source.clone(), options.clone());
        let step = subject.time(&handle);
        drop(handle);
        eprintln!("{name}: {:.1} ms, {} tokens", step.ms, step.n_tokens);
        Row { name, step }
    };
    let mut rows = vec![row("full, all in VRAM", &base)];
    let nvme = disk_speed(kv_bytes, setting("STRATA_BENCH_IO", 290) as f64 / 100.0, rows[0].step.ms);
    let offloaded = |policy: Option<PolicySpec>, synchronous: bool| LoadOptions {
        budgets: Tiers {
            vram: Some(Bytes((kv_bytes * VRAM_SHARE) as u64)),
            ram: Some(Bytes((kv_bytes * RAM_SHARE) as u64)),
            disk: None,
        },
        limits: LinkLimits { nvme: Some(nvme), ..LinkLimits::default() },
        policy,
        synchronous,
        ..base.clone()
    };
    let of = |kind: PolicyKind| PolicySpec { kind, is_forced: true, ..PolicySpec::default() };
    rows.push(row("full, offloaded", &offloaded(None, false)));
    for kind in PolicyKind::ALL {
        rows.push(row(kind.name(), &offloaded(Some(of(kind)), false)));
    }
    let abstracts = PolicySpec { tree: false, ..of(PolicyKind::LeoAm) };
    for (name, spec) in [("base", of(PolicyKind::H2o)), ("+ abstracts", abstracts), ("+ tree", of(PolicyKind::LeoAm))] {
        rows.push(row(name, &offloaded(Some(spec), true)));
    }
    println!("\n## {n_tokens} tokens, VRAM 1/5 and RAM 2/5 of {}, disk held to {}/s\n", Bytes(kv_bytes as u64), Bytes(nvme));
    println!("| policy | ms per token | read from the disk per token | read | reuse | evaluations per step | evaluation, ms |");
    println!("|---|---|---|---|---|---|---|");
    for Row { name, step } in &rows {
        let selected = step.selected.as_ref().map_or("- | - | - | -".to_owned(), |c| {
            let (read, reuse) = (c.share_read * 100.0, c.reuse * 100.0);
            format!("{read:.0} % | {reuse:.0} % | {:.0} | {:.1}", c.evaluations_per_step, c.evaluation_ms_per_step)
        });
        println!("| {name} | {:.1} | {} | {selected} |", step.ms, Bytes(step.read_bytes));
    }
    let ms = |name: &str| rows.iter().find(|r| r.name == name).unwrap().step.ms;
    println!("\nthe better of h2o and h2o-chunked over leoam: {:.2}x", ms("h2o").min(ms("h2o-chunked")) / ms("leoam"));
    let less = |name: &str| (1.0 - ms(name) / ms("base")) * 100.0;
    println!(
        "less than base: + abstracts {:.0} %, + tree {:.0} %, all {:.0} %",
        less("+ abstracts"),
        less("+ tree"),
        less("leoam")
    );
}

/// The model, the subject to time, and the bytes of its KV. A document is prefilled here, once, with full attention.
fn subject(base: &LoadOptions, n_tokens: usize, decode: usize) -> (ModelSource, Subject, f64) {
    if let Ok(name) = std::env::var("STRATA_BENCH_SYNTHETIC") {
        let weight_type = std::env::var("STRATA_BENCH_TYPE").unwrap_or_else(|_| "Q4_0".into());
        let source = ModelSource::Synthetic { name, weight_type };
        let (handle, info) = engine_of(source.clone(), base.clone());
        drop(handle);
        return (source, Subject::Filled { depth: n_tokens, decode }, (n_tokens as u64 * info.kv_bytes_per_token) as f64);
    }
    let handle = engine(base.clone());
    let document = Document::new(&handle, n_tokens, decode);
    let (_, fresh) = document.ask(&handle, true, &question(PASSAGE));
    drop(handle);
    (ModelSource::BuiltIn, Subject::Document(document), fresh.prompt_tokens as f64 * 3072.0)
}
