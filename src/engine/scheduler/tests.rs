//! Logits of rows in one pass against those of each row alone.

use std::sync::Arc;

use super::*;
use crate::base::Rng;
use crate::engine::api::{KvDtype, LoadOptions, ModelSource, Sampling};
use crate::engine::runner::open;
use crate::engine::runner::pass::{NextToken, Row, SequenceKv};
use crate::engine::runner::sampling::{SampleResult, SampledRow};
use crate::engine::sampler::Sampler;
use crate::gpu::testing::gpu;
use crate::telemetry::Hub;

const N_SHARED: usize = 320;

/// KL divergence, natural logarithm.
fn kld(a: &[f32], b: &[f32]) -> f64 {
    let log_softmax = |row: &[f32]| -> Vec<f64> {
        let top = row.iter().copied().fold(f32::MIN, f32::max);
        let sum: f64 = row.iter().map(|x| f64::from(x - top).exp()).sum();
        row.iter().map(|x| f64::from(x - top) - sum.ln()).collect()
    };
    log_softmax(a).iter().zip(log_softmax(b)).map(|(p, q)| p.exp() * (p - q)).sum()
}

#[test]
fn logits_of_rows_match_each_row_alone() {
    let Some(gpu) = gpu("logits_of_rows_match_each_row_alone") else { return };
    let dir = tempfile::tempdir().unwrap();
    for (kv_dtype, limit) in [(KvDtype::F32, 1e-9), (KvDtype::F16, 1e-6)] {
        let options =
            LoadOptions { kv_dtype, context: Some(1024), kv_dir: Some(dir.path().to_owned()), ..LoadOptions::default() };
        let (hub, source): (Arc<Hub>, _) = (Hub::new(64), ModelSource::BuiltIn);
        let file = open(&source).unwrap();
        let mut runner = ModelRunner::load(&gpu, &hub, None, file, &source, &options, &mut |_, _| true).unwrap();
        let mut rng = Rng::new(11);
        let mut random = |n: usize| -> Vec<u32> { (0..n).map(|_| rng.uniform(2000)).collect() };
        let shared = random(N_SHARED);
        // Tails of less than a page, of a whole page, and of several chunks and splits.
        let rests: Vec<Vec<u32>> = [5, 65, 300].map(&mut random).to_vec();
        runner.reserve(&gpu, 1024).unwrap();
        let read = |runner: &mut ModelRunner, tokens: &[u32]| {
            for chunk in tokens.chunks(64) {
                runner.run_chunk(&gpu, chunk).unwrap();
            }
        };
        read(&mut runner, &shared);
        let mut alone = Vec::new();
        for rest in &rests {
            runner.truncate(N_SHARED);
            read(&mut runner, &rest[..rest.len() - 1]);
            runner.decode(&gpu, rest[rest.len() - 1], None).unwrap();
            alone.push(runner.last_logits(&gpu).unwrap());
        }
        runner.truncate(N_SHARED);
        runner.exec.reserve_rows(&gpu, 3, N_SHARED, 300).unwrap();
        runner.reserve_logits(&gpu, 3).unwrap();
        let mut tails = Vec::new();
        for rest in &rests {
            let mut tail = SequenceTail::new(&gpu, &runner.exec, rest.len()).unwrap();
            for chunk in rest[..rest.len() - 1].chunks(100) {
                runner.run_tokens(&gpu, chunk, N_SHARED, SequenceKv::Own(&mut tail)).unwrap();
            }
            tails.push(tail);
        }
        let row = |(tail, rest): (_, &Vec<u32>)| {
            let token = NextToken::Known(*rest.last().unwrap());
            Row { token, kv: SequenceKv::Own(tail), policy: None }
        };
        let mut rows: Vec<Row> = tails.iter_mut().zip(&rests).map(row).collect();
        runner.decode_rows(&gpu, N_SHARED, &mut rows).unwrap();
        // A repetition penalty needs all logits.
        let sampler = Sampler::new(Sampling { repetition_penalty: 2.0, ..Sampling::default() });
        let result = runner.sample(&gpu, 0, &[&sampler; 3]).unwrap();
        // One row of a batch, as its first token is sampled: buffers for three rows hold its logits as well.
        let mut tail = SequenceTail::new(&gpu, &runner.exec, rests[1].len()).unwrap();
        runner.run_tokens(&gpu, &rests[1], N_SHARED, SequenceKv::Own(&mut tail)).unwrap();
        let first = runner.sample(&gpu, rests[1].len() - 1, &[&sampler]).unwrap();
        let [SampledRow { result: SampleResult::All(first), .. }] = first.as_slice() else { panic!("not all logits") };
        assert!(kld(&alone[1], first) <= limit, "{kv_dtype:?}: {:.1e}", kld(&alone[1], first));
        for (alone, result) in alone.iter().zip(result) {
            let SampleResult::All(logits) = result.result else { panic!("not all logits") };
            let kld = kld(alone, &logits);
            assert!(kld <= limit, "{kv_dtype:?}: {kld:.1e}");
        }
    }
}
