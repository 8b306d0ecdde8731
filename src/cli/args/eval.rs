//! The arguments of `strata eval`.

use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args, Subcommand};

use super::{DeviceArgs, ModelArg, at_least_one};

/// `strata eval`
#[derive(Debug, Subcommand)]
pub enum EvalCommand {
    /// How far a policy's next-token distributions are from those of exact attention, on the same tokens
    ///
    /// The text is run twice: with exact attention, f16 KV and no budgets, then as the flags say.
    Kld(EvalKldArgs),
    /// Which share of planted facts is found in documents of given lengths, at given depths
    Needle(EvalNeedleArgs),
}

/// `strata eval kld`
#[derive(Debug, Args)]
pub struct EvalKldArgs {
    /// Text to read, UTF-8, taken as it is (the model's own start token is put in front)
    #[arg(long, value_name = "FILE", env = "STRATA_TEXT")]
    pub text: PathBuf,
    /// Tokens that are prefilled before the first one that is compared
    #[arg(long, value_name = "N", default_value_t = 1024, env = "STRATA_PREFIX", value_parser = at_least_one)]
    pub prefix: usize,
    /// Tokens after them that are decoded one by one, and compared
    #[arg(long, value_name = "T", default_value_t = 128, env = "STRATA_EVAL_TOKENS", value_parser = at_least_one)]
    pub tokens: usize,
    /// where results go
    #[command(flatten)]
    pub out: ResultsArgs,
    /// which model
    #[command(flatten)]
    pub model: ModelArg,
    /// which device, and what is compared
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// `strata eval needle`
#[derive(Debug, Args)]
pub struct EvalNeedleArgs {
    /// Lengths of the context in tokens: document, question and answer
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "4096,16384", env = "STRATA_LENGTHS")]
    #[arg(value_parser = at_least_one)]
    pub lengths: Vec<usize>,
    /// Where the facts stand, percent of the document
    #[arg(long, value_name = "PERCENT,..", value_delimiter = ',', default_value = "0,25,50,75,100", env = "STRATA_DEPTHS")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100))]
    pub depths: Vec<u32>,
    /// Facts at each depth of a document, and questions about them
    #[arg(long, value_name = "N", default_value_t = 2, env = "STRATA_QUESTIONS", value_parser = at_least_one)]
    pub questions: usize,
    /// Seeds of the documents and facts: one document of each length for each seed
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1", env = "STRATA_SEEDS")]
    pub seeds: Vec<u64>,
    /// After each answer, ask for another fact in the same conversation
    #[arg(long, env = "STRATA_TWO_QUESTIONS", value_parser = FalseyValueParser::new())]
    pub two_questions: bool,
    /// Text to plant the facts in, UTF-8 [default: made-up prose]
    #[arg(long, value_name = "FILE", env = "STRATA_TEXT")]
    pub text: Option<PathBuf>,
    /// An answer ends after N tokens at the latest
    #[arg(long, value_name = "N", default_value_t = 48, env = "STRATA_MAX_TOKENS", value_parser = at_least_one)]
    pub max_tokens: usize,
    /// where results go
    #[command(flatten)]
    pub out: ResultsArgs,
    /// which model
    #[command(flatten)]
    pub model: ModelArg,
    /// which device
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// Where the results of a measurement go.
#[derive(Debug, Args, Default)]
pub struct ResultsArgs {
    /// Folder to write the results to, as JSON and as an SVG heat map; made where there is none
    #[arg(long = "out", value_name = "DIR", env = "STRATA_OUT")]
    pub dir: Option<PathBuf>,
    /// Print JSON lines: progress, results, and last a summary
    #[arg(long, env = "STRATA_JSON", value_parser = FalseyValueParser::new())]
    pub json: bool,
}

impl EvalCommand {
    /// The command prints JSON lines.
    pub fn wants_json(&self) -> bool {
        match self {
            EvalCommand::Kld(args) => args.out.json,
            EvalCommand::Needle(args) => args.out.json,
        }
    }
}
