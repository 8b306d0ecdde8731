//! Prefix sharing: several documents with several conversations each, in one session. Nothing is prefilled twice, and no
//! conversation attends to tokens of another.

use std::collections::HashSet;
use std::path::Path;

use strata::base::{Bytes, Tiers};
use strata::engine::{
    DocumentRef, EngineCommand, EngineEvent, EngineHandle, LoadOptions, Message, ModelSource, RequestSummary, Role, Sampling,
};

use crate::{engine_with, finish, saved_as};

/// Part `i` of the test document, of about 360 tokens.
fn part(i: usize) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/quote/document.txt");
    std::fs::read_to_string(file).unwrap()[1240 * i..1240 * (i + 1)].to_owned()
}

fn engine(test: &str, dir: &Path, vram: Option<u64>, ram: Option<u64>) -> Option<EngineHandle> {
    let budgets = Tiers { vram: vram.map(Bytes), ram: ram.map(Bytes), disk: None };
    let options = LoadOptions { budgets, kv_dir: Some(dir.to_owned()), context: Some(2048), ..LoadOptions::default() };
    Some(engine_with(test, ModelSource::BuiltIn, options)?.0)
}

/// A conversation on a document.
struct Chat {
    document: String,
    messages: Vec<Message>,
}

impl Chat {
    fn on(document: &str) -> Chat {
        Chat { document: document.to_owned(), messages: Vec::new() }
    }

    /// Asks, and appends question and answer to the conversation.
    fn generate(&mut self, handle: &EngineHandle, question: &str, save: bool) -> (String, RequestSummary) {
        let content = match self.messages.is_empty() {
            true => format!("{}\n\n{question}", self.document),
            false => question.to_owned(),
        };
        self.messages.push(Message { role: Role::User, content });
        let document = DocumentRef { save, ..saved_as("part.txt", &self.document, 1) };
        let (messages, documents) = (self.messages.clone(), vec![document]);
        handle.send(EngineCommand::Generate {
            request: 1,
            messages,
            documents,
            sampling: Sampling::default(),
            max_tokens: 10,
            policy: Default::default(),
        });
        let (events, end) = finish(handle);
        let said = |e: &EngineEvent| if let EngineEvent::Token { text, .. } = e { Some(text.clone()) } else { None };
        let text: String = events.iter().filter_map(said).collect();
        self.messages.push(Message { role: Role::Assistant, content: text.clone() });
        (text, *end.unwrap())
    }
}

/// Makes a question long enough for complete page groups of the conversation's own tokens.
fn long(question: String) -> String {
    format!("{}{question}", "Say it in the words of the document, please. ".repeat(8))
}

/// A request for a quotation, by the first words of the `nth` sentence of the document.
fn find(document: usize, nth: usize) -> String {
    let part = part(document);
    let sentence = part.split(". ").nth(nth).unwrap();
    format!("Find: {}", sentence.split_whitespace().take(5).collect::<Vec<_>>().join(" "))
}

/// Alternating documents, questions of different lengths, continued conversations: index of the document, index of one of its
/// two conversations, and the question.
fn questions() -> Vec<(usize, usize, String)> {
    vec![
        (0, 0, find(0, 1)),
        (1, 0, find(1, 1)),
        (0, 0, long(find(0, 2))),
        (0, 1, long(find(0, 3))),
        (1, 0, long(find(1, 2))),
        (0, 1, find(0, 4)),
        (0, 0, find(0, 5)),
        (1, 1, find(1, 3)),
    ]
}

/// All answers in order, each with its summary.
fn session(handle: &EngineHandle, save: bool) -> Vec<(String, RequestSummary)> {
    let mut chats = [0, 1].map(|i| [Chat::on(&part(i)), Chat::on(&part(i))]);
    questions().iter().map(|(document, chat, question)| chats[*document][*chat].generate(handle, question, save)).collect()
}

#[test]
fn conversations_share_documents_and_nothing_else() {
    let test = "conversations_share_documents_and_nothing_else";
    let dir = tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Some(dense) = engine(test, &dir.path().join("dense"), None, None) else { return };
    let expected = session(&dense, false);
    let answers: HashSet<&str> = expected.iter().map(|(text, _)| text.as_str()).collect();
    assert!(answers.len() > 5, "too few different answers: {answers:?}");
    let kv_dir = dir.path().join("kv");
    let budgets = [(Some(600 << 10), Some(400 << 10)), (Some(1600 << 10), Some(4 << 20)), (None, None)];
    for (round, (vram, ram)) in budgets.into_iter().enumerate() {
        let handle = engine(test, &kv_dir, vram, ram).unwrap();
        let mut is_unread = [round == 0; 2];
        for (i, ((text, summary), (want, _))) in session(&handle, true).iter().zip(&expected).enumerate() {
            assert_eq!(text, want, "question {i} with {vram:?} of VRAM");
            let is_first = std::mem::take(&mut is_unread[questions()[i].0]);
            assert_eq!(summary.cached_tokens >= 256, !is_first, "question {i}: {} cached", summary.cached_tokens);
        }
    }
}
