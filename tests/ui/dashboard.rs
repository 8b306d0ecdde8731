//! Dashboard with the real engine.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use egui::{Event, Key, Modifiers};
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable;
use strata::app::answer::citations::SourceLocation;
use strata::app::dashboard::Tab;
use strata::app::persist::paths::Folders;
use strata::app::state::chat::Outcome;
use strata::app::state::settings::ThemeChoice;
use strata::app::{StrataApp, WindowOptions};
use strata::base::{Bytes, Tiers};
use strata::engine::{
    EngineCommand, EngineEvent, KernelPeaks, LinkBandwidth, LoadOptions, ModelSource, PolicySpec, RequestSummary,
    SelectionBudget, Tier, WorkShape,
};
use strata::telemetry::{EventKind, History, Link, StepKind, Track};

use crate::mock_engine::{Rig, Setup, model_info, selective_summary};
use crate::recorded;

/// A window with an engine, and a document larger than VRAM and RAM together.
pub struct Real {
    pub harness: Harness<'static, StrataApp>,
    _kv_dir: tempfile::TempDir,
}

const QUESTION: &str = "What is the current temperature for Reribe?";

/// The first half of a document, in a file of the same name in `folder`.
fn half_of(document: &Path, folder: &Path) -> PathBuf {
    let text = std::fs::read_to_string(document).unwrap();
    let half = folder.join(document.file_name().unwrap());
    std::fs::write(&half, &text[..text.len() / 2]).unwrap();
    half
}

impl Real {
    /// None without a device.
    pub fn start(theme: ThemeChoice, policy: Option<PolicySpec>) -> Option<Real> {
        let kv_dir = tempfile::tempdir().unwrap();
        if let Err(error) = strata::gpu::Gpu::open(&strata::gpu::GpuOptions::default()) {
            assert!(std::env::var_os("STRATA_REQUIRE_GPU").is_none(), "{error}");
            eprintln!("skipped: {error}");
            return None;
        }
        let fixture = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/quote/document.txt");
        // Half of the document takes a quarter of the time. Recorded runs and pictures have all of it.
        let is_recorded = ["STRATA_RECORD", "STRATA_SHOTS"].iter().any(|name| std::env::var_os(name).is_some());
        let (document, mib) = if is_recorded { (fixture, 6) } else { (half_of(&fixture, kv_dir.path()), 4) };
        let budgets = Tiers { vram: Some(Bytes(mib << 20)), ram: Some(Bytes(mib << 20)), disk: Some(Bytes(1 << 30)) };
        let load = LoadOptions {
            budgets,
            policy,
            kv_dir: Some(kv_dir.path().to_owned()),
            context: Some(8192),
            ..LoadOptions::default()
        };
        let documents = vec![document];
        let options = WindowOptions {
            initial_model: ModelSource::BuiltIn,
            load,
            documents,
            folders: Folders::default(),
            handed_over: None,
        };
        let mut harness = Harness::builder()
            .with_size([1280.0, 800.0])
            .with_max_steps(12)
            .wgpu()
            .build_eframe(|cc| StrataApp::new(&cc.egui_ctx, options, Box::new(strata::engine::spawn)));
        harness.state_mut().state.settings.values.theme = theme;
        let mut real = Real { harness, _kv_dir: kv_dir };
        real.wait_for(|app| app.state.info().is_some() && app.state.documents.list.first().is_some_and(|d| d.n_tokens.is_some()));
        Some(real)
    }

    /// Draws until `done`, five minutes at most.
    pub fn wait_for(&mut self, done: impl Fn(&StrataApp) -> bool) {
        let began = Instant::now();
        while !done(self.harness.state()) {
            assert!(began.elapsed() < Duration::from_secs(300), "waited in vain");
            std::thread::sleep(Duration::from_millis(20));
            self.harness.step();
        }
        (0..3).for_each(|_| self.harness.step());
    }

