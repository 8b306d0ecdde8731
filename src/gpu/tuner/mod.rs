//! Tuner: selects the kernel variants of a device by measuring them once, and stores the result.
//!
//! ```text
//! open ─► DeviceKey ─┬─ stored ────────────────────────────────► Gpu::set_tuning
//!                    └─ not: search (2 s) ─► TuningReport ─► store ─┘     kernels ask Gpu::tuning
//! ```
//! 1. Only devices with the kernels for real GPUs are tuned. Software devices have fixed kernels.
//! 2. A model still compares its kernels with exact ones on load, whatever was selected here.
//! 3. No failure of the tuner or its file is a failure to open the device.

mod cache;
mod measure;
mod search;

use std::path::{Path, PathBuf};
use std::time::Instant;

pub use cache::DeviceKey;
pub use search::{MAX_TIME, Measured, Outcome, TuningReport, search};

use super::device::Gpu;
use super::error::GpuError;
use super::kernels::attention_decode::DecodeKernel;
use super::kernels::attention_prefill::PrefillVariant;
use super::kernels::linear::{FusedMatvec, LinearVariant, MatrixUnits, Precision};
use super::tuning::{MatmulKernel, PrefillKernel, Tuning, TuningPart};

/// Times that a device is opened again after a candidate has lost it.
const MAX_REOPENED: usize = 3;
/// Head size of the attention that is measured.
const HEAD_DIM: usize = 128;

/// Tuning of an open device.
#[derive(Debug, Clone, PartialEq)]
pub enum DeviceTuning {
    /// found now, or stored before
    Tuned(TuningReport),
    /// the default, and why
    Default(String),
}

impl DeviceTuning {
    /// Each part with what was selected, the times and why.
    pub fn explanation(&self) -> Vec<(&'static str, String)> {
        let report = match self {
            DeviceTuning::Default(reason) => return vec![("default", reason.clone())],
            DeviceTuning::Tuned(report) => report,
        };
        let of_part = |part: TuningPart| {
            let unmeasured = if report.out_of_time { "the default, as the time was up" } else { "no other variant runs here" };
            let unmeasured = || format!("{}: {unmeasured}", part.value(&report.tuning));
            (part.name(), report.explanation(part).unwrap_or_else(unmeasured))
        };
        let lost = report.lost.iter().map(|(part, value)| (part.name(), format!("{value} lost the device and is never used")));
        let costs =
            report.costs.map_or_else(|| "not measured: attention reads everything in VRAM".to_owned(), |c| c.explanation());
        TuningPart::ALL.into_iter().map(of_part).chain([("selection of tokens", costs)]).chain(lost).collect()
    }
}

/// Folder of the tuning files in the cache folder of the user.
pub fn default_folder() -> Option<PathBuf> {
    directories::ProjectDirs::from("", "", "strata").map(|dirs| dirs.cache_dir().join("tuning"))
}

/// Opens a device by `open` and tunes it if it is a real GPU. A device that a candidate loses is opened again.
///
/// # Errors
/// Those of `open`.
pub fn open_tuned(
    mut open: impl FnMut() -> Result<Gpu, GpuError>,
    folder: Option<&Path>,
) -> Result<(Gpu, DeviceTuning), GpuError> {
    let mut lost = Vec::new();
    for _ in 0..MAX_REOPENED {
        let gpu = open()?;
        if gpu.is_software() {
            return Ok((gpu, DeviceTuning::Default("a software device has fixed kernels".into())));
        }
        match tune(&gpu, folder, &mut lost) {
            Ok(tuning) => return Ok((gpu, tuning)),
            Err(GpuError::Lost(_)) => {}
            Err(error) => return Ok((gpu, DeviceTuning::Default(format!("kernels could not be measured ({error})")))),
        }
    }
    let gpu = open()?;
    // The next start must not lose it again.
    store(&gpu, folder, &TuningReport { lost, ..TuningReport::default() });
    Ok((gpu, DeviceTuning::Default("measuring kernels lost the device several times".into())))
}

/// Stores a report, if there is a folder that can be written.
fn store(gpu: &Gpu, folder: Option<&Path>, report: &TuningReport) {
    if let Some(folder) = folder
        && let Err(error) = DeviceKey::of(gpu).store(folder, report)
    {
        log::warn!("the tuning of {} could not be stored in {}: {error}", gpu.info().name, folder.display());
    }
}

