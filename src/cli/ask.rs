//! `strata ask`: answers questions about documents, streaming the answers to stdout.
//!
//! ```text
//! --doc ─► documents ─┐
//! --prompt ───────────┴► messages ─► Session ─► text on stdout │ JSON lines ─► quotes, summary
//!                           ▲                        │
//!                           └── the answer, for the next turn
//! ```
//! With `--at-once` the questions are independent of each other: see [`batch`].
//!
//! Invariants: 1. All documents are read before the model is loaded. 2. After Ctrl-C the answer so far stays, and no further
//! question is answered. 3. A model's reasoning is no part of its answer: it is neither printed nor sent with later questions.

mod batch;
mod output;

use super::args::AskArgs;
use super::console::Console;
use super::error::CliError;
use super::input;
use super::session::Session;
use super::summary::AskSummary;
use crate::document::join_for_prompt;
use crate::engine::{
    AttentionMode, DocumentRef, EngineCommand, EngineEvent, LoadOptions, Message, RequestId, RequestSummary, Role, StopReason,
};
use crate::token::ReasoningFilter;
use output::{end_text, print_details, show_piece};

/// Notice of an answer that ended too early.
const ONLY_REASONING: &str = "The model reasoned until its answer ended. Raise --max-tokens to get the answer.";

/// Answers every `--prompt` in turn. `start` creates the session after the documents are read.
///
/// # Errors
/// A bad document, model or question; a failure of the engine or the output.
pub fn run(args: &AskArgs, start: impl FnOnce() -> Session, console: &mut Console) -> Result<(), CliError> {
    let docs = input::read_documents(&args.docs)?;
    input::notes(&docs).try_for_each(|note| console.note(&note))?;
    let mut session = start();
    let options = LoadOptions { reuse_anywhere: args.reuse_anywhere, ..args.device.options() };
    let info = session.load(args.model.source(), options, console)?;
    let sampling = args.sampling.over(info.sampling);
    let documents = DocumentRef::joined(&docs, !args.no_save);
    if args.at_once {
        return batch::run(args, &mut session, &info, &docs, documents, console);
    }
    let mut messages = Vec::new();
    for (i, prompt) in args.prompts.iter().enumerate() {
        if session.interrupted() {
            return Ok(());
        }
        let content = if i == 0 { join_for_prompt(&docs, prompt) } else { prompt.clone() };
        messages.push(Message { role: Role::User, content });
        if i > 0 && !console.is_json() {
            console.text("\n")?;
        }
        let request = session.next_request();
        let (messages_now, documents) = (messages.clone(), documents.clone());
        let (max_tokens, policy) = (args.max_tokens, AttentionMode::AsLoaded);
        let command = EngineCommand::Generate { request, messages: messages_now, documents, sampling, max_tokens, policy };
        let (text, cost) = answer(&mut session, (i + 1, request), command, console)?;
        let quotes = input::quotes_in(&text, info.built_in, &docs);
        if console.is_json() {
            console.json_line(&AskSummary::new(i + 1, &info, sampling, &text, &cost, &quotes))?;
        } else {
            end_text(&text, console)?;
            print_details(&info, &cost, &quotes, console);
        }
        if cost.stop == StopReason::Cancelled {
            return Ok(());
        }
        messages.push(Message { role: Role::Assistant, content: text });
    }
    Ok(())
}

