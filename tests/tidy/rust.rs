//! Text of Rust and WGSL in parts: code, comments, literals; and the tokens of the code.

/// A word, `::`, `->`, `=>` or another single character of the code.
#[derive(Clone, Copy, Debug)]
pub struct Token<'a> {
    pub text: &'a str,
    /// line, from 1
    pub line: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Code,
    Comment,
    Literal,
}

/// The code alone, line by line: no comments, and nothing between the quotes of a literal.
pub fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    for (part, piece) in parts(text) {
        match part {
            Part::Code => code.push_str(piece),
            Part::Comment => push_newlines(&mut code, piece),
            Part::Literal => {
                let quote = if piece.ends_with('\'') { '\'' } else { '"' };
                code.push(quote);
                push_newlines(&mut code, piece);
                code.push(quote);
            }
        }
    }
    code
}

/// The comments alone, line by line, with their slashes.
pub fn comments_of(text: &str) -> String {
    let mut comments = String::new();
    for (part, piece) in parts(text) {
        match part {
            Part::Comment => comments.push_str(piece),
            _ => push_newlines(&mut comments, piece),
        }
    }
    comments
}

/// Tokens of code that has no comments and no literals.
pub fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let (mut at, mut line) = (0, 1);
    while let Some(c) = code[at..].chars().next() {
        let rest = &code[at..];
        let len = if is_word(c) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else if ["::", "->", "=>"].iter().any(|pair| rest.starts_with(pair)) {
            2
        } else {
            c.len_utf8()
        };
        if !c.is_whitespace() {
            found.push(Token { text: &rest[..len], line });
        }
        line += usize::from(c == '\n');
        at += len;
    }
    found
}

/// The tokens that are built without `cfg(test)`, and the modules that only tests have (`#[cfg(test)] mod name;`).
pub fn without_tests<'a>(all: &[Token<'a>]) -> (Vec<Token<'a>>, Vec<&'a str>) {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut shipped, mut modules) = (Vec::with_capacity(all.len()), Vec::new());
    let mut at = 0;
    while at < all.len() {
        if all[at..].iter().map(|t| t.text).take(MARK.len()).eq(MARK) {
            let item = &all[at + MARK.len()..];
            let len = item_len(item);
            if let Some(found) = item[..len].windows(3).find(|w| w[0].text == "mod" && w[2].text == ";") {
                modules.push(found[1].text);
            }
            at += MARK.len() + len;
        } else {
            shipped.push(all[at]);
            at += 1;
        }
    }
    (shipped, modules)
}

/// Number of tokens of the item at the front, up to its `;` or the brace that closes it.
fn item_len(tokens: &[Token<'_>]) -> usize {
    let mut nested = 0usize;
    for (n, token) in tokens.iter().enumerate() {
        match token.text {
            "{" | "(" | "[" => nested += 1,
            "}" | ")" | "]" => {
                nested = nested.saturating_sub(1);
                if nested == 0 && token.text == "}" {
                    return n + 1;
                }
            }
            ";" if nested == 0 => return n + 1,
            _ => {}
        }
    }
    tokens.len()
}

pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn push_newlines(out: &mut String, piece: &str) {
    out.extend(piece.chars().filter(|c| *c == '\n'));
}

/// The whole text, cut into parts.
fn parts(text: &str) -> Vec<(Part, &str)> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let (mut at, mut start) = (0, 0);
    while at < bytes.len() {
        let Some((part, len)) = special(text, at) else {
            at += 1;
            continue;
        };
        if start < at {
            found.push((Part::Code, &text[start..at]));
        }
        found.push((part, &text[at..at + len]));
        at += len;
        start = at;
    }
    if start < at {
        found.push((Part::Code, &text[start..at]));
    }
    found
}

/// The comment or literal that begins at a byte, with its length in bytes.
fn special(text: &str, at: usize) -> Option<(Part, usize)> {
    let rest = &text.as_bytes()[at..];
    match rest {
        [b'/', b'/', ..] => Some((Part::Comment, rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()))),
        [b'/', b'*', ..] => Some((Part::Comment, block_comment(rest))),
        [b'"', ..] => Some((Part::Literal, quoted(rest, b'"'))),
        [b'r', b'"' | b'#', ..] if !text[..at].ends_with(|c| is_word(c) && c != 'b') => {
            raw_string(rest).map(|len| (Part::Literal, len))
        }
        [b'\'', b'\\', ..] => Some((Part::Literal, quoted(rest, b'\''))),
        [b'\'', ..] => {
            let mut after = text[at + 1..].chars();
            let c = after.next().filter(|c| *c != '\'')?;
            (after.next() == Some('\'')).then_some((Part::Literal, c.len_utf8() + 2))
        }
        _ => None,
    }
}

fn block_comment(bytes: &[u8]) -> usize {
    let (mut at, mut nested) = (0, 0);
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (at, nested) = (at + 2, nested + 1),
            [b'*', b'/', ..] => (at, nested) = (at + 2, nested - 1),
            _ => at += 1,
        }
        if nested == 0 {
            break;
        }
    }
    at
}

fn quoted(bytes: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

fn raw_string(bytes: &[u8]) -> Option<usize> {
    let n_hash = bytes[1..].iter().take_while(|b| **b == b'#').count();
    let open = 1 + n_hash + 1;
    if bytes.get(open - 1) != Some(&b'"') {
        return None;
    }
    let close = [&b"\""[..], &b"#".repeat(n_hash)].concat();
    let len = bytes[open..].windows(close.len()).position(|w| w == close);
    Some(len.map_or(bytes.len(), |len| open + len + close.len()))
}

#[test]
fn code_has_no_comments_and_no_literals() {
    assert_eq!(code_of("a // b\nc(\"d // e\") // f"), "a \nc(\"\") ");
    assert_eq!(code_of("'\"' 'a' '\\'' &'a str // x"), "'' '' '' &'a str ");
    assert_eq!(code_of("r#\"{ \" // \"# } br\"{\" bar\"{\""), "\"\" } b\"\" bar\"\"");
    assert_eq!(code_of("a /* b /* c */ d\n*/ e"), "a \n e");
    assert_eq!(code_of("\"one \\\n  two // three\" x"), "\"\n\" x");
}

#[test]
fn comments_keep_their_lines() {
    assert_eq!(comments_of("a // b\n\"// c\"\n/// d\n"), "// b\n\n/// d\n");
}

#[test]
fn tokens_have_words_pairs_and_lines() {
    let texts = |code| tokens(code).iter().map(|t| t.text).collect::<Vec<_>>();
    assert_eq!(texts("a_1::b -> c=>{é}"), ["a_1", "::", "b", "->", "c", "=>", "{", "é", "}"]);
    assert_eq!(tokens("a\n\nb").last().map(|t| t.line), Some(3));
}

#[test]
fn tests_are_left_out() {
    let code = "a; #[cfg(test)] #[path = \"\"] mod b; #[cfg(test)] mod tests { fn c() { d } } #[cfg(unix)] e";
    let all = tokens(code);
    let (shipped, modules) = without_tests(&all);
    assert_eq!(shipped.iter().map(|t| t.text).collect::<String>(), "a;#[cfg(unix)]e");
    assert_eq!(modules, ["b"]);
}
