//! The arguments of `strata library`.

use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args, Subcommand};

use super::{DeviceArgs, FolderArg, ModelArg};

/// `strata library`
#[derive(Debug, Subcommand)]
pub enum LibraryCommand {
    /// Show the saved documents, least recently used last
    List(LibraryArgs),
    /// Read documents ahead of questions, and keep the reading; Ctrl-C keeps what was read so far
    Add(Box<LibraryAddArgs>),
    /// Delete the saved reading of a document; the document itself stays
    Remove(LibraryRemoveArgs),
    /// Check every saved page; exit 1 where one is damaged. Nothing is repaired: damaged pages are read again when needed
    Verify(LibraryArgs),
}

/// `strata library list` and `verify`
#[derive(Debug, Args)]
pub struct LibraryArgs {
    /// which library
    #[command(flatten)]
    pub folder: FolderArg,
    /// Print JSON lines, one for each document
    #[arg(long, env = "STRATA_JSON", value_parser = FalseyValueParser::new())]
    pub json: bool,
}

/// `strata library add`
#[derive(Debug, Args)]
pub struct LibraryAddArgs {
    /// Document to read, UTF-8 text or Markdown; each is saved by itself
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// which model
    #[command(flatten)]
    pub model: ModelArg,
    /// which device
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Print JSON lines: progress, and a summary for each document
    #[arg(long, env = "STRATA_JSON", value_parser = FalseyValueParser::new())]
    pub json: bool,
}

/// `strata library remove`
#[derive(Debug, Args)]
pub struct LibraryRemoveArgs {
    /// Id of the document as `strata library list` shows it, or the beginning of it
    #[arg(value_name = "ID")]
    pub id: String,
    /// which library
    #[command(flatten)]
    pub folder: FolderArg,
}
