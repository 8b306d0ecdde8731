//! Crash test: `kill -9` of a process that writes an answer, at random moments; the shown part must survive.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use strata::base::Rng;
use strata::chats::{Author, Change, ChatRequest, ChatStore, ChatWriter, MessageRow, MessageState};

use crate::common::{asked, message};

const FOLDER: &str = "STRATA_TEST_CHATS";
const N_KILLS: u32 = 40;
const TEST: &str = "kill::chat_killed_at_random_moments_has_all_shown_text";

/// Child process: per frame, saves a piece, flushes, and then prints how much is saved.
fn chat_on(path: &Path) {
    let mut writer = ChatWriter::start(Some(path.to_owned()), || {}).unwrap();
    let shown = |line: String| {
        // Bypasses the test harness, because the parent relies on every printed line.
        let mut out = std::io::stdout().lock();
        writeln!(out, "shown {line}").and_then(|()| out.flush()).unwrap();
    };
    for turn in 0u64.. {
        let id = 1000 * (turn + 1);
        let mut changes = asked(id, &format!("PromptRequest {turn}?"), "");
        let running = MessageRow { state: MessageState::Running, ..message(id + 2, id, Some(id + 1), Author::Model, "") };
        changes.push(Change::Message(running));
        writer.send(ChatRequest::Save(changes)).unwrap();
        let mut text = String::new();
        for n in 0..12 {
            let piece = format!("word{n} ");
            text.push_str(&piece);
            writer.send(ChatRequest::Save(vec![Change::Piece { message: id + 2, text: piece }])).unwrap();
            assert!(writer.flush(Duration::from_secs(20)));
            shown(format!("{id} {}", text.len()));
        }
        writer.send(ChatRequest::Save(vec![Change::Message(message(id + 2, id, Some(id + 1), Author::Model, &text))])).unwrap();
    }
}

#[test]
fn chat_killed_at_random_moments_has_all_shown_text() {
    if let Some(path) = std::env::var_os(FOLDER) {
        return chat_on(Path::new(&path));
    }
    let mut rng = Rng::new(6);
    let mut n_interrupted = 0;
    for kill in 0..N_KILLS {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([TEST, "--exact", "--nocapture", "--test-threads=1"])
            .env(FOLDER, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let said = |line: String| {
            let (id, n) = line.rsplit_once("shown ")?.1.split_once(' ')?;
            Some((id.parse::<u64>().ok()?, n.parse::<usize>().ok()?))
        };
        let mut last = (0..=rng.uniform(30)).filter_map(|_| lines.by_ref().find_map(said)).last();
        std::thread::sleep(Duration::from_micros(u64::from(rng.uniform(3000))));
        child.kill().unwrap();
        child.wait().unwrap();
        last = lines.filter_map(said).last().or(last);
        let (id, n_bytes) = last.unwrap();
        let store = ChatStore::open(dir.path()).unwrap();
        let messages = store.messages(id).unwrap();
        assert_eq!(messages.len(), 2, "kill {kill}");
        let answer = &messages[1];
        let whole: String = (0..12).map(|n| format!("word{n} ")).collect();
        assert!(answer.text.len() >= n_bytes, "kill {kill}: {} of {n_bytes} bytes", answer.text.len());
        assert!(whole.starts_with(&answer.text), "kill {kill}: {}", answer.text);
        assert_ne!(answer.state, MessageState::Running);
        n_interrupted += u32::from(answer.state == MessageState::Interrupted);
        // All earlier chats are complete.
        for chat in store.list().unwrap().iter().filter(|c| c.id < id) {
            assert_eq!(store.messages(chat.id).unwrap()[1].text, whole, "kill {kill}");
        }
    }
    assert!(n_interrupted > N_KILLS / 8, "{n_interrupted}");
}
