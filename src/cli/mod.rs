//! Command line: everything that runs without a window.
//!
//! ```text
//! argv ─► args ─► ask │ logits │ tokenize │ bench │ eval │ library │ doctor ─► Session ─► engine
//!                   └──────────── Console ◄────────────────────────────────┘         stdout: answers, JSON; stderr: progress, errors
//! ```
//! 1. Exit code 2 for bad usage or bad input, 1 for a failure while running, 0 otherwise; an error is one line on stderr.
//! 2. No panics; if the reader of stdout is gone, the run ends silently.
//! 3. Names that scripts rely on (`--json` fields, `-o` columns) never change.

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

/// Result of parsing the arguments.
pub enum Invocation {
    /// no command: open the window
    Window(Box<WindowStart>),
    /// a command for [`run`]
    Headless(Box<Headless>),
    /// nothing left to do: help, the version or a usage error was printed
    Done(ExitCode),
}

/// Start options of the window: `STRATA_MODEL`, `STRATA_GPU` and the like, or the defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowStart {
    /// model to load
    pub model: ModelSource,
    /// load options
    pub load: LoadOptions,
    /// documents to open
    pub documents: Vec<PathBuf>,
}

/// A command that runs without a window.
pub struct Headless(Command);

/// Parses the arguments (the first is the program's name) and the environment.
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
            // A closed pipe is no failure of help.
            let _ = error.print();
            Invocation::Done(ExitCode::SUCCESS)
        }
        Err(error) => Invocation::Done(usage_error(&error).report(&mut std::io::stderr())),
    }
}

fn window(documents: Vec<PathBuf>) -> Result<Invocation, clap::Error> {
    let env = WindowEnv::try_parse_from(["strata"])?;
    Ok(Invocation::Window(Box::new(WindowStart { model: env.model.source(), load: env.device.options(), documents })))
}

/// Reports a first word that is neither a command nor a file.
fn no_such(path: &Path) -> ExitCode {
    let sentence = format!("there is no command and no file {}. See `strata --help`", path.display());
    CliError::Input(sentence).report(&mut std::io::stderr())
}

/// Runs a command and returns the exit code.
pub fn run(headless: &Headless) -> ExitCode {
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    let mut console = Console::of_process(&mut out, &mut err, headless.writes_json());
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

/// Prints on stderr why the window did not open, or closed, and returns the exit code.
pub fn fail(reason: impl std::fmt::Display) -> ExitCode {
    CliError::Failed(reason.to_string()).report(&mut std::io::stderr())
}

/// Prints on stderr that this program has no window, and returns the exit code of a usage error.
pub fn no_window() -> ExitCode {
    let sentence = "this program was built without a window: name a command (`strata --help` lists them), or build it with \
                    the feature `window`";
    CliError::Input(sentence.to_owned()).report(&mut std::io::stderr())
}

impl Headless {
    /// True if progress and notices are JSON lines too. The lines of `bench` are results only.
    fn writes_json(&self) -> bool {
        match &self.0 {
            Command::Ask(args) => args.json,
            Command::Logits(args) => args.json,
            Command::Eval(command) => command.writes_json(),
            Command::Library(LibraryCommand::Add(args)) => args.json,
            Command::Tokenize(_) | Command::Bench(_) | Command::Library(_) | Command::Doctor(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_without_a_window_is_a_usage_error_without_a_command() {
        assert_eq!(no_window(), ExitCode::from(2));
    }
}
