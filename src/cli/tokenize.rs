//! `strata tokenize`: prints the token ids of a text or a document as one line of JSON.

use super::args::TokenizeArgs;
use super::console::Console;
use super::error::CliError;
use super::input::{self, Encoding};

/// Prints the ids. A document is read as by `ask`, so its control tokens are plain text. A text is taken verbatim, control
/// tokens included.
///
/// # Errors
/// A bad file, or a bad tokenizer of the model.
pub fn run(args: &TokenizeArgs, console: &mut Console) -> Result<(), CliError> {
    let (text, parse_special) = match (&args.text, &args.doc) {
        (Some(path), _) => (input::read_text(path)?, true),
        (None, Some(path)) => (input::read_document(path)?.text, false),
        (None, None) => return Err(CliError::Input("there is no text. Give --text FILE or --doc FILE".to_owned())),
    };
    let encoding = Encoding { with_start: !args.no_special, parse_special };
    console.json_line(&input::token_ids(&args.model.source(), &text, encoding)?)
}
