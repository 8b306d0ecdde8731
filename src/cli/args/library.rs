//! Arguments of `strata library`.

use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args, Subcommand};

use super::device::{DeviceArgs, FolderArg};
use super::model::ModelArg;

/// `strata library`
#[derive(Debug, Subcommand)]
pub enum LibraryCommand {
    /// List the saved documents, most recently used first
    List(LibraryArgs),
    /// Prefill documents ahead of questions and save them; Ctrl-C saves what is done so far
    Add(Box<LibraryAddArgs>),
    /// Delete a saved document; its file stays
    Remove(LibraryRemoveArgs),
    /// Verify every saved page; exit 1 if one is damaged. Damaged pages are not repaired now, but computed again when needed
    Verify(LibraryArgs),
}

/// `strata library list` and `verify`
#[derive(Debug, Args)]
pub struct LibraryArgs {
    /// library
    #[command(flatten)]
    pub folder: FolderArg,
    /// Print JSON lines, one per document
    #[arg(long, env = "STRATA_JSON", value_parser = FalseyValueParser::new())]
    pub json: bool,
}

/// `strata library add`
#[derive(Debug, Args)]
pub struct LibraryAddArgs {
    /// Document to save: text, Markdown, HTML, PDF, DOCX or EPUB; may repeat, and each is saved separately
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// model
    #[command(flatten)]
    pub model: ModelArg,
    /// GPU
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Print JSON lines: progress, and a summary per document
    #[arg(long, env = "STRATA_JSON", value_parser = FalseyValueParser::new())]
    pub json: bool,
}

/// `strata library remove`
#[derive(Debug, Args)]
pub struct LibraryRemoveArgs {
    /// Id of the document in `strata library list`, or its first digits
    #[arg(value_name = "ID")]
    pub id: String,
    /// library
    #[command(flatten)]
    pub folder: FolderArg,
}
