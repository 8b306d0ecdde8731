//! Filters of Jinja for markup and addresses; minijinja lacks them, or has them with other results.

use minijinja::value::ValueKind;
use minijinja::{Error, Value};

use super::python::str_of;

/// `forceescape(text)`
pub(super) fn escaped(text: &Value) -> String {
    let text = str_of(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('\'', "&#39;").replace('"', "&#34;")
}

/// `striptags(text)`: without comments and tags, and with single spaces.
pub(super) fn striptags(text: &Value) -> String {
    let text = without(&without(&str_of(text), "<!--", "-->"), "<", ">");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#34;", "\""), ("&#39;", "'"), ("&nbsp;", "\u{A0}")];
    entities.iter().fold(words, |text, (entity, sign)| text.replace(entity, sign)).replace("&amp;", "&")
}

/// The text without everything from `open` to `close`.
fn without(text: &str, open: &str, close: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, inside)) = rest.split_once(open) {
        let Some((_, after)) = inside.split_once(close) else { break };
        out.push_str(before);
        rest = after;
    }
    out + rest
}

/// `urlencode(value)`: a text, or pairs as a query.
pub(super) fn urlencode(value: &Value) -> Result<String, Error> {
    let pair = |key: &Value, value: &Value| format!("{}={}", quoted_in_query(key), quoted_in_query(value));
    match value.kind() {
        ValueKind::Map => {
            let pairs = value.try_iter()?.map(|key| Ok(pair(&key, &value.get_item(&key)?)));
            Ok(pairs.collect::<Result<Vec<_>, Error>>()?.join("&"))
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let pairs = value.try_iter()?.map(|two| Ok(pair(&two.get_item(&Value::from(0))?, &two.get_item(&Value::from(1))?)));
            Ok(pairs.collect::<Result<Vec<_>, Error>>()?.join("&"))
        }
        _ => Ok(quoted(&str_of(value), "/")),
    }
}

/// Percent-encoded, with `+` for spaces.
fn quoted_in_query(value: &Value) -> String {
    quoted(&str_of(value), "").replace("%20", "+")
}

/// Percent-encoded but for letters, digits and `safe`.
fn quoted(text: &str, safe: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-~".contains(&byte) || safe.as_bytes().contains(&byte);
    let encoded = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encoded).collect()
}

/// `xmlattr(map, autospace=True)`: attributes without those that are none.
pub(super) fn xmlattr(map: &Value, autospace: Option<bool>) -> Result<String, Error> {
    let mut out = Vec::new();
    for key in map.try_iter()? {
        let value = map.get_item(&key)?;
        if !value.is_none() && !value.is_undefined() {
            out.push(format!("{}=\"{}\"", escaped(&key), escaped(&value)));
        }
    }
    let space = if autospace.unwrap_or(true) && !out.is_empty() { " " } else { "" };
    Ok(format!("{space}{}", out.join(" ")))
}
