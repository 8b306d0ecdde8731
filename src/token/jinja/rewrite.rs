//! Rewriting: expressions of Jinja that minijinja lacks become calls of functions that [`super::python`] defines.
//!
//! ```text
//! {{ '%s: %s' % (a, b) ~ c }} ──► {{ python_text(python_mod('%s: %s', python_tuple(a, b)), c) }}
//! ```
//! Rewritten are `%` and `~`, tuples, and strings that follow each other. Invariants: 1. All else stays as it is, line ends too.
//! 2. A source that is not understood stays unchanged: minijinja reports the fault.
//! Source: the grammar of jinja2's parser, in which `~` binds less than `*`, and unary signs and filters bind more.

use super::python::{MOD, TEXT, TUPLE};

/// Largest nesting of brackets.
const MAX_DEPTH: usize = 100;
/// Operators of two characters.
const LONG_OPERATORS: [&str; 6] = ["**", "//", "==", "!=", "<=", ">="];
/// Operators that bind less than `~`; signs are such operators between two operands.
const SEPARATORS: [&str; 9] = [",", ":", "=", "==", "!=", "<", ">", "<=", ">="];
/// Words between operands.
const KEYWORDS: [&str; 9] = ["and", "or", "not", "in", "if", "else", "elif", "for", "recursive"];

/// A token, or brackets with their content.
#[derive(Debug)]
struct Item<'s> {
    /// white space before it
    gap: &'s str,
    kind: Kind<'s>,
}

#[derive(Debug)]
enum Kind<'s> {
    Word(&'s str),
    Text(&'s str),
    Operator(&'s str),
    Brackets { open: &'s str, inside: Vec<Item<'s>>, end_gap: &'s str, close: &'s str },
}

impl<'s> Item<'s> {
    fn operator(&self) -> Option<&'s str> {
        if let Kind::Operator(text) = self.kind { Some(text) } else { None }
    }

    fn word(&self) -> Option<&'s str> {
        if let Kind::Word(text) = self.kind { Some(text) } else { None }
    }

    fn is_operand_end(&self) -> bool {
        match self.kind {
            Kind::Word(word) => !KEYWORDS.contains(&word) && word != "is",
            Kind::Operator(_) => false,
            Kind::Text(_) | Kind::Brackets { .. } => true,
        }
    }
}

/// The source with its expressions rewritten.
pub(super) fn rewritten(source: &str) -> String {
    try_rewrite(source).unwrap_or_else(|| source.to_owned())
}

fn try_rewrite(source: &str) -> Option<String> {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find('{') {
        let (before, tag) = rest.split_at(start);
        out.push_str(before);
        let (opening, closing) = match tag.get(..2) {
            Some("{{") => ("{{", "}}"),
            Some("{%") => ("{%", "%}"),
            Some("{#") => {
                let end = tag.find("#}")? + 2;
                out.push_str(tag.get(..end)?);
                rest = tag.get(end..)?;
                continue;
            }
            _ => {
                out.push('{');
                rest = tag.get(1..)?;
                continue;
            }
        };
        let sign = usize::from(tag.get(2..)?.starts_with(['-', '+']));
        out.push_str(tag.get(..opening.len() + sign)?);
        let mut reader = Reader { rest: tag.get(opening.len() + sign..)?, closing };
        let items = reader.items(0)?;
        let is_statement = opening == "{%";
        let first = items.first().and_then(Item::word).filter(|_| is_statement);
        out.push_str(&emit(&items, first));
        rest = reader.rest;
        if first == Some("raw") {
            let end = end_of_raw(rest)?;
            out.push_str(rest.get(..end)?);
            rest = rest.get(end..)?;
        }
    }
    out.push_str(rest);
    Some(out)
}

/// Bytes up to the tag that ends a raw block.
fn end_of_raw(text: &str) -> Option<usize> {
    text.match_indices("{%")
        .map(|(at, _)| at)
        .find(|at| text.get(at + 2..).is_some_and(|tag| tag.trim_start_matches(['-', '+']).trim_start().starts_with("endraw")))
}

/// Reader of one tag.
struct Reader<'s> {
    rest: &'s str,
    closing: &'s str,
}

