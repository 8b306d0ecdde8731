//! Tests of reuse at another position: divergence from the exact logits, and a group that is computed again.

use std::path::Path;

use super::*;
use crate::engine::api::{DocumentRef, LoadOptions, Message, ModelSource, Role};
use crate::engine::runner::open;
use crate::engine::worker::document_tokens;
use crate::gpu::testing::gpu;
use crate::kv::page_numbers;
use crate::kv::store::{PageId, StoreRoot};
use crate::telemetry::Hub;

const QUESTION: &str = "What is the special temperature for Katalave?";
const ANSWER: &str = "The special temperature for Katalave is Tavive Zumu.";
/// Tokens at the end whose logits are compared.
const N_COMPARED: usize = 24;

fn text(i: usize) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/quote/document.txt");
    std::fs::read_to_string(path).unwrap()[i * 2600..i * 2600 + 2500].to_owned()
}

fn runner(gpu: &Gpu, dir: &Path, reuse_anywhere: bool) -> ModelRunner {
    let source = ModelSource::BuiltIn;
    let options = LoadOptions { context: Some(4096), kv_dir: Some(dir.to_owned()), reuse_anywhere, ..LoadOptions::default() };
    ModelRunner::load(gpu, &Hub::new(64), None, open(&source).unwrap(), &source, &options, &mut |_, _| true).unwrap()
}

/// Tokens of a prompt and its answer, and the documents that it begins with.
fn prompt(runner: &ModelRunner, documents: &[usize]) -> (Vec<u32>, DocumentTokens) {
    let (mut all, mut references) = (String::new(), Vec::new());
    for i in documents {
        all += if all.is_empty() { "" } else { "\n\n" };
        all += &text(*i);
        let (content_hash, name) = ([*i as u8; 32], format!("{i}.txt"));
        references.push(DocumentRef { content_hash, name, bytes: 1, pages: 1, end_byte: all.len(), save: true });
    }
    let message = |role, content| Message { role, content };
    let messages = [message(Role::User, format!("{all}\n\n{QUESTION}")), message(Role::Assistant, ANSWER.to_owned())];
    let tokens = runner.encode(&messages, false).unwrap().tokens;
    let begins = document_tokens(runner, &messages, &references, &tokens).unwrap();
    (tokens, begins)
}

/// Prefills documents and question, then decodes the answer: logits of its tokens.
fn logits(gpu: &Gpu, runner: &mut ModelRunner, documents: &[usize]) -> Vec<Vec<f32>> {
    let (tokens, begins) = prompt(runner, documents);
    runner.open_documents(gpu, &begins).unwrap();
    runner.reserve(gpu, tokens.len()).unwrap();
    let n_prompt = tokens.len() - N_COMPARED;
    while runner.tokens.len() < n_prompt {
        if !runner.import_group(gpu, &tokens).unwrap() {
            let pos = runner.tokens.len();
            let n = runner.chunk_before_import(pos, n_prompt - pos);
            runner.run_chunk(gpu, &tokens[pos..pos + n]).unwrap();
        }
    }
    let row = |token: &u32| {
        runner.decode(gpu, *token, None).unwrap();
        runner.last_logits(gpu).unwrap()
    };
    tokens[n_prompt..].iter().map(row).collect()
}

fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let most = logits.iter().copied().fold(f32::MIN, f32::max);
    let sum: f64 = logits.iter().map(|x| f64::from(x - most).exp()).sum();
    logits.iter().map(|x| f64::from(x - most) - sum.ln()).collect()
}

/// Mean Kullback-Leibler divergence over positions.
fn divergence(exact: &[Vec<f32>], other: &[Vec<f32>]) -> f64 {
    let of_row = |(exact, other): (&Vec<f32>, &Vec<f32>)| {
        let (p, q) = (log_softmax(exact), log_softmax(other));
        p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum::<f64>()
    };
    exact.iter().zip(other).map(of_row).sum::<f64>() / exact.len() as f64
}

