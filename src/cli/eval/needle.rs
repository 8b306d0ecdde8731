//! `strata eval needle`: plants facts in documents and asks about each of them.
//!
//! ```text
//! lengths x seeds ─► Haystack ─► document + question ─► answer ─► has the value? ─┐
//!                                     └─► (second) another question on it ────────┴► Answer ─► Score per length and depth
//! ```
//! Invariants: 1. Greedy: the same seeds give the same answers. 2. A document, its questions and the longest answers fit the
//! length. 3. With second questions, every fact is asked about once as the first and once as the second.

mod answer;
mod report;

use super::haystack::{self, HaystackError, Plan};
use super::results::{Results, Setting};
use super::synthetic_text;
use crate::base::Rng;
use crate::cli::args::EvalNeedleArgs;
use crate::cli::console::Console;
use crate::cli::error::CliError;
use crate::cli::input;
use crate::cli::session::Session;
use crate::document::BLANK_LINE;
use crate::engine::{AttentionMode, EngineCommand, EngineEvent, Message, RequestSummary, Role, Sampling, StopReason};
use answer::{Answer, Document, ascending};
use report::Summary;

/// Largest number of tokens of a question with the chat template around it.
const QUESTION_TOKENS: usize = 64;

/// Asks all questions and prints the grid. `start` creates the session after the documents are built.
///
/// # Errors
/// A length without room, a bad text, model or output folder; a failure of the engine; Ctrl-C.
pub fn run(args: &EvalNeedleArgs, start: impl FnOnce() -> Session, console: &mut Console) -> Result<(), CliError> {
    let documents = documents(args)?;
    let results = Results::open(&args.out)?;
    let mut session = start();
    let info = session.load(args.model.source(), args.device.forced_options(), console)?;
    let longest = documents.iter().map(|d| d.length).max().unwrap_or(0);
    if longest > info.context_limit {
        return Err(CliError::Input(format!(
            "a context of {longest} tokens exceeds this model's {}. Give shorter --lengths",
            info.context_limit
        )));
    }
    let n_orders = 1 + usize::from(args.two_questions);
    let total = documents.iter().map(|d| d.hay.needles.len()).sum::<usize>() * n_orders;
    let mut answers = Vec::new();
    for document in &documents {
        for i in 0..document.hay.needles.len() {
            converse(args, document, i, &mut session, console, &mut |answer, console| {
                if console.is_json() {
                    console.json_line(&answer)?;
                }
                answers.push(answer);
                let json = serde_json::json!({ "event": "progress", "phase": "needle", "done": answers.len(), "total": total });
                console.progress(&format!("{} of {total} questions", answers.len()), &json)
            })?;
        }
    }
    let setting = Setting::new(&info, &args.device);
    let summary = Summary::new(args, &setting, &answers);
    if console.is_json() {
        console.json_line(&summary)?;
    } else {
        console.text(&summary.table())?;
    }
    results.write(
        "needle",
        &report::Report { summary: &summary, documents: &documents, answers: &answers },
        &summary.heat_map(),
        console,
    )
}

/// One document for each length and seed.
fn documents(args: &EvalNeedleArgs) -> Result<Vec<Document>, CliError> {
    let depths = ascending(&args.depths);
    let n_facts = depths.len().saturating_mul(args.questions);
    if args.two_questions && n_facts < 2 {
        return Err(CliError::Input("a second question needs a second fact. Give more --depths or --questions".to_owned()));
    }
    if n_facts > synthetic_text::MAX_FACTS {
        let most = synthetic_text::MAX_FACTS;
        return Err(CliError::Input(format!(
            "{n_facts} facts in a document are too many. Give --depths and --questions for {most} or fewer"
        )));
    }
    let text = args.text.as_deref().map(input::read_text).transpose()?;
    let tokenizer = input::tokenizer(&args.model.source())?;
    let count = |text: &str| tokenizer.encode(text, false).map(|ids| ids.len()).map_err(|e| CliError::Input(e.to_string()));
    let reserved = (1 + usize::from(args.two_questions)) * (QUESTION_TOKENS + args.max_tokens);
    let mut documents = Vec::new();
    for length in ascending(&args.lengths) {
        for seed in ascending(&args.seeds) {
            let mut rng = Rng::new(seed);
            let facts = synthetic_text::facts(n_facts, &mut rng);
            let plan = Plan { n_tokens: length.saturating_sub(reserved), depths: &depths, facts: &facts };
            let hay = match &text {
                Some(text) => haystack::build(plan, haystack::paragraphs_of(text, rng.next_u32() as usize).into_iter(), count),
                None => haystack::build(plan, std::iter::from_fn(|| Some(synthetic_text::paragraph(&mut rng))), count),
            }?;
            documents.push(Document { length, seed, hay });
        }
    }
    Ok(documents)
}

