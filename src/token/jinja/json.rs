//! `tojson`: values in the format of Python's `json.dumps`.

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use super::methods::MAX_INDENT;
use super::python::float_text;

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)` of Hugging Face. jinja2's own has the
/// indentation first, so that a number there is one.
pub(super) fn to_json(value: &Value, positional: Rest<Value>, options: Kwargs) -> Result<Value, Error> {
    let invalid = |what: &str| Error::new(ErrorKind::InvalidOperation, what.to_owned());
    let is_flag = |value: &&Value| value.kind() == ValueKind::Bool;
    let flag = positional.0.first().filter(is_flag).map(Value::is_true);
    let ensure_ascii = options.get::<Option<bool>>("ensure_ascii")?.or(flag).unwrap_or(false);
    let number = positional.0.iter().take(2).find(|value| value.is_integer()).cloned().map(usize::try_from).transpose()?;
    let indent = options.get::<Option<usize>>("indent")?.or(number);
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
            serde_json::Value::Number(number) if number.is_f64() => {
                out.push_str(&number.as_f64().map_or_else(|| number.to_string(), float_text));
            }
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
