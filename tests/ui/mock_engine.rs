//! Mock engine: a script at the far end of the channel pair, and a window.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use egui_kittest::Harness;
use egui_kittest::kittest::Queryable;
use strata::app::persist::paths::Folders;
use strata::app::single_instance::Inbox;
use strata::app::state::chat::{Exchange, Outcome};
use strata::app::state::settings::ThemeChoice;
use strata::app::{StrataApp, WindowOptions};
use strata::base::{MovedBytes, PageCounts, Tiers};
use strata::engine::{
    AttentionKind, EngineCommand, EngineEvent, EngineHandle, EnginePort, IoSummary, KvDtype, KvSetup, LibraryAction, LoadOptions,
    MassKept, ModelInfo, ModelSource, Phases, PolicySpec, RequestId, RequestSummary, Sampling, SavedDocument, SavedState,
    SelectionSummary, StopReason,
};

/// The window and the engine's end of its channels.
pub struct Rig {
    pub harness: Harness<'static, StrataApp>,
    pub port: EnginePort,
    /// tokens of the chat template before the first message
    pub template_tokens: usize,
}

pub fn model_info() -> ModelInfo {
    ModelInfo {
        name: "Strata Quote".into(),
        architecture: "llama".into(),
        quantization: "Q8_0".into(),
        n_params: 8_900_000,
        context_len: 131_072,
        context_limit: 131_072,
        file_bytes: 6_273_952,
        vram_bytes: 14_000_000,
        estimated_vram_bytes: 14_100_000,
        kv_full_bytes: 131_072 * 3072,
        kv_bytes_per_token: 3072,
        kv: kv_setup(),
        adapter: "llvmpipe".into(),
        software: true,
        notes: Vec::new(),
        sampling: Sampling::default(),
        built_in: true,
    }
}

pub fn kv_setup() -> KvSetup {
    KvSetup {
        budgets: Tiers { vram: 2 << 30, ram: 8 << 30, disk: 40 << 30 },
        io_backend: "io_uring".into(),
        io_reason: "one ring, past the page cache".into(),
        kv_dir: Some("/home/ann/.cache/strata/kv".into()),
    }
}

/// A document of the library, prefilled by the mock model.
pub fn saved(name: &str, text: &str, state: SavedState) -> SavedDocument {
    let tokens = text.chars().count() / 3;
    let saved_tokens = if state == SavedState::Partial { tokens * 41 / 100 } else { tokens };
    SavedDocument {
        id: format!("id of {name}"),
        name: name.into(),
        content_hash: blake3::hash(text.as_bytes()).to_hex().to_string(),
        after: Vec::new(),
        bytes: text.len() as u64,
        pages: 16,
        model: "Strata Quote".into(),
        kv_dtype: KvDtype::F16,
        tokens,
        saved_tokens,
        kv_bytes: 3072 * saved_tokens as u64,
        state,
        prefill_seconds: saved_tokens as f64 / 400.0,
        last_used: 1_795_000_000,
    }
}

pub fn summary(context_used: usize, generated_tokens: usize, stop: StopReason) -> RequestSummary {
    RequestSummary {
        prompt_tokens: context_used,
        cached_tokens: 0,
        approximate_tokens: 0,
        prefill_ms: 900.0,
        first_token_ms: 940.0,
        generated_tokens,
        decode_ms: 1000.0,
        tokens_per_s: 31.2,
        attention: AttentionKind::Dense,
        kv_bytes: Tiers { vram: 3072 * context_used as u64, ram: 0, disk: 0 },
        kv_peak_bytes: Tiers { vram: 3072 * context_used as u64, ram: 0, disk: 0 },
        moved_bytes: MovedBytes::default(),
        pages: PageCounts::default(),
        selection: None,
        overlap: None,
        io: IoSummary::default(),
        vram_bytes: 14_000_000,
        context_used,
        dispatches_per_token: 60,
        encode_ms_per_token: 0.3,
        lookahead_steps: 0,
        phases: Phases::default(),
        stop,
    }
}

