//! `strata doctor`: hardware of this machine, measured speed, folders, and the resulting configuration.
//!
//! ```text
//! survey: device, storage ─┬─► Report ─► text │ one JSON object
//! folders ────────────────┘
//! ```
//! Invariant: every figure is measured now, on the GPU that would compute answers and the disk that would store documents.

pub mod device;
pub mod storage;
mod survey;

use std::path::Path;

use serde::Serialize;

use super::args::DoctorArgs;
use super::console::Console;
use super::error::CliError;
use crate::base::Bytes;
use device::{flop_rate, flop_rate_or_reason, rate};
use survey::{Survey, survey};

#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    #[serde(flatten)]
    survey: Survey,
    paths: Paths,
    will_use: Vec<String>,
}

/// Folders of the user; null if the system has none.
#[derive(Debug, Default, Serialize)]
struct Paths {
    config: Option<String>,
    data: Option<String>,
    cache: Option<String>,
}

/// Measures, then prints the report.
///
/// # Errors
/// No GPU, or none that matches `--gpu`; a failure of the GPU or the output.
pub fn run(args: &DoctorArgs, console: &mut Console) -> Result<(), CliError> {
    console.progress("measuring the GPU and the disk…", &serde_json::json!({ "event": "progress", "phase": "measure" }))?;
    let survey = survey(args.gpu.as_deref(), args.folder.kv_dir.as_deref())?;
    let report = Report { version: env!("CARGO_PKG_VERSION"), will_use: will_use(&survey), survey, paths: Paths::of_user() };
    if args.json { console.json_line(&report) } else { console.text(&report.text()) }
}

impl Paths {
    fn of_user() -> Paths {
        let shown = |path: &Path| Some(path.display().to_string());
        match directories::ProjectDirs::from("", "", "strata") {
            Some(dirs) => {
                Paths { config: shown(dirs.config_dir()), data: shown(dirs.data_dir()), cache: shown(dirs.cache_dir()) }
            }
            None => Paths::default(),
        }
    }
}

impl Report {
    fn text(&self) -> String {
        let device = &self.survey.device;
        let measured = &device.measured;
        let mut lines = vec![format!("Strata {}", self.version), String::new(), "Devices, best first".to_owned()];
        for adapter in &self.survey.adapters {
            lines.push(format!(
                "  {}  {} · {} · {} · {}",
                adapter.index, adapter.name, adapter.kind, adapter.backend, adapter.driver
            ));
        }
        let mut section = |title: &str, rows: Vec<(&str, String)>| {
            lines.push(String::new());
            lines.push(title.to_owned());
            lines.extend(rows.into_iter().map(|(name, value)| format!("  {name:<22} {value}")));
        };
        let features = device.features.iter().map(|(name, there)| (*name, if *there { "yes" } else { "no" }.to_owned()));
        section(&format!("Features of {}", device.name), features.collect());
        section(
            "Limits",
            vec![
                ("largest buffer", Bytes(device.max_buffer_bytes).to_string()),
                ("largest binding", Bytes(device.max_binding_bytes).to_string()),
                ("bindings per kernel", device.max_storage_buffers.to_string()),
                ("workgroup memory", Bytes(device.workgroup_bytes.into()).to_string()),
                ("workgroup size", device.workgroup_invocations.to_string()),
            ],
        );
        section(
            "Measured now",
            vec![
                ("streaming read", rate(measured.stream_read_bytes_per_s)),
                ("copy", rate(measured.copy_bytes_per_s)),
                ("upload", rate(measured.upload_bytes_per_s)),
                ("readback", rate(measured.readback_bytes_per_s)),
                ("matrix product, f32", flop_rate(measured.gemm_flops)),
                ("vectors, f16", flop_rate_or_reason(&measured.f16_flops)),
                ("matrix units, f16", flop_rate_or_reason(&measured.matrix_flops)),
            ],
        );
        section("Kernels selected by their times", device.tuning.clone());
        for (title, rows) in self.survey.storage.sections() {
            section(title, rows);
        }
        let shown = |path: &Option<String>| path.clone().unwrap_or_else(|| "N/A".to_owned());
        section(
            "Folders",
            vec![
                ("settings", shown(&self.paths.config)),
                ("documents and chats", shown(&self.paths.data)),
                ("cache", shown(&self.paths.cache)),
            ],
        );
        lines.push(String::new());
        lines.push("Resulting configuration".to_owned());
        lines.extend(self.will_use.iter().map(|sentence| format!("  {sentence}")));
        lines.join("\n") + "\n"
    }
}