#[test]
fn logits_of_reused_pages_are_near_the_exact_ones() {
    let test = "logits_of_reused_pages_are_near_the_exact_ones";
    let Some(gpu) = gpu(test) else { return };
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut runner_of_saved = runner(&gpu, dir.path(), true);
    logits(&gpu, &mut runner_of_saved, &[2]);
    let ModelRunner { storage, exec, .. } = &mut runner_of_saved;
    assert!(storage.flush_documents(&gpu, &mut exec.kv, 1.0).unwrap());
    let reused = logits(&gpu, &mut runner_of_saved, &[0, 2]);
    let n_reused = runner_of_saved.storage.n_approximate_tokens(runner_of_saved.tokens.len());
    assert!(n_reused >= 8 * KV_PAGE_TOKENS, "{:?}", runner_of_saved.storage.take_notices());
    let exact = logits(&gpu, &mut runner(&gpu, other.path(), false), &[0, 2]);
    let kld = divergence(&exact, &reused);
    // Measured: 0.0002.
    assert!(kld.is_finite() && kld < 0.01, "KLD {kld} with {n_reused} tokens reused");

    // A group that is computed again is not imported any more, and what follows stays.
    let group = (0..).find(|group| runner_of_saved.storage.n_approximate_tokens((group + 1) * KV_PAGE_TOKENS) > 0).unwrap();
    let n_tokens = runner_of_saved.tokens.len();
    runner_of_saved.recompute_group(&gpu, group as u32).unwrap();
    let n_left = runner_of_saved.storage.n_approximate_tokens(n_tokens);
    assert_eq!(n_left, n_reused - KV_PAGE_TOKENS);
}

/// Greatest difference of the keys of two pages, and of their values, each as a fraction of the greatest number.
fn differences(spec: &KvSpec, [page, exact]: [&[u8]; 2]) -> [f32; 2] {
    let [page, exact] = [page, exact].map(|bytes| page_numbers(spec, bytes).unwrap());
    let rows = |numbers: &[f32], half: usize| -> Vec<f32> {
        let halves = numbers.chunks_exact(16 * spec.head_dim).skip(half).step_by(2);
        halves.flatten().copied().collect()
    };
    [0, 1].map(|half| {
        let (page, exact) = (rows(&page, half), rows(&exact, half));
        let greatest = exact.iter().fold(0f32, |most, x| most.max(x.abs()));
        page.iter().zip(&exact).fold(0f32, |most, (x, y)| most.max((x - y).abs())) / greatest
    })
}

#[test]
fn first_layer_of_reused_pages_equals_that_of_exact_ones() {
    let test = "first_layer_of_reused_pages_equals_that_of_exact_ones";
    let Some(gpu) = gpu(test) else { return };
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let saved = |dir: &Path, documents: &[usize]| {
        let mut runner = runner(&gpu, dir, true);
        logits(&gpu, &mut runner, documents);
        assert!(runner.storage.flush_documents(&gpu, &mut runner.exec.kv, 1.0).unwrap());
        runner.reset_context(&gpu);
        runner
    };
    saved(other.path(), &[0, 2]);
    let mut runner = saved(dir.path(), &[2]);
    let (_, begins) = prompt(&runner, &[0, 2]);
    let parts = begins.parts(&runner.storage.spec);
    let mut reused = runner.storage.find_reusable(&begins, &parts, parts.len());
    let folder = StoreRoot::at(other.path()).folder(&parts[1].id).unwrap();
    let (mut exact, _) = PageStore::open_existing(folder).unwrap();
    let (spec, first) = (*runner.exec.kv.spec(), parts[1].groups().start);
    let mut n_compared = 0;
    for group in parts[1].groups() {
        let Some(pages) = reused.pages_at(&spec, group as usize * KV_PAGE_TOKENS) else { continue };
        // Keys and values of the first layer depend on token and position alone. Without the rotation, keys differ by 1.6.
        let page = exact.get(PageId::kv(0, group - first)).unwrap().unwrap();
        let [keys, values] = differences(&spec, [&pages.unwrap()[0], &page]);
        assert!(keys < 2e-3 && values < 2e-3, "group {group}: {keys} {values}");
        n_compared += 1;
    }
    assert!(n_compared >= 8, "{n_compared} groups");
}