/// A conversation on a document: a question about needle `i`, and a second one about another if requested.
fn converse(
    args: &EvalNeedleArgs,
    document: &Document,
    i: usize,
    session: &mut Session,
    console: &mut Console,
    on_answer: &mut dyn FnMut(Answer, &mut Console) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let needles = &document.hay.needles;
    let second = args.two_questions.then(|| (i + needles.len() / 2) % needles.len());
    let mut messages = Vec::new();
    for (order, needle) in [Some(i), second].into_iter().flatten().filter_map(|i| needles.get(i)).enumerate() {
        let question = &needle.fact.question;
        let content = if order == 0 { format!("{}{BLANK_LINE}{question}", document.hay.text) } else { question.clone() };
        messages.push(Message { role: Role::User, content });
        let (text, cost) = ask(session, messages.clone(), args, console)?;
        if cost.stop == StopReason::Cancelled {
            return Err(CliError::Failed("interrupted before the last question. No results were written".to_owned()));
        }
        messages.push(Message { role: Role::Assistant, content: text.clone() });
        on_answer(Answer::new(document, needle, order + 1, text, cost), console)?;
    }
    Ok(())
}

/// Generates one answer, greedily.
fn ask(
    session: &mut Session,
    messages: Vec<Message>,
    args: &EvalNeedleArgs,
    console: &mut Console,
) -> Result<(String, RequestSummary), CliError> {
    let request = session.next_request();
    let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
    let mut answer = String::new();
    // Sampling the attention mass reads every key, so it is done only if `--mass` needs it.
    let policy = if args.device.mass.is_some() { AttentionMode::Sampled } else { AttentionMode::AsLoaded };
    let command =
        EngineCommand::Generate { request, messages, documents: Vec::new(), sampling, max_tokens: args.max_tokens, policy };
    let cost = session.run_request(request, command, console, |event, _| {
        if let EngineEvent::Token { text, .. } = event {
            answer.push_str(&text);
        }
        Ok(())
    })?;
    Ok((answer, cost))
}