/// Sets the tuning of `gpu`: the stored one, or one that is measured now and stored. `lost` has the candidates that lost the device.
fn tune(gpu: &Gpu, folder: Option<&Path>, lost: &mut Vec<(TuningPart, String)>) -> Result<DeviceTuning, GpuError> {
    let stored = || DeviceKey::of(gpu).load(folder?);
    if let Some(report) = lost.is_empty().then(stored).flatten() {
        gpu.set_tuning(report.tuning);
        gpu.set_selection_costs(report.costs);
        return Ok(DeviceTuning::Tuned(report));
    }
    let began = Instant::now();
    let outcome = search(&parts(gpu), lost, || began.elapsed(), |part, candidate| measure::measure(gpu, part, candidate));
    gpu.set_tuning(Tuning::default());
    let mut report = match outcome {
        Outcome::Tuned(report) => report,
        Outcome::Lost(report) => {
            *lost = report.lost;
            return Err(GpuError::Lost("a measurement".into()));
        }
        Outcome::Skipped(error) => return Err(error),
    };
    gpu.set_tuning(report.tuning);
    if !report.lost.contains(&selection_part()) {
        report.costs = match measure::selection_costs(gpu) {
            Ok(costs) => costs,
            Err(GpuError::Lost(reason)) => {
                report.lost.push(selection_part());
                *lost = report.lost;
                return Err(GpuError::Lost(reason));
            }
            // Without costs, attention reads everything that is in VRAM.
            Err(error) => {
                log::warn!("the costs of selecting tokens could not be measured: {error}");
                None
            }
        };
    }
    gpu.set_selection_costs(report.costs);
    store(gpu, folder, &report);
    Ok(DeviceTuning::Tuned(report))
}

/// Mark of a device that was lost while the costs of selections were measured.
fn selection_part() -> (TuningPart, String) {
    (TuningPart::DecodeAttention, "selection of tokens".to_owned())
}

