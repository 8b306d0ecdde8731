//! `strata eval`: measures the fidelity of a policy, on any model.
//!
//! ```text
//! text ─► kld ─► two runs over the same tokens ─► divergence ─┐
//! text, facts ─► haystack ─► needle ─► questions, answers ────┴► Console; results.json, heatmap.svg
//! ```
//! Invariants: 1. `full` is measured by the same code as every policy. 2. The same flags and seeds measure the same tokens.
//! 3. All texts are read and the output folder is created before a model is loaded.

mod divergence;
mod haystack;
mod heatmap;
mod kld;
mod needle;
mod results;
mod synthetic_text;

use super::args::EvalCommand;
use super::console::Console;
use super::error::CliError;
use super::session::Session;

/// Runs a measurement. `start` creates the session after all inputs are read.
///
/// # Errors
/// Bad texts, lengths, model or output folder; a failure of the engine; Ctrl-C.
pub fn run(command: &EvalCommand, start: impl FnOnce() -> Session, console: &mut Console) -> Result<(), CliError> {
    match command {
        EvalCommand::Kld(args) => kld::run(args, start, console),
        EvalCommand::Needle(args) => needle::run(args, start, console),
    }
}
