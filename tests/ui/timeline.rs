//! The timeline and the ledger, by accessible label, over events as an engine records them.

use egui::{Key, Modifiers, Pos2, Rect};
use egui_kittest::kittest::{NodeT, Queryable};
use strata::app::dashboard::Tab;
use strata::app::dashboard::trace_files::write_trace;
use strata::app::state::settings::ThemeChoice;
use strata::telemetry::chrome_trace::RunInfo;
use strata::telemetry::{Cause, ENGINE_LANE, Event, EventKind, History, KernelFamily, Link, Phase, StepKind, WaitCause};

use crate::mock_engine::{Dropped, Rig, Setup};

const MS: u64 = 1_000_000;
/// A step of the run below.
const STEP: u64 = 20 * MS;

/// An answer of `n` tokens: 20 ms a step, of which 2 are encoding, 12 computing, 4 waiting for pages and 2 unattributed.
/// One pass of one step takes 5 ms longer than all others.
pub fn record(history: &mut History, n: u64) {
    let span = |kind, begin_ns: u64, ns: u64| Event { begin_ns, duration_ns: ns, kind };
    let gpu = |family| EventKind::GpuPass { family, layer: 0, estimated: false };
    let (mut engine, mut device, mut moves) = (Vec::new(), Vec::new(), Vec::new());
    let mut at = 100 * MS;
    engine.push(span(EventKind::Phase(Phase::Prefill), 0, at));
    engine.push(span(EventKind::Step { kind: StepKind::Prefill, first_token: 0, n_tokens: 512 }, 0, at));
    device.push(span(gpu(KernelFamily::Linear), 5 * MS, 90 * MS));
    engine.push(span(EventKind::Phase(Phase::Decode), at, n * STEP));
    for i in 0..n {
        let kind = EventKind::Step { kind: StepKind::Decode, first_token: 511 + i as u32, n_tokens: 1 };
        engine.push(span(kind, at, STEP));
        engine.push(span(EventKind::Encode, at, 2 * MS));
        device.push(span(gpu(KernelFamily::Attention), at + 2 * MS, 8 * MS));
        device.push(span(gpu(KernelFamily::Linear), at + 10 * MS, if i == n / 2 { 9 * MS } else { 4 * MS }));
        engine.push(span(EventKind::Wait { cause: WaitCause::Pages }, at + 14 * MS, 4 * MS));
        for (link, bytes) in [(Link::DiskToRam, 1 << 20), (Link::RamToVram, 2 << 20)] {
            let kind = EventKind::PageMove { link, layer: 3, group: i as u32, n_pages: 16, bytes, cause: Cause::Attention };
            moves.push(span(kind, at + 8 * MS, 9 * MS));
        }
        let pages = EventKind::Pages { resident: 30, fetched: 16, recomputed: 0, skipped: 50 };
        engine.push(span(pages, at + STEP, 0));
        at += STEP;
    }
    for (lane, mut events) in [(ENGINE_LANE, engine), ("gpu", device), ("transfer", moves)] {
        events.sort_by_key(|e| e.begin_ns);
        history.add_events(lane, &events);
    }
}

fn open(setup: Setup, tab: Tab) -> Rig {
    let mut rig = Rig::ready_with(setup);
    let dashboard = &mut rig.harness.state_mut().dashboard;
    record(&mut dashboard.history, 50);
    (dashboard.open, dashboard.tab) = (true, tab);
    rig.harness.run();
    rig
}

fn timeline(rig: &mut Rig) -> &mut strata::app::dashboard::DashboardState {
    &mut rig.harness.state_mut().dashboard
}

fn span_ns(rig: &mut Rig) -> u64 {
    let (from, to) = timeline(rig).timeline.shown_ns().unwrap();
    to - from
}

/// Rect of the lanes, without their names.
fn lanes(rig: &Rig) -> Rect {
    let canvas = rig.harness.get_by_label_contains("Timeline. Arrows move").rect();
    canvas.with_min_x(canvas.left() + 96.0)
}

/// Middle of a lane at `ns`.
fn place(rig: &mut Rig, lane: &str, ns: u64) -> Pos2 {
    let (from, to) = timeline(rig).timeline.shown_ns().unwrap();
    let area = lanes(rig);
    let y = rig.harness.get_by_label_contains(lane).rect().center().y;
    Pos2::new(area.left() + area.width() * ((ns - from) as f32 / (to - from) as f32), y)
}

