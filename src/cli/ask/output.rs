//! Output of an answer: its pieces, then its quotations and its cost.

use crate::cli::console::Console;
use crate::cli::error::CliError;
use crate::cli::summary::{Quote, Quotes};
use crate::engine::{AttentionKind, ModelInfo, RequestSummary};

/// Largest number of missing mentions that are listed.
const MAX_SHOWN_MISSING: usize = 5;

/// Prints a piece of the answer to question `i`, counted from 1, after `n` tokens.
pub(super) fn show_piece(i: usize, text: &str, n: usize, console: &mut Console) -> Result<(), CliError> {
    if !console.is_json() {
        return console.text(text);
    }
    console.json_line(&serde_json::json!({ "event": "token", "turn": i, "text": text, "n": n }))
}

/// Ends the line of an answer, if it has not ended.
pub(super) fn end_text(text: &str, console: &mut Console) -> Result<(), CliError> {
    if text.ends_with('\n') { Ok(()) } else { console.text("\n") }
}

/// Prints quotations, the model, and the cost of an answer.
pub(super) fn print_details(info: &ModelInfo, cost: &RequestSummary, quotes: &Quotes, console: &mut Console) {
    let describe = |quote: &Quote| {
        let place = match (&quote.document, quote.page) {
            (Some(document), Some(page)) => format!("{document}, page {page}"),
            (Some(document), None) => document.clone(),
            (None, _) => "not in the document".to_owned(),
        };
        format!("“{}”: {place}", shortened(&quote.text))
    };
    quotes.quotes.iter().for_each(|quote| console.detail(&describe(quote)));
    for quote in quotes.missing.iter().take(MAX_SHOWN_MISSING) {
        console.detail(&format!("the list misses {}", describe(quote)));
    }
    if let n @ 1.. = quotes.missing.len().saturating_sub(MAX_SHOWN_MISSING) {
        console.detail(&format!("and {n} more"));
    }
    let approximate = match cost.approximate_tokens {
        0 => String::new(),
        n => format!(", approximate: {n} tokens reused at another position"),
    };
    console.detail(&format!(
        "{} on {} · {}{approximate} · {} prompt tokens ({} cached), first token after {:.1} s · {} tokens at {:.1} tokens/s",
        info.name,
        info.adapter,
        match cost.attention {
            AttentionKind::Dense => "dense attention",
            AttentionKind::ExactOffload => "exact attention, offloaded",
            AttentionKind::Selective => "selective attention",
            AttentionKind::ExactByCost => "dense attention, as selecting would cost more",
        },
        cost.prompt_tokens,
        cost.cached_tokens,
        cost.first_token_ms / 1000.0,
        cost.generated_tokens,
        cost.tokens_per_s
    ));
}

/// Beginning of a quotation, on one line.
fn shortened(text: &str) -> String {
    const SHOWN_CHARS: usize = 60;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or(&line)),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortened_keeps_whole_characters() {
        assert_eq!(shortened("a\n b"), "a b");
        assert_eq!(shortened(&"é".repeat(61)), "é".repeat(60) + "…");
    }
}
