//! Arguments that say how a model is loaded: the device, the budgets of the tiers, the folder of saved documents.
//!
//! ```text
//! --gpu, --*-budget, --kv-*, --limit, --pipeline ─► DeviceArgs ─► LoadOptions
//! ```

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{at_least_one, number, share};
use crate::base::{Bytes, LinkLimits, Tiers};
use crate::engine::{KvDtype, LoadOptions, PolicyKind, PolicySpec, SelectionBudget};

/// Where saved documents are.
#[derive(Debug, Args, Default)]
pub struct FolderArg {
    /// Folder of saved documents [default: `strata/library` in your cache folder]
    #[arg(long, value_name = "DIR", env = "STRATA_KV_DIR")]
    pub kv_dir: Option<PathBuf>,
}

/// Which keys attention reads while it answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum KvPolicy {
    /// all of them, wherever they are
    #[default]
    Full,
    /// the beginning and the newest
    Window,
    /// those attended to most so far, token by token
    H2o,
    /// those attended to most so far, 64 at a time
    H2oChunked,
    /// as h2o, one layer ahead
    Prefetch,
    /// those that matter to this token, by abstracts and a tree of chunks
    Leoam,
}

impl KvPolicy {
    fn kind(self) -> Option<PolicyKind> {
        Some(match self {
            KvPolicy::Full => return None,
            KvPolicy::Window => PolicyKind::Window,
            KvPolicy::H2o => PolicyKind::H2o,
            KvPolicy::H2oChunked => PolicyKind::H2oChunked,
            KvPolicy::Prefetch => PolicyKind::Prefetch,
            KvPolicy::Leoam => PolicyKind::LeoAm,
        })
    }
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
    /// What a policy reads beside the beginning and the newest: a share of the tokens such as 0.1 or 10%, or their number, from 2
    #[arg(long, value_name = "SHARE|N", default_value = "0.1", env = "STRATA_IMPORTANCE", value_parser = importance)]
    pub importance: SelectionBudget,
    /// Off: leoam evaluates every token in VRAM instead of splitting chunks, to compare with
    #[arg(long, value_name = "WHETHER", value_enum, default_value_t, env = "STRATA_TREE")]
    pub tree: Switch,
    /// Read until this share of the attention is estimated to be in it, but no less than --importance, a share (leoam)
    #[arg(long, value_name = "SHARE", env = "STRATA_MASS", value_parser = share)]
    pub mass: Option<f32>,
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
    /// Base of the rotary embedding instead of the model's own, to measure it beyond the window it was trained for (with --context)
    #[arg(long, value_name = "N", env = "STRATA_ROPE_BASE", value_parser = rope_base)]
    pub rope_base: Option<f64>,
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
            policy: self.policy(),
            trace: self.trace.clone(),
            rope_base: self.rope_base,
        }
    }

    /// What decode steps read; everything where there is none.
    fn policy(&self) -> Option<PolicySpec> {
        let kind = self.kv_policy.kind()?;
        let amount = match (self.mass.filter(|_| kind == PolicyKind::LeoAm), self.importance) {
            (Some(mass), SelectionBudget::Rate(floor)) => SelectionBudget::Mass { mass, floor },
            // No share, and refused as such.
            (Some(mass), SelectionBudget::Tokens(n)) => SelectionBudget::Mass { mass, floor: n as f32 },
            (_, amount) => amount,
        };
        Some(PolicySpec { kind, amount, tree: self.tree == Switch::On, ..PolicySpec::default() })
    }

    /// The same device and context with exact attention, f16 and whatever room the machine has: what others are judged by.
    pub fn exact_options(&self) -> LoadOptions {
        LoadOptions {
            gpu: self.gpu.clone(),
            context: self.context,
            rope_base: self.rope_base,
            kv_dir: self.folder.kv_dir.clone(),
            ..LoadOptions::default()
        }
    }

    /// The policy as `--kv-policy` has it.
    pub fn policy_name(&self) -> String {
        self.kv_policy.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// A share, a percentage, or a number of tokens from 2.
fn importance(text: &str) -> Result<SelectionBudget, String> {
    if let Some(percent) = text.strip_suffix('%') {
        return number(percent, |x| (0.0..=100.0).contains(&x))
            .map(|x| SelectionBudget::Rate(x / 100.0))
            .ok_or_else(|| "it must be from 0% to 100%".to_owned());
    }
    let tokens = || text.parse().ok().filter(|n| *n > 1).map(SelectionBudget::Tokens);
    share(text)
        .map(SelectionBudget::Rate)
        .or_else(|_| tokens().ok_or_else(|| "it must be a share from 0 to 1, or a whole number of tokens from 2".to_owned()))
}

fn rope_base(text: &str) -> Result<f64, String> {
    text.parse::<f64>().ok().filter(|x| x.is_finite() && *x > 1.0).ok_or_else(|| "it must be a number above 1".to_owned())
}
