//! Arguments of every command, parsed by clap; each flag has a `STRATA_*` environment variable.
//!
//! ```text
//! argv, environment ─► Cli { Command } ─► Args of one command ─► ModelSource, LoadOptions, Sampling
//! ```
//! Invariants: 1. Values that no command could use are rejected here, by name, before anything is loaded.
//! 2. `--help` lists only flags that have an effect.

use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::base::limits;
use crate::engine::{ModelSource, Sampling};

mod device;
mod eval;
mod library;
mod model;
mod values;

pub use device::{DeviceArgs, FolderArg, KvPolicy};
pub use eval::{EvalCommand, EvalKldArgs, EvalNeedleArgs, ResultsArgs};
pub use library::{LibraryAddArgs, LibraryArgs, LibraryCommand, LibraryRemoveArgs};
pub use model::ModelArg;
use values::{at_least_one, non_negative, not_blank, positive, share};

/// Chat with book-length documents on the GPU you already have, fully local.
///
/// Without a command, the window opens. The environment variable beside each flag sets it too.
#[derive(Debug, Parser)]
#[command(name = "strata", version, disable_help_subcommand = true, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// command; the window opens without one
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Documents to open in the window: text, Markdown, HTML, PDF, DOCX, EPUB, source code, or folders of them
    #[arg(value_name = "FILE")]
    pub documents: Vec<PathBuf>,
}

/// Options of the window, which has no flags and reads their environment variables.
#[derive(Debug, Parser)]
#[command(name = "strata")]
pub struct WindowEnv {
    /// model
    #[command(flatten)]
    pub model: ModelArg,
    /// GPU
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// Commands, which run without a window.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answer questions about one or more documents on stdout
    Ask(AskArgs),
    /// Write the logits of every position of a text to a .npy file
    Logits(LogitsArgs),
    /// Print the token ids of a text, as one line of JSON
    Tokenize(TokenizeArgs),
    /// Measure prefill and decode speed, like llama-bench
    Bench(BenchArgs),
    /// Measure the fidelity of a policy: divergence from exact attention, facts found in long documents
    #[command(subcommand)]
    Eval(EvalCommand),
    /// List, add, remove and verify saved documents
    #[command(subcommand)]
    Library(LibraryCommand),
    /// Show GPUs, measured speed, folders, and the resulting configuration
    Doctor(DoctorArgs),
}

/// Sampling parameters; each default is the model's own recommendation.
#[derive(Debug, Args, Default)]
pub struct SamplingArgs {
    /// Randomness of the answer; 0 is greedy and deterministic [default: the model's own]
    #[arg(long, value_name = "T", env = "STRATA_TEMPERATURE", value_parser = non_negative)]
    pub temperature: Option<f32>,
    /// Keep the K most likely tokens; 0 keeps all [default: the model's own]
    #[arg(long, value_name = "K", env = "STRATA_TOP_K")]
    pub top_k: Option<u32>,
    /// Keep the most likely tokens that add up to P; 1 keeps all [default: the model's own]
    #[arg(long, value_name = "P", env = "STRATA_TOP_P", value_parser = share)]
    pub top_p: Option<f32>,
    /// Drop tokens less likely than P times the most likely one; 0 keeps all [default: the model's own]
    #[arg(long, value_name = "P", env = "STRATA_MIN_P", value_parser = share)]
    pub min_p: Option<f32>,
    /// Divide the logits of tokens that already occurred by X; 1 changes nothing [default: the model's own]
    #[arg(long, value_name = "X", env = "STRATA_REPEAT_PENALTY", value_parser = positive)]
    pub repeat_penalty: Option<f32>,
    /// Seed of sampling; the same seed gives the same answer [default: 0]
    #[arg(long, value_name = "N", env = "STRATA_SEED")]
    pub seed: Option<u64>,
}

