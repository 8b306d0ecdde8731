//! Command errors: every early end of a command as one line and an exit code.
//!
//! Invariant: every failure of a headless run is a [`CliError`], never a panic.

use std::io;
use std::process::ExitCode;

/// Error of a command.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// bad usage or bad input: exit 2
    #[error("{0}")]
    Input(String),
    /// a failure while running: exit 1
    #[error("{0}")]
    Failed(String),
    /// the reader of stdout is gone (`strata ask | head`): silent, exit 0
    #[error("the reader of the output is gone")]
    PipeClosed,
    /// stdout cannot be written: exit 1
    #[error("the output could not be written: {0}. Free some space, or write to another place")]
    Output(io::Error),
    /// Ctrl-C before any output: exit 1
    #[error("interrupted before the model was loaded")]
    Interrupted,
}

impl CliError {
    /// 2 for bad usage or bad input, 1 for a failure while running, 0 if the reader of stdout is gone.
    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::Input(_) => 2,
            CliError::Failed(_) | CliError::Output(_) | CliError::Interrupted => 1,
            CliError::PipeClosed => 0,
        }
    }

    /// Prints the message on stderr and returns the exit code.
    pub fn report(&self, stderr: &mut dyn io::Write) -> ExitCode {
        if !matches!(self, CliError::PipeClosed) {
            // If stderr is closed too, there is nowhere left to report.
            let _ = writeln!(stderr, "strata: {}", one_line(&self.to_string()));
        }
        ExitCode::from(self.exit_code())
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => CliError::PipeClosed,
            _ => CliError::Output(error),
        }
    }
}

/// Usage error of clap as one line: clap prints a paragraph for the fault, one for a tip, and one for the usage.
pub fn usage_error(error: &clap::Error) -> CliError {
    let text = error.render().to_string();
    let mut parts = Vec::new();
    for paragraph in text.split("\n\n") {
        let paragraph = one_line(paragraph);
        let fault = paragraph.strip_prefix("error: ").unwrap_or(&paragraph);
        if !fault.is_empty() && !fault.starts_with("Usage:") && !fault.starts_with("For more information") {
            parts.push(fault.to_owned());
        }
    }
    CliError::Input(format!("{}. Run `strata --help` for a list of commands and flags", parts.join("; ")))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::args::Cli;

    #[test]
    fn usage_error_is_one_line_with_the_flag() {
        let error = Cli::try_parse_from(["strata", "ask", "--prompt", "q", "--temperature", "hot"]).unwrap_err();
        let sentence = usage_error(&error).to_string();
        assert!(sentence.contains("--temperature") && sentence.contains("number from 0"), "{sentence}");
        assert!(!sentence.contains('\n') && sentence.contains("--help"), "{sentence}");
    }

    #[test]
    fn errors_have_the_exit_codes_of_the_contract() {
        let pipe = CliError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        let mut stderr = Vec::new();
        assert_eq!(pipe.exit_code(), 0);
        pipe.report(&mut stderr);
        assert!(stderr.is_empty());
        CliError::Input("two\nlines".into()).report(&mut stderr);
        assert_eq!(stderr, b"strata: two lines\n");
        assert_eq!(CliError::Input(String::new()).exit_code(), 2);
        assert_eq!(CliError::from(io::Error::from(io::ErrorKind::StorageFull)).exit_code(), 1);
    }
}
