//! Arguments, wiring, window or headless run.

use std::process::ExitCode;

use strata::cli::{self, Invocation, Window};

fn main() -> ExitCode {
    match cli::parse(std::env::args_os()) {
        Invocation::Done(code) => code,
        Invocation::Headless(command) => cli::run(&command),
        Invocation::Window(window) => match open_window(window) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => cli::fail(error),
        },
    }
}

/// The window, on its own engine.
fn open_window(_: Window) -> anyhow::Result<()> {
    anyhow::bail!("this build has no window; run `strata --help` for what it has")
}