impl<'s> Reader<'s> {
    /// Items up to the end of the tag, which stays in `rest` with its white space, or up to a closing bracket.
    fn items(&mut self, depth: usize) -> Option<Vec<Item<'s>>> {
        let mut items = Vec::new();
        loop {
            let text = self.rest.trim_start();
            let gap = self.rest.get(..self.rest.len() - text.len())?;
            let signless = text.strip_prefix(['-', '+']).unwrap_or(text);
            let is_end = text.starts_with(self.closing) || signless.starts_with(self.closing);
            let first = text.chars().next()?;
            if depth == 0 && !is_end && matches!(first, ')' | ']' | '}') {
                return None;
            }
            if (depth == 0 && is_end) || (depth > 0 && matches!(first, ')' | ']' | '}')) {
                return Some(items);
            }
            self.rest = text;
            let kind = match first {
                '(' | '[' | '{' if depth < MAX_DEPTH => {
                    let open = self.take(1)?;
                    let inside = self.items(depth + 1)?;
                    let after = self.rest.trim_start();
                    let end_gap = self.rest.get(..self.rest.len() - after.len())?;
                    self.rest = after;
                    Kind::Brackets { open, inside, end_gap, close: self.take(1)? }
                }
                '(' | '[' | '{' => return None,
                '"' | '\'' => Kind::Text(self.take(text_len(text, first)?)?),
                c if c.is_ascii_digit() => Kind::Word(self.take(number_len(text))?),
                c if is_word(c) => Kind::Word(self.take(text.find(|c| !is_word(c)).unwrap_or(text.len()))?),
                c => {
                    let is_long = text.get(..2).is_some_and(|two| LONG_OPERATORS.contains(&two));
                    Kind::Operator(self.take(if is_long { 2 } else { c.len_utf8() })?)
                }
            };
            items.push(Item { gap, kind });
        }
    }

    fn take(&mut self, n_bytes: usize) -> Option<&'s str> {
        let (taken, rest) = self.rest.split_at_checked(n_bytes)?;
        self.rest = rest;
        Some(taken)
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Bytes of a string with its quotation marks.
fn text_len(text: &str, mark: char) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if c == mark {
            return Some(at + 1);
        }
    }
    None
}

fn number_len(text: &str) -> usize {
    let digits = |text: &str| text.find(|c| !is_word(c)).unwrap_or(text.len());
    let whole = digits(text);
    let fraction =
        text.get(whole..).and_then(|rest| rest.strip_prefix('.')).filter(|f| f.starts_with(|c: char| c.is_ascii_digit()));
    whole + fraction.map_or(0, |fraction| 1 + digits(fraction))
}

