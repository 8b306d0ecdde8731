//! Benchmarks on synthetic KV: its pages are in the same tiers as those of a prefill.

use strata::base::{Bytes, Tiers};
use strata::engine::{
    BenchRow, BenchTests, EngineCommand, EngineEvent, EngineHandle, KvDtype, LoadOptions, ModelSource, PolicyKind, PolicySpec,
    RequestSummary, WorkFamily,
};

use crate::{engine_with, finish};

fn bench(handle: &EngineHandle, depth: usize, fill: bool) -> (Vec<BenchRow>, Box<RequestSummary>) {
    let tests = BenchTests { n_prompt: Vec::new(), n_gen: vec![4], depths: vec![depth], fill, repetitions: 1, by_family: false };
    handle.send(EngineCommand::Bench { request: 3, tests });
    let (events, end) = finish(handle);
    let row = |event| if let EngineEvent::BenchResult { row, .. } = event { Some(*row) } else { None };
    (events.into_iter().filter_map(row).collect(), end.unwrap())
}

fn options(policy: Option<PolicyKind>, kv_dtype: KvDtype, [vram, ram]: [Option<u64>; 2]) -> LoadOptions {
    let budgets = Tiers { vram: vram.map(Bytes), ram: ram.map(Bytes), disk: None };
    let policy = policy.map(|kind| PolicySpec { kind, is_forced: true, ..PolicySpec::default() });
    LoadOptions { budgets, policy, kv_dtype, ..LoadOptions::default() }
}

fn tiny() -> ModelSource {
    ModelSource::Synthetic { name: "tiny".into(), weight_type: "Q8_0".into() }
}

#[test]
fn synthetic_context_occupies_the_tiers_like_a_prefilled_one() {
    let test = "synthetic_context_occupies_the_tiers_like_a_prefilled_one";
    for (kv_dtype, budgets) in [(KvDtype::F16, [Some(2 << 20), Some(2000 << 10)]), (KvDtype::Q8, [Some(2 << 20), Some(1 << 20)])]
    {
        for policy in [None, Some(PolicyKind::LeoAm), Some(PolicyKind::H2o)] {
            let Some((handle, _)) = engine_with(test, tiny(), options(policy, kv_dtype, budgets)) else { return };
            let [(filled, of_filled), (read, of_read)] = [true, false].map(|fill| bench(&handle, 2048, fill));
            assert_eq!((filled[0].test.as_str(), filled.len(), read.len()), ("tg4 @ d2048", 1, 1));
            assert_eq!(of_filled.context_used, of_read.context_used);
            assert_eq!((of_filled.kv_bytes.vram, of_filled.kv_bytes.disk), (of_read.kv_bytes.vram, of_read.kv_bytes.disk));
            assert!(of_filled.kv_bytes.disk > 0 && of_filled.moved_bytes.vram_to_ram > 0, "{of_filled:?}");
            assert_eq!(filled[0].selection.is_some(), policy.is_some());
            if policy != Some(PolicyKind::LeoAm) {
                assert!(filled[0].disk_bytes_per_token > 0, "{policy:?} {:?}", filled[0]);
            }
            if let Some(selection) = &filled[0].selection {
                assert!(selection.share_read < 0.6 && selection.steps == 4, "{selection:?}");
            }
        }
    }
}

#[test]
fn synthetic_context_is_reproducible_and_not_saved() {
    let test = "synthetic_context_is_reproducible_and_not_saved";
    let dir = tempfile::tempdir().unwrap();
    let options =
        LoadOptions { kv_dir: Some(dir.path().to_owned()), ..options(Some(PolicyKind::LeoAm), KvDtype::F16, [None; 2]) };
    let Some((handle, _)) = engine_with(test, tiny(), options) else { return };
    // Not a multiple of the page size: the rest is in the tail.
    let [first, second] = [(); 2].map(|()| bench(&handle, 1000, true).0.remove(0).selection.unwrap());
    assert_eq!((first.share_read, first.evaluations_per_step), (second.share_read, second.evaluations_per_step));
    let kv_dir = Some(dir.path().to_owned());
    handle.send(EngineCommand::Library(strata::engine::LibraryAction::List { kv_dir }));
    loop {
        if let EngineEvent::Library(saved) = handle.wait(std::time::Duration::from_secs(60)).unwrap() {
            break assert!(saved.is_empty(), "{saved:?}");
        }
    }
}

#[test]
fn bench_by_family_times_the_kernels_of_every_test() {
    let test = "bench_by_family_times_the_kernels_of_every_test";
    let Some((handle, _)) = engine_with(test, tiny(), options(None, KvDtype::F16, [None, None])) else { return };
    let tests = BenchTests { n_prompt: vec![40], n_gen: vec![3], depths: vec![64], fill: false, repetitions: 1, by_family: true };
    handle.send(EngineCommand::Bench { request: 3, tests });
    let (events, _) = finish(&handle);
    let rows = events.into_iter().filter_map(|e| if let EngineEvent::BenchResult { row, .. } = e { Some(*row) } else { None });
    let rows: Vec<BenchRow> = rows.collect();
    assert_eq!(rows.len(), 2);
    for (row, (is_prefill, n_tokens)) in rows.iter().zip([(true, 40), (false, 3)]) {
        let Some(profile) = &row.profile else { return eprintln!("skipped: {test}: no timestamps") };
        assert_eq!((profile.is_prefill, profile.n_tokens), (is_prefill, n_tokens));
        let family = |wanted| *profile.families.iter().find(|f| f.family == wanted).unwrap();
        let (linear, attention) = (family(WorkFamily::Linear), family(WorkFamily::Attention));
        let shares: f64 = profile.families.iter().map(|f| profile.share(f)).sum();
        assert!(linear.ns > 0 && attention.ns > 0 && shares > 0.0 && shares < 1.05, "{profile:?}");
        if !is_prefill {
            assert_eq!(linear.work.bytes, 3 * row.weight_bytes_per_token);
            assert_eq!(linear.work.flops, 3 * row.flops_per_token);
            // Tokens 65, 66 and 67 of the context.
            assert_eq!(attention.work.bytes % (65 + 66 + 67), 0);
        }
    }
}
