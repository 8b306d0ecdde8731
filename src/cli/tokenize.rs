//! `strata tokenize`: the token ids of a text or a document, as one line of JSON.

use super::args::TokenizeArgs;
use super::console::Console;
use super::error::CliError;
use super::inputs;

/// Prints the ids. A document goes through the same reader as for `ask`, a text is taken as it is.
///
/// # Errors
/// The file, or the model's tokenizer, at fault.
pub fn run(args: &TokenizeArgs, console: &mut Console) -> Result<(), CliError> {
    let text = match (&args.text, &args.doc) {
        (Some(path), _) => inputs::read_text(path)?,
        (None, Some(path)) => inputs::document_text(path)?,
        (None, None) => return Err(CliError::Input("give --text FILE or --doc FILE".to_owned())),
    };
    console.json_line(&inputs::token_ids(&args.model.source(), &text, !args.no_special)?)
}