fn click(rig: &mut Rig, label: &str) {
    rig.harness.get_by_label(label).click();
    rig.harness.run();
}

fn press(rig: &mut Rig, modifiers: Modifiers, key: Key) {
    rig.harness.key_press_modifiers(modifiers, key);
    rig.harness.run();
}

/// The whole label that contains `part`.
fn said(rig: &Rig, part: &str) -> String {
    let node = rig.harness.get_by_label_contains(part);
    let node = node.accesskit_node();
    node.label().or(node.value()).unwrap()
}

fn focus(rig: &mut Rig) {
    rig.harness.get_by_label_contains("Timeline. Arrows move").focus();
    rig.harness.run();
}

#[test]
fn timeline_zooms_by_button_wheel_and_key_and_shows_everything_again() {
    let mut rig = open(Setup::default(), Tab::Timeline);
    let whole = span_ns(&mut rig);
    click(&mut rig, "Zoom in");
    let by_button = span_ns(&mut rig);
    assert!(by_button < whole, "{by_button} of {whole}");
    focus(&mut rig);
    press(&mut rig, Modifiers::NONE, Key::Plus);
    assert!(span_ns(&mut rig) < by_button);
    press(&mut rig, Modifiers::NONE, Key::Minus);
    press(&mut rig, Modifiers::NONE, Key::Minus);
    assert!(span_ns(&mut rig) > by_button);
    let before = span_ns(&mut rig);
    let at = lanes(&rig).center();
    rig.harness.hover_at(at);
    rig.harness.event(egui::Event::MouseWheel {
        unit: egui::MouseWheelUnit::Point,
        delta: egui::vec2(0.0, 120.0),
        phase: egui::TouchPhase::Move,
        source: egui::MouseWheelSource::Unknown,
        modifiers: Modifiers::NONE,
    });
    rig.harness.run();
    assert!(span_ns(&mut rig) < before, "the wheel zooms in");
    click(&mut rig, "Show everything");
    let (from, to) = timeline(&mut rig).timeline.shown_ns().unwrap();
    assert_eq!((from, to > 1_100 * MS), (0, true));
}

#[test]
fn timeline_follows_what_is_new_until_it_is_paused() {
    let mut rig = open(Setup::default(), Tab::Timeline);
    let end = |rig: &mut Rig| timeline(rig).timeline.shown_ns().unwrap().1;
    let more = |rig: &mut Rig, at: u64| {
        let event = Event { begin_ns: at, duration_ns: MS, kind: EventKind::Encode };
        timeline(rig).history.add_events(ENGINE_LANE, &[event]);
        rig.harness.run();
    };
    more(&mut rig, 3_000 * MS);
    assert!(end(&mut rig) >= 3_001 * MS);
    click(&mut rig, "Follow what is new");
    assert!(timeline(&mut rig).timeline.is_paused());
    let paused_at = end(&mut rig);
    more(&mut rig, 9_000 * MS);
    assert_eq!(end(&mut rig), paused_at, "events come, the view stays");
    assert_eq!(timeline(&mut rig).history.range_ns().unwrap().1, 9_001 * MS);
    focus(&mut rig);
    press(&mut rig, Modifiers::NONE, Key::Space);
    assert!(end(&mut rig) >= 9_001 * MS);
    press(&mut rig, Modifiers::NONE, Key::ArrowLeft);
    assert!(timeline(&mut rig).timeline.is_paused(), "whoever moves looks at something");
    press(&mut rig, Modifiers::NONE, Key::End);
    assert!(!timeline(&mut rig).timeline.is_paused());
}

