//! The command line: everything that runs without a window.
//!
//! ```text
//! argv ─► args ─► ask │ logits │ tokenize │ bench │ eval │ library │ doctor ─► Session ─► engine
//!                   └──────────── Console ◄────────────────────────────────┘         stdout: answers, JSON; stderr: progress, errors
//! ```
//! 1. Exit code 2 for bad usage or bad input, 1 for a failure while running, 0 otherwise; an error is one sentence on stderr.
//! 2. Never a panic; a reader of stdout that went away ends the run silently.
//! 3. What scripts read (`--json` fields, `-o` columns) keeps its names.

mod args;
mod ask;
mod bench;
mod console;
mod doctor;
mod error;
mod eval;
mod input;
mod interrupt;
mod library;
mod logits;
#[cfg(test)]
mod mock_engine;
mod npy;
mod session;
mod summary;
mod tokenize;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command, LibraryCommand, WindowEnv};
use console::Console;
use error::{CliError, usage_error};
use interrupt::Interrupt;
use session::Session;

use crate::engine::{LoadOptions, ModelSource};

/// What the arguments ask for.
pub enum Invocation {
    /// no command: the window opens
    Window(Box<Window>),
    /// a command, to be handed to [`run`]
    Headless(Box<Headless>),
    /// all was said: help, the version, or what is wrong with the arguments
    Done(ExitCode),
}

/// What the window starts with: the environment's `STRATA_MODEL`, `STRATA_GPU` and the like, or the defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// which model
    pub model: ModelSource,
    /// how it is loaded
    pub load: LoadOptions,
    /// what is opened in it
    pub documents: Vec<PathBuf>,
}

/// A command that runs without a window.
pub struct Headless(Command);

/// Reads the arguments (the first is the program's name) and the environment.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Invocation {
    let parsed = Cli::try_parse_from(args).and_then(|cli| match (cli.command, cli.documents) {
        (Some(command), _) => Ok(Invocation::Headless(Box::new(Headless(command)))),
        (None, documents) => match documents.iter().find(|path| !path.exists()) {
            Some(path) => Ok(Invocation::Done(no_such(path))),
            None => window(documents),
        },
    });
    match parsed {
        Ok(invocation) => invocation,
        Err(error) if !error.use_stderr() => {
            // Help into a pipe that was closed is no failure.
            let _ = error.print();
            Invocation::Done(ExitCode::SUCCESS)
        }
        Err(error) => Invocation::Done(usage_error(&error).report(&mut std::io::stderr())),
    }
}

fn window(documents: Vec<PathBuf>) -> Result<Invocation, clap::Error> {
    let env = WindowEnv::try_parse_from(["strata"])?;
    Ok(Invocation::Window(Box::new(Window { model: env.model.source(), load: env.device.options(), documents })))
}

/// A first word that is neither a command nor a file.
fn no_such(path: &Path) -> ExitCode {
    let sentence = format!("there is no command and no file {}; see `strata --help`", path.display());
    CliError::Input(sentence).report(&mut std::io::stderr())
}

/// Runs a command to its end and gives the exit code.
pub fn run(headless: &Headless) -> ExitCode {
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    let mut console = Console::of_process(&mut out, &mut err, headless.wants_json());
    let start = || Session::new(crate::engine::spawn(|| {}), Interrupt::install());
    let result = match &headless.0 {
        Command::Ask(args) => ask::run(args, start, &mut console),
        Command::Logits(args) => logits::run(args, start, &mut console),
        Command::Tokenize(args) => tokenize::run(args, &mut console),
        Command::Bench(args) => bench::run(args, start, &mut console),
        Command::Eval(command) => eval::run(command, start, &mut console),
        Command::Library(command) => library::run(command, start, Interrupt::install, &mut console),
        Command::Doctor(args) => doctor::run(args, &mut console),
    };
    drop(console);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(&mut std::io::stderr()),
    }
}

/// Says on stderr why the window did not open, or closed, and gives the exit code.
pub fn fail(reason: impl std::fmt::Display) -> ExitCode {
    CliError::Failed(reason.to_string()).report(&mut std::io::stderr())
}

impl Headless {
    /// Progress and notes are JSON lines too. Only for commands whose contract says so: the lines of `bench` are results.
    fn wants_json(&self) -> bool {
        match &self.0 {
            Command::Ask(args) => args.json,
            Command::Logits(args) => args.json,
            Command::Eval(command) => command.wants_json(),
            Command::Library(LibraryCommand::Add(args)) => args.json,
            Command::Tokenize(_) | Command::Bench(_) | Command::Library(_) | Command::Doctor(_) => false,
        }
    }
}
