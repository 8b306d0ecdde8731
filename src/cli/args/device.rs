//! Arguments for loading a model: GPU, tier budgets, folder of saved documents.
//!
//! ```text
//! --gpu, --*-budget, --kv-*, --limit, --pipeline ─► DeviceArgs ─► LoadOptions
//! ```

use std::path::PathBuf;

use clap::builder::{FalseyValueParser, PossibleValue};
use clap::{Args, ValueEnum};

use super::values::{at_least_one, number, share};
use crate::base::{Bytes, LinkLimits, Tiers};
use crate::engine::{KvDtype, LoadOptions, PolicyKind, PolicySpec, SelectionBudget};

/// Folder of saved documents.
#[derive(Debug, Args, Default)]
pub struct FolderArg {
    /// Folder of saved documents [default: `strata/library` in your cache folder]
    #[arg(long, value_name = "DIR", env = "STRATA_KV_DIR")]
    pub kv_dir: Option<PathBuf>,
}

/// Keys that attention reads during decode: all, or those that a policy of the registry selects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KvPolicy {
    /// None: all keys
    kind: Option<PolicyKind>,
    is_forced: bool,
}

impl KvPolicy {
    /// Full attention.
    pub const FULL: KvPolicy = KvPolicy { kind: None, is_forced: false };

    /// LeoAM even if it is slower.
    const FORCED: KvPolicy = KvPolicy { kind: Some(PolicyKind::LeoAm), is_forced: true };

    const N_VALUES: usize = 2 + PolicyKind::ALL.len();

    const VALUES: [KvPolicy; KvPolicy::N_VALUES] = {
        let mut values = [KvPolicy::FULL; KvPolicy::N_VALUES];
        let mut i = 0;
        while i < PolicyKind::ALL.len() {
            values[i + 1] = KvPolicy { kind: Some(PolicyKind::ALL[i]), is_forced: false };
            i += 1;
        }
        values[i + 1] = KvPolicy::FORCED;
        values
    };
}

impl ValueEnum for KvPolicy {
    fn value_variants<'a>() -> &'a [KvPolicy] {
        &KvPolicy::VALUES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = match self.kind {
            None => ("full", "all keys, in every tier"),
            Some(_) if self.is_forced => ("leoam!", "like leoam, even if reading all keys would be faster"),
            Some(kind) => (kind.name(), kind.help()),
        };
        Some(PossibleValue::new(name).help(help))
    }
}

/// On or off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// enabled
    #[default]
    On,
    /// disabled
    Off,
}

