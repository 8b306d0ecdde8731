//! Methods of Python's strings, lists and dictionaries, by their name.
//!
//! Positions and widths are in characters. Those that jinja2's immutable sandbox forbids, such as `append`, are missing.

use minijinja::value::{Kwargs, Rest, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};

use super::python::{str_of, tuple, view};

/// Largest width that a text is padded to.
const MAX_WIDTH: usize = 1 << 16;

/// Largest indentation in `tojson` and `indent`.
pub(super) const MAX_INDENT: usize = 256;

/// A width, unless it is too large.
pub(super) fn wide_enough(width: usize) -> Result<usize, Error> {
    if width > MAX_WIDTH { Err(invalid("a width is too large")) } else { Ok(width) }
}

fn invalid(what: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, what)
}

/// Calls a method that minijinja does not know.
pub(super) fn call(state: &State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let unknown = |error: &Error| error.kind() == ErrorKind::UnknownMethod;
    let own = match value.as_str() {
        Some(text) => of_text(text, method, args),
        None => of_collection(value, method, args),
    };
    match own {
        Err(error) if unknown(&error) => minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args),
        result => result,
    }
}

fn of_collection(value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let is_list = matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
    match method {
        "index" if is_list => {
            let (what,): (&Value,) = from_args(args)?;
            let at = value.try_iter()?.position(|item| item == *what);
            at.map(Value::from).ok_or_else(|| invalid("the value is not in the list"))
        }
        "copy" => Ok(value.clone()),
        "items" if value.kind() == ValueKind::Map => {
            let pair = |key: Value| Ok(tuple(vec![key.clone(), value.get_item(&key)?]));
            Ok(view("dict_items", value.try_iter()?.map(pair).collect::<Result<Vec<_>, Error>>()?))
        }
        "keys" if value.kind() == ValueKind::Map => Ok(view("dict_keys", value.try_iter()?.collect())),
        "values" if value.kind() == ValueKind::Map => {
            let values = value.try_iter()?.map(|key| value.get_item(&key));
            Ok(view("dict_values", values.collect::<Result<Vec<_>, Error>>()?))
        }
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn of_text(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let given = |what: &str| -> Result<Value, Error> {
        let (positional, options): (Rest<Value>, Kwargs) = from_args(args)?;
        let at = match what {
            "sep" | "first" | "keepends" | "tabsize" => 0,
            "maxsplit" | "fill" => 1,
            _ => 2,
        };
        let named = options.get::<Option<Value>>(what)?;
        Ok(positional.0.get(at).cloned().or(named).unwrap_or_default())
    };
    let first =
        || -> Result<String, Error> { given("first")?.as_str().map(str::to_owned).ok_or_else(|| invalid("a text is missing")) };
    let width = || given("first").and_then(usize::try_from).and_then(wide_enough);
    let fill = || -> Result<char, Error> {
        let fill = given("fill")?;
        fill.as_str().map_or(Ok(' '), |fill| fill.chars().next().ok_or_else(|| invalid("the fill character is missing")))
    };
    let missing = || width().map(|width| width.saturating_sub(text.chars().count()));
    let repeated = |n: usize| fill().map(|fill| fill.to_string().repeat(n));
    let all = |is: fn(char) -> bool| Value::from(!text.is_empty() && text.chars().all(is));
    Ok(match method {
        "casefold" => Value::from(text.to_uppercase().to_lowercase()),
        "swapcase" => text.chars().map(swapped).collect::<String>().into(),
        "title" => Value::from(titled(text)),
        "capitalize" => {
            let mut chars = text.chars();
            let first: String = chars.next().map(|c| c.to_uppercase().collect()).unwrap_or_default();
            Value::from(first + &chars.as_str().to_lowercase())
        }
        "zfill" => {
            let (sign, digits) = text.split_at(usize::from(text.starts_with(['-', '+'])));
            Value::from(format!("{sign}{}{digits}", "0".repeat(missing()?)))
        }
        "ljust" => Value::from(format!("{text}{}", repeated(missing()?)?)),
        "rjust" => Value::from(format!("{}{text}", repeated(missing()?)?)),
        "center" => {
            let (missing, width) = (missing()?, width()?);
            let left = missing / 2 + (missing & width & 1);
            Value::from(format!("{}{text}{}", repeated(left)?, repeated(missing - left)?))
        }
        "removeprefix" => Value::from(text.strip_prefix(&first()?).unwrap_or(text)),
        "removesuffix" => Value::from(text.strip_suffix(&first()?).unwrap_or(text)),
        "partition" | "rpartition" => {
            let separator = first()?;
            if separator.is_empty() {
                return Err(invalid("empty separator"));
            }
            let is_first = method == "partition";
            let split = if is_first { text.split_once(&separator) } else { text.rsplit_once(&separator) };
            let parts = match split {
                Some((before, after)) => [before, &separator, after],
                None if is_first => [text, "", ""],
                None => ["", "", text],
            };
            tuple(parts.into_iter().map(Value::from).collect())
        }
        "split" | "rsplit" => {
            let (separator, max) = (given("sep")?, given("maxsplit")?);
            let max = if max.is_undefined() || max.is_none() { -1 } else { i64::try_from(max)? };
            let max = usize::try_from(max).unwrap_or(usize::MAX);
            let parts = match (separator.as_str(), method) {
                (Some(""), _) => return Err(invalid("empty separator")),
                (Some(separator), "split") => text.splitn(max.saturating_add(1), separator).collect(),
                (Some(separator), _) => text.rsplitn(max.saturating_add(1), separator).collect(),
                (None, _) => split_words(text, max, method == "rsplit"),
            };
            let parts: Vec<Value> = parts.into_iter().map(Value::from).collect();
            Value::from(if method == "rsplit" { parts.into_iter().rev().collect() } else { parts })
        }
        "splitlines" => {
            Value::from(lines_of(text, given("keepends")?.is_true()).into_iter().map(Value::from).collect::<Vec<_>>())
        }
        "expandtabs" => {
            let size = given("tabsize")?;
            Value::from(tabs_expanded(text, if size.is_undefined() { 8 } else { wide_enough(usize::try_from(size)?)? }))
        }
        "find" | "index" | "rfind" | "rindex" | "count" => found(text, method, args)?,
        "isdecimal" => all(is_decimal),
        "isdigit" => all(|c| is_decimal(c) || is_digit_sign(c)),
        "isnumeric" => all(char::is_numeric),
        "isalpha" => all(char::is_alphabetic),
        "isalnum" => all(char::is_alphanumeric),
        "isspace" => all(char::is_whitespace),
        "isidentifier" => {
            let begins = text.starts_with(|c: char| c.is_alphabetic() || c == '_');
            Value::from(begins && text.chars().all(|c| c.is_alphanumeric() || c == '_'))
        }
        "translate" => {
            let (table,): (&Value,) = from_args(args)?;
            let translated = |c: char| match table.get_item(&Value::from(u32::from(c))) {
                Ok(value) if value.is_none() => String::new(),
                Ok(value) if value.is_integer() => {
                    u32::try_from(value).ok().and_then(char::from_u32).map(String::from).unwrap_or_default()
                }
                Ok(value) if !value.is_undefined() => str_of(&value),
                _ => c.to_string(),
            };
            Value::from(text.chars().map(translated).collect::<String>())
        }
        "islower" => Value::from(text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase)),
        "isupper" => Value::from(text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase)),
        "istitle" => Value::from(text.chars().any(char::is_uppercase) && titled(text) == text),
        "join" => {
            let (values,): (&Value,) = from_args(args)?;
            let parts: Vec<String> = values.try_iter()?.map(|value| str_of(&value)).collect();
            Value::from(parts.join(text))
        }
        _ => return Err(Error::from(ErrorKind::UnknownMethod)),
    })
}

