//! Results of a measurement: the setting in every summary, and the files in the output folder.

use std::path::PathBuf;

use serde::Serialize;

use super::heatmap::HeatMap;
use crate::cli::args::{DeviceArgs, ResultsArgs};
use crate::cli::console::Console;
use crate::cli::error::CliError;
use crate::engine::{KvDtype, ModelInfo};

/// Setting of a measurement, part of every summary.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Setting {
    model: String,
    adapter: String,
    policy: String,
    kv_dtype: KvDtype,
}

impl Setting {
    pub fn new(info: &ModelInfo, device: &DeviceArgs) -> Setting {
        Setting {
            model: info.name.clone(),
            adapter: info.adapter.clone(),
            policy: device.policy_name(),
            kv_dtype: device.kv_dtype,
        }
    }

    /// Text for the console.
    pub fn line(&self) -> String {
        format!("{} on {} · policy {} · {} KV", self.model, self.adapter, self.policy, self.kv_dtype.name())
    }
}

/// Folder of `--out`; None without it.
pub(super) struct Results(Option<PathBuf>);

impl Results {
    /// Creates the folder.
    pub fn open(args: &ResultsArgs) -> Result<Results, CliError> {
        if let Some(dir) = &args.dir {
            std::fs::create_dir_all(dir)
                .map_err(|e| CliError::Input(format!("the folder {} could not be created: {e}", dir.display())))?;
        }
        Ok(Results(args.dir.clone()))
    }

    /// Writes `NAME.json` and `NAME.svg`, and prints their paths.
    pub fn write(&self, name: &str, results: &impl Serialize, map: &HeatMap, console: &mut Console) -> Result<(), CliError> {
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