/// GPU, and how the model is loaded onto it.
#[derive(Debug, Args, Default)]
pub struct DeviceArgs {
    /// GPU, by part of its name or by its number in `strata doctor` [default: the best one]
    #[arg(long, value_name = "NAME_OR_INDEX", env = "STRATA_GPU")]
    pub gpu: Option<String>,
    /// Element type of the KV cache
    #[arg(long, value_name = "TYPE", value_enum, default_value_t, env = "STRATA_KV_DTYPE")]
    pub kv_dtype: KvDtype,
    /// Which keys attention reads
    #[arg(long, value_name = "POLICY", value_enum, default_value_t, env = "STRATA_KV_POLICY")]
    pub kv_policy: KvPolicy,
    /// Keys that a policy selects besides the first and the latest: a share such as 0.1 or 10%, or a number of tokens from 2
    #[arg(long, value_name = "SHARE|N", default_value = "0.1", env = "STRATA_IMPORTANCE", value_parser = importance)]
    pub importance: SelectionBudget,
    /// Chunk tree of leoam; off: evaluate every token in VRAM instead, for comparison
    #[arg(long, value_name = "WHETHER", value_enum, default_value_t, env = "STRATA_TREE")]
    pub tree: Switch,
    /// Select keys until this estimated share of the attention is reached, at least --importance, which is a share then (leoam)
    #[arg(long, value_name = "SHARE", env = "STRATA_MASS", value_parser = share)]
    pub mass: Option<f32>,
    /// Limit for the KV cache in VRAM, such as 512MiB or 2GiB [default: from the free VRAM]
    #[arg(long, value_name = "SIZE", env = "STRATA_VRAM_BUDGET")]
    pub vram_budget: Option<Bytes>,
    /// Limit for the KV cache in RAM [default: from the free RAM]
    #[arg(long, value_name = "SIZE", env = "STRATA_RAM_BUDGET")]
    pub ram_budget: Option<Bytes>,
    /// Limit for all saved KV on disk [default: from the free disk space]
    #[arg(long, value_name = "SIZE", env = "STRATA_DISK_BUDGET")]
    pub disk_budget: Option<Bytes>,
    /// folder of saved documents
    #[command(flatten)]
    pub folder: FolderArg,
    /// Limit the bandwidth of transfers, such as pcie=2GiB,nvme=500MiB (bytes per second)
    #[arg(long, value_name = "LINK=SPEED,..", env = "STRATA_LIMIT")]
    pub limit: Option<LinkLimits>,
    /// Overlap transfers with compute; off: one after the other, for comparison
    #[arg(long, value_name = "WHETHER", value_enum, default_value_t, env = "STRATA_PIPELINE")]
    pub pipeline: Switch,
    /// Write a Chrome trace of all events, which Perfetto opens
    #[arg(long, value_name = "FILE.json", env = "STRATA_TRACE")]
    pub trace: Option<PathBuf>,
    /// Base of the rotary embedding, instead of the model's own, for contexts beyond the trained one (with --context)
    #[arg(long, value_name = "N", env = "STRATA_ROPE_BASE", value_parser = rope_base)]
    pub rope_base: Option<f64>,
    /// Compile shaders with run-time checks, to find out whether a wrong answer comes from a kernel (slower)
    #[arg(long, env = "STRATA_CHECKED_SHADERS", value_parser = FalseyValueParser::new())]
    pub checked_shaders: bool,
    /// Use only kernels that compute in f32; faster ones may round activations to 15 bits on a GPU (`logits` never does)
    #[arg(long, env = "STRATA_EXACT", value_parser = FalseyValueParser::new())]
    pub exact: bool,
    /// Limit for the context in tokens [default: the model's context window]
    #[arg(long, value_name = "N", env = "STRATA_CONTEXT", value_parser = at_least_one)]
    pub context: Option<usize>,
}

impl DeviceArgs {
    /// Load options for the engine.
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
            checked_shaders: self.checked_shaders,
            exact: self.exact,
            reuse_anywhere: false,
        }
    }

    /// Policy of decode steps; None for full attention.
    fn policy(&self) -> Option<PolicySpec> {
        let kind = self.kv_policy.kind?;
        let amount = match (self.mass.filter(|_| kind.estimates_mass()), self.importance) {
            (Some(mass), SelectionBudget::Rate(floor)) => SelectionBudget::Mass { mass, floor },
            // Not a share, so the engine rejects it.
            (Some(mass), SelectionBudget::Tokens(n)) => SelectionBudget::Mass { mass, floor: n as f32 },
            (_, amount) => amount,
        };
        let (tree, is_forced) = (self.tree == Switch::On, self.kv_policy.is_forced);
        Some(PolicySpec { kind, amount, tree, is_forced, ..PolicySpec::default() })
    }

    /// Load options for a measurement of the policy, which is used even if it is slower.
    pub fn forced_options(&self) -> LoadOptions {
        let options = self.options();
        LoadOptions { policy: options.policy.map(|spec| PolicySpec { is_forced: true, ..spec }), ..options }
    }

    /// Exact attention in f16 without budgets on the same GPU and context, as the baseline of comparisons.
    pub fn exact_options(&self) -> LoadOptions {
        LoadOptions {
            gpu: self.gpu.clone(),
            context: self.context,
            rope_base: self.rope_base,
            kv_dir: self.folder.kv_dir.clone(),
            checked_shaders: self.checked_shaders,
            exact: true,
            ..LoadOptions::default()
        }
    }

    /// Name of the policy in `--kv-policy`.
    pub fn policy_name(&self) -> String {
        self.kv_policy.kind.map_or("full", PolicyKind::name).to_owned()
    }
}

/// Parses a share, a percentage, or a number of tokens from 2.
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