    pub fn open_dock(&mut self) {
        self.harness.key_press_modifiers(Modifiers::COMMAND, Key::D);
        self.harness.step();
        self.wait_for(|app| app.dashboard.open && app.dashboard.peaks.is_some());
    }

    pub fn ask(&mut self, question: &str) {
        self.harness.state_mut().state.chat_mut().draft = question.to_owned();
        self.harness.get_by_label("Question").focus();
        self.harness.step();
        self.harness.key_press(Key::Enter);
        self.harness.step();
        self.wait_for(|app| {
            let last = app.state.chat().exchanges.last();
            app.state.engine.running.is_none() && last.is_some_and(|e| !matches!(e.outcome, Outcome::Running))
        });
    }

    pub fn show(&mut self, tab: Tab) {
        self.harness.get_by_label(tab.name()).click();
        self.harness.step();
        self.wait_for(|app| app.dashboard.tab == tab && (tab != Tab::KvMap || app.dashboard.pages.is_some()));
    }

    /// Every panel beside the chat and in its place, at common sizes.
    fn shots_of_every_panel(&mut self, theme: &str) {
        let sizes = [("1280", [1280.0, 800.0]), ("2560", [2560.0, 1440.0])];
        let n_sizes = if std::env::var_os("STRATA_SHOTS").is_some() { sizes.len() } else { 1 };
        for (size_name, size) in sizes.into_iter().take(n_sizes) {
            self.harness.set_size(egui::Vec2::from(size));
            (0..3).for_each(|_| self.harness.step());
            for tab in Tab::ALL {
                self.show(tab);
                let name = format!("{}-{theme}-{size_name}", tab.name().to_lowercase().replace(' ', "-"));
                self.shot(&name);
                self.harness.state_mut().dashboard.fills = true;
                self.shot(&format!("{name}-alone"));
                self.harness.state_mut().dashboard.fills = false;
                (0..3).for_each(|_| self.harness.step());
            }
        }
        self.harness.set_size(egui::vec2(1280.0, 800.0));
        (0..3).for_each(|_| self.harness.step());
    }

    /// Writes a picture of the window if `STRATA_SHOTS` is set.
    pub fn shot(&mut self, name: &str) {
        let Some(dir) = std::env::var_os("STRATA_SHOTS").map(PathBuf::from) else { return };
        std::fs::create_dir_all(&dir).unwrap();
        self.harness.state_mut().state.notices.dismiss_all();
        self.harness.remove_cursor();
        (0..4).for_each(|_| self.harness.step());
        self.harness.render().unwrap().save(dir.join(format!("{name}.png"))).unwrap();
    }
}

fn leoam() -> PolicySpec {
    PolicySpec { amount: SelectionBudget::Rate(0.1), is_forced: true, ..PolicySpec::default() }
}

/// The last four steps of the run.
fn answer_window(history: &History) -> (u64, u64) {
    let (_, end) = history.range_ns().unwrap();
    let steps = history.of(Track::Step).flat_map(|series| series.iter());
    let decode = steps.filter(|step| matches!(step.kind, EventKind::Step { kind: StepKind::Decode, .. }));
    let mut begins: Vec<u64> = decode.map(|step| step.begin_ns).collect();
    begins.sort_unstable();
    (begins[begins.len() - 4], end)
}