/// Consequences of the survey, in sentences.
fn will_use(survey: &Survey) -> Vec<String> {
    let device = &survey.device;
    let kind = if device.software {
        "the CPU, through a software driver, which suits small models only. For more speed, install a Vulkan driver of a GPU"
    } else {
        "the GPU"
    };
    let mut sentences = vec![
        format!("Answers are computed by {} ({}): {kind}.", device.name, device.backend),
        format!("Weights and KV cache are split into parts of at most {}.", Bytes(device.max_binding_bytes)),
    ];
    sentences.push(format!(
        "Arithmetic in f16 was measured: vectors {}, matrix units {}.",
        flop_rate_or_reason(&device.measured.f16_flops),
        flop_rate_or_reason(&device.measured.matrix_flops)
    ));
    sentences.extend(device.kernels.iter().cloned());
    sentences.extend(device.tuning.iter().map(|(part, selected)| format!("Tuning, {part}: {selected}.")));
    sentences.push(device.uploads.clone());
    for (name, there) in &device.features {
        if !there {
            sentences.push(format!("Without {name}, a slower fallback is used."));
        }
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::device::{AdapterLine, DeviceReport};
    use crate::cli::doctor::storage::StorageReport;
    use crate::cli::mock_engine;

    fn report() -> Report {
        let survey = Survey {
            adapters: vec![AdapterLine {
                index: 0,
                name: "llvmpipe".into(),
                backend: "Vulkan".into(),
                kind: "software",
                driver: "Mesa".into(),
            }],
            device: DeviceReport {
                name: "llvmpipe".into(),
                backend: "Vulkan".into(),
                software: true,
                features: vec![("f16", true), ("subgroups", false)],
                max_buffer_bytes: 1 << 31,
                max_binding_bytes: 128 << 20,
                max_storage_buffers: 32,
                workgroup_bytes: 32768,
                workgroup_invocations: 1024,
                measured: mock_engine::measured(),
                kernels: vec!["Matrix products use f32 kernels.".into()],
                tuning: vec![("attention of decode", "64 splits: the fastest (64 splits 9.0 us)".into())],
                uploads: "Uploads are copied from host memory.".into(),
            },
            storage: StorageReport::default(),
        };
        Report { version: "0", will_use: will_use(&survey), survey, paths: Paths::default() }
    }

    #[test]
    fn doctor_text_has_gpu_speed_folders_and_consequences() {
        let text = report().text();
        for part in [
            "llvmpipe",
            "128 MiB",
            "streaming read",
            "GFLOP/s",
            "vectors, f16",
            "matrix units, f16      N/A (a software device has no matrix units)",
            "N/A",
            "through a software driver",
            "Without subgroups",
            "Matrix products use f32 kernels.",
            "attention of decode    64 splits: the fastest",
            "Tuning, attention of decode: 64 splits",
            "Uploads are copied from host memory.",
            "disk read",
            "Budgets",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn doctor_json_keeps_its_fields() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["device"]["measured"]["gemm_flops"], 6000.0);
        assert_eq!(json["adapters"][0]["kind"], "software");
        for field in ["total_bytes", "free_bytes", "device"] {
            assert!(json["memory"].get(field).is_some(), "memory.{field}");
        }
        for field in ["library", "library_bytes", "free_bytes", "read_bytes_per_s", "direct", "io_backend", "io_reason"] {
            assert!(json["disk"].get(field).is_some(), "disk.{field}");
        }
        for tier in ["vram", "ram", "disk"] {
            assert!(json["budgets"][tier].is_u64() && json["budget_reasons"][tier].is_string(), "{tier}");
        }
        assert!(json["paths"]["cache"].is_null() && json["will_use"].is_array());
    }
}
