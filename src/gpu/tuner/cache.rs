//! Tuning files: one small JSON file per device in the cache folder of the user.
//!
//! ```text
//! device, driver, features, sizes, version ─► DeviceKey ─► name of the file, and its first field
//! ```
//! 1. A file is written beside its place and renamed. 2. A file that is cut short, of another device or version, or has
//!    unknown values is ignored: the device is measured again.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::search::TuningReport;
use crate::gpu::Gpu;

/// Version of the candidates and of the file. Another one is measured again.
const VERSION: u32 = 4;
/// Largest file that is read, bytes.
const MAX_BYTES: u64 = 64 << 10;

/// Everything that a tuning depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceKey {
    version: u32,
    backend: String,
    vendor: u32,
    device: u32,
    name: String,
    driver: String,
    driver_info: String,
    features: String,
    /// subgroup sizes, workgroup memory and lanes, size of matrices
    sizes: Vec<u32>,
    checked_shaders: bool,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TuningFile {
    device: DeviceKey,
    report: TuningReport,
}

impl DeviceKey {
    /// Key of an open device.
    pub fn of(gpu: &Gpu) -> DeviceKey {
        let (info, limits, (least, most)) = (gpu.info(), gpu.limits(), gpu.subgroup_sizes());
        let memory = limits.max_compute_workgroup_storage_size;
        DeviceKey {
            version: VERSION,
            backend: format!("{:?}", info.backend),
            vendor: info.vendor,
            device: info.device,
            name: info.name.clone(),
            driver: info.driver.clone(),
            driver_info: info.driver_info.clone(),
            features: format!("{:?}", gpu.features()),
            sizes: vec![
                least,
                most,
                memory,
                limits.max_compute_invocations_per_workgroup,
                gpu.cooperative_matrix_size().unwrap_or(0),
            ],
            checked_shaders: gpu.checks_shaders(),
        }
    }

    fn path(&self, folder: &Path) -> PathBuf {
        let hash = blake3::hash(serde_json::to_string(self).unwrap_or_default().as_bytes()).to_hex();
        folder.join(format!("{}.json", &hash[..16]))
    }

    /// The stored report of this device. None if there is none that can be used.
    pub fn load(&self, folder: &Path) -> Option<TuningReport> {
        let path = self.path(folder);
        if std::fs::metadata(&path).ok()?.len() > MAX_BYTES {
            return None;
        }
        let file: TuningFile = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        (file.device == *self && file.report.tuning.is_known()).then_some(file.report)
    }

    /// Stores a report.
    ///
    /// # Errors
    /// A folder or a file that cannot be written.
    pub fn store(&self, folder: &Path, report: &TuningReport) -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let path = self.path(folder);
        // Another process may write the same file.
        let beside = path.with_extension(format!("{}.new", std::process::id()));
        let file = TuningFile { device: self.clone(), report: report.clone() };
        std::fs::write(&beside, serde_json::to_vec_pretty(&file)?)?;
        std::fs::rename(&beside, &path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::tuner::search::Measured;
    use crate::gpu::tuning::{MatmulKernel, Tuning, TuningPart};
    use crate::gpu::{LinearCost, SelectionCosts};

    fn key() -> DeviceKey {
        DeviceKey {
            version: VERSION,
            backend: "Vulkan".into(),
            vendor: 1,
            device: 2,
            name: "a card".into(),
            driver: "a driver".into(),
            driver_info: "1.0".into(),
            features: "SUBGROUP".into(),
            sizes: vec![32, 64],
            checked_shaders: false,
        }
    }

    fn report() -> TuningReport {
        let measured = Measured { part: TuningPart::Matmul, value: "f32 tiles".into(), ns: Some(1500) };
        let tuning = Tuning { matmul: MatmulKernel::F32, ..Tuning::default() };
        let lost = vec![(TuningPart::Matvec, "8 rows by 256 lanes".to_owned())];
        let cost = LinearCost { fixed_ns: 7, ns_per_mib: 9 };
        let costs = Some(SelectionCosts { read: cost, select: cost });
        TuningReport { tuning, measured: vec![measured], lost, out_of_time: true, costs }
    }

    /// A folder with the stored report, and the path of its file.
    fn stored() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        key().store(&folder.path().join("tuning"), &report()).unwrap();
        let path = key().path(&folder.path().join("tuning"));
        (folder, path)
    }

    #[test]
    fn stored_report_is_loaded_for_the_same_device_only() {
        let (folder, path) = stored();
        let folder = folder.path().join("tuning");
        assert_eq!(key().load(&folder), Some(report()));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "no file is left beside it");
        let others = [
            DeviceKey { version: VERSION + 1, ..key() },
            DeviceKey { driver_info: "1.1".into(), ..key() },
            DeviceKey { sizes: vec![32, 32], ..key() },
            DeviceKey { features: String::new(), ..key() },
        ];
        for other in others {
            assert_eq!(other.load(&folder), None, "{other:?}");
            // Not even under its name.
            std::fs::copy(&path, other.path(&folder)).unwrap();
            assert_eq!(other.load(&folder), None, "{other:?}");
        }
        assert_eq!(key().load(&folder.join("absent")), None);
    }

    #[test]
    fn damaged_or_unknown_file_is_ignored_and_replaced() {
        let (folder, path) = stored();
        let folder = folder.path().join("tuning");
        let text = std::fs::read_to_string(&path).unwrap();
        let changed = |from: &str, to: &str| {
            assert!(text.contains(from), "{from} in {text}");
            text.replace(from, to)
        };
        let damaged = [
            String::new(),
            "[]".to_owned(),
            text[..text.len() / 2].to_owned(),
            text[..text.len() - 1].to_owned(),
            changed("\"f32\"", "\"f64\""),
            changed("\"decode_splits\": 64", "\"decode_splits\": 63"),
            changed("\"decode_splits\": 64", "\"decode_splits\": -64"),
            changed("\"rows\": 4", "\"rows\": 5"),
            changed("\"fixed_ns\": 7", "\"fixed_ns\": -7"),
            changed("\"decode_splits\"", "\"splits\""),
            changed("\"matvec\": {", "\"new\": 1, \"matvec\": {"),
            changed("\"version\": 4", "\"version\": 3"),
            " ".repeat(MAX_BYTES as usize) + &text,
        ];
        for bytes in damaged {
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(key().load(&folder), None, "{bytes:.200}");
        }
        key().store(&folder, &report()).unwrap();
        assert_eq!(key().load(&folder), Some(report()));
    }
}