#[test]
fn panels_show_a_real_run_over_three_tiers() {
    let Some(mut real) = Real::start(ThemeChoice::Dark, Some(leoam())) else { return };
    real.open_dock();
    real.shot("activity-empty");
    real.show(Tab::KvMap);
    real.ask(QUESTION);
    let dashboard = &real.harness.state().dashboard;
    let pages = dashboard.pages.clone().unwrap();
    let counters = dashboard.history.counters();
    let Outcome::Done(summary) = &real.harness.state().state.chat().exchanges[0].outcome else { panic!("not answered") };
    assert_eq!(counters.link(Link::DiskToRam).bytes, summary.moved_bytes.disk_to_ram, "the panel counts what the engine does");
    let tiers = pages.occupancy.tiers;
    assert_eq!(Tiers { vram: tiers.vram.bytes(), ram: tiers.ram.bytes(), disk: tiers.disk.bytes() }, summary.kv_bytes);
    assert!(pages.occupancy.copies.iter().any(|copies| copies.nearest() == Some(Tier::Disk)), "not all of it fits above");
    if std::env::var_os("STRATA_RECORD").is_some() {
        recorded::write(&dashboard.history, answer_window(&dashboard.history), &pages, summary);
    }
    let marked = pages.first_byte[40] as usize..pages.first_byte[41] as usize;
    let document = real.harness.state().state.documents.list[0].id;
    real.harness.state_mut().dashboard.kv_map.selected = Some((2, 40));
    let page = real.harness.state().state.documents.list[0].page_of(marked.start);
    real.harness.state_mut().dashboard.show_page_text(SourceLocation { doc: document, page, bytes: marked });
    for (theme, name) in [(ThemeChoice::Dark, "dark"), (ThemeChoice::Light, "light")] {
        real.harness.state_mut().state.settings.values.theme = theme;
        real.shots_of_every_panel(name);
    }
    real.harness.get_by_label("Check exactly").click();
    real.wait_for(|app| app.state.engine.running.is_none() && app.state.chat().exchanges[0].check.is_some());
    assert!(real.harness.query_by_label_contains("Exact check of").is_some());
    real.shot("fidelity-checked");
}

/// A window with the recorded run, whose document belongs to the chat.
fn rig(setup: Setup) -> Rig {
    let mut rig = Rig::ready_with(setup);
    let document = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/quote/document.txt");
    rig.drop_files(&[document]);
    // The only value from this machine.
    rig.harness.state_mut().state.documents.list[0].ingest_ms = Some(2.4);
    while rig.command().is_some() {}
    rig
}

const PEAKS: LinkBandwidth =
    LinkBandwidth { ram_to_vram: 900e6, vram_to_ram: 700e6, disk_to_ram: Some(650e6), ram_to_disk: Some(320e6) };

/// The recorded run after a question, with the dock open.
fn with_run(setup: Setup) -> Rig {
    let mut rig = rig(setup);
    rig.harness.key_press_modifiers(Modifiers::COMMAND, Key::D);
    assert!(matches!(rig.command(), Some(EngineCommand::MeasureLinks)), "peaks are measured when the dock opens first");
    rig.emit(EngineEvent::Links(PEAKS));
    let request = rig.ask("What is the current temperature for Reribe?");
    let (phases, prompt_tokens) = (recorded::phases(), recorded::prompt_tokens());
    rig.emit(EngineEvent::RequestStarted { request, prompt_tokens, cached_tokens: 0 });
    let words =
        ["The", " current", " temp", "er", "ature", " for", " R", "er", "ibe", " is", " M", "are", "-", "3", "4", "0", "9", "."];
    for (i, word) in words.iter().enumerate() {
        let (n, context_used) = (i + 1, prompt_tokens + i);
        rig.emit(EngineEvent::Token { request, text: (*word).into(), n, tokens_per_s: 11.4, context_used });
    }
    rig.emit(recorded::telemetry());
    rig.emit(recorded::pages_event());
    let tiers = recorded::pages().occupancy.tiers;
    let used = Tiers { vram: tiers.vram.bytes(), ram: tiers.ram.bytes(), disk: tiers.disk.bytes() };
    let budgets = Tiers { vram: 6 << 20, ram: 6 << 20, disk: 1 << 30 };
    rig.emit(EngineEvent::KvUse { used, budgets });
    let summary = RequestSummary { phases, prompt_tokens, kv_bytes: used, ..selective_summary(prompt_tokens, words.len()) };
    rig.emit(EngineEvent::Finished { request, summary: Box::new(summary) });
    rig
}

fn show(rig: &mut Rig, tab: Tab) {
    rig.click(tab.name());
    rig.harness.remove_cursor();
    rig.harness.run();
}

