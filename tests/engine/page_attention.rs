//! Page attention of an answer: when it is emitted, and that it is highest where the answer is quoted from.

use strata::base::{Bytes, Tiers};
use strata::engine::{
    AttentionMode, EngineCommand, EngineEvent, LoadOptions, Message, ModelSource, PageAttention, PolicySpec, Role, Sampling,
    SelectionBudget,
};

use crate::{engine_with, finish, half_document};

const QUESTION: &str = "What is the current temperature for Reribe?";
const FACT: &str = "temperature for Reribe";

/// The answer to the question, and its page attention if it was emitted.
fn generate(
    test: &str,
    policy: Option<PolicySpec>,
    vram: Option<u64>,
    attention: AttentionMode,
) -> Option<(String, Option<PageAttention>)> {
    let budgets = Tiers { vram: vram.map(Bytes), ram: None, disk: None };
    let options = LoadOptions { budgets, policy, context: Some(8192), ..LoadOptions::default() };
    let (handle, _) = engine_with(test, ModelSource::BuiltIn, options)?;
    let messages = vec![Message { role: Role::User, content: format!("{}\n\n{QUESTION}", half_document()) }];
    let (sampling, policy) = (Sampling::default(), attention);
    handle.send(EngineCommand::Generate { request: 7, messages, documents: Vec::new(), sampling, max_tokens: 24, policy });
    let (events, end) = finish(&handle);
    end.unwrap();
    let (mut answer, mut told) = (String::new(), None);
    for event in events {
        match event {
            EngineEvent::Token { text, .. } => answer += &text,
            EngineEvent::PageAttention { request: 7, page_attention } => {
                assert!(told.replace(*page_attention).is_none(), "emitted twice")
            }
            _ => {}
        }
    }
    Some((answer, told))
}

fn assert_falls_on_the_fact(page_attention: &PageAttention) {
    let (text, n_pages) = (half_document(), page_attention.mass.len());
    assert_eq!(page_attention.first_byte.len(), n_pages + 1);
    assert!(n_pages > 40 && page_attention.n_steps >= 2, "{n_pages} pages, {} steps", page_attention.n_steps);
    let sum: f32 = page_attention.mass.iter().sum();
    assert!((sum - 1.0).abs() < 1e-3, "{sum}");
    let fact = text.find(FACT).unwrap() as u32;
    let page = page_attention.first_byte.partition_point(|first| *first <= fact) - 1;
    let mut order: Vec<usize> = (0..n_pages).collect();
    order.sort_by(|a, b| page_attention.mass[*b].total_cmp(&page_attention.mass[*a]));
    let rank = order.iter().position(|p| *p == page).unwrap();
    assert!(rank < 3, "the page of the fact is number {rank}: {:?}", order.iter().take(5).map(|p| (p, page_attention.mass[*p])));
}

#[test]
fn attention_of_an_exact_answer_is_on_the_quoted_page() {
    let test = "attention_of_an_exact_answer_is_on_the_quoted_page";
    let Some((plain, none)) = generate(test, None, None, AttentionMode::AsLoaded) else { return };
    assert_eq!(none, None, "not requested");
    let (answer, page_attention) = generate(test, None, None, AttentionMode::Sampled).unwrap();
    assert_eq!(answer, plain);
    assert_falls_on_the_fact(&page_attention.unwrap());
}

#[test]
fn attention_of_a_selective_answer_is_on_the_quoted_page_in_any_tier() {
    let test = "attention_of_a_selective_answer_is_on_the_quoted_page_in_any_tier";
    let spec = PolicySpec { amount: SelectionBudget::Rate(0.1), is_forced: true, ..PolicySpec::default() };
    for vram in [None, Some(5 << 20)] {
        let Some((_, page_attention)) = generate(test, Some(spec), vram, AttentionMode::Sampled) else { return };
        assert_falls_on_the_fact(&page_attention.unwrap());
    }
}

#[test]
fn attention_of_an_exact_answer_over_offloaded_pages_is_not_measured() {
    let test = "attention_of_an_exact_answer_over_offloaded_pages_is_not_measured";
    let Some((_, page_attention)) = generate(test, None, Some(3 << 20), AttentionMode::Sampled) else { return };
    assert_eq!(page_attention, None);
}
