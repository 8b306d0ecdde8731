//! Jinja environment for chat templates: minijinja with the additions of Hugging Face transformers.
//!
//! Additions: `raise_exception`, `strftime_now`, `tojson` in the format of Python's `json.dumps`, Python's string, list and
//! dictionary methods, and Python's form of `None`, `True` and `False`. `{% generation %}` is ignored. Block lines leave no
//! white space (`trim_blocks`, `lstrip_blocks`); nothing is escaped as HTML.

use std::io;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};

/// Largest indentation in `tojson` and `indent`.
const MAX_INDENT: usize = 256;
/// Largest nesting of macro calls and includes.
const MAX_DEPTH: usize = 100;

/// An environment without templates.
pub(super) fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    env.set_trim_blocks(true);
    env.set_lstrip_blocks(true);
    env.set_recursion_limit(MAX_DEPTH);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    env.set_formatter(|out, state, value| match value.kind() {
        ValueKind::None => Ok(out.write_str("None")?),
        ValueKind::Bool => Ok(out.write_str(if value.is_true() { "True" } else { "False" })?),
        _ => minijinja::escape_formatter(out, state, value),
    });
    env.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    env.add_function("strftime_now", strftime_now);
    env.add_test("iterable", |value: &Value| value.is_undefined() || (!value.is_none() && value.try_iter().is_ok()));
    env.add_filter("tojson", to_json);
    env.add_filter("indent", indent);
    env
}

/// Variables that Firefunction's template assumes: no functions, and the date. Other templates test whether they are
/// defined, so only a source without such a test gets them.
pub(super) fn extras(source: &str) -> Value {
    let is_assumed = |name: &str| source.contains(name) && !source.contains(&format!("{name} is"));
    if !is_assumed("functions") || !is_assumed("datetime") {
        return Value::from_serialize(serde_json::json!({}));
    }
    let date = strftime_now("%A, %B %d, %Y").unwrap_or_default();
    Value::from_serialize(serde_json::json!({"functions": "", "datetime": date}))
}

/// Message of a failed template, for the user.
pub(super) fn sentence(error: &Error) -> String {
    let what = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => "it takes too many steps".to_owned(),
        (ErrorKind::WriteFailure, _) => "it writes too much text".to_owned(),
        (ErrorKind::InvalidOperation, Some(detail)) => detail.to_owned(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    let what: String = what.chars().take(400).collect();
    error.line().map_or_else(|| what.clone(), |line| format!("{what} (line {line} of the template)"))
}

/// Replaces `{% generation %}` and its end, which mark text for training, by blocks without effect.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag_on) = rest.split_at(start);
        let Some(end) = tag_on.find("%}") else { break };
        let (tag, after) = tag_on.split_at(end + 2);
        let inner = tag.get(2..end).unwrap_or_default();
        let replacement = match inner.trim_matches(['-', '+']).trim() {
            "generation" => Some("if true"),
            "endgeneration" => Some("endif"),
            _ => None,
        };
        out.push_str(before);
        match replacement {
            Some(word) => out.push_str(&tag.replace(inner.trim_matches(['-', '+']).trim(), word)),
            None => out.push_str(tag),
        }
        rest = after;
    }
    out + rest
}

fn strftime_now(format: &str) -> Result<String, Error> {
    let now = jiff::Zoned::now();
    jiff::fmt::strtime::format(format, &now).map_err(|e| Error::new(ErrorKind::InvalidOperation, e.to_string()))
}

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
fn to_json(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let invalid = |what: &str| Error::new(ErrorKind::InvalidOperation, what.to_owned());
    let ensure_ascii = options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    let indent = options.get::<Option<usize>>("indent")?;
    let sort_keys = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    let separators = options.get::<Option<Vec<String>>>("separators")?;
    options.assert_all_used()?;
    if indent.is_some_and(|n| n > MAX_INDENT) {
        return Err(invalid("the indentation is too large"));
    }
    let (item, key) = match separators.as_deref() {
        None => (if indent.is_some() { "," } else { ", " }, ": "),
        Some([item, key]) => (item.as_str(), key.as_str()),
        Some(_) => return Err(invalid("separators must be two strings")),
    };
    let json = serde_json::to_value(value).map_err(|e| invalid(&e.to_string()))?;
    let mut out = String::new();
    Dump { ensure_ascii, indent, sort_keys, item, key }.write(&json, 0, &mut out);
    Ok(Value::from(out))
}

/// Serializer in the format of Python's `json.dumps`.
struct Dump<'s> {
    ensure_ascii: bool,
    indent: Option<usize>,
    sort_keys: bool,
    item: &'s str,
    key: &'s str,
}