/// Runs one request. Returns the whole answer and its summary.
fn answer(
    session: &mut Session,
    (i, request): (usize, RequestId),
    command: EngineCommand,
    console: &mut Console,
) -> Result<(String, RequestSummary), CliError> {
    let mut shown = ReasoningFilter::default();
    let cost = session.run_request(request, command, console, |event, console| {
        let EngineEvent::Token { text, n, .. } = event else { return Ok(()) };
        let answered = shown.push(&text);
        let is_reasoning = answered.is_empty() && !text.is_empty();
        if is_reasoning {
            return Ok(());
        }
        show_piece(i, &answered, n, console)
    })?;
    let rest = shown.finish();
    if !rest.is_empty() {
        show_piece(i, &rest, cost.generated_tokens, console)?;
    }
    let answer = shown.answer().into_owned();
    if answer.trim().is_empty() && shown.has_reasoning() {
        console.note(ONLY_REASONING)?;
    }
    Ok((answer, cost))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::Value;

    use super::*;
    use crate::cli::args::{Cli, Command};
    use crate::cli::interrupt::Interrupt;
    use crate::cli::mock_engine::{finished, session, token};
    use crate::engine::EnginePort;

    fn args(words: &[&str]) -> AskArgs {
        match Cli::parse_from(["strata", "ask"].iter().chain(words)).command {
            Some(Command::Ask(args)) => args,
            other => panic!("{other:?}"),
        }
    }

    /// Mock engine that answers with the number of messages, in two pieces.
    fn counting(command: &EngineCommand, port: &EnginePort) {
        let EngineCommand::Generate { request, messages, .. } = command else { panic!("{command:?}") };
        port.emit(EngineEvent::Prefill { request: *request, done: 5, total: 10, tokens_per_s: 50.0 });
        port.emit(token(*request, 1, &format!("{} ", messages.len())));
        port.emit(token(*request, 2, "messages"));
        port.emit(finished(*request, 2, StopReason::Eos));
    }

    /// Runs `ask` on a mock engine: result, stdout, stderr, and the commands that the engine got.
    pub(super) fn run_mock(
        words: &[&str],
        interrupt: Interrupt,
        respond: impl Fn(&EngineCommand, &EnginePort) + Send + 'static,
    ) -> (Result<(), CliError>, String, String, Vec<EngineCommand>) {
        let args = args(words);
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let (session, worker) = session(interrupt, respond);
        let result = run(&args, || session, &mut Console::plain(&mut out, &mut err, args.json));
        let seen = worker.join().unwrap();
        (result, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap(), seen)
    }

    #[test]
    fn ask_second_prompt_continues_the_conversation() {
        let (result, out, err, seen) = run_mock(&["--prompt", "one", "--prompt", "two"], Interrupt::default(), counting);
        result.unwrap();
        assert_eq!(out, "1 messages\n\n3 messages\n");
        assert_eq!(err, "strata: weights of type X were converted\n");
        let Some(EngineCommand::Generate { messages, .. }) = seen.last() else { panic!("{seen:?}") };
        let said: Vec<_> = messages.iter().map(|m| (m.role, m.content.as_str())).collect();
        assert_eq!(said, [(Role::User, "one"), (Role::Assistant, "1 messages"), (Role::User, "two")]);
    }

    #[test]
    fn ask_document_comes_before_the_first_question_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        std::fs::write(&path, "Rents rose.\n").unwrap();
        let words = ["--doc", path.to_str().unwrap(), "--prompt", "one", "--prompt", "two"];
        let (result, _, _, seen) = run_mock(&words, Interrupt::default(), counting);
        result.unwrap();
        let Some(EngineCommand::Generate { messages, .. }) = seen.last() else { panic!("{seen:?}") };
        assert_eq!(messages[0].content, "Rents rose.\n\n\none");
        assert_eq!(messages[2].content, "two");
    }

    #[test]
    fn ask_every_turn_has_its_document_and_whether_to_save_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        std::fs::write(&path, "Rents rose.\n").unwrap();
        for save in [true, false] {
            let words = ["--doc", path.to_str().unwrap(), "--prompt", "one", "--prompt", "two"];
            let no_save = if save { &[][..] } else { &["--no-save"] };
            let (result, _, _, seen) = run_mock(&[&words[..], no_save].concat(), Interrupt::default(), counting);
            result.unwrap();
            for command in seen.iter().skip(1) {
                let EngineCommand::Generate { documents, messages, .. } = command else { panic!("{command:?}") };
                let [document] = documents.as_slice() else { panic!("{documents:?}") };
                assert_eq!((document.save, document.end_byte), (save, "Rents rose.\n".len()));
                assert!(messages[0].content.is_char_boundary(document.end_byte));
            }
        }
    }

    #[test]
    fn ask_json_summary_has_every_field_of_the_contract() {
        let (result, out, _, _) = run_mock(&["--prompt", "one", "--json"], Interrupt::default(), counting);
        result.unwrap();
        let lines: Vec<Value> = out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let kinds: Vec<&str> = lines.iter().map(|l| l["event"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["progress", "notice", "progress", "token", "token", "summary"]);
        let summary = lines.last().unwrap();
        for field in [
            "model",
            "adapter",
            "attention",
            "policy",
            "text",
            "prompt_tokens",
            "cached_tokens",
            "prefill_ms",
            "first_token_ms",
            "generated_tokens",
            "decode_ms",
            "tokens_per_s",
            "reuse",
            "overlap",
            "quotes",
            "left_out",
            "stop",
        ] {
            assert!(summary.get(field).is_some(), "{field}");
        }
        for (group, fields) in [
            ("kv_bytes", &["vram", "ram", "disk"][..]),
            ("kv_peak_bytes", &["vram", "ram", "disk"]),
            ("moved_bytes", &["disk_to_ram", "ram_to_vram", "vram_to_ram", "ram_to_disk"]),
            ("pages", &["resident", "fetched", "recomputed", "skipped"]),
            ("io", &["backend", "direct", "read_bytes", "read_ms"]),
        ] {
            for field in fields {
                assert!(summary[group].get(field).is_some(), "{group}.{field}");
            }
        }
        assert_eq!((&summary["text"], &summary["stop"]), (&Value::from("1 messages"), &Value::from("eos")));
        assert_eq!((&summary["attention"], &summary["policy"]), (&Value::from("dense"), &Value::from("full")));
        assert_eq!(summary["kv_peak_bytes"]["vram"], 8192);
    }

    #[test]
    fn ask_leaves_out_the_reasoning_of_an_answer() {
        let respond = |pieces: &'static [&'static str]| {
            move |command: &EngineCommand, port: &EnginePort| {
                let EngineCommand::Generate { request, .. } = command else { panic!("{command:?}") };
                for (i, piece) in pieces.iter().enumerate() {
                    port.emit(token(*request, i + 1, piece));
                }
                port.emit(finished(*request, pieces.len(), StopReason::Eos));
            }
        };
        const ANSWER: &[&str] = &["<thi", "nk>\"Never said so\"", "</think>\n\n", "It <is>", " so."];
        let (result, out, _, seen) = run_mock(&["--prompt", "a", "--prompt", "b"], Interrupt::default(), respond(ANSWER));
        result.unwrap();
        assert_eq!(out, "It <is> so.\n\nIt <is> so.\n");
        let Some(EngineCommand::Generate { messages, .. }) = seen.last() else { panic!("{seen:?}") };
        assert_eq!(messages[1].content, "It <is> so.");
        let (_, out, ..) = run_mock(&["--prompt", "a", "--json"], Interrupt::default(), respond(ANSWER));
        let lines: Vec<Value> = out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let tokens: Vec<&Value> = lines.iter().filter(|l| l["event"] == "token").map(|l| &l["text"]).collect();
        assert_eq!(tokens, ["It <is>", " so."]);
        assert_eq!(
            (&lines.last().unwrap()["text"], &lines.last().unwrap()["quotes"]),
            (&"It <is> so.".into(), &Value::Array(Vec::new()))
        );
        const WITHOUT_BEGINNING: &[&str] = &["\"Never said so\"", "\n</think>\n\n", "It is."];
        let (_, out, ..) = run_mock(&["--prompt", "a", "--json"], Interrupt::default(), respond(WITHOUT_BEGINNING));
        let summary: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
        assert_eq!((&summary["text"], &summary["quotes"]), (&"It is.".into(), &Value::Array(Vec::new())));
        let (_, out, err, _) = run_mock(&["--prompt", "a"], Interrupt::default(), respond(&["<think>", "It never ends"]));
        assert!(out.trim().is_empty() && err.contains("--max-tokens"), "{out} {err}");
    }

    #[test]
    fn ask_interrupted_prints_the_answer_so_far_and_stops() {
        let interrupt = Interrupt::default();
        let press = interrupt.clone();
        let (result, out, _, seen) = run_mock(&["--prompt", "one", "--prompt", "two"], interrupt, move |command, port| {
            let EngineCommand::Generate { request, .. } = command else { return };
            let watch = port.cancel_flag();
            port.emit(token(*request, 1, "half an"));
            press.press();
            while !watch.stopped() {
                std::thread::yield_now();
            }
            port.emit(finished(*request, 1, StopReason::Cancelled));
        });
        result.unwrap();
        assert_eq!(out, "half an\n");
        assert_eq!(seen.iter().filter(|c| matches!(c, EngineCommand::Generate { .. })).count(), 1);
    }

    #[test]
    fn ask_failures_keep_their_message_and_exit_code() {
        for (bad_input, code) in [(true, 2), (false, 1)] {
            let (result, ..) = run_mock(&["--prompt", "one"], Interrupt::default(), move |command, port| {
                let EngineCommand::Generate { request, .. } = command else { return };
                port.emit(EngineEvent::Failed { request: *request, sentence: "too long".into(), bad_input });
            });
            let error = result.unwrap_err();
            assert_eq!((error.exit_code(), error.to_string()), (code, "too long".into()));
        }
    }

    #[test]
    fn ask_fails_at_once_if_the_engine_is_gone() {
        let (handle, port) = crate::engine::EngineHandle::pair(|| {});
        drop(port);
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let start = || Session::new(handle, Interrupt::default());
        let error = run(&args(&["--prompt", "q"]), start, &mut Console::plain(&mut out, &mut err, false)).unwrap_err();
        assert_eq!(error.exit_code(), 1);
    }

    #[test]
    fn ask_closed_pipe_stops_the_turn() {
        struct Closed;
        impl std::io::Write for Closed {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let (session, worker) = session(Interrupt::default(), |command, port| {
            let EngineCommand::Generate { request, .. } = command else { return };
            let watch = port.cancel_flag();
            port.emit(token(*request, 1, "text"));
            while !watch.stopped() {
                std::thread::yield_now();
            }
        });
        let mut err = Vec::new();
        let error = run(&args(&["--prompt", "q"]), || session, &mut Console::plain(&mut Closed, &mut err, false)).unwrap_err();
        assert!(matches!(error, CliError::PipeClosed), "{error}");
        worker.join().unwrap();
    }
}