/// `strata ask`
#[derive(Debug, Args)]
pub struct AskArgs {
    /// Document to read: text, Markdown, HTML, PDF, DOCX or EPUB; may repeat
    #[arg(long = "doc", value_name = "FILE", num_args = 1.., env = "STRATA_DOC")]
    pub docs: Vec<PathBuf>,
    /// Question; may repeat: each is the next turn on the same document (with --at-once, a separate question)
    #[arg(long = "prompt", value_name = "TEXT", required = true, env = "STRATA_PROMPT", value_parser = not_blank)]
    pub prompts: Vec<String>,
    /// Longest answer, in tokens
    #[arg(long, value_name = "N", default_value_t = limits::DEFAULT_MAX_TOKENS, env = "STRATA_MAX_TOKENS", value_parser = at_least_one)]
    pub max_tokens: usize,
    /// Answer all questions at the same time, each separately and not as turns of one chat: the document is prefilled once, and
    /// pages that do not fit VRAM are fetched once for all of them
    #[arg(long, env = "STRATA_AT_ONCE", value_parser = FalseyValueParser::new())]
    pub at_once: bool,
    /// Do not save the document's KV on disk; KV saved earlier is still used
    #[arg(long, env = "STRATA_NO_SAVE", value_parser = FalseyValueParser::new())]
    pub no_save: bool,
    /// Reuse the saved KV of a document after other documents too; the answer and its summary are then labeled approximate
    #[arg(long, env = "STRATA_REUSE_ANYWHERE", value_parser = FalseyValueParser::new())]
    pub reuse_anywhere: bool,
    /// model
    #[command(flatten)]
    pub model: ModelArg,
    /// GPU
    #[command(flatten)]
    pub device: DeviceArgs,
    /// sampling
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Print JSON lines: progress, tokens, and finally a summary
    #[arg(long, env = "STRATA_JSON", value_parser = FalseyValueParser::new())]
    pub json: bool,
}

/// `strata logits`
#[derive(Debug, Args)]
pub struct LogitsArgs {
    /// Text to read, UTF-8, taken verbatim (the model's start token is put in front)
    #[arg(long, value_name = "FILE", required_unless_present = "tokens", env = "STRATA_TEXT")]
    pub text: Option<PathBuf>,
    /// Token ids instead of a text, such as 1,2,3
    #[arg(long, value_name = "IDS", value_delimiter = ',', conflicts_with = "text", env = "STRATA_TOKENS")]
    pub tokens: Vec<u32>,
    /// File to write: float32, shape [tokens, vocabulary]
    #[arg(long, value_name = "FILE.npy", env = "STRATA_OUT")]
    pub out: PathBuf,
    /// Use only the first N tokens
    #[arg(long, value_name = "N", env = "STRATA_MAX_TOKENS", value_parser = at_least_one)]
    pub max_tokens: Option<usize>,
    /// model
    #[command(flatten)]
    pub model: ModelArg,
    /// GPU
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Print JSON lines: progress, and finally a summary
    #[arg(long, env = "STRATA_JSON", value_parser = FalseyValueParser::new())]
    pub json: bool,
}

/// `strata tokenize`
#[derive(Debug, Args)]
pub struct TokenizeArgs {
    /// Text to read, UTF-8, taken verbatim (the model's start token is put in front)
    #[arg(long, value_name = "FILE", required_unless_present = "doc", conflicts_with = "doc", env = "STRATA_TEXT")]
    pub text: Option<PathBuf>,
    /// Document to read, in the same way as `ask`
    #[arg(long, value_name = "FILE", env = "STRATA_DOC")]
    pub doc: Option<PathBuf>,
    /// Do not put the model's start token in front of the text
    #[arg(long, env = "STRATA_NO_SPECIAL", value_parser = FalseyValueParser::new())]
    pub no_special: bool,
    /// model
    #[command(flatten)]
    pub model: ModelArg,
}

/// Output format of `strata bench`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchOutput {
    /// a Markdown table
    Md,
    /// comma-separated values
    Csv,
    /// one JSON array
    Json,
    /// one JSON object per line
    Jsonl,
}

/// `strata bench`
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Prompt lengths to measure (pp); 0 for none
    #[arg(short = 'p', long = "n-prompt", value_name = "N,..", value_delimiter = ',', default_value = "512")]
    #[arg(env = "STRATA_N_PROMPT")]
    pub n_prompt: Vec<usize>,
    /// Generated lengths to measure (tg); 0 for none
    #[arg(short = 'n', long = "n-gen", value_name = "N,..", value_delimiter = ',', default_value = "128")]
    #[arg(env = "STRATA_N_GEN")]
    pub n_gen: Vec<usize>,
    /// Tokens in the cache before each test
    #[arg(short = 'd', long = "depth", value_name = "N,..", value_delimiter = ',', default_value = "0", env = "STRATA_DEPTH")]
    pub depths: Vec<usize>,
    /// Fill the cache up to --depth with pseudo-random keys and values instead of prefilling: seconds instead of hours
    #[arg(long, env = "STRATA_FILL", value_parser = FalseyValueParser::new())]
    pub fill: bool,
    /// Repetitions of each test, after a warm-up that does not count
    #[arg(short = 'r', long = "repetitions", value_name = "N", default_value_t = 5, value_parser = at_least_one)]
    #[arg(env = "STRATA_REPETITIONS")]
    pub repetitions: usize,
    /// Output format
    #[arg(short = 'o', long = "output", value_name = "FORMAT", value_enum, default_value_t = BenchOutput::Md)]
    #[arg(env = "STRATA_OUTPUT")]
    pub output: BenchOutput,
    /// Random weights of this shape, instead of --model: opt-6.7b, llama-2-7b, llama-3.1-8b, llama-3.2-1b, qwen2.5-0.5b
    #[arg(long, value_name = "NAME", env = "STRATA_SYNTHETIC")]
    pub synthetic: Option<String>,
    /// Weight type of --synthetic, such as F16, Q8_0 or Q4_0
    #[arg(long = "type", value_name = "TYPE", default_value = "Q4_0", env = "STRATA_TYPE")]
    pub weight_type: String,
    /// First measure the GPU's streaming read and best matrix product, and print the share of them that each test
    /// and each family of kernels reaches
    #[arg(long, env = "STRATA_PEAK", value_parser = FalseyValueParser::new())]
    pub peak: bool,
    /// model
    #[command(flatten)]
    pub model: ModelArg,
    /// GPU
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Same as `-o jsonl`
    #[arg(long, env = "STRATA_JSON", value_parser = FalseyValueParser::new())]
    pub json: bool,
}

