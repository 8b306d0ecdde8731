//! Telemetry benchmark: cost of recording, storing and drawing a million events.
//!
//! `cargo bench --bench telemetry` · `STRATA_BENCH_TOKENS` tokens of the document (default 2000) ·
//! `STRATA_BENCH_ROUNDS` (default 7)
//!
//! Recording compared with compiling it out: the number of events per decoded token times the cost of a record,
//! measured in the same run, relative to the time of a token. Compiling out would save exactly these calls, so no build
//! without them is needed. Observed compared with unobserved is measured in turns. Goals: 0.99 for the first; 30 frames
//! a second and the memory limit for a million events.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a bench prints, and ends where it fails")]

#[path = "common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use common::{engine, folder, median, setting};
use strata::app::dashboard::{DashboardState, timeline};
use strata::app::ui::theme;
use strata::engine::{Detail, EngineCommand, EngineEvent, EngineHandle, LoadOptions, Message, RequestSummary, Role, Sampling};
use strata::telemetry::{Cause, ENGINE_LANE, Event, EventKind, Hub, KernelFamily, Link, StepKind, now};

/// Tokens of a timed answer.
const DECODE: usize = 48;
const MILLION: u64 = 1_000_000;

fn main() {
    let ns_per_record = record_cost();
    println!("recording: {ns_per_record:.0} ns an event, drained by another thread every 30 ms");
    decode_share(ns_per_record);
    million_events();
}

/// Nanoseconds to record an event, while another thread drains.
fn record_cost() -> f64 {
    let hub = Hub::new(1 << 16);
    let lane = hub.lane(ENGINE_LANE);
    let kind =
        EventKind::PageMove { link: Link::RamToVram, layer: 3, group: 7, n_pages: 8, bytes: 4096, cause: Cause::Attention };
    let rounds = (0..9).map(|_| {
        let began = Instant::now();
        for _ in 0..10_000 {
            let begin_ns = now();
            lane.span(kind, begin_ns);
        }
        let ns = began.elapsed().as_secs_f64() * 1e9 / 1e4;
        assert_eq!(hub.snapshot().lanes[0].events.len(), 10_000);
        ns
    });
    median(rounds.collect())
}

struct Answer {
    summary: RequestSummary,
    n_events: u64,
}

fn ask(handle: &EngineHandle, document: &str, question: usize) -> Answer {
    let messages = vec![Message { role: Role::User, content: format!("{document}\n\nWhat is entry {question} about?") }];
    // Random sampling, so that no answer ends early.
    let sampling = Sampling { temperature: 3.0, top_k: 40, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, seed: 1 };
    let policy = Default::default();
    handle.send(EngineCommand::Generate { request: 1, messages, documents: Vec::new(), sampling, max_tokens: DECODE, policy });
    let mut n_events = 0;
    loop {
        match handle.wait(Duration::from_secs(600)).unwrap() {
            EngineEvent::Telemetry(snapshot) => {
                let decode = |e: &&Event| !matches!(e.kind, EventKind::Phase(_));
                n_events += snapshot.lanes.iter().flat_map(|lane| &lane.events).filter(decode).count() as u64;
            }
            EngineEvent::Finished { summary, .. } => return Answer { summary: *summary, n_events },
            EngineEvent::Failed { sentence, .. } => panic!("{sentence}"),
            _ => {}
        }
    }
}

