//! Dashboard overhead benchmark: tokens per second with and without the open dashboard, and drawing the KV map of a
//! long context.
//!
//! `cargo bench --bench dashboard` asks the built-in model about a document in three tiers, from the frame loop of the
//! window, and opens and closes each panel in turns. Environment variables:
//!
//! * `STRATA_BENCH_TURNS` half-second turns for each panel (default 120)
//!
//! The target is 0.99 of the tokens per second. That figure depends on the load of the machine. CPU time per token
//! depends less on it, and on a software device it is the time of a token. Limits: frames are laid out and not painted,
//! because a bench has no screen.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a bench prints, and ends where it fails")]

use std::time::{Duration, Instant};

use egui_kittest::Harness;
use strata::app::dashboard::map_image::{Frame, paint};
use strata::app::dashboard::{Tab, overhead};
use strata::app::persist::paths::Folders;
use strata::app::{StrataApp, WindowOptions};
use strata::base::{Bytes, Tiers};
use strata::document::Document;
use strata::engine::{LoadOptions, ModelSource, PageCopies, PolicySpec, Sampling, Tier, TierOccupancy};

/// Time that the dashboard stays open or closed.
const INTERVAL: Duration = Duration::from_millis(480);
/// State of the dashboard while an answer is timed.
const SHOWN: [Tab; 4] = [Tab::Activity, Tab::Timeline, Tab::KvMap, Tab::Ledger];

type Window = Harness<'static, StrataApp>;

fn main() {
    map_of_a_long_context();
    let dir = tempfile::tempdir().unwrap();
    let mut window = window(LoadOptions {
        budgets: Tiers { vram: Some(Bytes(6 << 20)), ram: Some(Bytes(6 << 20)), disk: None },
        policy: Some(PolicySpec::default()),
        kv_dir: Some(dir.path().to_owned()),
        context: Some(8192),
        ..LoadOptions::default()
    });
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/quote/document.txt")).unwrap();
    window.state_mut().state.add_document(Document::from_bytes("document.txt", text.as_bytes()).unwrap(), false);
    let settings = &mut window.state_mut().state.settings.values;
    settings.max_tokens = 2000;
    // Random sampling, so that few answers end early.
    settings.sampling = Sampling { temperature: 3.0, top_k: 40, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, seed: 1 };
    window.state_mut().state.chat_mut().draft = "Quote the passage that says the harbour wall".into();
    window.state_mut().state.send();
    frames_until(&mut window, |app| app.state.engine.running.is_none());
    println!("| dashboard | tok/s shut | tok/s open | open of shut | CPU ms a token shut | open | shut of open |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for tab in SHOWN {
        let [shut, open] = interleaved(&mut window, tab);
        let speeds = [shut.tokens / shut.secs, open.tokens / open.secs];
        let costs = [shut.cpu_secs / shut.tokens * 1e3, open.cpu_secs / open.tokens * 1e3];
        println!(
            "| {} | {:.2} | {:.2} | {:.3} | {:.2} | {:.2} | {:.3} |",
            tab.name(),
            speeds[0],
            speeds[1],
            speeds[1] / speeds[0],
            costs[0],
            costs[1],
            costs[0] / costs[1]
        );
    }
}

/// Tokens generated, and the time they took.
#[derive(Default)]
struct TimeCategory {
    tokens: f64,
    secs: f64,
    cpu_secs: f64,
}

/// Alternates closed and open, so that the load of the machine affects both.
fn interleaved(window: &mut Window, tab: Tab) -> [TimeCategory; 2] {
    let mut usage = [TimeCategory::default(), TimeCategory::default()];
    for round in 0..setting("STRATA_BENCH_TURNS", 120) {
        // Closed, open, open, closed: changes over the course of an answer affect both.
        let is_open = matches!(round % 4, 1 | 2);
        show(window, is_open.then_some(tab));
        if window.state().state.engine.running.is_none() {
            window.state_mut().state.regenerate();
        }
        frames_until(window, |app| n_tokens(app) > 0);
        let (began, cpu_before, before) = (Instant::now(), cpu_secs(), n_tokens(window.state()));
        while began.elapsed() < INTERVAL && window.state().state.engine.running.is_some() {
            frame(window);
        }
        let usage = &mut usage[usize::from(is_open)];
        usage.tokens += (n_tokens(window.state()) - before) as f64;
        usage.secs += began.elapsed().as_secs_f64();
        usage.cpu_secs += cpu_secs() - cpu_before;
    }
    usage
}

/// CPU time of this process, including the GPU threads of a software device.
fn cpu_secs() -> f64 {
    std::fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(overhead::cpu_secs).unwrap_or(f64::NAN)
}

fn n_tokens(app: &StrataApp) -> usize {
    app.state.chat().exchanges.last().map_or(0, |exchange| exchange.token_ends.len())
}

/// A window with a loaded model.
fn window(load: LoadOptions) -> Window {
    let options = WindowOptions {
        initial_model: ModelSource::BuiltIn,
        load,
        documents: Vec::new(),
        folders: Folders::default(),
        handed_over: None,
    };
    let mut window = Harness::builder()
        .with_size([1280.0, 800.0])
        .allow_missing_glyphs()
        .build_eframe(|cc| StrataApp::new(&cc.egui_ctx, options, Box::new(strata::engine::spawn)));
    frames_until(&mut window, |app| app.state.info().is_some());
    window
}

fn show(window: &mut Window, shown: Option<Tab>) {
    let dashboard = &mut window.state_mut().dashboard;
    dashboard.open = shown.is_some();
    dashboard.tab = shown.unwrap_or_default();
    // Measurements and requests of an opening panel finish before the answer begins.
    let has_peaks = |app: &StrataApp| !app.dashboard.open || app.dashboard.peaks.is_some();
    frames_until(window, has_peaks);
}

fn frames_until(window: &mut Window, done: impl Fn(&StrataApp) -> bool) {
    while !done(window.state()) {
        frame(window);
    }
}

fn frame(window: &mut Window) {
    let began = Instant::now();
    window.step();
    std::thread::sleep(window.state().frame_interval().saturating_sub(began.elapsed()));
}

/// 128k tokens in 24 layers on a dock that fills a large window.
fn map_of_a_long_context() {
    let mut occupancy = TierOccupancy::new(24, 2048);
    for (i, copies) in occupancy.copies.iter_mut().enumerate() {
        let tier = [Tier::Vram, Tier::Ram, Tier::Disk][i * 7919 / 64 % 3];
        *copies = PageCopies::default().with(tier);
    }
    let frame = Frame { pages: [0.0, 2048.0], row_layers: 1, width: 2200, row_height: 48, gap: 2 };
    let palette = [egui::Color32::BLACK, egui::Color32::BLUE, egui::Color32::GREEN, egui::Color32::YELLOW];
    let millis = (0..20).map(|_| {
        let began = Instant::now();
        std::hint::black_box(paint(&occupancy, &frame, palette));
        began.elapsed().as_secs_f64() * 1e3
    });
    println!(
        "KV map of 128k tokens x 24 layers, 2200 x 1152 pixels: {:.2} ms, made anew twice a second at most",
        median(sorted(millis))
    );
}

fn setting(name: &str, default_value: usize) -> usize {
    std::env::var(name).map_or(default_value, |text| text.parse().unwrap())
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(sorted: Vec<f64>) -> f64 {
    sorted[sorted.len() / 2]
}