#[test]
fn timeline_shows_what_lies_under_the_pointer_and_in_each_lane() {
    let mut rig = open(Setup::default(), Tab::Timeline);
    click(&mut rig, "Show everything");
    let label = |part: &str| said(&rig, part);
    assert!(label("NVMe read:").starts_with("NVMe read: 50.0 MiB in 50 moves, busy 450 ms"), "{}", label("NVMe read:"));
    assert!(label("unattributed:").contains("unattributed: 109 ms"), "{}", label("unattributed:"));
    assert!(label("recompute:").starts_with("recompute: 0 events"));
    // The spike is as long among fifty as it is alone.
    let at = place(&mut rig, "GPU linear:", 100 * MS + 25 * STEP + 12 * MS);
    rig.harness.hover_at(at);
    rig.harness.run();
    rig.harness.get_by_label("9.00 ms");
    rig.harness.get_by_label("measured by the device");
    let at = place(&mut rig, "RAM to VRAM:", 100 * MS + 5 * STEP + 10 * MS);
    rig.harness.hover_at(at);
    rig.harness.run();
    rig.harness.get_by_label("ram to vram for attention");
    rig.harness.get_by_label("2.00 MiB in 16 pages");
}

#[test]
fn step_is_selected_by_click_and_by_key_and_taken_apart() {
    let mut rig = open(Setup::default(), Tab::Timeline);
    click(&mut rig, "Show everything");
    let at = place(&mut rig, "step:", 100 * MS + 7 * STEP + MS);
    rig.harness.hover_at(at);
    rig.harness.drag_at(at);
    rig.harness.drop_at(at);
    rig.harness.run();
    assert_eq!(timeline(&mut rig).selected_step, Some(100 * MS + 7 * STEP));
    let said = said(&rig, "Attribution:");
    assert!(said.contains("decode step at position 518: 20.0 ms, accounted for 90.0 %"), "{said}");
    for part in
        ["GPU attention 8.00 ms (40 %)", "GPU linear 4.00 ms (20 %)", "wait: pages 4.00 ms (20 %)", "unattributed 2.00 ms"]
    {
        assert!(said.contains(part), "{said}");
    }
    focus(&mut rig);
    press(&mut rig, Modifiers::NONE, Key::ArrowDown);
    assert_eq!(timeline(&mut rig).selected_step, Some(100 * MS + 8 * STEP));
    click(&mut rig, "Previous step");
    click(&mut rig, "Previous step");
    assert_eq!(timeline(&mut rig).selected_step, Some(100 * MS + 6 * STEP));
    let (from, to) = timeline(&mut rig).timeline.shown_ns().unwrap();
    assert!(from <= 100 * MS + 6 * STEP && to >= 100 * MS + 7 * STEP, "the view comes to the step");
}

#[test]
fn ruler_measures_by_drag_and_by_key() {
    let mut rig = open(Setup::default(), Tab::Timeline);
    click(&mut rig, "Show everything");
    click(&mut rig, "Measure with the ruler");
    let from = place(&mut rig, "step:", 100 * MS + 10 * STEP);
    let to = place(&mut rig, "step:", 100 * MS + 20 * STEP);
    rig.harness.drag_at(from);
    rig.harness.run();
    rig.harness.hover_at(to);
    rig.harness.run();
    rig.harness.drop_at(to);
    rig.harness.run();
    let (begin, end) = timeline(&mut rig).timeline.measured_ns().unwrap();
    assert!((end - begin).abs_diff(10 * STEP) < 8 * MS, "{begin} to {end}");
    rig.harness.get_by_label_contains("Attribution: Measured: ");
    focus(&mut rig);
    press(&mut rig, Modifiers::SHIFT, Key::ArrowRight);
    let (_, further) = timeline(&mut rig).timeline.measured_ns().unwrap();
    assert!(further > end);
    press(&mut rig, Modifiers::SHIFT, Key::ArrowLeft);
    assert!(timeline(&mut rig).timeline.measured_ns().unwrap().1.abs_diff(end) < 1_000);
}

#[test]
fn timeline_without_events_shows_what_will_be_there() {
    let mut rig = Rig::ready();
    (timeline(&mut rig).open, timeline(&mut rig).tab) = (true, Tab::Timeline);
    rig.harness.run();
    rig.harness.get_by_label("Nothing has happened yet");
}

/// Writes a picture of the window if `STRATA_SHOTS` is set.
fn shot(rig: &mut Rig, name: &str) {
    let Some(dir) = std::env::var_os("STRATA_SHOTS").map(std::path::PathBuf::from) else { return };
    std::fs::create_dir_all(&dir).unwrap();
    rig.harness.render().unwrap().save(dir.join(format!("{name}.png"))).unwrap();
}

