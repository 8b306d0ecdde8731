//! Filters of Jinja with Python's results; minijinja lacks them, or has them with other arguments.

use minijinja::value::{Kwargs, Rest};
use minijinja::{Error, ErrorKind, Value};

use super::methods::{MAX_INDENT, wide_enough};
use super::python::{str_of, tuple};

/// `indent(text, width=4, first=False, blank=False)`, with a bounded width.
pub(super) fn indent(text: String, positional: Rest<Value>, options: Kwargs) -> Result<String, Error> {
    let positional = positional.0;
    let flag = |at: usize, name: &str| -> Result<bool, Error> {
        Ok(options.get::<Option<bool>>(name)?.unwrap_or(false) || positional.get(at).is_some_and(Value::is_true))
    };
    let width = argument(&positional, &options, 0, "width")?.unwrap_or_else(|| Value::from(4));
    let (first, blank) = (flag(1, "first")?, flag(2, "blank")?);
    options.assert_all_used()?;
    // A text stands for itself.
    let space = width.as_str().map_or_else(|| usize::try_from(width.clone()).map(Err), |space| Ok(Ok(space.to_owned())))?;
    if space.as_ref().map_or_else(|width| *width, String::len) > MAX_INDENT {
        return Err(Error::new(ErrorKind::InvalidOperation, "the indentation is too large"));
    }
    let space = space.unwrap_or_else(|width| " ".repeat(width));
    let line = |(i, line): (usize, &str)| match () {
        () if i == 0 && !first => line.to_owned(),
        () if line.is_empty() && !blank => String::new(),
        () => format!("{space}{line}"),
    };
    Ok(text.split('\n').enumerate().map(line).collect::<Vec<_>>().join("\n"))
}

/// Argument `at`, or the one called `name`.
pub(super) fn argument(positional: &[Value], options: &Kwargs, at: usize, name: &str) -> Result<Option<Value>, Error> {
    let named = options.get::<Option<Value>>(name)?;
    Ok(positional.get(at).cloned().or(named).filter(|value| !value.is_none()))
}

/// Argument `at`, or the one called `name`, as a number of characters.
fn count(positional: &[Value], options: &Kwargs, at: usize, name: &str, default: usize) -> Result<usize, Error> {
    argument(positional, options, at, name)?.map_or(Ok(default), usize::try_from).and_then(wide_enough)
}

fn flag(positional: &[Value], options: &Kwargs, at: usize, name: &str, default: bool) -> Result<bool, Error> {
    Ok(argument(positional, options, at, name)?.map_or(default, |value| value.is_true()))
}

/// `join(values, d='', attribute=None)`
pub(super) fn join(values: &Value, positional: Rest<Value>, options: Kwargs) -> Result<String, Error> {
    let between = argument(&positional.0, &options, 0, "d")?.map(|d| str_of(&d)).unwrap_or_default();
    let attribute = argument(&positional.0, &options, 1, "attribute")?;
    options.assert_all_used()?;
    let mut out = String::new();
    for (i, value) in values.try_iter()?.enumerate() {
        out.push_str(if i > 0 { &between } else { "" });
        out.push_str(&str_of(&match &attribute {
            Some(attribute) => value.get_item(attribute)?,
            None => value,
        }));
    }
    Ok(out)
}

/// `replace(text, old, new, count=None)`
pub(super) fn replace(text: &Value, old: &Value, new: &Value, positional: Rest<Value>, options: Kwargs) -> Result<String, Error> {
    let n = argument(&positional.0, &options, 0, "count")?.map(usize::try_from).transpose()?;
    options.assert_all_used()?;
    let (text, old, new) = (str_of(text), str_of(old), str_of(new));
    Ok(n.map_or_else(|| text.replace(&old, &new), |n| text.replacen(&old, &new, n)))
}

/// `trim(text, chars=None)`
pub(super) fn trim(text: &Value, chars: Option<String>) -> String {
    let text = str_of(text);
    chars.map_or_else(|| text.trim().to_owned(), |chars| text.trim_matches(|c| chars.contains(c)).to_owned())
}

/// Pairs as tuples.
pub(super) fn pairs(list: Value) -> Result<Value, Error> {
    let pair = |pair: Value| Ok(tuple(pair.try_iter()?.collect()));
    list.try_iter()?.map(pair).collect::<Result<Vec<Value>, Error>>().map(Value::from)
}

/// `title(text)`: a capital after white space, a hyphen or an opening bracket.
pub(super) fn title(text: &Value) -> String {
    let (mut out, mut begins) = (String::new(), true);
    for c in str_of(text).chars() {
        let is_between = c.is_whitespace() || matches!(c, '-' | '(' | '{' | '[' | '<');
        if begins {
            out.extend(c.to_uppercase())
        } else {
            out.extend(c.to_lowercase())
        }
        begins = is_between;
    }
    out
}

