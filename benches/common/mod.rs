//! Shared parts of the engine benches: the built-in model, a document made from the sample, and questions about it.
#![allow(dead_code, reason = "each bench uses some of it")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use strata::engine::{
    DocumentRef, EngineCommand, EngineEvent, EngineHandle, LoadOptions, Message, ModelInfo, ModelSource, PromptRequest,
    RequestId, RequestSummary, Role, Sampling,
};
use strata::gpu::{DevicePool, FeatureOverrides};

/// Repetitions of everything timed; the median counts.
pub const N_ROUNDS: usize = 3;

/// Fractions of the KV that fit VRAM and RAM.
pub const VRAM_SHARE: f64 = 0.2;
pub const RAM_SHARE: f64 = 0.4;

/// Bytes per second at which reading the remaining KV takes `ratio` times as long as a step.
pub fn disk_speed(kv_bytes: f64, ratio: f64, step_ms: f64) -> u64 {
    (kv_bytes * (1.0 - VRAM_SHARE - RAM_SHARE) / (ratio * step_ms / 1e3)) as u64
}

pub fn setting(name: &str, default_value: usize) -> usize {
    std::env::var(name).map_or(default_value, |text| text.parse().unwrap())
}

pub fn engine(options: LoadOptions) -> EngineHandle {
    engine_of(ModelSource::BuiltIn, options).0
}

/// An engine with another model, and the info of that model.
pub fn engine_of(source: ModelSource, options: LoadOptions) -> (EngineHandle, Box<ModelInfo>) {
    engine_on(DevicePool::default(), source, options)
}

/// Same on devices that transfer pages of the RAM tier, as the papers do, even if they could read them in place.
pub fn transferring_engine(source: ModelSource, options: LoadOptions) -> (EngineHandle, Box<ModelInfo>) {
    let overrides = FeatureOverrides { host_import: Some(false), ..FeatureOverrides::default() };
    engine_on(DevicePool::with_overrides(overrides), source, options)
}

fn engine_on(devices: DevicePool, source: ModelSource, options: LoadOptions) -> (EngineHandle, Box<ModelInfo>) {
    let handle = strata::engine::spawn_with(|| {}, None, Arc::new(devices));
    assert!(handle.send(EngineCommand::LoadModel { source, options }));
    loop {
        match handle.wait(Duration::from_secs(120)).unwrap() {
            EngineEvent::ModelLoaded(info) => return (handle, info),
            EngineEvent::ModelFailed { sentence, .. } => panic!("{sentence}"),
            _ => {}
        }
    }
}

/// Passages that do not end within an answer of 128 tokens.
const PASSAGES: &str = include_str!("../../tests/fixtures/passages.txt");
/// Paragraphs between two passages.
const PASSAGE_EVERY: usize = 7;
/// Words of a passage in its question.
const ASKED_WORDS: usize = 7;

/// Asks for passage `i`, or an earlier one if there are fewer.
pub fn question(i: usize) -> String {
    let passages: Vec<&str> = PASSAGES.lines().collect();
    let begin: Vec<&str> = passages[i % passages.len()].split(' ').take(ASKED_WORDS).collect();
    format!("Quote the passage that says {}", begin.join(" "))
}

pub struct Document {
    text: String,
    decode: usize,
}

impl Document {
    /// Prose of about `n_tokens` tokens without two equal paragraphs.
    pub fn new(handle: &EngineHandle, n_tokens: usize, decode: usize) -> Document {
        let sample = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/sample-document.md")).unwrap();
        let mut text = String::new();
        let (mut n, mut n_entries, mut passages) = (0, 0, PASSAGES.lines().peekable());
        while n < n_tokens {
            for paragraph in sample.split("\n\n") {
                n_entries += 1;
                text.push_str(&format!("Entry {n_entries}. {paragraph}\n\n"));
                if let Some(passage) = passages.next_if(|_| n_entries % PASSAGE_EVERY == 0) {
                    text.push_str(&format!("{passage}\n\n"));
                }
            }
            n = count(handle, &text);
        }
        assert!(passages.next().is_none(), "the document is too short for all passages");
        Document { text, decode }
    }

    /// Answers a question about the document.
    pub fn ask(&self, handle: &EngineHandle, save: bool, question: &str) -> (String, RequestSummary) {
        let (sampling, max_tokens) = (Sampling::default(), self.decode);
        let (documents, messages) = (vec![self.reference(save)], self.messages(question));
        handle.send(EngineCommand::Generate {
            request: 1,
            messages,
            documents,
            sampling,
            max_tokens,
            policy: Default::default(),
        });
        let mut text = String::new();
        loop {
            match handle.wait(Duration::from_secs(600)).unwrap() {
                EngineEvent::Token { text: piece, .. } => text.push_str(&piece),
                EngineEvent::Finished { summary, .. } => return (text, *summary),
                EngineEvent::Failed { sentence, .. } => panic!("{sentence}"),
                _ => {}
            }
        }
    }

    /// Answers `n` questions about the document at once, each about another passage.
    pub fn generate_batch(&self, handle: &EngineHandle, n: usize) -> Vec<RequestSummary> {
        let sampling = Sampling::default();
        let question = |i: usize| PromptRequest { id: i as RequestId, messages: self.messages(&question(i)) };
        let (requests, documents) = ((1..=n).map(question).collect(), vec![self.reference(true)]);
        handle.send(EngineCommand::GenerateBatch { requests, documents, sampling, max_tokens: self.decode });
        let mut summaries = Vec::new();
        while summaries.len() < n {
            match handle.wait(Duration::from_secs(600)).unwrap() {
                EngineEvent::Finished { summary, .. } => summaries.push(*summary),
                EngineEvent::Failed { sentence, .. } | EngineEvent::Notice(sentence) if sentence.contains("at once") => {
                    panic!("{sentence}")
                }
                EngineEvent::Failed { sentence, .. } => panic!("{sentence}"),
                _ => {}
            }
        }
        summaries
    }

    fn messages(&self, question: &str) -> Vec<Message> {
        vec![Message { role: Role::User, content: format!("{}\n\n{question}", self.text) }]
    }

    fn reference(&self, save: bool) -> DocumentRef {
        DocumentRef {
            content_hash: *blake3::hash(self.text.as_bytes()).as_bytes(),
            name: "bench.txt".into(),
            bytes: self.text.len() as u64,
            pages: 1,
            end_byte: self.text.len(),
            save,
        }
    }
}

fn count(handle: &EngineHandle, text: &str) -> usize {
    let messages = vec![Message { role: Role::User, content: text.to_owned() }];
    handle.send(EngineCommand::Count { request: 2, messages, offsets: Vec::new() });
    loop {
        if let EngineEvent::Counted { tokens, .. } = handle.wait(Duration::from_secs(60)).unwrap() {
            return tokens;
        }
    }
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A temporary folder for the library.
pub fn folder() -> tempfile::TempDir {
    let dir = std::env::var("STRATA_BENCH_DIR").map_or_else(|_| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    tempfile::tempdir_in(dir).unwrap()
}