/// Decode speed, observed in each detail relative to unobserved, in turns; and the share of recording in a token.
fn decode_share(ns_per_record: f64) {
    let dir = folder();
    let handle = engine(LoadOptions { kv_dir: Some(dir.path().to_owned()), ..LoadOptions::default() });
    let n_words = setting("STRATA_BENCH_TOKENS", 2000) / 2;
    let document: String =
        (0..n_words).map(|i| format!("{} {i} ", ["stone", "river", "lamp", "winter", "clock"][i % 5])).collect();
    ask(&handle, &document, 0);
    let details = [Detail::Nothing, Detail::Events, Detail::Parts];
    let mut speeds = [const { Vec::new() }; 3];
    let mut n_events = [0u64; 3];
    for round in 0..setting("STRATA_BENCH_ROUNDS", 7) {
        for (i, detail) in details.into_iter().enumerate() {
            handle.observe(detail);
            let answer = ask(&handle, &document, 1 + round);
            speeds[i].push(answer.summary.tokens_per_s);
            n_events[i] = answer.n_events;
        }
    }
    drop(handle);
    let [nothing, events, parts] = speeds;
    let ratios = |of: &[f64]| median(of.iter().zip(&nothing).map(|(with, without)| with / without).collect());
    let base = median(nothing.clone());
    println!(
        "decode: {base:.1} tok/s unobserved; observed {:.3} of it, with a time for each kernel {:.3}",
        ratios(&events),
        ratios(&parts)
    );
    for (detail, n) in [("observed", n_events[1]), ("with a time for each kernel", n_events[2])] {
        let per_token = n as f64 / DECODE as f64;
        let share = 1.0 - per_token * ns_per_record * base / 1e9;
        println!("on over compiled out, {detail}: {share:.5} ({per_token:.0} events a token)");
        assert!(share >= 0.99);
    }
}

fn million() -> Vec<Event> {
    let families = KernelFamily::ALL;
    let event = |i: u64| {
        let kind = match i % 8 {
            0 => EventKind::Step { kind: StepKind::Decode, first_token: i as u32, n_tokens: 1 },
            1 => EventKind::PageMove {
                link: Link::ALL[(i / 8 % 4) as usize],
                layer: 1,
                group: 2,
                n_pages: 3,
                bytes: 4,
                cause: Cause::Attention,
            },
            2 => EventKind::Encode,
            n => EventKind::GpuPass { family: families[n as usize], layer: 1, estimated: false },
        };
        Event { begin_ns: 10_000 * i, duration_ns: 4_000 + i * 7919 % 9_000, kind }
    };
    (0..MILLION).map(event).collect()
}

/// Stores a million events and draws them, as the window does without the GPU.
fn million_events() {
    let events = million();
    let began = Instant::now();
    let mut state = DashboardState::default();
    for batch in events.chunks(256) {
        state.history.add_events(ENGINE_LANE, batch);
    }
    let adding = began.elapsed();
    let (n_stored, forgotten, bytes, cap) =
        (state.history.n_events(), state.history.n_forgotten(), state.history.bytes(), state.history.cap());
    println!(
        "a million events: added at {:.0} ns each; {n_stored} kept and {forgotten} forgotten in {bytes} of {cap}",
        adding.as_secs_f64() * 1e9 / MILLION as f64
    );
    assert!(bytes <= cap && n_stored as u64 + forgotten == MILLION);
    let ctx = egui::Context::default();
    theme::install(&ctx);
    for zoom in [1.0f64, 0.1, 0.001] {
        let mut millis = Vec::new();
        for frame in 0..40 {
            let screen = egui::Rect::from_min_size(egui::Pos2::ZERO, egui::vec2(1280.0, 800.0));
            let input = egui::RawInput { screen_rect: Some(screen), ..Default::default() };
            let began = Instant::now();
            let mut output = ctx.run_ui(input, |ui| {
                state.timeline.show_all(state.history.range_ns(), zoom);
                timeline::show(ui, &mut state);
            });
            let shapes = ctx.tessellate(std::mem::take(&mut output.shapes), 1.0);
            assert!(!shapes.is_empty());
            output.drop_without_applying_deltas();
            if frame >= 5 {
                millis.push(began.elapsed().as_secs_f64() * 1e3);
            }
        }
        let worst = millis.iter().copied().fold(0.0, f64::max);
        println!(
            "a frame of the timeline over {zoom} of it, laid out and tessellated: median {:.2} ms, worst {worst:.2} ms",
            median(millis.clone())
        );
        assert!(median(millis) <= 33.3, "30 frames a second");
    }
}