impl From<HaystackError> for CliError {
    fn from(error: HaystackError) -> Self {
        CliError::Input(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use clap::Parser;
    use serde_json::Value;

    use super::answer::has_value;
    use super::*;
    use crate::cli::args::{Cli, Command, EvalCommand};
    use crate::cli::interrupt::Interrupt;
    use crate::cli::mock_engine::{finished, session, token};
    use crate::engine::{MassKept, PolicySpec, SelectionSummary};

    const GRID: [&str; 6] = ["--lengths", "900,1000", "--depths", "0,50,100", "--questions", "2"];

    /// Runs the test on a mock engine that uses only the last `n_known` bytes of the document: the summary, and the questions.
    fn run_mock(more: &[&str], n_known: usize) -> Result<(Value, Vec<Vec<Message>>), CliError> {
        let words = ["strata", "eval", "needle", "--json"].iter().chain(&GRID).chain(more);
        let Some(Command::Eval(EvalCommand::Needle(args))) = Cli::parse_from(words).command else { panic!("not needle") };
        let (selects, n_asked) = (args.device.options().policy.is_some(), Cell::new(0));
        let (session, worker) = session(Interrupt::default(), move |command, port| {
            let EngineCommand::Generate { request, messages, sampling, policy, .. } = command else { panic!("{command:?}") };
            assert_eq!(sampling.temperature, 0.0);
            let (document, question) = messages[0].content.rsplit_once(BLANK_LINE).unwrap();
            let question = messages[1..].last().map_or(question, |last| &last.content);
            let begins = question.replace("What is the", "The").replace('?', " is ");
            let known = &document[document.floor_char_boundary(document.len().saturating_sub(n_known))..];
            let said =
                known.split_once(&begins).and_then(|(_, rest)| rest.split_once('.')).map_or("I do not know", |(value, _)| value);
            port.emit(token(*request, 1, &format!("It is {said}.")));
            let EngineEvent::Finished { request, mut summary } = finished(*request, 1, StopReason::Eos) else { return };
            summary.selection = selects.then(|| selection(n_asked.replace(n_asked.get() + 1), *policy));
            port.emit(EngineEvent::Finished { request, summary });
        });
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let result = run(&args, || session, &mut Console::plain(&mut out, &mut err, true));
        let seen = worker.join().unwrap().into_iter().filter_map(|command| match command {
            EngineCommand::Generate { messages, .. } => Some(messages),
            _ => None,
        });
        let seen = seen.collect();
        result.map(|()| (serde_json::from_str(String::from_utf8(out).unwrap().lines().last().unwrap()).unwrap(), seen))
    }

    #[test]
    fn needle_finds_all_with_the_whole_document_and_only_the_end_with_its_end() {
        let (all, _) = run_mock(&["--seeds", "1,2"], usize::MAX).unwrap();
        assert_eq!((&all["first"]["asked"], &all["first"]["share"]), (&24.into(), &1.0.into()));
        let (end, _) = run_mock(&["--seeds", "1,2"], 600).unwrap();
        for cell in end["first"]["cells"].as_array().unwrap() {
            let share = if cell["depth"] == 100 { 1.0 } else { 0.0 };
            assert_eq!((&cell["asked"], &cell["share"]), (&4.into(), &share.into()), "{cell}");
        }
    }

    #[test]
    fn needle_second_question_is_another_fact_of_the_same_document() {
        let (summary, seen) = run_mock(&["--two-questions", "--seeds", "5"], usize::MAX).unwrap();
        assert_eq!((&summary["first"]["asked"], &summary["second"]["hits"]), (&12.into(), &12.into()));
        assert_eq!(summary["second"]["cells"].as_array().unwrap().len(), 6);
        for (first, second) in seen.iter().step_by(2).zip(seen.iter().skip(1).step_by(2)) {
            assert_eq!((first.len(), second.len(), &first[0]), (1, 3, &second[0]));
            assert!(!second[0].content.ends_with(&second[2].content), "the same question twice");
            assert!(second[1].role == Role::Assistant && second[1].content.starts_with("It is "));
        }
    }

    /// Selection summary of answer `i`: every second answer has three decode steps, the others one.
    fn selection(i: usize, policy: AttentionMode) -> SelectionSummary {
        let (steps, reuse, kept) = if i.is_multiple_of(2) { (1, 0.5, 1.0) } else { (3, 0.9, 0.6) };
        let layer = |kept| MassKept { kept, ..MassKept::default() };
        let measured = policy == AttentionMode::Sampled;
        SelectionSummary {
            spec: PolicySpec::default(),
            steps,
            share_read: 0.1,
            reuse,
            foreseen: 0.0,
            compressed: 0.0,
            evaluations_per_step: 0.0,
            evaluation_ms_per_step: 0.0,
            mass: measured.then(|| vec![layer(kept), layer(0.5)]),
            mass_steps: if measured { steps } else { 0 },
        }
    }

    #[test]
    fn needle_reuse_and_mass_are_means_over_steps_or_null() {
        let summary = |more: &[&str]| run_mock(more, usize::MAX).unwrap().0;
        let full = summary(&[]);
        assert_eq!((&full["reuse"], &full["mass_kept"]), (&Value::Null, &Value::Null));
        let plain = summary(&["--kv-policy", "leoam"]);
        assert!((plain["reuse"].as_f64().unwrap() - 0.8).abs() < 1e-9 && plain["mass_kept"].is_null(), "{plain}");
        let measured = summary(&["--kv-policy", "leoam", "--mass", "0.9"]);
        let kept: Vec<f64> = measured["mass_kept"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
        assert!(kept.len() == 2 && (kept[0] - 0.7).abs() < 1e-9 && (kept[1] - 0.5).abs() < 1e-9, "{kept:?}");
    }

    #[test]
    fn needle_lengths_depths_and_seeds_given_twice_count_once() {
        let (summary, seen) = run_mock(&["--lengths", "900", "--depths", "0", "--seeds", "4,4"], usize::MAX).unwrap();
        assert_eq!((&summary["first"]["asked"], seen.len(), &summary["seeds"]), (&12.into(), 12, &serde_json::json!([4])));
    }

    #[test]
    fn needle_context_beyond_the_model_is_rejected_with_both_numbers() {
        let error = run_mock(&["--lengths", "2000"], 0).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains("2000") && error.to_string().contains("1024"), "{error}");
    }

    #[test]
    fn has_value_matches_whole_words_only() {
        for (answer, right) in [
            ("The code is Tave Ruloma.", true),
            ("Tave Ruloma", true),
            ("The code is Tave Rulomana.", false),
            ("xTave Ruloma", false),
            ("xTave Ruloma, or “Tave Ruloma”", true),
            ("", false),
        ] {
            assert_eq!(has_value(answer, "Tave Ruloma"), right, "{answer}");
        }
    }
}
