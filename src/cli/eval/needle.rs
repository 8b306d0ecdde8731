//! `strata eval needle`: facts planted in documents, asked for one by one.
//!
//! ```text
//! lengths x seeds ─► Haystack ─► document + question ─► answer ─► holds the value? ─┐
//!                                     └─► (second) another question on it ──────────┴► Answer ─► Score per length and depth
//! ```
//! Invariants: 1. Greedy: the same answers for the same seeds. 2. A document, its questions and the longest answers fit the length.
//! 3. With second questions, every fact is asked for once as the first and once as the second.

mod report;

use serde::Serialize;

use super::haystack::{self, Haystack, HaystackError, Needle, Plan};
use super::{Results, Setting, prose};
use crate::base::Rng;
use crate::cli::args::EvalNeedleArgs;
use crate::cli::console::Console;
use crate::cli::error::CliError;
use crate::cli::inputs;
use crate::cli::session::Session;
use crate::document::BLANK_LINE;
use crate::engine::{EngineCommand, EngineEvent, Message, Role, Sampling, StopReason, TurnSummary};
use report::Summary;

/// Tokens that a question takes with the template's own around it, at most.
const QUESTION_TOKENS: usize = 64;

/// One question and what came of it: a line of `--json`, a part of `needle.json`.
#[derive(Debug, Clone, Serialize)]
struct Answer {
    event: &'static str,
    length: usize,
    depth: u32,
    seed: u64,
    /// 1: the first question of a conversation, 2: the second
    order: usize,
    /// share of the document before the fact
    at: f64,
    question: String,
    expected: String,
    answer: String,
    hit: bool,
    cost: TurnSummary,
}

/// A document of the grid.
struct Document {
    length: usize,
    seed: u64,
    hay: Haystack,
}

/// Asks everything and prints the grid. `start` makes the session, once the documents are made.
///
/// # Errors
/// A length without room, the text, the model or the place to write at fault; the engine failing; Ctrl-C.
pub fn run(args: &EvalNeedleArgs, start: impl FnOnce() -> Session, console: &mut Console) -> Result<(), CliError> {
    let documents = documents(args)?;
    let results = Results::open(&args.out)?;
    let mut session = start();
    let info = session.load(args.model.source(), args.device.options(), console)?;
    let longest = documents.iter().map(|d| d.length).max().unwrap_or(0);
    if longest > info.context_limit {
        return Err(CliError::Input(format!(
            "a context of {longest} tokens is asked for and this model's holds {}; give shorter --lengths",
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
    results.write("needle", &report::Report { summary: &summary, answers: &answers }, &summary.heat_map(), console)
}

/// A document for each length and seed.
fn documents(args: &EvalNeedleArgs) -> Result<Vec<Document>, CliError> {
    let mut depths = args.depths.clone();
    depths.sort_unstable();
    depths.dedup();
    let n_facts = depths.len().saturating_mul(args.questions);
    if args.two_questions && n_facts < 2 {
        return Err(CliError::Input("a second question needs a second fact; give more --depths or --questions".to_owned()));
    }
    if n_facts > prose::MAX_FACTS {
        let most = prose::MAX_FACTS;
        return Err(CliError::Input(format!(
            "{n_facts} facts in a document are too many; give --depths and --questions for {most} at most"
        )));
    }
    let text = args.text.as_deref().map(inputs::read_text).transpose()?;
    let tokenizer = inputs::tokenizer(&args.model.source())?;
    let count = |text: &str| tokenizer.encode(text, false).map(|ids| ids.len()).map_err(|e| CliError::Input(e.to_string()));
    let reserved = (1 + usize::from(args.two_questions)) * (QUESTION_TOKENS + args.max_tokens);
    let mut documents = Vec::new();
    for &length in &args.lengths {
        for &seed in &args.seeds {
            let mut rng = Rng::new(seed);
            let facts = prose::facts(n_facts, &mut rng);
            let plan = Plan { n_tokens: length.saturating_sub(reserved), depths: &depths, facts: &facts };
            let hay = match &text {
                Some(text) => haystack::build(plan, haystack::paragraphs_of(text, rng.next_u32() as usize).into_iter(), count),
                None => haystack::build(plan, std::iter::from_fn(|| Some(prose::paragraph(&mut rng))), count),
            }?;
            documents.push(Document { length, seed, hay });
        }
    }
    Ok(documents)
}

/// A conversation on a document: a question about needle `i` and, where wanted, one about another.
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
        let (said, cost) = ask(session, messages.clone(), args.max_tokens, console)?;
        if cost.stop == StopReason::Cancelled {
            return Err(CliError::Failed("stopped before the last question; nothing was kept".to_owned()));
        }
        messages.push(Message { role: Role::Assistant, content: said.clone() });
        on_answer(Answer::new(document, needle, order + 1, said, cost), console)?;
    }
    Ok(())
}

/// One turn, greedy.
fn ask(
    session: &mut Session,
    messages: Vec<Message>,
    max_tokens: usize,
    console: &mut Console,
) -> Result<(String, TurnSummary), CliError> {
    let turn = session.next_turn();
    let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
    let mut said = String::new();
    let command = EngineCommand::Ask { turn, messages, document: None, sampling, max_tokens };
    let cost = session.run_turn(turn, command, console, |event, _| {
        if let EngineEvent::Token { text, .. } = event {
            said.push_str(&text);
        }
        Ok(())
    })?;
    Ok((said, cost))
}

impl Answer {
    fn new(document: &Document, needle: &Needle, order: usize, said: String, cost: TurnSummary) -> Answer {
        Answer {
            event: "answer",
            length: document.length,
            depth: needle.depth,
            seed: document.seed,
            order,
            at: needle.at,
            question: needle.fact.question.clone(),
            expected: needle.fact.value.clone(),
            hit: holds(&said, &needle.fact.value),
            answer: said,
            cost,
        }
    }
}

/// The value stands in the answer, not as a part of a longer number or word.
fn holds(answer: &str, value: &str) -> bool {
    let is_free = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    answer.match_indices(value).any(|(at, _)| {
        let (before, after) = (answer.get(..at).unwrap_or_default(), answer.get(at + value.len()..).unwrap_or_default());
        is_free(before.chars().next_back()) && is_free(after.chars().next())
    })
}

impl From<HaystackError> for CliError {
    fn from(error: HaystackError) -> Self {
        CliError::Input(error.to_string())
    }
}