/// The summary of an answer that read 12 % of the context.
pub fn selective_summary(context_used: usize, generated_tokens: usize) -> RequestSummary {
    let layer = |kept| MassKept { kept, best: 0.993, recall: 0.8 };
    let selection = SelectionSummary {
        spec: PolicySpec::default(),
        steps: generated_tokens as u64 - 1,
        share_read: 0.118,
        reuse: 0.9,
        foreseen: 0.5,
        compressed: 0.0,
        evaluations_per_step: 100.0,
        evaluation_ms_per_step: 0.4,
        mass: Some([0.995, 0.99, 0.985, 0.94, 0.98, 0.99].map(layer).to_vec()),
        mass_steps: 5,
    };
    let summary = summary(context_used, generated_tokens, StopReason::Eos);
    RequestSummary { attention: AttentionKind::Selective, selection: Some(selection), ..summary }
}

/// Options of a window.
pub struct Setup {
    pub size: [f32; 2],
    pub scale: f32,
    pub theme: ThemeChoice,
    pub documents: Vec<PathBuf>,
    pub load: LoadOptions,
    pub folders: Folders,
    pub inbox: Option<Inbox>,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            size: [1280.0, 800.0],
            scale: 1.0,
            theme: ThemeChoice::Dark,
            documents: Vec::new(),
            load: LoadOptions::default(),
            folders: Folders::default(),
            inbox: None,
        }
    }
}

impl Rig {
    /// A window whose model is being loaded.
    pub fn starting(setup: Setup) -> Rig {
        let (ports, port) = std::sync::mpsc::channel();
        let options = WindowOptions {
            initial_model: ModelSource::BuiltIn,
            load: setup.load,
            documents: setup.documents,
            folders: setup.folders,
            handed_over: setup.inbox,
        };
        let spawn = move |wake| {
            let (handle, port) = EngineHandle::pair(wake);
            ports.send(port).expect("the test waits for it");
            handle
        };
        let mut harness = Harness::builder()
            .with_size(setup.size)
            .with_pixels_per_point(setup.scale)
            .with_max_steps(12)
            .wgpu()
            .build_eframe(|cc| StrataApp::new(&cc.egui_ctx, options, Box::new(spawn)));
        harness.state_mut().state.settings.values.theme = setup.theme;
        harness.run();
        let port = port.try_recv().expect("the engine was started after the first frame");
        assert!(matches!(port.commands.try_recv(), Ok(EngineCommand::LoadModel { source: ModelSource::BuiltIn, .. })));
        let list = EngineCommand::Library(LibraryAction::List { kv_dir: None });
        assert_eq!(format!("{:?}", port.commands.try_recv()), format!("{:?}", Ok::<_, ()>(list)));
        Rig { harness, port, template_tokens: 0 }
    }

    /// A window whose model is ready.
    pub fn ready() -> Rig {
        Rig::ready_with(Setup::default())
    }

    pub fn ready_with(setup: Setup) -> Rig {
        let mut rig = Rig::starting(setup);
        rig.emit(EngineEvent::ModelLoaded(Box::new(model_info())));
        rig
    }

    /// Sends events and draws until nothing moves.
    pub fn emit(&mut self, event: EngineEvent) {
        let has_ended = matches!(event, EngineEvent::Finished { .. });
        assert!(self.port.emit(event));
        self.harness.run();
        if has_ended {
            self.wait_for(Rig::has_looked_up_quotations);
        }
    }

    fn has_looked_up_quotations(&self) -> bool {
        let is_due = |e: &Exchange| matches!(e.outcome, Outcome::Done(_)) && !e.answer.is_empty() && e.quotes.is_none();
        let chats = &self.harness.state().state.chats.list;
        !chats.iter().any(|chat| !chat.documents.is_empty() && chat.exchanges.iter().any(is_due))
    }