/// `strata doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// GPU to measure, by part of its name or by its number [default: the best one]
    #[arg(long, value_name = "NAME_OR_INDEX", env = "STRATA_GPU")]
    pub gpu: Option<String>,
    /// library
    #[command(flatten)]
    pub folder: FolderArg,
    /// Print one JSON object
    #[arg(long, env = "STRATA_JSON", value_parser = FalseyValueParser::new())]
    pub json: bool,
}

impl SamplingArgs {
    /// The given flags, over the model's own recommendation.
    pub fn over(&self, model: Sampling) -> Sampling {
        Sampling {
            temperature: self.temperature.unwrap_or(model.temperature),
            top_k: self.top_k.unwrap_or(model.top_k),
            top_p: self.top_p.unwrap_or(model.top_p),
            min_p: self.min_p.unwrap_or(model.min_p),
            repetition_penalty: self.repeat_penalty.unwrap_or(model.repetition_penalty),
            seed: self.seed.unwrap_or(model.seed),
        }
    }
}

impl BenchArgs {
    /// The model to measure: synthetic, a path, or the built-in one.
    pub fn source(&self) -> ModelSource {
        match &self.synthetic {
            Some(name) => ModelSource::Synthetic { name: name.clone(), weight_type: self.weight_type.clone() },
            None => self.model.source(),
        }
    }

    /// True if KV may be offloaded or selected, which adds columns.
    pub fn shows_tiers(&self) -> bool {
        self.device.kv_policy != KvPolicy::FULL || self.device.vram_budget.is_some()
    }

