//! Chat benchmark: a frame of a long chat, saving a piece of an answer, opening and searching a year of chats.
//!
//! `cargo bench --bench chats`. Limits: frames are laid out and tessellated, not painted, because a bench has no
//! screen.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a bench prints, and ends where it fails")]

use std::time::{Duration, Instant};

use egui_kittest::Harness;
use strata::app::persist::paths::Folders;
use strata::app::state::chat::{Chat, Exchange, Outcome};
use strata::app::{StrataApp, WindowOptions};
use strata::chats::{Author, Change, ChatRequest, ChatRow, ChatStore, ChatWriter, MessageRow, MessageState};
use strata::engine::{EngineHandle, LoadOptions, ModelSource};

/// Messages and characters of a long chat.
const LONG: (usize, usize) = (200, 100_000);
/// Chats of a year, and messages of each.
const YEAR: (u64, u64) = (1000, 20);
const FRAMES: usize = 200;

fn main() {
    let sentence = "The fire began in the house of the baker in **Pudding Lane**, and burned for four days. ";
    frames(sentence);
    pieces();
    year(sentence);
}

fn frames(sentence: &str) {
    let (n_messages, n_chars) = LONG;
    let answer = sentence.repeat(n_chars / (n_messages / 2) / sentence.len() + 1);
    let options = WindowOptions {
        initial_model: ModelSource::BuiltIn,
        load: LoadOptions::default(),
        documents: Vec::new(),
        folders: Folders::default(),
        handed_over: None,
    };
    let spawn = |wake| EngineHandle::pair(wake).0;
    let mut window =
        Harness::builder().with_size([1280.0, 800.0]).build_eframe(|cc| StrataApp::new(&cc.egui_ctx, options, Box::new(spawn)));
    let mut parent = None;
    for i in 0..n_messages as u64 / 2 {
        let exchange = Exchange::new(1000 + 2 * i, format!("Question number {i}?"));
        let outcome = Outcome::Restored(String::new());
        let exchange = Exchange { answer: answer.clone(), outcome, parent, ..exchange };
        parent = Some(exchange.id);
        window.state_mut().state.chat_mut().exchanges.push(exchange);
    }
    print_times(&format!("frame of {n_messages} messages, {n_chars} characters, scrolling"), scroll_frames(&mut window));
    let (n_chats, _) = YEAR;
    let listed = (1..=n_chats).map(|i| Chat { id: 1_000_000 + i, name: format!("Chat number {i}"), ..Chat::default() });
    window.state_mut().state.chats.list.extend(listed);
    print_times(&format!("the same beside a list of {n_chats} chats"), scroll_frames(&mut window));
}

/// Time of each frame while the chat scrolls: layout and tessellation.
fn scroll_frames(window: &mut Harness<StrataApp>) -> Vec<Duration> {
    (0..10).for_each(|_| window.step());
    let mut times = Vec::new();
    for frame in 0..FRAMES {
        let up = if frame % 40 < 20 { 400.0 } else { -400.0 };
        window.event(egui::Event::PointerMoved(egui::pos2(700.0, 400.0)));
        let (unit, phase) = (egui::MouseWheelUnit::Point, egui::TouchPhase::Move);
        let (source, modifiers) = (egui::MouseWheelSource::Unknown, egui::Modifiers::NONE);
        window.event(egui::Event::MouseWheel { unit, phase, source, modifiers, delta: egui::vec2(0.0, up) });
        let began = Instant::now();
        window.step();
        let shapes = window.output().shapes.clone();
        assert!(!window.ctx.tessellate(shapes, 1.0).is_empty());
        times.push(began.elapsed());
    }
    assert!(window.state().drawn_items() < 40, "only visible items are laid out");
    times
}

fn pieces() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = ChatWriter::start(Some(dir.path().to_owned()), || {}).unwrap();
    writer.send(ChatRequest::Save(chat(1, 1, ""))).unwrap();
    assert!(writer.flush(Duration::from_secs(10)));
    let mut times = Vec::new();
    for _ in 0..FRAMES * 5 {
        let began = Instant::now();
        writer.send(ChatRequest::Save(vec![Change::Piece { message: 3, text: "a few words ".into() }])).unwrap();
        assert!(writer.flush(Duration::from_secs(10)));
        times.push(began.elapsed());
    }
    print_times("piece of an answer, kept", times);
}

fn year(sentence: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (n_chats, n_messages) = YEAR;
    let mut store = ChatStore::open(dir.path()).unwrap();
    let changes: Vec<Change> = (0..n_chats).flat_map(|i| chat(1 + i * 100, n_messages / 2, &sentence.repeat(8))).collect();
    store.apply(&changes).unwrap();
    drop(store);
    let began = Instant::now();
    let store = ChatStore::open(dir.path()).unwrap();
    assert_eq!(store.list().unwrap().len(), n_chats as usize);
    print_times(&format!("{n_chats} chats of {n_messages} messages: opened and listed"), vec![began.elapsed()]);
    for query in ["pudding", "number 7", "nowhere at all"] {
        let began = Instant::now();
        let n = store.search(query).unwrap().len();
        print_times(&format!("search for '{query}': {n} hits"), vec![began.elapsed()]);
    }
}

fn chat(id: u64, n_exchanges: u64, answer: &str) -> Vec<Change> {
    let message = |id, chat, parent, author, text: String| {
        let (note, cost) = (String::new(), String::new());
        Change::Message(MessageRow { id, chat, parent, author, text, state: MessageState::Done, note, cost, made: 0 })
    };
    let title = format!("Chat number {id}");
    let mut changes = vec![Change::Chat(ChatRow { id, title, leaf: Some(id + 2 * n_exchanges), ..ChatRow::default() })];
    for i in 0..n_exchanges {
        let question = id + 1 + 2 * i;
        changes.push(message(question, id, (i > 0).then_some(question - 1), Author::User, format!("Question number {i}?")));
        changes.push(message(question + 1, id, Some(question), Author::Model, answer.to_owned()));
    }
    changes
}

/// Prints the median, 99th percentile and maximum.
fn print_times(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    println!("{what}: n {}, median {:.2} ms, p99 {:.2} ms, longest {:.2} ms", times.len(), at(0.5), at(0.99), at(1.0));
}
