//! Arguments of `strata eval`.

use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args, Subcommand};

use super::device::DeviceArgs;
use super::model::ModelArg;
use super::values::at_least_one;

/// `strata eval`
#[derive(Debug, Subcommand)]
pub enum EvalCommand {
    /// Compare a policy's next-token distributions with those of exact attention, on the same tokens
    ///
    /// The text is run twice: with exact attention, f16 KV and no budgets, then with the given flags.
    Kld(EvalKldArgs),
    /// Measure the share of planted facts that is found in documents of given lengths, at given depths
    Needle(EvalNeedleArgs),
}

/// `strata eval kld`
#[derive(Debug, Args)]
pub struct EvalKldArgs {
    /// Text to read, UTF-8, taken verbatim (the model's start token is put in front)
    #[arg(long, value_name = "FILE", env = "STRATA_TEXT")]
    pub text: PathBuf,
    /// Tokens to prefill before the first compared one
    #[arg(long, value_name = "N", default_value_t = 1024, env = "STRATA_PREFIX", value_parser = at_least_one)]
    pub prefix: usize,
    /// Tokens after the prefix to decode one by one and compare
    #[arg(long, value_name = "T", default_value_t = 128, env = "STRATA_EVAL_TOKENS", value_parser = at_least_one)]
    pub tokens: usize,
    /// output of results
    #[command(flatten)]
    pub out: ResultsArgs,
    /// model
    #[command(flatten)]
    pub model: ModelArg,
    /// GPU, and the policy to compare
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// `strata eval needle`
#[derive(Debug, Args)]
pub struct EvalNeedleArgs {
    /// Context lengths in tokens, which document, question and answer must fit
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "4096,16384", env = "STRATA_LENGTHS")]
    #[arg(value_parser = at_least_one)]
    pub lengths: Vec<usize>,
    /// Depths of the facts, in percent of the document
    #[arg(long, value_name = "PERCENT,..", value_delimiter = ',', default_value = "0,25,50,75,100", env = "STRATA_DEPTHS")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100))]
    pub depths: Vec<u32>,
    /// Facts per depth of a document, with one question each
    #[arg(long, value_name = "N", default_value_t = 2, env = "STRATA_QUESTIONS", value_parser = at_least_one)]
    pub questions: usize,
    /// Seeds of documents and facts; each length gets one document per seed
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1", env = "STRATA_SEEDS")]
    pub seeds: Vec<u64>,
    /// After each answer, ask about another fact in the same conversation
    #[arg(long, env = "STRATA_TWO_QUESTIONS", value_parser = FalseyValueParser::new())]
    pub two_questions: bool,
    /// Text to plant the facts in, UTF-8 [default: synthetic text]
    #[arg(long, value_name = "FILE", env = "STRATA_TEXT")]
    pub text: Option<PathBuf>,
    /// Longest answer, in tokens
    #[arg(long, value_name = "N", default_value_t = 48, env = "STRATA_MAX_TOKENS", value_parser = at_least_one)]
    pub max_tokens: usize,
    /// output of results
    #[command(flatten)]
    pub out: ResultsArgs,
    /// model
    #[command(flatten)]
    pub model: ModelArg,
    /// GPU
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// Output of a measurement's results.
#[derive(Debug, Args, Default)]
pub struct ResultsArgs {
    /// Folder for the results, as JSON and as an SVG heat map; created if missing
    #[arg(long = "out", value_name = "DIR", env = "STRATA_OUT")]
    pub dir: Option<PathBuf>,
    /// Print JSON lines: progress, results, and finally a summary
    #[arg(long, env = "STRATA_JSON", value_parser = FalseyValueParser::new())]
    pub json: bool,
}

impl EvalCommand {
    /// True if the command prints JSON lines.
    pub fn writes_json(&self) -> bool {
        match self {
            EvalCommand::Kld(args) => args.out.json,
            EvalCommand::Needle(args) => args.out.json,
        }
    }
}
