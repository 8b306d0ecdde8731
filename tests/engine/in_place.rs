//! Selection below VRAM by the GPU, which reads pages where they are in RAM.

use std::sync::{Arc, LazyLock};

use strata::base::{Bytes, Tiers};
use strata::engine::{
    AttentionKind, AttentionMode, Detail, EngineCommand, EngineEvent, EngineHandle, LoadOptions, Message, ModelSource,
    PolicyKind, PolicySpec, RequestSummary, Role, Sampling, SelectionBudget,
};
use strata::gpu::{DevicePool, FeatureOverrides};
use strata::telemetry::{Cause, EventKind, History, Link, Track};

use crate::common::nmse;
use crate::teacher_forcing::{files, rows, tokens_of};
use crate::{engine_on, finish, half_document, saved_as};

/// Devices that read RAM in place, with the kernels for software devices.
static IN_PLACE: LazyLock<Arc<DevicePool>> = LazyLock::new(|| {
    Arc::new(DevicePool::with_overrides(FeatureOverrides { host_import: Some(true), ..FeatureOverrides::default() }))
});

/// Questions about the document, with their answers.
const QUESTIONS: [(&str, &str); 2] = [
    ("What is the current temperature for Reribe?", "The current temperature for Reribe is Mare-3409."),
    ("What is the current population for Bemopuna?", "The current population for Bemopuna is 9556697."),
];

/// Bytes of a page of the built-in model.
const PAGE_BYTES: u64 = 64 * 3072 / 6;

/// The same with the kernels for real GPUs.
static HARDWARE_IN_PLACE: LazyLock<Arc<DevicePool>> = LazyLock::new(|| {
    let overrides = FeatureOverrides { host_import: Some(true), hardware_kernels: true, ..FeatureOverrides::default() };
    Arc::new(DevicePool::with_overrides(overrides))
});

fn options(rate: f32, vram: Option<u64>) -> LoadOptions {
    with_ram(rate, vram, 64 << 20)
}

fn with_ram(rate: f32, vram: Option<u64>, ram: u64) -> LoadOptions {
    let amount = SelectionBudget::Rate(rate);
    let policy = Some(PolicySpec { kind: PolicyKind::LeoAm, amount, is_forced: true, ..PolicySpec::default() });
    let budgets = Tiers { vram: vram.map(Bytes), ram: Some(Bytes(ram)), disk: None };
    LoadOptions { budgets, policy, context: Some(8192), ..LoadOptions::default() }
}

fn start(test: &str, options: LoadOptions) -> Option<EngineHandle> {
    Some(engine_on(test, ModelSource::BuiltIn, options, None, IN_PLACE.clone())?.0)
}

fn generate(handle: &EngineHandle, question: &str, max_tokens: usize) -> (String, Box<RequestSummary>) {
    generate_on(handle, &format!("{}\n\n{question}", half_document()), max_tokens)
}

/// Same, up to 24 tokens, with the telemetry of the answer.
fn generate_and_watch(handle: &EngineHandle, question: &str, history: &mut History) -> (String, Box<RequestSummary>) {
    let (text, summary, events) = generate_events(handle, &format!("{}\n\n{question}", half_document()), 24);
    for event in events {
        if let EngineEvent::Telemetry(snapshot) = event {
            history.add(&snapshot);
        }
    }
    (text, summary)
}

fn generate_on(handle: &EngineHandle, content: &str, max_tokens: usize) -> (String, Box<RequestSummary>) {
    let (text, summary, _) = generate_events(handle, content, max_tokens);
    (text, summary)
}

fn generate_events(handle: &EngineHandle, content: &str, max_tokens: usize) -> (String, Box<RequestSummary>, Vec<EngineEvent>) {
    let messages = vec![Message { role: Role::User, content: content.to_owned() }];
    let (documents, policy) = (Vec::new(), AttentionMode::AsLoaded);
    let sampling = Sampling::default();
    handle.send(EngineCommand::Generate { request: 7, messages, documents, sampling, max_tokens, policy });
    let (events, end) = finish(handle);
    let text = |event: &EngineEvent| if let EngineEvent::Token { text, .. } = event { Some(text.clone()) } else { None };
    (events.iter().filter_map(text).collect(), end.unwrap(), events)
}

/// Rows of the last 12 tokens of a part of the document, and their cost.
fn score(test: &str, options: LoadOptions) -> Option<(Vec<f32>, Box<RequestSummary>)> {
    let tokens = tokens_of(&half_document()[..6000]);
    let n_prefix = tokens.len() - 12;
    let (rows, _, summary) = rows(&start(test, options)?, EngineCommand::Score { request: 1, tokens, n_prefix });
    Some((rows, summary))
}