    /// The next command other than a count.
    pub fn command(&mut self) -> Option<EngineCommand> {
        self.harness.run();
        loop {
            match self.port.commands.try_recv() {
                Ok(EngineCommand::Count { request, messages, offsets }) => {
                    let tokens = |text: &str| self.template_tokens + text.chars().count() / 3;
                    let first = messages[0].content.as_str();
                    let positions = offsets.iter().map(|offset| tokens(&first[..*offset])).collect();
                    self.emit(EngineEvent::Counted { request, tokens: tokens(first) + self.template_tokens, positions });
                }
                Ok(command) => return Some(command),
                Err(_) => return None,
            }
        }
    }

    /// Types a question and presses Enter; returns the turn it began.
    pub fn ask(&mut self, question: &str) -> RequestId {
        self.harness.get_by_label("Question").focus();
        self.harness.run();
        self.harness.get_by_label("Question").type_text(question);
        self.harness.run();
        self.harness.key_press(egui::Key::Enter);
        match self.command() {
            Some(EngineCommand::Generate { request, .. }) => request,
            other => panic!("not asked: {other:?}"),
        }
    }

    /// A whole answer.
    pub fn answer(&mut self, request: RequestId, text: &str) {
        self.emit(EngineEvent::RequestStarted { request, prompt_tokens: 400, cached_tokens: 0 });
        self.emit(EngineEvent::Token { request, text: text.into(), n: 30, tokens_per_s: 31.2, context_used: 430 });
        self.emit(EngineEvent::Finished { request, summary: Box::new(summary(430, 30, StopReason::Eos)) });
    }

    /// A whole answer of a policy that read 12 % of the context.
    pub fn answer_selectively(&mut self, request: RequestId, text: &str) {
        self.emit(EngineEvent::RequestStarted { request, prompt_tokens: 16_020, cached_tokens: 0 });
        self.emit(EngineEvent::Token { request, text: text.into(), n: 96, tokens_per_s: 31.2, context_used: 16_116 });
        self.emit(EngineEvent::Finished { request, summary: Box::new(selective_summary(16_116, 96)) });
    }

    /// Drops a document on the window, which is read and counted.
    pub fn drop_text(&mut self, name: &str, text: &str) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        self.drop_files(&[path]);
        while self.command().is_some() {}
    }

    /// Drops files on the window and waits until they are read.
    pub fn drop_files(&mut self, paths: &[PathBuf]) {
        for path in paths {
            let file: egui::DroppedFileHandle = std::sync::Arc::new(Dropped(path.clone()));
            self.harness.input_mut().dropped_files.push(file);
        }
        let before = self.marks();
        self.wait_for(|rig| rig.marks() != before);
    }

    fn marks(&self) -> (usize, usize) {
        let state = &self.harness.state().state;
        (state.documents.list.len(), state.notices.list().len())
    }

    /// Draws until `done`, two seconds at most.
    pub fn wait_for(&mut self, done: impl Fn(&Rig) -> bool) {
        let began = Instant::now();
        while !done(self) {
            assert!(began.elapsed() < Duration::from_secs(5), "waited in vain");
            std::thread::sleep(Duration::from_millis(5));
            self.harness.step();
        }
        self.harness.run();
    }

    pub fn click(&mut self, label: &str) {
        self.harness.get_by_label(label).click();
        self.harness.run();
    }

    /// Text that the next frames put on the clipboard.
    pub fn copied(&mut self) -> Option<String> {
        (0..20).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            self.harness.step();
            let mut commands = self.harness.output().platform_output.commands.iter();
            commands.find_map(|c| if let egui::OutputCommand::CopyText(text) = c { Some(text.clone()) } else { None })
        })
    }

    pub fn shows(&self, text: &str) -> bool {
        self.harness.query_all_by_label_contains(text).next().is_some()
    }
}

#[derive(Debug)]
pub struct Dropped(pub PathBuf);

impl egui::DroppedFile for Dropped {
    fn path(&self) -> &std::path::Path {
        &self.0
    }

    fn bytes(&self) -> Result<Vec<u8>, String> {
        std::fs::read(&self.0).map_err(|e| e.to_string())
    }
}