/// The window with one panel only.
fn panel(theme: ThemeChoice, tab: Tab) -> Rig {
    let mut rig = with_run(Setup { size: [760.0, 640.0], theme, ..Setup::default() });
    rig.click("Fill the window");
    show(&mut rig, tab);
    rig
}

#[test]
fn dock_opens_and_shuts_by_key_and_by_button() {
    let mut rig = Rig::ready();
    assert!(rig.harness.query_by_label("Timeline").is_none());
    rig.harness.key_press_modifiers(Modifiers::COMMAND, Key::D);
    rig.harness.run();
    assert!(rig.harness.query_by_label("Timeline").is_some() && rig.shows("Nothing has moved yet"));
    rig.harness.key_press_modifiers(Modifiers::COMMAND, Key::D);
    rig.harness.run();
    assert!(rig.harness.query_by_label("Timeline").is_none());
    rig.click("Dashboard");
    assert!(rig.harness.query_by_label("Timeline").is_some());
    rig.click("Close the dashboard");
    assert!(rig.harness.query_by_label("Timeline").is_none());
}

#[test]
fn dock_fills_the_window_and_gives_the_chat_back() {
    let mut rig = with_run(Setup::default());
    let beside = rig.harness.get_by_label("Activity").rect().left();
    rig.click("Fill the window");
    assert!(rig.harness.query_by_label("Question").is_none());
    assert!(rig.harness.get_by_label("Activity").rect().left() < beside);
    rig.click("Show beside the chat");
    assert!(rig.harness.query_by_label("Question").is_some());
    assert_eq!(rig.harness.get_by_label("Activity").rect().left(), beside);
}

#[test]
fn links_say_their_rate_and_their_share_of_what_was_measured_here() {
    let mut rig = with_run(Setup::default());
    assert!(rig.shows("of the 620 MiB/s measured on this machine"), "disk to RAM");
    assert!(rig.shows("Device busy: ~"), "by the clock of the CPU");
    let mut info = model_info();
    info.kv.kv_dir = None;
    rig.emit(EngineEvent::ModelLoaded(Box::new(info)));
    assert!(rig.shows("disk to ram: N/A; its peak is not measured"), "no disk tier is not 0");
    assert!(rig.shows("Shares appear once the links are measured"));
}

#[test]
fn kernels_say_their_share_of_a_step_and_of_the_peaks_that_were_measured_here() {
    let mut rig = with_run(Setup::default());
    assert!(!rig.shows("linear decode"), "their peaks are not known");
    let shape = WorkShape { n_layer: 6, layer_bytes: 6 << 20, n_layer_weights: 6 << 20, ..WorkShape::default() };
    let peaks = KernelPeaks { read_bytes_per_s: 100e9, f32_flops: 1e12, matrix_flops: None };
    rig.emit(EngineEvent::Kernels(peaks, shape));
    rig.harness.run();
    assert!(rig.shows("linear decode: ") && rig.shows("of the streaming read measured on this machine"));
    assert!(rig.shows("of the step; N/A, N/A"), "keys of no bytes are not known");
    assert!(rig.shows("no kernel: "));
    rig.emit(EngineEvent::ModelLoaded(Box::new(model_info())));
    rig.harness.run();
    assert!(!rig.shows("linear decode"), "the shape of another model is not known");
}

#[test]
fn peaks_are_measured_once_and_again_for_another_model() {
    let mut rig = with_run(Setup::default());
    rig.harness.key_press_modifiers(Modifiers::COMMAND, Key::D);
    rig.harness.run();
    rig.harness.key_press_modifiers(Modifiers::COMMAND, Key::D);
    assert!(rig.command().is_none());
    rig.emit(EngineEvent::ModelLoaded(Box::new(model_info())));
    assert!(matches!(rig.command(), Some(EngineCommand::MeasureLinks)));
}

