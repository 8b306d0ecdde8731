//! What benches of the whole engine share: the built-in model, a document made from the sample, questions about it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use strata::engine::{
    DocumentRef, EngineCommand, EngineEvent, EngineHandle, LoadOptions, Message, ModelInfo, ModelSource, Role, Sampling,
    TurnSummary,
};

/// Repetitions of everything that is timed; the median counts.
pub const N_ROUNDS: usize = 3;

pub fn setting(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

pub fn engine(options: LoadOptions) -> EngineHandle {
    engine_of(ModelSource::BuiltIn, options).0
}

/// An engine with another model, and what it is.
pub fn engine_of(source: ModelSource, options: LoadOptions) -> (EngineHandle, Box<ModelInfo>) {
    let handle = strata::engine::spawn(|| {});
    assert!(handle.send(EngineCommand::LoadModel { source, options }));
    loop {
        match handle.wait(Duration::from_secs(120)).unwrap() {
            EngineEvent::ModelLoaded(info) => return (handle, info),
            EngineEvent::ModelFailed { sentence, .. } => panic!("{sentence}"),
            _ => {}
        }
    }
}

/// Ends the engine and waits until it has put everything down.
pub fn close(handle: EngineHandle) {
    handle.send(EngineCommand::Shutdown);
    while handle.wait(Duration::from_secs(60)).is_ok() {}
}

pub struct Document {
    text: String,
    decode: usize,
}

impl Document {
    /// Prose of about `n_tokens` tokens in which no two paragraphs are alike.
    pub fn new(handle: &EngineHandle, n_tokens: usize, decode: usize) -> Document {
        let sample = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/sample-document.md")).unwrap();
        let mut text = String::new();
        let mut i = 0;
        while count(handle, &text) < n_tokens {
            for paragraph in sample.split("\n\n") {
                i += 1;
                text.push_str(&format!("Entry {i}. {paragraph}\n\n"));
            }
        }
        Document { text, decode }
    }

    /// Answers a question about it.
    pub fn ask(&self, handle: &EngineHandle, save: bool, question: &str) -> (String, TurnSummary) {
        let reference = DocumentRef {
            content_hash: *blake3::hash(self.text.as_bytes()).as_bytes(),
            name: "bench.txt".into(),
            bytes: self.text.len() as u64,
            pages: 1,
            text_bytes: self.text.len(),
            save,
        };
        let messages = vec![Message { role: Role::User, content: format!("{}\n\n{question}", self.text) }];
        let (sampling, max_tokens) = (Sampling::default(), self.decode);
        handle.send(EngineCommand::Ask {
            turn: 1,
            messages,
            document: Some(reference),
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
}

fn count(handle: &EngineHandle, text: &str) -> usize {
    handle.send(EngineCommand::Count { turn: 2, messages: vec![Message { role: Role::User, content: text.to_owned() }] });
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

/// A folder for the library that goes with the bench.
pub fn folder() -> tempfile::TempDir {
    let dir = std::env::var("STRATA_BENCH_DIR").map_or_else(|_| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    tempfile::tempdir_in(dir).unwrap()
}
