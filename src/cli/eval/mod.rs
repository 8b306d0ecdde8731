//! `strata eval`: what a policy costs in fidelity, on any model.
//!
//! ```text
//! text ─► kld ─► two runs over the same tokens ─► divergence ─┐
//! prose, facts ─► haystack ─► needle ─► questions, answers ───┴► Console; results.json, heatmap.svg
//! ```
//! Invariants: 1. `full` is judged by the same code as every policy: it is a policy here. 2. The same flags and seeds measure the
//! same tokens. 3. Nothing is loaded before the texts are read and the place for results is there.

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

/// Runs a measurement. `start` makes the session, once everything that needs none is there.
///
/// # Errors
/// The texts, the lengths, the model or the place to write at fault; the engine failing; Ctrl-C.
pub fn run(command: &EvalCommand, start: impl FnOnce() -> Session, console: &mut Console) -> Result<(), CliError> {
    match command {
        EvalCommand::Kld(args) => kld::run(args, start, console),
        EvalCommand::Needle(args) => needle::run(args, start, console),
    }
}

/// What was measured: part of every summary.
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

    /// For a person.
    fn line(&self) -> String {
        format!("{} on {} · policy {} · {} KV", self.model, self.adapter, self.policy, kv_name(self.kv_dtype))
    }
}

/// The folder of `--out`.
struct Results(Option<PathBuf>);

impl Results {
    /// Makes the folder.
    fn open(args: &ResultsArgs) -> Result<Results, CliError> {
        if let Some(dir) = &args.dir {
            std::fs::create_dir_all(dir)
                .map_err(|e| CliError::Input(format!("the folder {} cannot be made: {e}", dir.display())))?;
        }
        Ok(Results(args.dir.clone()))
    }

    /// Writes `NAME.json` and `NAME.svg`, and says so.
    fn write(&self, name: &str, results: &impl Serialize, map: &HeatMap, console: &mut Console) -> Result<(), CliError> {
        let Some(dir) = &self.0 else { return Ok(()) };
        let json = serde_json::to_string_pretty(results).map_err(|e| CliError::Failed(format!("cannot write JSON: {e}")))?;
        for (extension, content) in [("json", json + "\n"), ("svg", map.svg())] {
            let path = dir.join(name).with_extension(extension);
            std::fs::write(&path, content).map_err(|e| CliError::Failed(format!("cannot write {}: {e}", path.display())))?;
            console.aside(&path.display().to_string());
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