impl Dump<'_> {
    fn write(&self, value: &serde_json::Value, depth: usize, out: &mut String) {
        match value {
            serde_json::Value::Array(list) => {
                self.write_all(('[', ']'), list.iter(), depth, out, |item, out| self.write(item, depth + 1, out));
            }
            serde_json::Value::Object(map) => {
                let mut pairs: Vec<_> = map.iter().collect();
                if self.sort_keys {
                    pairs.sort_by_key(|(key, _)| *key);
                }
                self.write_all(('{', '}'), pairs.into_iter(), depth, out, |(key, value), out| {
                    self.write_text(key, out);
                    out.push_str(self.key);
                    self.write(value, depth + 1, out);
                });
            }
            serde_json::Value::String(text) => self.write_text(text, out),
            other => out.push_str(&other.to_string()),
        }
    }

    fn write_all<T>(
        &self,
        (open, close): (char, char),
        items: impl ExactSizeIterator<Item = T>,
        depth: usize,
        out: &mut String,
        mut write: impl FnMut(T, &mut String),
    ) {
        let n = items.len();
        out.push(open);
        for (i, item) in items.enumerate() {
            if i > 0 {
                out.push_str(self.item);
            }
            self.new_line(depth + 1, out);
            write(item, out);
        }
        if n > 0 {
            self.new_line(depth, out);
        }
        out.push(close);
    }

    fn new_line(&self, depth: usize, out: &mut String) {
        if let Some(width) = self.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', width * depth));
        }
    }

    fn write_text(&self, text: &str, out: &mut String) {
        let quoted = serde_json::Value::from(text).to_string();
        if !self.ensure_ascii {
            out.push_str(&quoted);
            return;
        }
        for c in quoted.chars() {
            if c.is_ascii() {
                out.push(c);
            } else {
                let mut units = [0; 2];
                c.encode_utf16(&mut units).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
            }
        }
    }
}

/// `indent(text, width=4, first=False, blank=False)`, with a bounded width.
fn indent(text: String, positional: Rest<Value>, options: Kwargs) -> Result<String, Error> {
    let positional = positional.0;
    let flag = |at: usize, name: &str| -> Result<bool, Error> {
        Ok(options.get::<Option<bool>>(name)?.unwrap_or(false) || positional.get(at).is_some_and(Value::is_true))
    };
    let width = match positional.first() {
        Some(width) => usize::try_from(width.clone())?,
        None => options.get::<Option<usize>>("width")?.unwrap_or(4),
    };
    let (first, blank) = (flag(1, "first")?, flag(2, "blank")?);
    options.assert_all_used()?;
    if width > MAX_INDENT {
        return Err(Error::new(ErrorKind::InvalidOperation, "the indentation is too large"));
    }
    let space = " ".repeat(width);
    let line = |(i, line): (usize, &str)| match () {
        () if i == 0 && !first => line.to_owned(),
        () if line.is_empty() && !blank => String::new(),
        () => format!("{space}{line}"),
    };
    Ok(text.split('\n').enumerate().map(line).collect::<Vec<_>>().join("\n"))
}

/// Writer with a size limit.
pub(super) struct Bounded {
    bytes: Vec<u8>,
    max: usize,
}

impl Bounded {
    /// A writer of at most `max` bytes.
    pub fn new(max: usize) -> Self {
        Bounded { bytes: Vec::new(), max }
    }

    /// The written text.
    pub fn into_string(self) -> Result<String, std::string::FromUtf8Error> {
        String::from_utf8(self.bytes)
    }
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len().saturating_add(bytes.len()) > self.max {
            return Err(io::Error::other("too much text"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &str) -> String {
        environment().render_str(source, minijinja::context! { none => (), yes => true }).unwrap()
    }

    #[test]
    fn tojson_matches_python() {
        let value = "{'b': [1, 2.5, none, true], 'a': {'é': \"<'&\"}, 'c': []}";
        assert_eq!(render(&format!("{{{{ {value} | tojson }}}}")), r#"{"b": [1, 2.5, null, true], "a": {"é": "<'&"}, "c": []}"#);
        let sorted = format!("{{{{ {value} | tojson(sort_keys=true, ensure_ascii=true, separators=(',', ':')) }}}}");
        assert_eq!(render(&sorted), r#"{"a":{"\u00e9":"<'&"},"b":[1,2.5,null,true],"c":[]}"#);
        assert_eq!(render("{{ {'a': [1, {}]} | tojson(indent=2) }}"), "{\n  \"a\": [\n    1,\n    {}\n  ]\n}");
    }

    #[test]
    fn environment_follows_python_and_trims_blocks() {
        assert_eq!(render("{{ none }} {{ yes }} {{ not yes }}"), "None True False");
        assert_eq!(render("a\n  {% if yes %}\nb\n  {% endif %}\nc"), "a\nb\nc");
        assert_eq!(render("{{ ' x '.strip() }}{{ {'k': 1}.get('k') }}{{ 'a,b'.split(',')[-1] }}{{ 'abc'[::-1] }}"), "x1bcba");
        assert_eq!(render("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}"), "012");
        assert_eq!(
            render("{% set ns = namespace(n=1) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}"),
            "4"
        );
        assert_eq!(render("{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(1, true) }}"), "a\n    b\n\n    c| a\n b");
        let year: i32 = render("{{ strftime_now('%Y') }}").parse().unwrap();
        assert!(year > 2024);
    }

    #[test]
    fn generation_tags_are_replaced_with_their_white_space_marks() {
        let source = "a {%- generation -%} b {% endgeneration %}{% if generation %}{% endif %}{% broken";
        let want = "a {%- if true -%} b {% endif %}{% if generation %}{% endif %}{% broken";
        assert_eq!(without_generation_tags(source), want);
    }
}
