//! Selective attention through the whole engine: answers, budgets, statistics and refusals.

use strata::base::{Bytes, LinkLimits, Tiers};
use strata::engine::{
    AttentionKind, AttentionMode, DocumentRef, EngineCommand, EngineEvent, EngineHandle, LoadOptions, Message, ModelSource,
    PolicyKind, PolicySpec, RequestSummary, Role, Sampling, SelectionBudget,
};

use crate::{engine_with, finish, half_document, saved_as};

const QUESTION: &str = "What is the current temperature for Reribe?";
const ANSWER: &str = "The current temperature for Reribe is Mare-3409.";

fn engine(test: &str, spec: Option<PolicySpec>, [vram, ram]: [Option<u64>; 2]) -> Option<EngineHandle> {
    let budgets = Tiers { vram: vram.map(Bytes), ram: ram.map(Bytes), disk: None };
    let options = LoadOptions { budgets, policy: spec, context: Some(8192), ..LoadOptions::default() };
    Some(engine_with(test, ModelSource::BuiltIn, options)?.0)
}

fn generate(handle: &EngineHandle, question: &str) -> (String, Box<RequestSummary>) {
    generate_with(handle, question, AttentionMode::AsLoaded)
}

fn generate_with(handle: &EngineHandle, question: &str, policy: AttentionMode) -> (String, Box<RequestSummary>) {
    generate_on(handle, &half_document(), question, Vec::new(), policy)
}

/// The answer to [`QUESTION`] on a saved document of 1,700 tokens, the second half of [`half_document`].
fn generate_saved(handle: &EngineHandle, policy: AttentionMode) -> (String, Box<RequestSummary>) {
    let text = &half_document()[5000..];
    generate_on(handle, text, QUESTION, vec![saved_as("document.txt", text, 1)], policy)
}

fn generate_on(
    handle: &EngineHandle,
    text: &str,
    question: &str,
    documents: Vec<DocumentRef>,
    policy: AttentionMode,
) -> (String, Box<RequestSummary>) {
    let messages = vec![Message { role: Role::User, content: format!("{text}\n\n{question}") }];
    let sampling = Sampling::default();
    handle.send(EngineCommand::Generate { request: 7, messages, documents, sampling, max_tokens: 24, policy });
    let (events, end) = finish(handle);
    let text = |event| if let EngineEvent::Token { text, .. } = event { Some(text) } else { None };
    (events.into_iter().filter_map(text).collect(), end.unwrap())
}

fn spec(kind: PolicyKind, rate: f32) -> PolicySpec {
    PolicySpec { kind, amount: SelectionBudget::Rate(rate), is_forced: true, ..PolicySpec::default() }
}

#[test]
fn policies_of_rate_one_answer_like_exact_attention() {
    let test = "policies_of_rate_one_answer_like_exact_attention";
    // The document is prefilled once; the other engines resume it.
    let dir = tempfile::tempdir().unwrap();
    let engine = |policy, vram: Option<u64>| {
        let budgets = Tiers { vram: vram.map(Bytes), ..Tiers::default() };
        let kv_dir = Some(dir.path().to_owned());
        let options = LoadOptions { budgets, policy, kv_dir, context: Some(8192), ..LoadOptions::default() };
        Some(engine_with(test, ModelSource::BuiltIn, options)?.0)
    };
    let Some(exact) = engine(None, None) else { return };
    let (expected, summary) = generate_saved(&exact, AttentionMode::AsLoaded);
    assert_eq!((expected.as_str(), summary.attention, summary.selection), (ANSWER, AttentionKind::Dense, None));
    drop(exact);
    for kind in [PolicyKind::LeoAm, PolicyKind::H2o] {
        // A fifth of the KV fits in VRAM, so that selected pages are evicted and fetched again.
        for vram in [None, Some(1 << 20)] {
            let handle = engine(Some(spec(kind, 1.0)), vram).unwrap();
            let (text, summary) = generate_saved(&handle, AttentionMode::AsLoaded);
            assert_eq!(text, expected, "{kind} in {vram:?}");
            assert!(summary.cached_tokens > 1000, "{summary:?}");
            assert_eq!(summary.attention, AttentionKind::Selective);
            assert_eq!(summary.selection.unwrap().share_read, 1.0);
            assert!(summary.kv_peak_bytes.vram <= vram.unwrap_or(u64::MAX), "{:?}", summary.kv_peak_bytes);
        }
    }
}