/// Zeros of the decimal systems in the basic plane; nine digits follow each.
const ZEROS: [u16; 37] = [
    0x30, 0x660, 0x6F0, 0x7C0, 0x966, 0x9E6, 0xA66, 0xAE6, 0xB66, 0xBE6, 0xC66, 0xCE6, 0xD66, 0xDE6, 0xE50, 0xED0, 0xF20, 0x1040,
    0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80, 0x1A90, 0x1B50, 0x1BB0, 0x1C40, 0x1C50, 0xA620, 0xA8D0, 0xA900, 0xA9D0,
    0xA9F0, 0xAA50, 0xABF0, 0xFF10,
];

/// True for a digit that makes numbers.
fn is_decimal(c: char) -> bool {
    ZEROS.iter().any(|zero| (u32::from(*zero)..u32::from(*zero) + 10).contains(&u32::from(c)))
}

/// True for a digit in another form: raised, lowered, in a circle or with a bracket or point.
fn is_digit_sign(c: char) -> bool {
    matches!(c,
        '\u{B2}' | '\u{B3}' | '\u{B9}' | '\u{1369}'..='\u{1371}' | '\u{19DA}' | '\u{2070}' | '\u{2074}'..='\u{2079}'
        | '\u{2080}'..='\u{2089}' | '\u{2460}'..='\u{2468}' | '\u{2474}'..='\u{247C}' | '\u{2488}'..='\u{2490}' | '\u{24EA}'
        | '\u{24F5}'..='\u{24FD}' | '\u{24FF}' | '\u{2776}'..='\u{277E}' | '\u{2780}'..='\u{2788}' | '\u{278A}'..='\u{2792}')
}