    /// Output format; `--json` is `-o jsonl`.
    pub fn format(&self) -> BenchOutput {
        if self.json { BenchOutput::Jsonl } else { self.output }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::base::{Bytes, LinkLimits, Tiers};
    use crate::engine::{KvDtype, LoadOptions, SelectionBudget};

    fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("strata").chain(args.iter().copied()))
    }

    #[test]
    fn every_flag_has_an_environment_variable() {
        let cli = Cli::command();
        let nested = cli.get_subcommands().flat_map(|c| c.get_subcommands());
        for command in cli.get_subcommands().chain(nested) {
            let is_flag = |a: &&clap::Arg| !a.is_positional() && !matches!(a.get_id().as_str(), "help" | "version");
            for arg in command.get_arguments().filter(is_flag) {
                let variable = arg.get_env().and_then(|e| e.to_str()).unwrap_or_default();
                assert!(variable.starts_with("STRATA_"), "{} {}", command.get_name(), arg.get_id());
            }
        }
        Cli::command().debug_assert();
    }

    #[test]
    fn given_sampling_flags_override_the_model() {
        let model = Sampling { temperature: 0.7, top_k: 20, top_p: 0.8, min_p: 0.1, repetition_penalty: 1.1, seed: 0 };
        let cli = parse(&["ask", "--prompt", "q", "--temperature", "0", "--seed", "9"]).unwrap();
        let Some(Command::Ask(args)) = cli.command else { panic!("not ask") };
        assert_eq!(args.sampling.over(model), Sampling { temperature: 0.0, seed: 9, ..model });
    }

    #[test]
    fn values_out_of_range_are_rejected() {
        for bad in [
            &["ask", "--prompt", "q", "--temperature=-1"][..],
            &["ask", "--prompt", "q", "--temperature", "NaN"],
            &["ask", "--prompt", "q", "--top-p", "1.5"],
            &["ask", "--prompt", "q", "--repeat-penalty", "0"],
            &["ask", "--prompt", "q", "--max-tokens", "0"],
            &["ask", "--prompt", " "],
            &["ask", "--prompt", "q", "--vram-budget", "lots"],
            &["ask", "--prompt", "q", "--kv-dtype", "q9"],
            &["ask", "--prompt", "q", "--kv-policy", "some"],
            &["ask", "--prompt", "q", "--kv-policy", "leoam", "--importance", "1.5"],
            &["ask", "--prompt", "q", "--kv-policy", "leoam", "--importance", "101%"],
            &["ask", "--prompt", "q", "--rope-base", "1"],
            &["ask", "--prompt", "q", "--limit", "pcie=fast"],
            &["ask", "--prompt", "q", "--pipeline", "maybe"],
            &["library"],
            &["library", "add"],
            &["library", "remove"],
            &["logits", "--out", "x.npy"],
            &["logits", "--out", "x.npy", "--tokens", "1,two"],
            &["bench", "-r", "0"],
            &["tokenize"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn bench_flags_are_parsed() {
        let cli = parse(&["bench", "-p", "16,32", "-n", "4", "-d", "0,64", "--synthetic", "llama-3.2-1b", "--json"]).unwrap();
        let Some(Command::Bench(args)) = cli.command else { panic!("not bench") };
        assert_eq!((&args.n_prompt[..], &args.n_gen[..], &args.depths[..]), (&[16, 32][..], &[4][..], &[0, 64][..]));
        assert_eq!(args.source(), ModelSource::Synthetic { name: "llama-3.2-1b".into(), weight_type: "Q4_0".into() });
        assert_eq!(args.format(), BenchOutput::Jsonl);
    }

    #[test]
    fn budgets_folder_limits_and_pipeline_reach_the_engine() {
        let words = ["ask", "--prompt", "q", "--vram-budget", "1GiB", "--ram-budget", "2GiB", "--disk-budget", "3GiB"];
        let more = ["--kv-dir", "/lib", "--kv-dtype", "q4", "--limit", "nvme=1GiB", "--pipeline", "off", "--kv-policy", "full"];
        let cli = parse(&[&words[..], &more[..], &["--checked-shaders", "--exact"]].concat()).unwrap();
        let Some(Command::Ask(args)) = cli.command else { panic!("not ask") };
        let gib = |n: u64| Some(Bytes(n << 30));
        let expected = LoadOptions {
            budgets: Tiers { vram: gib(1), ram: gib(2), disk: gib(3) },
            kv_dir: Some("/lib".into()),
            kv_dtype: KvDtype::Q4,
            limits: LinkLimits { pcie: None, nvme: Some(1 << 30) },
            synchronous: true,
            checked_shaders: true,
            exact: true,
            ..LoadOptions::default()
        };
        assert_eq!(args.device.options(), expected);
        assert!(!args.no_save && !args.reuse_anywhere);
        let cli = parse(&["ask", "--prompt", "q"]).unwrap();
        let Some(Command::Ask(args)) = cli.command else { panic!("not ask") };
        assert_eq!(args.device.options(), LoadOptions::default());
    }

    #[test]
    fn importance_is_a_share_a_percentage_or_a_number_of_tokens() {
        let amount = |importance: &[&str]| {
            let cli = parse(&[&["ask", "--prompt", "q", "--kv-policy", "leoam"], importance].concat()).unwrap();
            let Some(Command::Ask(args)) = cli.command else { panic!("not ask") };
            args.device.options().policy.unwrap().amount
        };
        assert_eq!(amount(&[]), SelectionBudget::Rate(0.1));
        assert_eq!(
            (amount(&["--importance", "1"]), amount(&["--importance", "25%"])),
            (SelectionBudget::Rate(1.0), SelectionBudget::Rate(0.25))
        );
        assert_eq!(amount(&["--importance", "1024"]), SelectionBudget::Tokens(1024));
        assert_eq!(amount(&["--mass", "0.9"]), SelectionBudget::Mass { mass: 0.9, floor: 0.1 });
    }

    #[test]
    fn ask_documents_and_prompts_repeat() {
        let cli = parse(&["ask", "--doc", "a.txt", "b.md", "--doc", "c.txt", "--prompt", "one", "--prompt", "two"]).unwrap();
        let Some(Command::Ask(args)) = cli.command else { panic!("not ask") };
        assert_eq!(args.docs.len(), 3);
        assert_eq!(args.prompts, ["one", "two"]);
        assert_eq!(args.model.source(), ModelSource::BuiltIn);
    }
}
