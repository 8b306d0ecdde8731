//! What watching costs: answers with the dashboard open over the same answers with it shut, and the KV map of a long context.
//!
//! `cargo bench --bench dashboard` asks the built-in model about a document in three tiers, from the window's own frame loop.
//! Otherwise by environment:
//!
//! * `STRATA_BENCH_ROUNDS` answers with each panel (5 otherwise), one after the other, so that a busy machine is busy for all
//! * `STRATA_BENCH_DECODE` tokens of an answer (64 otherwise)
//!
//! The target is 0.99 of the tokens per second. Limits: frames are laid out and not painted, because a test has no screen; a
//! device that shares the processor with the window loses to painting as well.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a bench prints, and ends where it fails")]

use std::time::{Duration, Instant};

use egui_kittest::Harness;
use strata::app::chat::Outcome;
use strata::app::dashboard::Tab;
use strata::app::dashboard::map_image::{Frame, paint};
use strata::app::{StrataApp, WindowOptions};
use strata::base::{Bytes, Tiers};
use strata::document::Document;
use strata::engine::{Census, Copies, LoadOptions, ModelSource, SelectiveSpec, Tier};

/// Between two frames, as the window has them.
const FRAME: Duration = Duration::from_millis(30);
/// What is open while an answer is timed.
const SHOWN: [Option<Tab>; 5] = [None, Some(Tab::Activity), Some(Tab::Timeline), Some(Tab::KvMap), Some(Tab::Ledger)];

type Window = Harness<'static, StrataApp>;

fn main() {
    map_of_a_long_context();
    let dir = tempfile::tempdir().unwrap();
    let mut window = window(LoadOptions {
        budgets: Tiers { vram: Some(Bytes(6 << 20)), ram: Some(Bytes(6 << 20)), disk: None },
        policy: Some(SelectiveSpec::default()),
        kv_dir: Some(dir.path().to_owned()),
        context: Some(8192),
        ..LoadOptions::default()
    });
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/quote/document.txt")).unwrap();
    window.state_mut().state.add_document(Document::from_bytes("document.txt", text.as_bytes()).unwrap(), false);
    window.state_mut().state.settings.max_tokens = setting("STRATA_BENCH_DECODE", 64);
    window.state_mut().state.chat_mut().draft = "Quote the passage that says the harbour wall".into();
    window.state_mut().state.send();
    answer(&mut window);
    let mut speeds = vec![Vec::new(); SHOWN.len()];
    for _ in 0..setting("STRATA_BENCH_ROUNDS", 5) {
        for (shown, speeds) in SHOWN.iter().zip(&mut speeds) {
            show(&mut window, *shown);
            window.state_mut().state.regenerate();
            speeds.push(answer(&mut window));
        }
    }
    println!("| dashboard | tok/s, median | of shut |\n|---|---:|---:|");
    let medians: Vec<f64> = speeds.iter_mut().map(|s| median(s)).collect();
    for (shown, speed) in SHOWN.iter().zip(&medians) {
        println!("| {} | {speed:.2} | {:.3} |", shown.map_or("shut", Tab::name), speed / medians[0]);
    }
}

/// A window whose model is ready.
fn window(load: LoadOptions) -> Window {
    let options = WindowOptions { initial_model: ModelSource::BuiltIn, load, documents: Vec::new() };
    let mut window = Harness::builder()
        .with_size([1280.0, 800.0])
        .build_eframe(|cc| StrataApp::new(&cc.egui_ctx, options, Box::new(strata::engine::spawn)));
    frames_until(&mut window, |app| app.state.info().is_some());
    window
}

fn show(window: &mut Window, shown: Option<Tab>) {
    let dashboard = &mut window.state_mut().dashboard;
    dashboard.open = shown.is_some();
    dashboard.tab = shown.unwrap_or_default();
    // What is measured or asked for when a panel opens is over before the answer begins.
    let has_peaks = |app: &StrataApp| !app.dashboard.open || app.dashboard.peaks.is_some();
    frames_until(window, has_peaks);
}

/// Frames until the turn has ended: tokens per second.
fn answer(window: &mut Window) -> f64 {
    frames_until(window, |app| app.state.running.is_none());
    match &window.state().state.chat().exchanges.last().unwrap().outcome {
        Outcome::Done(summary) => summary.tokens_per_s,
        other => panic!("{other:?}"),
    }
}

fn frames_until(window: &mut Window, done: impl Fn(&StrataApp) -> bool) {
    loop {
        let began = Instant::now();
        window.step();
        if done(window.state()) {
            return;
        }
        std::thread::sleep(FRAME.saturating_sub(began.elapsed()));
    }
}

/// 128k tokens in 24 layers on a dock that fills a large window.
fn map_of_a_long_context() {
    let mut census = Census::new(24, 2048);
    for (i, copies) in census.copies.iter_mut().enumerate() {
        let tier = [Tier::Vram, Tier::Ram, Tier::Disk][i * 7919 / 64 % 3];
        *copies = Copies::default().and(tier);
    }
    let frame = Frame { pages: [0.0, 2048.0], row_layers: 1, width: 2200, row_height: 48, gap: 2 };
    let palette = [egui::Color32::BLACK, egui::Color32::BLUE, egui::Color32::GREEN, egui::Color32::YELLOW];
    let mut millis: Vec<f64> = (0..20)
        .map(|_| {
            let began = Instant::now();
            std::hint::black_box(paint(&census, &frame, palette));
            began.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    println!(
        "KV map of 128k tokens x 24 layers, 2200 x 1152 pixels: {:.2} ms, made anew twice a second at most",
        median(&mut millis)
    );
}

fn setting(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