#[test]
fn leoam_reads_everything_where_selecting_would_take_longer() {
    let test = "leoam_reads_everything_where_selecting_would_take_longer";
    let unforced = |vram| engine(test, Some(PolicySpec { is_forced: false, ..spec(PolicyKind::LeoAm, 0.1) }), [vram, None]);
    // On a software device, in VRAM.
    let Some(handle) = unforced(None) else { return };
    let (text, summary) = generate_saved(&handle, AttentionMode::AsLoaded);
    assert_eq!((text.as_str(), summary.attention, &summary.selection), (ANSWER, AttentionKind::ExactByCost, &None));
    assert_eq!(summary.pages.skipped, 0);
    assert_eq!(generate_saved(&handle, AttentionMode::Exact).1.attention, AttentionKind::Dense);
    // Below VRAM it selects.
    let handle = unforced(Some(1 << 20)).unwrap();
    let (text, summary) = generate_saved(&handle, AttentionMode::AsLoaded);
    assert_eq!((text.as_str(), summary.attention), (ANSWER, AttentionKind::Selective));
    assert!(summary.selection.unwrap().share_read < 0.5 && summary.pages.skipped > 0);
}

#[test]
fn leoam_finds_a_distant_fact_and_reuses_selected_pages() {
    let test = "leoam_finds_a_distant_fact_and_reuses_selected_pages";
    for budgets in [[None; 2], [Some(5 << 20), None], [Some(3 << 20), Some(4 << 20)]] {
        let Some(handle) = engine(test, Some(spec(PolicyKind::LeoAm, 0.1)), budgets) else { return };
        let (text, summary) = generate(&handle, QUESTION);
        assert_eq!(text, ANSWER, "{budgets:?}");
        let selection = summary.selection.unwrap();
        assert!(selection.share_read < 0.45 && summary.pages.skipped > 0, "{selection:?}");
        assert!(selection.reuse > 0.4 || budgets[1].is_some(), "{selection:?}");
        assert!(summary.kv_peak_bytes.vram <= budgets[0].unwrap_or(u64::MAX), "{:?}", summary.kv_peak_bytes);
        // Another question on the same pages gets its own selection.
        let (text, _) = generate(&handle, "What is the current population for Bemopuna?");
        assert_eq!(text, "The current population for Bemopuna is 9556697.", "{budgets:?}");
    }
}

#[test]
fn exact_request_reads_everything_without_another_prefill() {
    let test = "exact_request_reads_everything";
    let Some(handle) = engine(test, Some(spec(PolicyKind::Window, 0.05)), [None; 2]) else { return };
    let (blind, _) = generate(&handle, QUESTION);
    assert_ne!(blind, ANSWER, "the window is too wide for this test");
    let (exact, summary) = generate_with(&handle, QUESTION, AttentionMode::Exact);
    assert_eq!(exact, ANSWER);
    assert_eq!((summary.attention, &summary.selection, summary.pages.skipped), (AttentionKind::Dense, &None, 0));
    let n_read = summary.prompt_tokens - summary.cached_tokens;
    assert!(n_read <= 64, "{n_read} of {} tokens were read again", summary.prompt_tokens);
    assert_eq!(generate(&handle, QUESTION).0, blind, "the policy is in use again");
}