#[test]
fn answers_come_from_pages_that_stay_in_ram() {
    let test = "answers_come_from_pages_that_stay_in_ram";
    let Some(handle) = start(test, options(0.1, Some(3 << 20))) else { return };
    handle.observe(Detail::Events);
    let mut history = History::default();
    for (question, answer) in QUESTIONS {
        let (text, summary) = generate_and_watch(&handle, question, &mut history);
        assert_eq!((text.as_str(), summary.attention), (answer, AttentionKind::Selective));
        let selection = summary.selection.unwrap();
        assert!(selection.share_read < 0.45 && selection.evaluations_per_step > 0.0, "{selection:?}");
        // More was read than the pages that prefill transferred.
        assert!(selection.reuse < 0.95, "{selection:?}");
        let (moved, prefilled) = (summary.moved_bytes.ram_to_vram, summary.pages.fetched * PAGE_BYTES);
        assert!(moved > prefilled, "{moved} and {prefilled} bytes");
        assert!(summary.kv_peak_bytes.vram <= 3 << 20, "{:?}", summary.kv_peak_bytes);
    }
    let moves = history.of(Track::Link(Link::RamToVram)).flat_map(|series| series.iter().copied());
    let causes: Vec<Cause> =
        moves.filter_map(|e| if let EventKind::PageMove { cause, .. } = e.kind { Some(cause) } else { None }).collect();
    assert!(causes.contains(&Cause::Prefetch), "often-selected pages move to frames");
    assert!(causes.contains(&Cause::Attention), "others are read in place");
}

#[test]
fn steps_in_place_are_recorded_before_the_last_token_is_read_back() {
    let test = "steps_in_place_are_recorded_before_the_last_token_is_read_back";
    let text = format!("{}\n\nWhen did all of this happen?", &half_document()[..2000]);
    for policy in [options(0.1, None).policy, None] {
        let options = LoadOptions { policy, context: Some(2048), ..options(0.1, Some(1 << 20)) };
        let answer = |devices: &Arc<DevicePool>| {
            let (handle, _) = engine_on(test, ModelSource::BuiltIn, options.clone(), None, devices.clone())?;
            Some(generate_on(&handle, &text, 16))
        };
        let Some((want, _)) = answer(&IN_PLACE) else { return };
        let (got, summary) = answer(&HARDWARE_IN_PLACE).unwrap();
        assert_eq!(got, want, "{policy:?}");
        let (moved, fetched) = (summary.moved_bytes.ram_to_vram, summary.pages.fetched);
        assert!(moved > 0 && (policy.is_none() || moved > fetched * PAGE_BYTES), "{moved} bytes, {fetched} pages");
        let least = summary.generated_tokens.saturating_sub(6);
        assert!(summary.lookahead_steps >= least, "{} of {} steps", summary.lookahead_steps, summary.generated_tokens);
    }
}

#[test]
fn exact_answers_read_in_place_equal_those_that_transfer_pages() {
    let test = "exact_answers_read_in_place_equal_those_that_transfer_pages";
    let exact = |synchronous| LoadOptions { policy: None, synchronous, ..options(1.0, Some(1 << 20)) };
    let tokens = tokens_of(&half_document()[..6000]);
    // Over the end of a page.
    let n_prefix = tokens.len() / 64 * 64 - 6;
    let score = |synchronous| {
        let handle = start(test, exact(synchronous))?;
        let tokens = tokens[..n_prefix + 12].to_vec();
        let (rows, _, summary) = rows(&handle, EngineCommand::Score { request: 1, tokens, n_prefix });
        Some((rows, summary))
    };
    let Some((got, in_place)) = score(false) else { return };
    // Without overlap, pages are transferred.
    let (want, transferred) = score(true).unwrap();
    let (error, _) = nmse(&got, &want);
    assert!(error <= 1e-6, "{error:.2e}");
    assert_eq!(in_place.attention, AttentionKind::ExactOffload);
    let [own, other] = [&in_place, &transferred].map(|summary| (summary.pages.fetched, summary.moved_bytes.ram_to_vram));
    assert_eq!(own, other, "the same pages are read");
}

#[test]
fn exact_answer_in_place_needs_fewer_commands() {
    let test = "exact_answer_in_place_needs_fewer_commands";
    let exact = |devices: &Arc<DevicePool>| {
        let options = LoadOptions { policy: None, ..options(1.0, Some(3 << 20)) };
        let (handle, _) = engine_on(test, ModelSource::BuiltIn, options, None, devices.clone())?;
        Some(generate(&handle, "What is the current temperature for Reribe?", 24))
    };
    let Some((text, in_place)) = exact(&IN_PLACE) else { return };
    let (want, transferred) = exact(&crate::DEVICES).unwrap();
    assert_eq!(text, want);
    let [own, other] = [&in_place, &transferred].map(|summary| summary.dispatches_per_token);
    assert!(own < other, "{own} and {other} dispatches per token");
    assert!(in_place.pages.fetched > 0 && in_place.moved_bytes.ram_to_vram > 0, "{:?}", in_place.pages);
}

