//! Entry point: parses the arguments, then opens the window or runs a command.

use std::process::ExitCode;

use strata::cli::{self, Invocation, WindowStart};

fn main() -> ExitCode {
    if let Some(kind) = reads_document() {
        return strata::document::sandbox::serve(&kind);
    }
    quiet_vulkan();
    match cli::parse(std::env::args_os()) {
        Invocation::Done(code) => code,
        Invocation::Headless(command) => cli::run(&command),
        Invocation::Window(window) => open_window(*window),
    }
}

/// Format of the file to read, if this process is the sandboxed reader of one untrusted file.
fn reads_document() -> Option<String> {
    let mut args = std::env::args_os().skip(1);
    (args.next()? == strata::document::sandbox::ARGUMENT).then(|| args.next().unwrap_or_default().to_string_lossy().into_owned())
}

/// Opens the window with its own engine.
#[cfg(feature = "window")]
fn open_window(window: WindowStart) -> ExitCode {
    let folders = strata::app::persist::paths::Folders::of_user();
    let WindowStart { model: initial_model, load, documents } = window;
    let options = strata::app::WindowOptions { initial_model, load, documents, folders, handed_over: None };
    match strata::app::run(options, strata::engine::spawn) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => cli::fail(error),
    }
}

/// This program was built without the window.
#[cfg(not(feature = "window"))]
fn open_window(_: WindowStart) -> ExitCode {
    cli::no_window()
}

/// Sets `XDG_RUNTIME_DIR` if it is unset (ssh, containers, CI): without it Mesa's Vulkan drivers print warnings on stderr.
fn quiet_vulkan() {
    if cfg!(target_os = "linux") && std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        // SAFETY: this runs first; no other thread exists that could read the environment.
        unsafe { std::env::set_var("XDG_RUNTIME_DIR", std::env::temp_dir()) };
    }
}
