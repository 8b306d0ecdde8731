//! What the attention of an answer fell on: by whom it is told, and that it is where the answer stands.

use strata::base::{Bytes, Tiers};
use strata::engine::{
    EngineCommand, EngineEvent, LoadOptions, Message, ModelSource, PolicySpec, Role, Sampling, SelectionBudget, TurnPolicy,
    Weighed,
};

use crate::{engine_with, finish, half_document};

const QUESTION: &str = "What is the current temperature for Reribe?";
const FACT: &str = "temperature for Reribe";

/// The answer to the question, and what was told of its attention.
fn asked(
    test: &str,
    policy: Option<PolicySpec>,
    vram: Option<u64>,
    turn_policy: TurnPolicy,
) -> Option<(String, Option<Weighed>)> {
    let budgets = Tiers { vram: vram.map(Bytes), ram: None, disk: None };
    let options = LoadOptions { budgets, policy, context: Some(8192), ..LoadOptions::default() };
    let (handle, _) = engine_with(test, ModelSource::BuiltIn, options)?;
    let messages = vec![Message { role: Role::User, content: format!("{}\n\n{QUESTION}", half_document()) }];
    let (sampling, policy) = (Sampling::default(), turn_policy);
    handle.send(EngineCommand::Ask { turn: 7, messages, document: None, sampling, max_tokens: 24, policy });
    let (events, end) = finish(&handle);
    end.unwrap();
    let (mut answer, mut told) = (String::new(), None);
    for event in events {
        match event {
            EngineEvent::Token { text, .. } => answer += &text,
            EngineEvent::Weighed { turn: 7, weighed } => assert!(told.replace(*weighed).is_none(), "told twice"),
            _ => {}
        }
    }
    Some((answer, told))
}

fn assert_falls_on_the_fact(weighed: &Weighed) {
    let (text, n_pages) = (half_document(), weighed.mass.len());
    assert_eq!(weighed.first_byte.len(), n_pages + 1);
    assert!(n_pages > 40 && weighed.n_steps >= 2, "{n_pages} pages, {} steps", weighed.n_steps);
    let sum: f32 = weighed.mass.iter().sum();
    assert!((sum - 1.0).abs() < 1e-3, "{sum}");
    let fact = text.find(FACT).unwrap() as u32;
    let page = weighed.first_byte.partition_point(|first| *first <= fact) - 1;
    let mut order: Vec<usize> = (0..n_pages).collect();
    order.sort_by(|a, b| weighed.mass[*b].total_cmp(&weighed.mass[*a]));
    let rank = order.iter().position(|p| *p == page).unwrap();
    assert!(rank < 3, "the page of the fact is number {rank}: {:?}", order.iter().take(5).map(|p| (p, weighed.mass[*p])));
}

#[test]
fn attention_of_an_exact_answer_falls_on_what_it_quotes_and_answers_the_same() {
    let test = "attention_of_an_exact_answer_falls_on_what_it_quotes_and_answers_the_same";
    let Some((plain, none)) = asked(test, None, None, TurnPolicy::AsLoaded) else { return };
    assert_eq!(none, None, "nobody asked");
    let (answer, weighed) = asked(test, None, None, TurnPolicy::Sampled).unwrap();
    assert_eq!(answer, plain);
    assert_falls_on_the_fact(&weighed.unwrap());
}

#[test]
fn attention_of_a_chosen_answer_falls_on_what_it_quotes_wherever_pages_are() {
    let test = "attention_of_a_chosen_answer_falls_on_what_it_quotes_wherever_pages_are";
    let spec = PolicySpec { amount: SelectionBudget::Rate(0.1), ..PolicySpec::default() };
    for vram in [None, Some(5 << 20)] {
        let Some((_, weighed)) = asked(test, Some(spec), vram, TurnPolicy::Sampled) else { return };
        assert_falls_on_the_fact(&weighed.unwrap());
    }
}

#[test]
fn attention_over_pages_below_vram_is_not_measured_where_all_of_them_are_read() {
    let test = "attention_over_pages_below_vram_is_not_measured_where_all_of_them_are_read";
    let Some((_, weighed)) = asked(test, None, Some(3 << 20), TurnPolicy::Sampled) else { return };
    assert_eq!(weighed, None);
}
