//! Recorded answers: 16 prompts, every KV policy, three budgets, one after another and at once, compared with commit 9b1e455.
//!
//! ```text
//! document ─► one store, copied ─► 2 workers ─► 36 runs of `ask` ─► 16 greedy answers each ─► equal to answers.json
//! ```
//! Alone: the prompts are turns of one chat. At once: each prompt stands by itself, as many to a batch as VRAM holds.
//! The recordings hold on llvmpipe: another device sums in another order. Where a policy moves pages, `--pipeline off`
//! keeps them from being transferred as INT4, since how many do depends on measured speed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use serde_json::{Map, Value, json};
use strata::engine::PolicyKind;

use crate::{Ran, copy_folder, device, fixture, path_text, recorded, run, scratch};

const MAX_TOKENS: &str = "6";
const CONTEXT: &str = "1536";
/// So few tokens that what a policy chooses shows in its answers.
const IMPORTANCE: &str = "4";
const MODES: [&str; 2] = ["alone", "at_once"];
const N_WORKERS: usize = 2;
const PROMPTS: [&str; 16] = [
    "What is the annual budget of Somiko?",
    "What is the registered population of Lorene?",
    "Who is the mayor?",
    "Find: nearly every household owns",
    "Where does it say The swan counter is paid",
    "What does the document say about the whistle?",
    "What does the document say about the swans?",
    "Where is Lorene mentioned?",
    "List every mention of the town.",
    "Where is Nerisa Tolu mentioned?",
    "What does the document say about the mayor?",
    "What is the second book?",
    "How long has the mayor been a pilot?",
    "What does the almanac say about rumours?",
    "What is the total height of Mitobe?",
    "Who are you?",
];

/// Caps on VRAM and RAM for which the context is in VRAM, in VRAM and RAM, or in all three tiers.
const BUDGETS: [(&str, [&str; 2]); 3] = [("vram", ["64MiB", "64MiB"]), ("ram", ["2MiB", "16MiB"]), ("disk", ["2MiB", "1MiB"])];

/// One run: how the prompts are asked, under which budget, with which policy.
type Case = (&'static str, &'static str, &'static str);

/// A software device of the kind that the recordings were made on.
pub fn is_recorded_device(name: &str) -> bool {
    name.starts_with("llvmpipe")
}

fn cases() -> Vec<Case> {
    let policies = || ["full"].into_iter().chain(PolicyKind::ALL.map(PolicyKind::name));
    let budgets = || BUDGETS.iter().flat_map(|(budget, _)| policies().map(|policy| (*budget, policy)));
    MODES.into_iter().flat_map(|mode| budgets().map(move |(budget, policy)| (mode, budget, policy))).collect()
}

/// The answers of a run, in the order of the prompts.
fn answers(ran: &Ran) -> Value {
    let summaries = ran.lines().into_iter().filter(|line| line["event"] == "summary");
    let by_turn: BTreeMap<u64, Value> = summaries.map(|s| (s["turn"].as_u64().unwrap(), s["text"].clone())).collect();
    by_turn.into_values().collect()
}

fn ask(library: &Path, (mode, budget, policy): Case) -> Value {
    let document = fixture("document.md");
    let (_, [vram, ram]) = BUDGETS.into_iter().find(|(name, _)| *name == budget).unwrap();
    let mut args = vec!["ask", "--doc", path_text(&document), "--json", "--temperature", "0", "--max-tokens", MAX_TOKENS];
    args.extend(["--context", CONTEXT, "--kv-dir", path_text(library), "--kv-policy", policy, "--importance", IMPORTANCE]);
    args.extend(["--vram-budget", vram, "--ram-budget", ram]);
    args.extend(["--pipeline", if budget == "vram" || policy == "full" { "on" } else { "off" }]);
    args.extend(PROMPTS.iter().flat_map(|prompt| ["--prompt", prompt]));
    args.extend((mode == "at_once").then_some("--at-once"));
    answers(&run(args))
}

/// Every case, each with a copy of the saved document, so that no two runs wait for one store.
fn ask_all() -> BTreeMap<Case, Value> {
    let dir = scratch();
    let saved = dir.path().join("saved");
    run(["library", "add", path_text(&fixture("document.md")), "--json", "--kv-dir", path_text(&saved)]).lines();
    let (left, done) = (Mutex::new(cases()), Mutex::new(BTreeMap::new()));
    let work = || {
        while let Some(case) = { left.lock().unwrap().pop() } {
            let library = dir.path().join([case.0, case.1, case.2].join("-"));
            copy_folder(&saved, &library);
            let answers = ask(&library, case);
            done.lock().unwrap().insert(case, answers);
            std::fs::remove_dir_all(library).unwrap();
        }
    };
    std::thread::scope(|scope| (0..N_WORKERS).for_each(|_| drop(scope.spawn(work))));
    done.into_inner().unwrap()
}

/// Cases with the same answers share one list: `lists` and, by mode, budget and policy, the place in it.
fn packed(all: &BTreeMap<Case, Value>) -> Value {
    let mut lists: Vec<&Value> = Vec::new();
    let mut places = Map::new();
    for ((mode, budget, policy), answers) in all {
        let place = lists.iter().position(|list| *list == answers).unwrap_or_else(|| {
            lists.push(answers);
            lists.len() - 1
        });
        places.insert(format!("{mode} {budget} {policy}"), place.into());
    }
    json!({ "prompts": PROMPTS, "max_tokens": MAX_TOKENS, "importance": IMPORTANCE, "lists": lists, "cases": places })
}

#[test]
fn answers_of_every_policy_and_budget_are_those_recorded() {
    let test = "answers_of_every_policy_and_budget";
    let Some(device) = device(test) else { return };
    if !is_recorded_device(&device) {
        eprintln!("skipped: {test}: the answers were recorded on llvmpipe, and this is {device}");
        return;
    }
    let all = ask_all();
    let before = recorded("answers.json", &packed(&all));
    assert_eq!((&before["prompts"], all.len()), (&json!(PROMPTS), 36));
    let mut different = Vec::new();
    for ((mode, budget, policy), now) in &all {
        let place = before["cases"][format!("{mode} {budget} {policy}")].as_u64().unwrap();
        for (i, prompt) in PROMPTS.iter().enumerate() {
            let (was, is) = (&before["lists"][place as usize][i], &now[i]);
            if was != is {
                different.push(format!("{mode}, {budget}, {policy}: {prompt}\n  was {was}\n  is  {is}"));
            }
        }
    }
    assert!(different.is_empty(), "{} answers differ:\n{}", different.len(), different.join("\n"));
}
