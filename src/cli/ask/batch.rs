//! `strata ask --at-once`: generates all answers in one batch and prints them in the order of the questions.
//!
//! ```text
//! tokens of all answers ─► the shown answer: streamed │ others: buffered until all earlier ones are complete
//! ```
//! Invariants: 1. Every answer is printed under its question, whatever order the answers end in. 2. JSON lines are printed as
//! they occur, with the number of the question. 3. If one question fails, the others are still answered; the command fails.

use super::output::{end_text, print_details, show_piece};
use crate::cli::args::AskArgs;
use crate::cli::console::Console;
use crate::cli::error::CliError;
use crate::cli::input;
use crate::cli::session::{Session, failure};
use crate::cli::summary::AskSummary;
use crate::document::{Document, join_for_prompt};
use crate::engine::{
    DocumentRef, EngineCommand, EngineEvent, Message, ModelInfo, PromptRequest, RequestId, RequestSummary, Role, Sampling,
};
use crate::token::ReasoningFilter;

/// One question with its answer so far.
struct Answer<'a> {
    id: RequestId,
    prompt: &'a str,
    text: String,
    filter: ReasoningFilter,
    end: Option<Result<RequestSummary, CliError>>,
}

/// All answers. Those before `shown` are printed; the one at `shown` is printed as it streams.
struct Answers<'a> {
    all: Vec<Answer<'a>>,
    shown: usize,
    info: &'a ModelInfo,
    sampling: Sampling,
    docs: &'a [Document],
}

/// Answers every `--prompt` independently.
///
/// # Errors
/// The first question that failed, after all others were answered; a failure of the engine or the output.
pub fn run(
    args: &AskArgs,
    session: &mut Session,
    info: &ModelInfo,
    docs: &[Document],
    documents: Vec<DocumentRef>,
    console: &mut Console,
) -> Result<(), CliError> {
    let answer = |prompt| Answer {
        id: session.next_request(),
        prompt,
        text: String::new(),
        filter: ReasoningFilter::default(),
        end: None,
    };
    let all: Vec<Answer> = args.prompts.iter().map(String::as_str).map(answer).collect();
    let ids: Vec<RequestId> = all.iter().map(|answer| answer.id).collect();
    let question = |answer: &Answer| PromptRequest {
        id: answer.id,
        messages: vec![Message { role: Role::User, content: join_for_prompt(docs, answer.prompt) }],
    };
    let requests = all.iter().map(question).collect();
    let sampling = args.sampling.over(info.sampling);
    let mut answers = Answers { all, shown: 0, info, sampling, docs };
    answers.show_question(console)?;
    let command = EngineCommand::GenerateBatch { requests, documents, sampling, max_tokens: args.max_tokens };
    session.run_requests(&ids, command, console, |event, console| answers.take(event, console))?;
    let mut errors = answers.all.into_iter().filter_map(|answer| answer.end?.err());
    let first = errors.next();
    errors.try_for_each(|error| console.note(&error.to_string()))?;
    first.map_or(Ok(()), Err)
}