#[test]
fn sampled_request_measures_mass_in_a_few_steps_and_answers_the_same() {
    let test = "sampled_request_measures_mass";
    let budgets = [Some(3 << 20), Some(4 << 20)];
    let Some(handle) = engine(test, Some(spec(PolicyKind::LeoAm, 0.1)), budgets) else { return };
    let (_, plain) = generate(&handle, QUESTION);
    assert_eq!((plain.selection.as_ref().unwrap().mass_steps, plain.selection.unwrap().mass), (0, None));
    let (text, summary) = generate_with(&handle, QUESTION, AttentionMode::Sampled);
    assert_eq!(text, ANSWER);
    let selection = summary.selection.unwrap();
    assert!((2..=4).contains(&selection.mass_steps), "{} of {} steps", selection.mass_steps, selection.steps);
    let mass = selection.mass.unwrap();
    assert_eq!(mass.len(), 6, "one per layer");
    // The first two layers attend to the newest tokens, which are in the tail.
    assert!(mass[..2].iter().all(|m| m.kept > 0.99), "{mass:?}");
    assert!(mass.iter().all(|m| m.kept > 0.1 && m.kept <= m.best + 1e-6 && m.best <= 1.0 + 1e-6), "{mass:?}");
}

#[test]
fn pages_are_compressed_over_a_slow_link_but_not_in_exact_requests() {
    let test = "pages_are_compressed_over_a_slow_link_but_not_in_exact_requests";
    // The document is saved, so that only pages for the question are transferred over the slow link.
    let dir = tempfile::tempdir().unwrap();
    let plain = LoadOptions { kv_dir: Some(dir.path().to_owned()), context: Some(8192), ..LoadOptions::default() };
    let Some((exact, _)) = engine_with(test, ModelSource::BuiltIn, plain.clone()) else { return };
    let (expected, _) = generate_saved(&exact, AttentionMode::AsLoaded);
    drop(exact);
    // So slow that the transfer of a page takes far longer than its compression, and than compute on a busy machine.
    let limits = LinkLimits { pcie: Some(2 << 20), nvme: None };
    let budgets = Tiers { vram: Some(Bytes(2 << 20)), ram: None, disk: None };
    let spec = Some(spec(PolicyKind::LeoAm, 0.1));
    let options = LoadOptions { budgets, limits, policy: spec, ..plain };
    let handle = engine_with(test, ModelSource::BuiltIn, options).unwrap().0;
    let (text, summary) = generate_saved(&handle, AttentionMode::AsLoaded);
    let selection = summary.selection.unwrap();
    assert_eq!(text, ANSWER);
    assert!(selection.compressed > 0.0, "{selection:?}"); // how many depends on the load of the machine
    assert!(summary.kv_peak_bytes.vram <= 2 << 20, "{:?}", summary.kv_peak_bytes);
    // An exact request reads the same pages uncompressed, bit-identical.
    let (text, summary) = generate_saved(&handle, AttentionMode::Exact);
    assert_eq!((text, summary.attention), (expected, AttentionKind::ExactOffload));
}

#[test]
fn first_layers_over_the_ram_budget_are_refused() {
    let test = "first_layers_over_the_ram_budget_are_refused";
    let Some(handle) = engine(test, Some(spec(PolicyKind::LeoAm, 0.1)), [Some(3 << 19), Some(1 << 20)]) else { return };
    let messages = vec![Message { role: Role::User, content: format!("{}\n\n{QUESTION}", half_document()) }];
    let (sampling, policy) = (Sampling::default(), AttentionMode::AsLoaded);
    handle.send(EngineCommand::Generate { request: 7, messages, documents: Vec::new(), sampling, max_tokens: 24, policy });
    let refused = finish(&handle).1.unwrap_err();
    assert!(refused.contains("Leoam keeps the first 2 layers off the disk") && refused.contains("--ram-budget"), "{refused}");
}

#[test]
fn invalid_policy_is_refused_with_the_number() {
    let test = "invalid_policy_is_refused_with_the_number";
    let Some(handle) = engine(test, None, [None; 2]) else { return };
    let options = LoadOptions { policy: Some(spec(PolicyKind::LeoAm, 1.5)), ..LoadOptions::default() };
    handle.send(EngineCommand::LoadModel { source: ModelSource::BuiltIn, options });
    loop {
        match handle.wait(std::time::Duration::from_secs(60)).unwrap() {
            EngineEvent::ModelFailed { sentence, .. } => break assert!(sentence.contains("1.5"), "{sentence}"),
            EngineEvent::ModelLoaded(_) => panic!("a rate of 1.5 was accepted"),
            _ => {}
        }
    }
}