#[test]
fn timeline_and_ledger_are_drawn_in_both_themes_beside_the_chat_and_alone() {
    for (theme, name) in [(ThemeChoice::Dark, "dark"), (ThemeChoice::Light, "light")] {
        for tab in [Tab::Timeline, Tab::Ledger] {
            let mut rig = open(Setup { theme, ..Setup::default() }, tab);
            timeline(&mut rig).selected_step = Some(100 * MS + 30 * STEP);
            rig.harness.run();
            shot(&mut rig, &format!("made-{tab:?}-{name}").to_lowercase());
            timeline(&mut rig).fills = true;
            rig.harness.run();
            if tab == Tab::Timeline {
                click(&mut rig, "Show everything");
            }
            shot(&mut rig, &format!("made-{tab:?}-{name}-alone").to_lowercase());
        }
    }
}

fn assert_snapshot(tab: Tab, theme: ThemeChoice, name: &str) {
    let mut rig = open(Setup { size: [800.0, 560.0], theme, ..Setup::default() }, tab);
    timeline(&mut rig).selected_step = Some(100 * MS + 30 * STEP);
    timeline(&mut rig).fills = true;
    rig.harness.run();
    rig.harness.snapshot(name);
}

#[test]
fn timeline_in_the_dark_theme_matches_its_snapshot() {
    assert_snapshot(Tab::Timeline, ThemeChoice::Dark, "timeline_dark");
}

#[test]
fn timeline_in_the_light_theme_matches_its_snapshot() {
    assert_snapshot(Tab::Timeline, ThemeChoice::Light, "timeline_light");
}

#[test]
fn ledger_matches_its_snapshot() {
    assert_snapshot(Tab::Ledger, ThemeChoice::Light, "ledger_light");
}

#[test]
fn ledger_counts_pages_bytes_and_time_of_each_step_and_selects_it() {
    let mut rig = open(Setup::default(), Tab::Ledger);
    assert_eq!(said(&rig, "resident: "), "resident: 30 pages, 3.75 MiB, no time");
    assert_eq!(said(&rig, "fetched: "), "fetched: 16 pages, 2.00 MiB, 9.00 ms");
    assert_eq!(said(&rig, "skipped: "), "skipped: 50 pages, 6.25 MiB, no time");
    rig.harness.get_by_label_contains("Forecast N/A: no policy predicted this step. Waited for pages 4.00 ms.");
    let row = "step decode 558, took 20.0 ms, resident 30, fetched 16, recomp. 0, skipped 50, waited 4.00 ms, regret N/A";
    click(&mut rig, row);
    assert_eq!(timeline(&mut rig).selected_step, Some(100 * MS + 47 * STEP));
    rig.harness.get_by_label("Selected step: decode 558, 20.0 ms");
}

#[test]
fn saved_run_is_laid_beside_the_session_and_closed_again() {
    let mut rig = open(Setup::default(), Tab::Timeline);
    let file = tempfile::Builder::new().prefix("leoam-").suffix(".json").tempfile().unwrap();
    let mut slower = History::default();
    record(&mut slower, 80);
    let run = RunInfo { model: "Strata Quote".into(), policy: "leoam".into(), ..RunInfo::default() };
    write_trace(file.path(), &slower.snapshot(), run).unwrap();
    let text = std::fs::read_to_string(file.path()).unwrap();
    assert!(!text.contains("question"), "no text unless it was asked for");
    // As a dropped file arrives.
    rig.harness.input_mut().dropped_files.push(std::sync::Arc::new(Dropped(file.path().to_owned())));
    rig.wait_for(|rig| rig.harness.query_by_label_contains("Close leoam-").is_some());
    click(&mut rig, "Show everything");
    let read = said(&rig, "NVMe read:");
    assert!(read.contains("50.0 MiB in 50 moves") && read.contains("80.0 MiB in 80 moves"), "{read}");
    rig.harness.get_by_label("Strata Quote, leoam");
    shot(&mut rig, "made-compare");
    let name = file.path().file_name().unwrap().to_string_lossy().into_owned();
    click(&mut rig, &format!("Close {name}"));
    assert!(!said(&rig, "NVMe read:").contains("80.0 MiB"));
}