impl Answers<'_> {
    fn take(&mut self, event: EngineEvent, console: &mut Console) -> Result<(), CliError> {
        let (request, piece, end) = match event {
            EngineEvent::Token { request, text, n, .. } => (request, Some((text, n)), None),
            EngineEvent::Finished { request, summary } => (request, None, Some(Ok(*summary))),
            EngineEvent::Failed { request, sentence, bad_input } => (request, None, Some(Err(failure(sentence, bad_input)))),
            _ => return Ok(()),
        };
        let Some(i) = self.all.iter().position(|answer| answer.id == request) else { return Ok(()) };
        let Some(answer) = self.all.get_mut(i) else { return Ok(()) };
        let piece = match (piece, &end) {
            (Some((text, n)), _) if text.is_empty() => Some((text, n)),
            (Some((text, n)), _) => Some((answer.filter.push(&text), n)).filter(|(text, _)| !text.is_empty()),
            (None, Some(Ok(cost))) => Some((answer.filter.finish(), cost.generated_tokens)).filter(|(text, _)| !text.is_empty()),
            (None, _) => None,
        };
        if let Some((text, n)) = &piece {
            answer.text.push_str(text);
            if console.is_json() || i == self.shown {
                show_piece(i + 1, text, *n, console)?;
            }
        }
        if end.is_none() {
            return Ok(());
        }
        if let Some(answer) = self.all.get_mut(i) {
            answer.text = answer.filter.answer().into_owned();
            answer.end = end;
        }
        if console.is_json() { self.show_summary(i, console) } else { self.show_ended(console) }
    }

    fn show_summary(&self, i: usize, console: &mut Console) -> Result<(), CliError> {
        let Answer { text, end: Some(Ok(cost)), .. } = &self.all[i] else { return Ok(()) };
        let quotes = input::quotes_in(text, self.info.built_in, self.docs);
        console.json_line(&AskSummary::new(i + 1, self.info, self.sampling, text, cost, &quotes))
    }

    /// Prints the next question, if any is left, with its answer so far.
    fn show_question(&self, console: &mut Console) -> Result<(), CliError> {
        let Some(answer) = self.all.get(self.shown).filter(|_| !console.is_json()) else { return Ok(()) };
        let gap = if self.shown > 0 { "\n" } else { "" };
        console.text(&format!("{gap}{}\n{}", answer.prompt, answer.text))
    }

    /// Completes the shown answer if it has ended, and continues with the next one.
    fn show_ended(&mut self, console: &mut Console) -> Result<(), CliError> {
        while let Some(Answer { text, end: Some(end), .. }) = self.all.get(self.shown) {
            if !text.is_empty() {
                end_text(text, console)?;
            }
            if let Ok(cost) = end {
                print_details(self.info, cost, &input::quotes_in(text, self.info.built_in, self.docs), console);
            }
            self.shown += 1;
            self.show_question(console)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::run_mock;
    use super::*;
    use crate::cli::interrupt::Interrupt;
    use crate::cli::mock_engine::{finished, token};
    use crate::engine::{EnginePort, StopReason};

    const ASKED: [&str; 7] = ["--prompt", "one?", "--prompt", "two?", "--prompt", "three?", "--at-once"];

    fn ids(command: &EngineCommand) -> Vec<RequestId> {
        let EngineCommand::GenerateBatch { requests, .. } = command else { panic!("{command:?}") };
        requests.iter().map(|question| question.id).collect()
    }

    /// Mock engine whose answers alternate, and end in the order 2, 1, 3.
    fn interleaved(command: &EngineCommand, port: &EnginePort) {
        let ids = ids(command);
        for (i, text) in [(1, "b"), (0, "a"), (2, "c"), (1, "B"), (0, "A"), (2, "C")] {
            port.emit(token(ids[i], 1, text));
        }
        for i in [1, 0, 2] {
            port.emit(finished(ids[i], 2, StopReason::Eos));
        }
    }

    #[test]
    fn batch_answers_are_printed_under_their_questions_in_order() {
        let (result, out, _, seen) = run_mock(&ASKED, Interrupt::default(), interleaved);
        result.unwrap();
        assert_eq!(out, "one?\naA\n\ntwo?\nbB\n\nthree?\ncC\n");
        let Some(EngineCommand::GenerateBatch { requests, .. }) = seen.last() else { panic!("{seen:?}") };
        let asked: Vec<_> = requests.iter().map(|q| (q.messages.len(), q.messages[0].content.as_str())).collect();
        assert_eq!(asked, [(1, "one?"), (1, "two?"), (1, "three?")]);
    }

    #[test]
    fn reasoning_of_a_batch_is_left_out() {
        let (result, out, ..) = run_mock(&ASKED, Interrupt::default(), |command, port| {
            for id in ids(command) {
                for piece in ["<think>x", "</think>", "So", "."] {
                    port.emit(token(id, 1, piece));
                }
                port.emit(finished(id, 4, StopReason::Eos));
            }
        });
        result.unwrap();
        assert_eq!(out, "one?\nSo.\n\ntwo?\nSo.\n\nthree?\nSo.\n");
        let (_, out, ..) = run_mock(&[&ASKED[..], &["--json"]].concat(), Interrupt::default(), |command, port| {
            for id in ids(command) {
                port.emit(token(id, 1, "\"It never said so\"\n</think>\n\nSo."));
                port.emit(finished(id, 1, StopReason::Eos));
            }
        });
        let summaries = out.lines().filter(|line| line.contains("\"summary\""));
        let texts: Vec<serde_json::Value> = summaries.map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(texts.len(), 3);
        assert!(texts.iter().all(|line| line["text"] == "So." && line["quotes"] == serde_json::json!([])), "{texts:?}");
    }

    #[test]
    fn json_lines_of_a_batch_have_the_question_number() {
        let (result, out, ..) = run_mock(&[&ASKED[..], &["--json"]].concat(), Interrupt::default(), interleaved);
        result.unwrap();
        let lines: Vec<serde_json::Value> = out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let of = |kind: &str, field: &str| -> Vec<_> {
            lines.iter().filter(|l| l["event"] == kind).map(|l| (l["turn"].as_u64().unwrap(), l[field].to_string())).collect()
        };
        assert_eq!(of("token", "text").iter().map(|(n, _)| *n).collect::<Vec<_>>(), [2, 1, 3, 2, 1, 3]);
        assert_eq!(of("summary", "text"), [(2, "\"bB\"".into()), (1, "\"aA\"".into()), (3, "\"cC\"".into())]);
    }

    #[test]
    fn failed_question_of_a_batch_fails_the_command_after_the_others() {
        let (result, out, err, _) = run_mock(&ASKED, Interrupt::default(), |command, port| {
            let ids = ids(command);
            port.emit(EngineEvent::Failed { request: ids[2], sentence: "too odd".into(), bad_input: false });
            port.emit(EngineEvent::Failed { request: ids[0], sentence: "too long".into(), bad_input: true });
            port.emit(token(ids[1], 1, "yes"));
            port.emit(finished(ids[1], 1, StopReason::Eos));
        });
        let error = result.unwrap_err();
        assert_eq!((error.exit_code(), error.to_string()), (2, "too long".into()));
        assert_eq!(out, "one?\n\ntwo?\nyes\n\nthree?\n");
        assert!(err.contains("too odd") && !err.contains("too long"), "{err}");
    }
}
