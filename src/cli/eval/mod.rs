//! `strata eval`: measures the fidelity of a policy, on any model.
//!
//! ```text
//! text ─► kld ─► two runs over the same tokens ─► divergence ─┐
//! text, facts ─► haystack ─► needle ─► questions, answers ────┴► Console; results.json, heatmap.svg
//! ```
//! Invariants: 1. `full` is measured by the same code as every policy. 2. The same flags and seeds measure the same tokens.
//! 3. All texts are read and the output folder is created before a model is loaded.

mod divergence;
mod haystack;
mod heatmap;
mod kld;
mod needle;
mod synthetic_text;

use std::path::PathBuf;

use serde::Serialize;

use super::args::{DeviceArgs, EvalCommand, ResultsArgs};
use super::console::Console;
use super::error::CliError;
use super::session::Session;
use crate::engine::{KvDtype, ModelInfo};
use heatmap::HeatMap;

/// Runs a measurement. `start` creates the session after all inputs are read.
///
/// # Errors
/// Bad texts, lengths, model or output folder; a failure of the engine; Ctrl-C.
pub fn run(command: &EvalCommand, start: impl FnOnce() -> Session, console: &mut Console) -> Result<(), CliError> {
    match command {
        EvalCommand::Kld(args) => kld::run(args, start, console),
        EvalCommand::Needle(args) => needle::run(args, start, console),
    }
}

/// Setting of a measurement, part of every summary.
#[derive(Debug, Clone, Serialize)]
struct Setting {
    model: String,
    adapter: String,
    policy: String,
    kv_dtype: KvDtype,
}

impl Setting {
    fn new(info: &ModelInfo, device: &DeviceArgs) -> Setting {
        Setting {
            model: info.name.clone(),
            adapter: info.adapter.clone(),
            policy: device.policy_name(),
            kv_dtype: device.kv_dtype,
        }
    }

    /// Text for the console.
    fn line(&self) -> String {
        format!("{} on {} · policy {} · {} KV", self.model, self.adapter, self.policy, kv_name(self.kv_dtype))
    }
}

/// Folder of `--out`; None without it.
struct Results(Option<PathBuf>);

impl Results {
    /// Creates the folder.
    fn open(args: &ResultsArgs) -> Result<Results, CliError> {
        if let Some(dir) = &args.dir {
            std::fs::create_dir_all(dir)
                .map_err(|e| CliError::Input(format!("the folder {} could not be created: {e}", dir.display())))?;
        }
        Ok(Results(args.dir.clone()))
    }

    /// Writes `NAME.json` and `NAME.svg`, and prints their paths.
    fn write(&self, name: &str, results: &impl Serialize, map: &HeatMap, console: &mut Console) -> Result<(), CliError> {
        let Some(dir) = &self.0 else { return Ok(()) };
        let json = serde_json::to_string_pretty(results)
            .map_err(|e| CliError::Failed(format!("the results could not be written as JSON: {e}")))?;
        for (extension, content) in [("json", json + "\n"), ("svg", map.svg())] {
            let path = dir.join(name).with_extension(extension);
            std::fs::write(&path, content)
                .map_err(|e| CliError::Failed(format!("{} could not be written: {e}", path.display())))?;
            console.detail(&path.display().to_string());
        }
        Ok(())
    }
}

fn kv_name(kv_dtype: KvDtype) -> &'static str {
    match kv_dtype {
        KvDtype::F16 => "f16",
        KvDtype::Q8 => "q8",
        KvDtype::Q4 => "q4",
        KvDtype::F32 => "f32",
    }
}