/// Text of items of one level. `statement` is the first word of a statement, which is no operand.
fn emit(items: &[Item<'_>], statement: Option<&str>) -> String {
    let mut out = String::new();
    let mut begin = 0;
    // The targets of a loop or an assignment are no tuples.
    let ends_targets = |item: &Item| match statement {
        Some("for") => item.word() == Some("in"),
        Some("set" | "with") => item.operator() == Some("="),
        Some("call") => true,
        _ => false,
    };
    let targets_end = items.iter().position(ends_targets).unwrap_or(0) + usize::from(statement == Some("call"));
    for i in 0..=items.len() {
        let is_end = items.get(i).is_none_or(|item| is_separator(items, begin, i, item, statement));
        if is_end {
            let (Some(segment), before) = (items.get(begin..i), begin.checked_sub(1).and_then(|b| items.get(b))) else { break };
            out.push_str(&chain(segment, before, begin < targets_end));
            out.extend(items.get(i).map(|separator| item_text(separator, false)));
            begin = i + 1;
        }
    }
    out
}

/// True if item `i` ends the operands that begin at item `begin`.
fn is_separator(items: &[Item<'_>], begin: usize, i: usize, item: &Item<'_>, statement: Option<&str>) -> bool {
    let before = |n: usize| i.checked_sub(n).filter(|at| *at >= begin).and_then(|at| items.get(at));
    match item.kind {
        Kind::Operator("+" | "-") => before(1).is_some_and(|b| b.operator().is_none()),
        Kind::Operator(text) => SEPARATORS.contains(&text),
        Kind::Word(_) if i == 0 && statement.is_some() => true,
        Kind::Word(word) => {
            // `x is not in y` is one operand, and so is `x.in`.
            let of_test = [before(1), before(2)].into_iter().flatten().any(|b| b.word() == Some("is"));
            let is_attribute = before(1).is_some_and(|b| matches!(b.operator(), Some("." | "|")));
            KEYWORDS.contains(&word) && !(of_test && matches!(word, "not" | "in")) && !is_attribute
        }
        _ => false,
    }
}

/// Text of operands with `~` and `*`, `/`, `//` and `%` between them.
fn chain(items: &[Item<'_>], before: Option<&Item<'_>>, is_target: bool) -> String {
    let terms: Vec<&[Item]> = items.split(|item| item.operator() == Some("~")).collect();
    let has_mod = items.iter().any(|item| item.operator() == Some("%"));
    if terms.len() == 1 && !has_mod {
        return run(items, before, is_target);
    }
    let gap = items.first().map_or("", |item| item.gap);
    let ends = items.iter().filter(|item| item.operator() == Some("~")).map(|item| item.gap).chain([""]);
    let products: Vec<(String, &str)> = terms.iter().map(|term| product(term)).zip(ends).collect();
    match products.as_slice() {
        [(one, _)] => format!("{gap}{}", one.trim_start()),
        all => {
            let texts: Vec<String> = all.iter().map(|(text, end)| format!("{text}{end}")).collect();
            format!("{gap}{TEXT}({})", texts.join(",").trim_start())
        }
    }
}

/// Text of operands with `*`, `/`, `//` and `%` between them.
fn product(items: &[Item<'_>]) -> String {
    let is_operator = |item: &Item<'_>| matches!(item.operator(), Some("*" | "/" | "//" | "%"));
    let mut text = String::new();
    let mut operator: Option<&Item> = None;
    for factor in items.split_inclusive(is_operator) {
        let (end, operands) = match factor.split_last() {
            Some((last, rest)) if is_operator(last) => (Some(last), rest),
            _ => (None, factor),
        };
        let operand = run(operands, None, false);
        text = match operator {
            None => operand,
            Some(op) if op.operator() == Some("%") => format!("{MOD}({}{},{operand})", text.trim_start(), op.gap),
            Some(op) => text + &item_text(op, false) + &operand,
        };
        operator = end;
    }
    text
}

/// Text of one operand.
fn run(items: &[Item<'_>], before: Option<&Item<'_>>, is_target: bool) -> String {
    let mut out = String::new();
    let mut i = 0;
    while let Some(item) = items.get(i) {
        let n_texts = items.get(i..).unwrap_or_default().iter().take_while(|item| matches!(item.kind, Kind::Text(_))).count();
        if n_texts > 1 {
            let texts: Vec<String> = items.iter().skip(i).take(n_texts).map(|item| item_text(item, false)).collect();
            out.push_str(&format!("{}({})", item.gap, texts.join("+").trim_start()));
            i += n_texts;
            continue;
        }
        let previous = i.checked_sub(1).and_then(|at| items.get(at)).or(before);
        let is_value = !is_target && !previous.is_some_and(Item::is_operand_end);
        out.push_str(&item_text(item, is_value));
        i += 1;
    }
    out
}

/// Text of an item. `is_value` is true if brackets are a value rather than arguments.
fn item_text(item: &Item<'_>, is_value: bool) -> String {
    let gap = item.gap;
    match &item.kind {
        Kind::Word(text) | Kind::Text(text) | Kind::Operator(text) => format!("{gap}{text}"),
        Kind::Brackets { open, inside, end_gap, close } => {
            let has_comma = inside.iter().any(|item| item.operator() == Some(","));
            let is_tuple = is_value && *open == "(" && (has_comma || inside.is_empty());
            let (name, inside) = match inside.split_last() {
                Some((last, rest)) if is_tuple && last.operator() == Some(",") => (TUPLE, rest),
                _ => (if is_tuple { TUPLE } else { "" }, inside.as_slice()),
            };
            format!("{gap}{name}{open}{}{end_gap}{close}", emit(inside, None))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_and_tuples_become_calls() {
        for (source, want) in [
            ("{{ a % b }}", "{{ python_mod(a , b) }}"),
            ("{{ '%s'%(a, b) }}", "{{ python_mod('%s',python_tuple(a, b)) }}"),
            ("{{- a * b%c // d -}}", "{{- python_mod(a * b,c) // d -}}"),
            ("{{ a + b%-c == 0 }}", "{{ a + python_mod(b,-c) == 0 }}"),
            ("{% if not loop.index0%2 == 0 and x %}", "{% if not python_mod(loop.index0,2) == 0 and x %}"),
            ("{{ a~b|upper~f(c~d)[1] }}", "{{ python_text(a,b|upper,f(python_text(c,d))[1]) }}"),
            ("{% set x = 'a' ~ (b if c else d)~'%}' %}", "{% set x = python_text('a' , (b if c else d),'%}') %}"),
            ("{{ [1, ('a',), ()] }}", "{{ [1, python_tuple('a'), python_tuple()] }}"),
            ("{{ x in ('a', 'b') }}{{ f('a', 'b') }}", "{{ x in python_tuple('a', 'b') }}{{ f('a', 'b') }}"),
            ("{{ s.startswith(('a', 'b')) }}", "{{ s.startswith(python_tuple('a', 'b')) }}"),
            ("{{ 'a' \"b\"~c }}", "{{ python_text(('a'+ \"b\"),c) }}"),
            ("{{ {'a': {'b': x%2}} }}", "{{ {'a': {'b': python_mod(x,2)}} }}"),
            ("{% for x in xs if x%2 %}", "{% for x in xs if python_mod(x,2) %}"),
            ("{{ a\n~\nb%\nc }}", "{{ python_text(a\n,python_mod(b,\nc)) }}"),
        ] {
            assert_eq!(rewritten(source), want);
        }
    }

    #[test]
    fn all_else_stays_as_it_is() {
        for source in [
            "text { } %} }} {% for (a, b) in x %}{% for a, b in x.items() %}{% set (a, b) = c %}",
            "{# {{ a ~ b }} #}{% raw %}{{ a ~ b }}{% endraw %}{%- raw -%}{{ a % b }}{%- endraw -%}",
            "{{ x is not in [1] }}{{ x is divisibleby(3) and y is defined }}{{ 1.5 * -2 ** 3 }}{{ a[1:-1] }}",
            "{% macro f(a, b='~') %}{% call(x, y) f() %}{{ f(*a, **b) }}{{ '\\'%' }}",
            "{{ a ~ ",
            "{{ 'a ~ }}",
            "{{ a ) ~ b }}",
        ] {
            assert_eq!(rewritten(source), source);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_source_ends(source in "[{}%#~()\\[\\],'\" a-c1.\\-|\\\\]{0,40}") {
            rewritten(&source);
        }
    }
}