#[test]
fn map_is_requested_when_it_is_opened_and_shows_what_is_under_the_pointer() {
    let mut rig = with_run(Setup::default());
    show(&mut rig, Tab::KvMap);
    assert!(matches!(rig.command(), Some(EngineCommand::ShowPages)));
    let map = rig.harness.get_by_label_contains("KV map, 96 pages of 6 layers").rect();
    rig.harness.hover_at(map.left_top() + egui::vec2(3.0, 3.0));
    (0..30).for_each(|_| rig.harness.step());
    for words in ["Tokens 0–63, layer 0", "document.txt, page 1", "32.0 KiB, f16", "in VRAM"] {
        assert!(rig.shows(words), "{words}");
    }
}

#[test]
fn click_on_the_map_opens_the_text_of_that_page() {
    let mut rig = with_run(Setup::default());
    show(&mut rig, Tab::KvMap);
    let map = rig.harness.get_by_label_contains("KV map, ").rect();
    let at = map.left_top() + egui::vec2(map.width() * 0.5, 3.0);
    for pressed in [true, false] {
        let button = egui::PointerButton::Primary;
        rig.harness.event(Event::PointerMoved(at));
        rig.harness.event(Event::PointerButton { pos: at, button, pressed, modifiers: Modifiers::NONE });
        rig.harness.step();
    }
    rig.harness.run();
    let reader = rig.harness.state().dashboard.reader.clone().unwrap();
    assert!(rig.shows("of 7") && reader.page == 3, "half of the document is on its fourth page");
    let text = &rig.harness.state().state.documents.list[0].text[reader.marked.clone().unwrap()];
    assert!((100..400).contains(&text.len()), "64 tokens: {text}");
    rig.click("Close the document");
    assert_eq!(rig.harness.state().dashboard.reader, None);
}

#[test]
fn map_is_steered_by_the_keyboard_alone() {
    let mut rig = with_run(Setup::default());
    show(&mut rig, Tab::KvMap);
    rig.harness.get_by_label_contains("KV map, ").focus();
    rig.harness.run();
    for key in [Key::ArrowRight, Key::ArrowRight, Key::ArrowDown] {
        rig.harness.key_press(key);
        rig.harness.run();
    }
    assert!(rig.shows("Tokens 128–191, layer 1"));
    rig.harness.key_press(Key::Enter);
    rig.harness.run();
    assert!(rig.harness.state().dashboard.reader.as_ref().is_some_and(|reader| reader.page == 0));
    rig.harness.get_by_label_contains("KV map, ").focus();
    rig.harness.run();
    let first_page = rig.harness.get_by_label_contains("KV map, ").rect();
    for key in [Key::Plus, Key::Plus, Key::Num0] {
        rig.harness.key_press(key);
        rig.harness.run();
    }
    assert_eq!(rig.harness.get_by_label_contains("KV map, ").rect(), first_page);
}

#[test]
fn parts_of_an_answer_are_under_it_and_a_token_leads_to_its_step() {
    let mut rig = with_run(Setup::default());
    for words in ["tokenize: 45.9 ms", "restore: 108 ms", "prefill: 66.9 s", "first token: 933 ms", "decode: 8.77 s"] {
        assert!(rig.shows(words), "{words}");
    }
    rig.harness.get_by_label_contains("Tokens of the answer, 18").focus();
    rig.harness.run();
    let mut steps = Vec::new();
    for _ in 0..3 {
        rig.harness.key_press(Key::ArrowLeft);
        rig.harness.run();
        steps.push(rig.harness.state().dashboard.selected_step.unwrap());
    }
    assert_eq!(rig.harness.state().dashboard.tab, Tab::Timeline);
    assert!(steps[0] > steps[1] && steps[1] > steps[2], "{steps:?}");
    rig.harness.key_press_modifiers(Modifiers::COMMAND, Key::D);
    rig.harness.run();
    assert!(!rig.shows("prefill: "), "the chat is calm without the dock");
}