/// `center(text, width=80)`
pub(super) fn center(text: &Value, width: Option<usize>) -> Result<String, Error> {
    let text = str_of(text);
    let width = wide_enough(width.unwrap_or(80))?;
    let missing = width.saturating_sub(text.chars().count());
    let left = missing / 2 + (missing & width & 1);
    Ok(format!("{}{text}{}", " ".repeat(left), " ".repeat(missing - left)))
}

/// `random(values)`: the first one, so that the prompt of a conversation stays the same from turn to turn.
pub(super) fn random(values: &Value) -> Result<Value, Error> {
    Ok(values.try_iter()?.next().unwrap_or_default())
}

/// `wordcount(text)`
pub(super) fn wordcount(text: &Value) -> usize {
    str_of(text).split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).count()
}

/// `truncate(text, length=255, killwords=False, end='...', leeway=5)`
pub(super) fn truncate(text: &Value, positional: Rest<Value>, options: Kwargs) -> Result<String, Error> {
    let text = str_of(text);
    let length = count(&positional.0, &options, 0, "length", 255)?;
    let kills_words = flag(&positional.0, &options, 1, "killwords", false)?;
    let end = argument(&positional.0, &options, 2, "end")?.map_or_else(|| "...".to_owned(), |end| str_of(&end));
    let leeway = count(&positional.0, &options, 3, "leeway", 5)?;
    options.assert_all_used()?;
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(text);
    }
    let kept: String = text.chars().take(length.saturating_sub(end.chars().count())).collect();
    let whole = if kills_words { kept.as_str() } else { kept.rsplit_once(' ').map_or(kept.as_str(), |(words, _)| words) };
    Ok(format!("{whole}{end}"))
}

/// `wordwrap(text, width=79, break_long_words=True, wrapstring=None, break_on_hyphens=True)`
pub(super) fn wordwrap(text: &Value, positional: Rest<Value>, options: Kwargs) -> Result<String, Error> {
    let width = count(&positional.0, &options, 0, "width", 79)?.max(1);
    let breaks_words = flag(&positional.0, &options, 1, "break_long_words", true)?;
    let end = argument(&positional.0, &options, 2, "wrapstring")?.map_or_else(|| "\n".to_owned(), |end| str_of(&end));
    let breaks_hyphens = flag(&positional.0, &options, 3, "break_on_hyphens", true)?;
    options.assert_all_used()?;
    let text = str_of(text);
    let lines = text.lines().map(|line| wrapped(line, width, breaks_words, breaks_hyphens).join(&end));
    Ok(lines.collect::<Vec<_>>().join(&end))
}

/// Lines of at most `width` characters. Source: Python's `textwrap`, which drops white space at the ends of lines.
fn wrapped(text: &str, width: usize, breaks_words: bool, breaks_hyphens: bool) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let (mut line, mut n) = (String::new(), 0);
    for chunk in chunks(text, breaks_hyphens) {
        let is_space = chunk.starts_with(char::is_whitespace);
        if is_space && line.is_empty() && !lines.is_empty() {
            continue;
        }
        let n_chunk = chunk.chars().count();
        if n + n_chunk > width && !line.is_empty() && (n_chunk <= width || !breaks_words || is_space) {
            lines.push(std::mem::take(&mut line).trim_end().to_owned());
            n = 0;
            if is_space {
                continue;
            }
        }
        if n_chunk <= width || !breaks_words {
            line.push_str(chunk);
            n += n_chunk;
            continue;
        }
        for c in chunk.chars() {
            if n == width {
                lines.push(std::mem::take(&mut line).trim_end().to_owned());
                n = 0;
            }
            line.push(c);
            n += 1;
        }
    }
    let rest = line.trim_end();
    lines.extend((!rest.is_empty()).then(|| rest.to_owned()));
    lines
}

/// White space and words, divided after hyphens between letters.
fn chunks(text: &str, breaks_hyphens: bool) -> Vec<&str> {
    let mut out = Vec::new();
    let mut begin = 0;
    let mut before = [None, None];
    for (at, c) in text.char_indices() {
        let last: Option<char> = before[1];
        let is_edge = last.is_some_and(|last| last.is_whitespace() != c.is_whitespace());
        let is_hyphen = breaks_hyphens && last == Some('-') && before[0].is_some_and(char::is_alphabetic) && c.is_alphabetic();
        if is_edge || is_hyphen {
            out.extend(text.get(begin..at));
            begin = at;
        }
        before = [last, Some(c)];
    }
    out.extend(text.get(begin..).filter(|rest| !rest.is_empty()));
    out
}
