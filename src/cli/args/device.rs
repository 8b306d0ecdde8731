//! Arguments that say how a model is loaded: the device, the budgets of the tiers, the folder of saved documents.
//!
//! ```text
//! --gpu, --*-budget, --kv-*, --limit, --pipeline ─► DeviceArgs ─► LoadOptions
//! ```

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::at_least_one;
use crate::base::{Bytes, LinkLimits, Tiers};
use crate::engine::{KvDtype, LoadOptions};

/// Where saved documents are.
#[derive(Debug, Args, Default)]
pub struct FolderArg {
    /// Folder of saved documents [default: `strata/library` in your cache folder]
    #[arg(long, value_name = "DIR", env = "STRATA_KV_DIR")]
    pub kv_dir: Option<PathBuf>,
}

/// Which keys attention reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum KvPolicy {
    /// all of them, wherever they are
    #[default]
    Full,
}

/// Whether something is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// yes
    #[default]
    On,
    /// no
    Off,
}

/// Which device, and how the model is loaded onto it.
#[derive(Debug, Args, Default)]
pub struct DeviceArgs {
    /// Device by part of its name or by its number in `strata doctor` [default: the best one]
    #[arg(long, value_name = "NAME_OR_INDEX", env = "STRATA_GPU")]
    pub gpu: Option<String>,
    /// Element type of the KV cache
    #[arg(long, value_name = "TYPE", value_enum, default_value_t, env = "STRATA_KV_DTYPE")]
    pub kv_dtype: KvDtype,
    /// Which keys attention reads
    #[arg(long, value_name = "POLICY", value_enum, default_value_t, env = "STRATA_KV_POLICY")]
    pub kv_policy: KvPolicy,
    /// Cap on the KV cache in VRAM, such as 512MiB or 2GiB [default: from what the device has free]
    #[arg(long, value_name = "SIZE", env = "STRATA_VRAM_BUDGET")]
    pub vram_budget: Option<Bytes>,
    /// Cap on the KV cache in RAM [default: from what the machine has free]
    #[arg(long, value_name = "SIZE", env = "STRATA_RAM_BUDGET")]
    pub ram_budget: Option<Bytes>,
    /// Cap on all saved KV on the disk [default: from what the disk has free]
    #[arg(long, value_name = "SIZE", env = "STRATA_DISK_BUDGET")]
    pub disk_budget: Option<Bytes>,
    /// where it is kept
    #[command(flatten)]
    pub folder: FolderArg,
    /// Hold transfers to the speed of other links, such as pcie=2GiB,nvme=500MiB (bytes per second)
    #[arg(long, value_name = "LINK=SPEED,..", env = "STRATA_LIMIT")]
    pub limit: Option<LinkLimits>,
    /// Transfers while the device computes; off: one after the other, to compare with
    #[arg(long, value_name = "WHETHER", value_enum, default_value_t, env = "STRATA_PIPELINE")]
    pub pipeline: Switch,
    /// Write a Chrome trace of everything that happened, to open in Perfetto
    #[arg(long, value_name = "FILE.json", env = "STRATA_TRACE")]
    pub trace: Option<PathBuf>,
    /// Cap on the context in tokens [default: the model's window]
    #[arg(long, value_name = "N", env = "STRATA_CONTEXT", value_parser = at_least_one)]
    pub context: Option<usize>,
}

impl DeviceArgs {
    /// What the engine needs to know.
    pub fn options(&self) -> LoadOptions {
        LoadOptions {
            gpu: self.gpu.clone(),
            context: self.context,
            kv_dtype: self.kv_dtype,
            budgets: Tiers { vram: self.vram_budget, ram: self.ram_budget, disk: self.disk_budget },
            kv_dir: self.folder.kv_dir.clone(),
            limits: self.limit.unwrap_or_default(),
            synchronous: self.pipeline == Switch::Off,
            trace: self.trace.clone(),
        }
    }

    /// The same device and context with exact attention, f16 and whatever room the machine has: what others are judged by.
    pub fn exact_options(&self) -> LoadOptions {
        LoadOptions { gpu: self.gpu.clone(), context: self.context, kv_dir: self.folder.kv_dir.clone(), ..LoadOptions::default() }
    }

    /// The policy as `--kv-policy` has it.
    pub fn policy_name(&self) -> String {
        self.kv_policy.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}