#[test]
fn fidelity_marks_what_was_sampled_and_points_at_the_step() {
    let mut rig = with_run(Setup::default());
    show(&mut rig, Tab::Fidelity);
    assert!(rig.shows("sampled in 5 of 17 steps of the newest answer") && rig.shows("Layer 3: 0.940 kept, 0.993 at best"));
    let n = rig.harness.query_all_by_label_contains("Sampled step: ").count();
    assert_eq!(n, 1, "of the four steps");
    rig.harness.query_all_by_label_contains("Sampled step: ").next().unwrap().click();
    rig.harness.run();
    assert!(rig.harness.state().dashboard.selected_step.is_some());
    let mut plain = Rig::ready();
    plain.harness.key_press_modifiers(Modifiers::COMMAND, Key::D);
    plain.harness.run();
    show(&mut plain, Tab::Fidelity);
    assert!(plain.shows("Nothing is left out"));
}

#[test]
fn legend_of_the_dashboard_is_one_key_away() {
    let mut rig = with_run(Setup::default());
    rig.harness.key_press(Key::F1);
    rig.harness.run();
    for words in ["In the dashboard", "KV map: from RAM, two thirds", "not measured: N/A, never drawn as 0", "recomputed"] {
        assert!(rig.shows(words), "{words}");
    }
    assert!(rig.harness.query_by_label("Timeline").is_some(), "beside what it explains");
}

/// Figures of this machine are not compared.
fn mask_machine(rig: &mut Rig) {
    for figure in ["Frame: ", "Frames: ", "Memory: ", "CPU cores: "] {
        let rect = rig.harness.query_by_label_contains(figure).map(|node| node.rect());
        rect.into_iter().for_each(|rect| rig.harness.mask(rect));
    }
}

#[test]
fn answer_with_its_parts_and_activity_of_a_recorded_run_match_their_snapshot() {
    let mut rig = with_run(Setup { size: [1120.0, 640.0], theme: ThemeChoice::Dark, ..Setup::default() });
    rig.harness.remove_cursor();
    rig.harness.run();
    mask_machine(&mut rig);
    rig.harness.snapshot("dashboard_activity_dark");
}

#[test]
fn activity_of_a_recorded_run_in_the_light_theme_matches_its_snapshot() {
    let mut rig = panel(ThemeChoice::Light, Tab::Activity);
    mask_machine(&mut rig);
    rig.harness.snapshot("dashboard_activity_light");
}

#[test]
fn map_of_a_recorded_run_matches_its_snapshot() {
    let mut rig = panel(ThemeChoice::Dark, Tab::KvMap);
    let pages = recorded::pages();
    let document = rig.harness.state().state.documents.list[0].id;
    let marked = pages.first_byte[40] as usize..pages.first_byte[41] as usize;
    rig.harness.state_mut().dashboard.kv_map.selected = Some((2, 40));
    let page = rig.harness.state().state.documents.list[0].page_of(marked.start);
    rig.harness.state_mut().dashboard.show_page_text(SourceLocation { doc: document, page, bytes: marked });
    (0..3).for_each(|_| rig.harness.step());
    rig.harness.snapshot("dashboard_map_dark");
}

#[test]
fn fidelity_of_a_recorded_run_matches_its_snapshot() {
    panel(ThemeChoice::Light, Tab::Fidelity).harness.snapshot("dashboard_fidelity_light");
}

#[test]
fn every_panel_in_both_themes_has_its_glyphs_and_names() {
    let shots = std::env::var_os("STRATA_SHOTS").map(PathBuf::from);
    let scales: &[f32] = if shots.is_some() { &[1.0, 2.0] } else { &[1.0] };
    for (theme, &scale) in [ThemeChoice::Dark, ThemeChoice::Light].into_iter().flat_map(|t| scales.iter().map(move |s| (t, s))) {
        let mut rig = with_run(Setup { scale, theme, ..Setup::default() });
        for tab in Tab::ALL {
            show(&mut rig, tab);
            let Some(dir) = &shots else { continue };
            let name = format!("recorded-{}-{theme:?}-{scale}x.png", tab.name().to_lowercase().replace(' ', "-"));
            rig.harness.render().unwrap().save(dir.join(name)).unwrap();
        }
    }
}
