//! `strata tokenize`: the token ids of a text or a document, as one line of JSON.

use super::args::TokenizeArgs;
use super::console::Console;
use super::error::CliError;
use super::input::{self, Encoding};

/// Prints the ids. A document goes through the same reader as for `ask`, where control tokens are text like any other; a
/// text is taken as it is, control tokens included.
///
/// # Errors
/// The file, or the model's tokenizer, at fault.
pub fn run(args: &TokenizeArgs, console: &mut Console) -> Result<(), CliError> {
    let (text, parse_special) = match (&args.text, &args.doc) {
        (Some(path), _) => (input::read_text(path)?, true),
        (None, Some(path)) => (input::read_document(path)?.text, false),
        (None, None) => return Err(CliError::Input("give --text FILE or --doc FILE".to_owned())),
    };
    let encoding = Encoding { with_start: !args.no_special, parse_special };
    console.json_line(&input::token_ids(&args.model.source(), &text, encoding)?)
}