/// Words at white space, at most `max` splits, counted from the end if `from_end`, which also orders the words so.
fn split_words(text: &str, max: usize, from_end: bool) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text;
    loop {
        rest = if from_end { rest.trim_end() } else { rest.trim_start() };
        let at = if from_end {
            rest.rfind(char::is_whitespace).and_then(|at| Some((at, at + rest.get(at..)?.chars().next()?.len_utf8())))
        } else {
            rest.find(char::is_whitespace).map(|at| (at, at))
        };
        let Some((end, begin)) = at.filter(|_| words.len() < max) else { break };
        let (before, after) = (rest.get(..end).unwrap_or_default(), rest.get(begin..).unwrap_or_default());
        words.push(if from_end { after } else { before });
        rest = if from_end { before } else { after };
    }
    words.extend((!rest.is_empty()).then_some(rest));
    words
}

/// Lines at every kind of line end in Python.
fn lines_of(text: &str, keeps_ends: bool) -> Vec<&str> {
    let is_end =
        |c: char| matches!(c, '\n' | '\r' | '\u{B}' | '\u{C}' | '\u{1C}'..='\u{1E}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.find(is_end) {
        let ending = rest.get(end..).unwrap_or_default();
        let len = if ending.starts_with("\r\n") { 2 } else { ending.chars().next().map_or(1, char::len_utf8) };
        lines.extend(rest.get(..if keeps_ends { end + len } else { end }));
        rest = rest.get(end + len..).unwrap_or_default();
    }
    lines.extend((!rest.is_empty()).then_some(rest));
    lines
}

fn tabs_expanded(text: &str, size: usize) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for c in text.chars() {
        match c {
            '\t' if size > 0 => {
                let n = size - column % size;
                out.extend(std::iter::repeat_n(' ', n));
                column += n;
            }
            '\t' => {}
            c => {
                out.push(c);
                column = if matches!(c, '\n' | '\r') { 0 } else { column + 1 };
            }
        }
    }
    out
}

/// `find`, `index`, `rfind`, `rindex` and `count`, between `start` and `end`.
fn found(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (what, start, end): (&str, Option<i64>, Option<i64>) = from_args(args)?;
    let n = text.chars().count();
    let position = |at: i64| match usize::try_from(at) {
        Ok(at) => at.min(n),
        Err(_) => n.saturating_sub(usize::try_from(at.unsigned_abs()).unwrap_or(usize::MAX)),
    };
    let (start, end) = (start.map_or(0, position), end.map_or(n, position));
    let byte = |at: usize| text.char_indices().nth(at).map_or(text.len(), |(byte, _)| byte);
    let part = text.get(byte(start)..byte(end)).unwrap_or_default();
    if method == "count" {
        let n_empty = part.chars().count() + 1;
        return Ok(Value::from(if what.is_empty() { n_empty } else { part.matches(what).count() }));
    }
    let at = if method.starts_with('r') { part.rfind(what) } else { part.find(what) };
    match at {
        Some(at) => Ok(Value::from(start + part.get(..at).unwrap_or_default().chars().count())),
        None if method.ends_with("find") => Ok(Value::from(-1)),
        None => Err(invalid("substring not found")),
    }
}

fn swapped(c: char) -> String {
    if c.is_uppercase() { c.to_lowercase().collect() } else { c.to_uppercase().collect() }
}

/// Every run of letters with a capital first.
fn titled(text: &str) -> String {
    let (mut out, mut is_inside) = (String::new(), false);
    for c in text.chars() {
        if is_inside {
            out.extend(c.to_lowercase())
        } else {
            out.extend(c.to_uppercase())
        }
        is_inside = c.is_alphabetic();
    }
    out
}