/// Parts with more than one candidate on `gpu`, and those candidates.
fn parts(gpu: &Gpu) -> Vec<(TuningPart, Vec<Tuning>)> {
    let largest_tile = MatrixUnits::of(gpu).map(|units| units.largest_tile).ok();
    let has_flash = PrefillVariant::supported(gpu, HEAD_DIM).contains(&PrefillVariant::FlashMatrices);
    let runs = |tuning: &Tuning, part: TuningPart| match part {
        TuningPart::Matmul => match tuning.matmul {
            MatmulKernel::Matrices128 => largest_tile.is_some_and(|tile| tile >= 128),
            MatmulKernel::Matrices64 => largest_tile.is_some(),
            MatmulKernel::F32Tiles128 | MatmulKernel::F32 => true,
        },
        TuningPart::PrefillAttention => tuning.prefill_attention == PrefillKernel::F32 || has_flash,
        TuningPart::DecodeAttention => DecodeKernel::for_gpu(gpu, Precision::Fast) == DecodeKernel::Subgroup,
        TuningPart::Matvec => LinearVariant::for_gpu(gpu, Precision::Fast).converts_activations(),
        TuningPart::FusedMatvec => {
            let converts = LinearVariant::for_gpu(gpu, Precision::Fast).converts_activations();
            converts && tuning.fused_lanes <= FusedMatvec::most_lanes(gpu)
        }
    };
    let of_part = |part: TuningPart| {
        let candidates: Vec<Tuning> =
            part.candidates(Tuning::default()).into_iter().filter(|tuning| runs(tuning, part)).collect();
        (candidates.len() > 1).then_some((part, candidates))
    };
    TuningPart::ALL.into_iter().filter_map(of_part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::FeatureOverrides;
    use crate::gpu::kernels::KvFormat;
    use crate::gpu::kernels::attention_decode::AttentionDecode;
    use crate::gpu::testing::gpu_with;

    #[test]
    fn device_is_tuned_once_and_then_from_its_file() {
        let overrides = FeatureOverrides { hardware_kernels: true, ..FeatureOverrides::default() };
        let Some(gpu) = gpu_with("device_is_tuned_once_and_then_from_its_file", overrides) else { return };
        let folder = tempfile::tempdir().unwrap();
        let run = || match tune(&gpu, Some(folder.path()), &mut Vec::new()).unwrap() {
            DeviceTuning::Tuned(report) => report,
            other => panic!("{other:?}"),
        };
        let first = run();
        // A slow machine may have no time for more than the first candidate.
        assert!(!first.measured.is_empty() && first.measured.iter().any(|m| m.ns.is_some()), "{first:?}");
        assert_eq!(gpu.tuning(), first.tuning);
        gpu.set_selection_costs(None);
        gpu.set_tuning(Tuning::default());
        assert_eq!((run(), gpu.tuning()), (first.clone(), first.tuning), "from the file, time by time");
        assert_eq!(gpu.selection_costs(), first.costs);
        // On a loaded machine, more may take less time.
        let costs = (0..20).find_map(|_| measure::selection_costs(&gpu).unwrap());
        assert!(costs.is_some_and(|costs| costs.read.ns_per_mib > 0 && costs.select.ns_per_mib > 0), "{costs:?}");
        std::fs::write(std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path(), "{").unwrap();
        assert!(!run().measured.is_empty());
    }

    #[test]
    fn every_candidate_of_this_device_runs() {
        let overrides = FeatureOverrides { hardware_kernels: true, ..FeatureOverrides::default() };
        let Some(gpu) = gpu_with("every_candidate_of_this_device_runs", overrides) else { return };
        let all = parts(&gpu);
        assert!(all.iter().any(|(part, _)| *part == TuningPart::Matvec) == gpu.has_subgroups());
        for (part, candidates) in all {
            // Its kernels take a software device minutes to compile; the kernel tests have one of them.
            let heavy = matches!(part, TuningPart::Matmul | TuningPart::PrefillAttention);
            for candidate in candidates.into_iter().filter(|_| !heavy) {
                let secs = measure::measure(&gpu, part, &candidate).unwrap();
                assert!(secs > 0.0 && secs.is_finite() && gpu.tuning() == candidate, "{}", part.value(&candidate));
            }
        }
    }

    #[test]
    fn kernels_follow_the_tuning_of_their_device() {
        let overrides = FeatureOverrides { hardware_kernels: true, ..FeatureOverrides::default() };
        let Some(gpu) = gpu_with("kernels_follow_the_tuning_of_their_device", overrides) else { return };
        let has_matrices = MatrixUnits::of(&gpu).is_ok();
        let with = |tuning| {
            gpu.set_tuning(tuning);
            let linear = LinearVariant::candidates(&gpu, Precision::Fast);
            (linear, PrefillVariant::for_gpu(&gpu, 64, KvFormat::F16, Precision::Fast))
        };
        let base = Tuning::default();
        let (linear, prefill) = with(base);
        let is_cooperative = |linear: &[LinearVariant]| matches!(linear[0], LinearVariant::GpuCooperative(_));
        assert_eq!((is_cooperative(&linear), prefill == PrefillVariant::FlashMatrices), (has_matrices, has_matrices));
        let (without, _) = with(Tuning { matmul: MatmulKernel::F32, ..base });
        assert!(!is_cooperative(&without) && without.last() == linear.last(), "{without:?}");
        assert_eq!(with(Tuning { prefill_attention: PrefillKernel::F32, ..base }).1, PrefillVariant::Flash);
        let (small, _) = with(Tuning { matmul: MatmulKernel::Matrices64, ..base });
        assert_eq!(is_cooperative(&small), has_matrices);
        assert!(small.iter().all(|variant| !matches!(variant, LinearVariant::GpuCooperative(units) if units.largest_tile > 64)));
        assert!(small.iter().all(|variant| variant.runs_on(&gpu)));
        let splits = |decode_splits| {
            gpu.set_tuning(Tuning { decode_splits, ..base });
            let op = AttentionDecode::new(&gpu, 4, 2, 64, KvFormat::F16, Precision::Fast).unwrap();
            (op.split_keys(65_536), 65_536usize.div_ceil(op.split_keys(65_536)) <= op.max_splits(65_536))
        };
        assert_eq!([32, 64, 128].map(splits), [(1024, true), (1024, true), (512, true)]);
    }

    #[test]
    fn software_device_keeps_its_kernels() {
        let Some(gpu) = gpu_with("software_device_keeps_its_kernels", FeatureOverrides::default()) else { return };
        if !gpu.is_software() {
            return eprintln!("skipped: not a software device");
        }
        let folder = tempfile::tempdir().unwrap();
        let mut gpu = Some(gpu);
        let (gpu, tuning) = open_tuned(|| Ok(gpu.take().unwrap()), Some(folder.path())).unwrap();
        assert!(matches!(tuning, DeviceTuning::Default(_)) && gpu.tuning() == Tuning::default());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