#[test]
fn resumed_document_is_read_in_place_once_it_is_in_ram() {
    let test = "resumed_document_is_read_in_place_once_it_is_in_ram";
    let dir = tempfile::tempdir().unwrap();
    let text = &half_document()[5000..];
    let answer = |vram| {
        let handle = start(test, LoadOptions { kv_dir: Some(dir.path().to_owned()), ..options(0.1, vram) })?;
        let question = "What is the current temperature for Reribe?";
        let content = format!("{text}\n\n{question}");
        let messages = vec![Message { role: Role::User, content }];
        let documents = vec![saved_as("document.txt", text, 1)];
        let (sampling, policy) = (Sampling::default(), AttentionMode::AsLoaded);
        handle.send(EngineCommand::Generate { request: 7, messages, documents, sampling, max_tokens: 24, policy });
        let (events, end) = finish(&handle);
        let text = |event| if let EngineEvent::Token { text, .. } = event { Some(text) } else { None };
        Some((events.into_iter().filter_map(text).collect::<String>(), end.unwrap()))
    };
    let Some((want, _)) = answer(None) else { return };
    let (got, resumed) = answer(Some(1 << 20)).unwrap();
    assert_eq!(got, want);
    assert!(resumed.cached_tokens > 1000, "{resumed:?}");
    let (moved, prefilled) = (resumed.moved_bytes.ram_to_vram, resumed.pages.fetched * PAGE_BYTES);
    assert!(moved > prefilled, "{moved} and {prefilled} bytes");
    assert!(resumed.kv_peak_bytes.ram <= 64 << 20, "{:?}", resumed.kv_peak_bytes);
}

#[test]
fn everything_read_in_place_equals_everything_read_in_vram() {
    let test = "everything_read_in_place_equals_everything_read_in_vram";
    let Some((want, in_vram)) = score(test, options(1.0, None)) else { return };
    let (got, below) = score(test, options(1.0, Some(1 << 20))).unwrap();
    let (error, _) = nmse(&got, &want);
    assert!(error <= 1e-6, "{error:.2e}");
    assert_eq!(in_vram.moved_bytes.ram_to_vram, 0);
    let (moved, prefilled) = (below.moved_bytes.ram_to_vram, below.pages.fetched * PAGE_BYTES);
    assert!(moved > prefilled, "{moved} and {prefilled} bytes");
}

#[test]
fn everything_paged_in_from_disk_equals_everything_read_in_vram() {
    let test = "everything_paged_in_from_disk_equals_everything_read_in_vram";
    let Some((want, _)) = score(test, options(1.0, None)) else { return };
    let (got, paged) = score(test, with_ram(1.0, Some(1 << 20), 3 << 20)).unwrap();
    let (error, _) = nmse(&got, &want);
    assert!(error <= 1e-6, "{error:.2e}");
    assert!(paged.moved_bytes.disk_to_ram > 12 * PAGE_BYTES && paged.kv_peak_bytes.ram <= 3 << 20, "{paged:?}");
    let selection = paged.selection.unwrap();
    assert_eq!(selection.evaluation_ms_per_step, 0.0, "the CPU selects nothing");
}

#[test]
fn answers_come_from_pages_on_disk_that_are_paged_in() {
    let test = "answers_come_from_pages_on_disk_that_are_paged_in";
    let Some(handle) = start(test, with_ram(0.1, Some(1 << 20), 5 << 20)) else { return };
    for (question, answer) in QUESTIONS {
        let (text, summary) = generate(&handle, question, 24);
        assert_eq!((text.as_str(), summary.attention), (answer, AttentionKind::Selective));
        let selection = summary.selection.unwrap();
        assert!(selection.evaluation_ms_per_step == 0.0 && selection.share_read < 0.45, "{selection:?}");
        assert!(summary.moved_bytes.disk_to_ram > 0 && summary.kv_peak_bytes.ram <= 5 << 20, "{:?}", summary.moved_bytes);
    }
}

#[test]
fn corrupt_pages_are_recomputed_when_they_are_paged_in() {
    let test = "corrupt_pages_are_recomputed_when_they_are_paged_in";
    let dir = tempfile::tempdir().unwrap();
    let options = LoadOptions { kv_dir: Some(dir.path().to_owned()), ..with_ram(1.0, Some(1 << 20), 3 << 20) };
    let Some(handle) = start(test, options) else { return };
    let text = half_document()[..6000].to_owned();
    let tokens = tokens_of(&text);
    let documents = vec![saved_as("half.txt", &text, 1)];
    handle.send(EngineCommand::Prefill { request: 1, text, documents });
    finish(&handle).1.unwrap();
    let score = || EngineCommand::Score { request: 2, tokens: tokens.clone(), n_prefix: tokens.len() - 8 };
    let (want, _, intact) = rows(&handle, score());
    assert!(intact.pages.recomputed == 0 && intact.moved_bytes.disk_to_ram > 0, "{intact:?}");
    let arena = files(dir.path()).into_iter().find(|path| path.ends_with("kv-0000.arena")).unwrap();
    let mut bytes = std::fs::read(&arena).unwrap();
    bytes.chunks_mut(PAGE_BYTES as usize).step_by(20).for_each(|page| page[1000] ^= 0x10);
    std::fs::write(&arena, bytes).unwrap();
    let (got, _, damaged) = rows(&handle, score());
    let (error, _) = nmse(&got, &want);
    assert!(error <= 1e-6, "{error:.2e}");
    assert!(damaged.pages.recomputed > 0, "{damaged:?}");
    assert_eq!(damaged.selection.unwrap().evaluation_ms_per_step, 0.0, "the CPU selects nothing");
}
