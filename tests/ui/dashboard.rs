//! The dashboard, with the engine itself behind it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use egui::{Key, Modifiers};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT, Queryable};
use strata::app::chat::Outcome;
use strata::app::dashboard::Tab;
use strata::app::settings::ThemeChoice;
use strata::app::{StrataApp, WindowOptions};
use strata::base::{Bytes, Tiers};
use strata::engine::{Amount, LoadOptions, ModelSource, SelectiveSpec};

/// A window with an engine, and a document that VRAM and RAM together do not hold.
pub struct Real {
    pub harness: Harness<'static, StrataApp>,
    _kv_dir: tempfile::TempDir,
}

const QUESTION: &str = "What is the current temperature for Reribe?";

impl Real {
    /// None where there is no device.
    pub fn start(theme: ThemeChoice, policy: Option<SelectiveSpec>) -> Option<Real> {
        let kv_dir = tempfile::tempdir().unwrap();
        if let Err(error) = strata::gpu::Gpu::open(&strata::gpu::GpuOptions::default()) {
            assert!(std::env::var_os("STRATA_REQUIRE_GPU").is_none(), "{error}");
            eprintln!("skipped: {error}");
            return None;
        }
        let budgets = Tiers { vram: Some(Bytes(6 << 20)), ram: Some(Bytes(6 << 20)), disk: Some(Bytes(1 << 30)) };
        let load = LoadOptions {
            budgets,
            policy,
            kv_dir: Some(kv_dir.path().to_owned()),
            context: Some(8192),
            ..LoadOptions::default()
        };
        let documents = vec![PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/quote/document.txt")];
        let options = WindowOptions { initial_model: ModelSource::BuiltIn, load, documents };
        let mut harness = Harness::builder()
            .with_size([1280.0, 800.0])
            .with_max_steps(12)
            .wgpu()
            .build_eframe(|cc| StrataApp::new(&cc.egui_ctx, options, Box::new(|wake| strata::engine::spawn(wake))));
        harness.state_mut().state.settings.theme = theme;
        let mut real = Real { harness, _kv_dir: kv_dir };
        real.wait_for(|app| app.state.info().is_some() && app.state.documents.first().is_some_and(|d| d.n_tokens.is_some()));
        Some(real)
    }

    /// Draws until `done`, two minutes at most.
    pub fn wait_for(&mut self, done: impl Fn(&StrataApp) -> bool) {
        let began = Instant::now();
        while !done(self.harness.state()) {
            assert!(began.elapsed() < Duration::from_secs(120), "waited in vain");
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
            app.state.running.is_none() && last.is_some_and(|e| !matches!(e.outcome, Outcome::Running))
        });
    }

    pub fn show(&mut self, tab: Tab) {
        self.harness.get_by_label(tab.name()).click();
        self.harness.step();
        self.wait_for(|app| app.dashboard.tab == tab && (tab != Tab::KvMap || app.dashboard.pages.is_some()));
    }

    /// Writes the window as it is, where pictures are wanted.
    pub fn shot(&mut self, name: &str) {
        let Some(dir) = std::env::var_os("STRATA_SHOTS").map(PathBuf::from) else { return };
        std::fs::create_dir_all(&dir).unwrap();
        (0..4).for_each(|_| self.harness.step());
        self.harness.render().unwrap().save(dir.join(format!("{name}.png"))).unwrap();
    }
}

fn leoam() -> SelectiveSpec {
    SelectiveSpec { amount: Amount::Rate(0.1), ..SelectiveSpec::default() }
}

#[test]
fn panels_show_a_real_run_over_three_tiers() {
    let Some(mut real) = Real::start(ThemeChoice::Dark, Some(leoam())) else { return };
    real.open_dock();
    real.shot("activity-empty");
    real.ask(QUESTION);
    for tab in Tab::ALL {
        real.show(tab);
        real.shot(&format!("{}-dark", tab.name().to_lowercase().replace(' ', "-")));
    }
    assert!(real.harness.state().dashboard.pages.is_some());
    real.harness.state_mut().state.settings.theme = ThemeChoice::Light;
    for tab in Tab::ALL {
        real.show(tab);
        real.shot(&format!("{}-light", tab.name().to_lowercase().replace(' ', "-")));
    }
    let _ = real.harness.get_by_label("KV map").accesskit_node();
}
