//! Benchmarks on synthetic KV: its pages are in the same tiers as those of a prefill.

use strata::base::{Bytes, Tiers};
use strata::engine::{
    BenchRow, BenchTests, EngineCommand, EngineEvent, EngineHandle, KvDtype, LoadOptions, ModelSource, PolicyKind, PolicySpec,
    RequestSummary,
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
    let policy = policy.map(|kind| PolicySpec { kind, ..PolicySpec::default() });
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
