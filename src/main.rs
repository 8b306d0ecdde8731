//! Arguments, wiring, window or headless run.

use std::process::ExitCode;

use strata::app::WindowOptions;
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
fn open_window(window: Window) -> anyhow::Result<()> {
    let options = WindowOptions { initial_model: window.model, load: window.load, documents: Vec::new() };
    Ok(strata::app::run(options, strata::engine::spawn)?)
}
