//! Markdown blocks: splits a long text into blocks that can be laid out one by one.

use std::ops::Range;

/// Byte ranges that cover `text`. A block of `min_bytes` or more ends at the next blank line that a paragraph at the left margin
/// follows: never inside a fence, a list item, a quotation or a table.
pub fn blocks(text: &str, min_bytes: usize) -> Vec<Range<usize>> {
    let mut blocks = Vec::new();
    let (mut start, mut at) = (0, 0);
    let mut fence: Option<char> = None;
    let mut after_blank = false;
    for line in text.split_inclusive('\n') {
        let body = line.trim_end();
        let mark = body
            .trim_start()
            .chars()
            .next()
            .filter(|_| body.trim_start().starts_with("```") || body.trim_start().starts_with("~~~"));
        if fence.is_none() && after_blank && at - start >= min_bytes && starts_paragraph(body) {
            blocks.push(start..at);
            start = at;
        }
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            _ => {}
        }
        after_blank = body.is_empty();
        at += line.len();
    }
    if start < text.len() {
        blocks.push(start..text.len());
    }
    blocks
}

fn starts_paragraph(line: &str) -> bool {
    let Some(first) = line.chars().next() else { return false };
    let list = matches!(first, '-' | '*' | '+' | '>' | '|' | ' ' | '\t' | ':');
    let numbered = first.is_ascii_digit() && line.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with(['.', ')']);
    !list && !numbered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str, min: usize) -> Vec<&str> {
        blocks(text, min).into_iter().map(|r| &text[r]).collect()
    }

    #[test]
    fn blocks_cover_the_text_and_end_at_blank_lines() {
        let text = "One.\n\nTwo.\nstill two.\n\nThree.";
        assert_eq!(parts(text, 1), ["One.\n\n", "Two.\nstill two.\n\n", "Three."]);
        assert_eq!(parts(text, 1000), [text]);
        assert_eq!(parts("", 1), Vec::<&str>::new());
    }

    #[test]
    fn fences_and_lists_stay_whole() {
        let code = "```\na\n\nb\n```\n";
        assert_eq!(parts(code, 1), [code]);
        let list = "1. a\n\n2. b\n\n   more b\n\n- c";
        assert_eq!(parts(list, 1), [list]);
        assert_eq!(parts("```\n~~~\n\nx\n```\n\nafter", 1), ["```\n~~~\n\nx\n```\n\n", "after"]);
    }

    #[test]
    fn blocks_of_any_text_join_to_it() {
        for text in ["é\n\nü\n\n", "\n\n\n", "a", "```\nopen\n\nnever closed", "x\r\n\r\ny"] {
            assert_eq!(parts(text, 1).concat(), text);
        }
    }
}
