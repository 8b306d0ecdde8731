//! Python's values: how Python prints them, tuples, and the operators that minijinja lacks.
//!
//! Source: `str` and `repr` of Python 3. Limit: [`MAX_DEPTH`] nested values are printed.

use std::fmt::Write;
use std::sync::Arc;

use minijinja::value::{Enumerator, Object, ObjectRepr, Rest, ValueKind};
use minijinja::{Error, ErrorKind, FormatStyle, Value, format_filter};

/// Names of the functions that rewritten expressions call.
pub(super) const MOD: &str = "python_mod";
pub(super) const TEXT: &str = "python_text";
pub(super) const TUPLE: &str = "python_tuple";
/// Longest range.
const MAX_RANGE: usize = 100_000;
/// Largest nesting of printed values.
const MAX_DEPTH: usize = 50;
/// Most digits of a width or a precision.
const MAX_WIDTH_DIGITS: usize = 4;

/// A tuple: a sequence that prints in round brackets.
#[derive(Debug)]
struct Tuple(Vec<Value>);

impl Object for Tuple {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.0.len())
    }
}

/// A tuple of these values.
pub(super) fn tuple(items: Vec<Value>) -> Value {
    Value::from_object(Tuple(items))
}

/// View of a dictionary, from `keys`, `values` or `items`: a sequence that prints with its name.
#[derive(Debug)]
struct View {
    name: &'static str,
    items: Vec<Value>,
}

impl Object for View {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.items.get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.items.len())
    }
}

/// A view of these values.
pub(super) fn view(name: &'static str, items: Vec<Value>) -> Value {
    Value::from_object(View { name, items })
}

/// `range(...)`: a sequence that prints as it was called.
#[derive(Debug)]
struct Range {
    start: i64,
    stop: i64,
    step: i64,
    len: usize,
}

impl Object for Range {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let at = key.as_usize().filter(|at| *at < self.len)?;
        Some(Value::from(self.start + i64::try_from(at).ok()? * self.step))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.len)
    }
}

/// `range(stop)` and `range(start, stop, step=1)`
pub(super) fn range(first: i64, second: Option<i64>, step: Option<i64>) -> Result<Value, Error> {
    let invalid = |what: &'static str| Error::new(ErrorKind::InvalidOperation, what);
    let (start, stop) = second.map_or((0, first), |stop| (first, stop));
    let step = step.unwrap_or(1);
    let (distance, size) = (i128::from(stop) - i128::from(start), i128::from(step));
    if step == 0 {
        return Err(invalid("the step of a range must not be zero"));
    }
    let len = if (distance > 0) == (step > 0) { (distance.abs() + size.abs() - 1) / size.abs() } else { 0 };
    let len = usize::try_from(len).ok().filter(|len| *len <= MAX_RANGE).ok_or_else(|| invalid("the range is too long"))?;
    Ok(Value::from_object(Range { start, stop, step, len }))
}

/// `python_tuple(...)`
pub(super) fn tuple_of(items: Rest<Value>) -> Value {
    tuple(items.0)
}

/// `python_text(...)`: the texts of all values, joined.
pub(super) fn text_of(items: Rest<Value>) -> String {
    items.0.iter().fold(String::new(), |text, item| text + &str_of(item))
}

/// `str(value)`
pub(super) fn str_of(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None if value.is_undefined() => String::new(),
        None => repr(value),
    }
}

/// `repr(value)`
pub(super) fn repr(value: &Value) -> String {
    let mut out = String::new();
    write_repr(value, 0, &mut out);
    out
}

fn write_repr(value: &Value, depth: usize, out: &mut String) {
    if depth > MAX_DEPTH {
        return out.push_str("...");
    }
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::String => write_text(value.as_str().unwrap_or_default(), out),
        ValueKind::Number if !value.is_integer() => out.push_str(&float_text(f64::try_from(value.clone()).unwrap_or(f64::NAN))),
        _ if let Some(range) = value.downcast_object_ref::<Range>() => {
            let step = if range.step == 1 { String::new() } else { format!(", {}", range.step) };
            out.push_str(&format!("range({}, {}{step})", range.start, range.stop));
        }
        _ if let Some(view) = value.downcast_object_ref::<View>() => {
            out.push_str(view.name);
            out.push('(');
            write_repr(&Value::from(view.items.clone()), depth + 1, out);
            out.push(')');
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter().map(Iterator::collect).unwrap_or_default();
            let is_tuple = value.downcast_object_ref::<Tuple>().is_some();
            out.push(if is_tuple { '(' } else { '[' });
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                write_repr(item, depth + 1, out);
            }
            match (is_tuple, items.len()) {
                (true, 1) => out.push_str(",)"),
                (true, _) => out.push(')'),
                (false, _) => out.push(']'),
            }
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                write_repr(&key, depth + 1, out);
                out.push_str(": ");
                write_repr(&value.get_item(&key).unwrap_or_default(), depth + 1, out);
            }
            out.push('}');
        }
        // A write to a String does not fail.
        _ => out.push_str(&value.to_string()),
    }
}

/// A text in the quotation marks that Python chooses.
fn write_text(text: &str, out: &mut String) {
    let mark = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(mark);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == mark => out.extend(['\\', c]),
            c if is_printable(c) => out.push(c),
            c => {
                let code = u32::from(c);
                let _ = match code {
                    0..=0xFF => write!(out, "\\x{code:02x}"),
                    0x100..=0xFFFF => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(mark);
}

/// True unless Python escapes the character: controls, formats, white space but the space, private use, and no characters.
fn is_printable(c: char) -> bool {
    let is_format = matches!(c,
        '\u{AD}' | '\u{600}'..='\u{605}' | '\u{61C}' | '\u{6DD}' | '\u{70F}' | '\u{180E}' | '\u{200B}'..='\u{200F}'
        | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}' | '\u{FFF0}'..='\u{FFFB}' | '\u{E0000}'..='\u{E007F}');
    let is_private = matches!(c, '\u{E000}'..='\u{F8FF}' | '\u{F0000}'..);
    let is_none = matches!(c, '\u{FDD0}'..='\u{FDEF}') || u32::from(c) & 0xFFFE == 0xFFFE;
    c == ' ' || !(c.is_control() || c.is_whitespace() || is_format || is_private || is_none)
}

/// `repr` of a float: the shortest digits, with an exponent below 1e-4 and from 1e16 on.
pub(super) fn float_text(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent @ (..-4 | 16..)) => format!("{digits}e{exponent:+03}"),
        _ if value.fract() == 0.0 => format!("{value:.1}"),
        _ => format!("{value}"),
    }
}

/// `a % b`: a text's format, or the remainder, which has the sign of the divisor.
pub(super) fn modulo(a: &Value, b: &Value) -> Result<Value, Error> {
    let invalid = |what: String| Error::new(ErrorKind::InvalidOperation, what);
    if let Some(format) = a.as_str() {
        let args = match b.downcast_object_ref::<Tuple>() {
            Some(tuple) => tuple.0.clone(),
            None => vec![b.clone()],
        };
        return formatted(format, &args).map(Value::from);
    }
    let wrong = || invalid(format!("unsupported operand types for %: {} and {}", a.kind(), b.kind()));
    let is_number = |value: &Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool);
    if !is_number(a) || !is_number(b) {
        return Err(wrong());
    }
    let zero = || invalid("division by zero in %".to_owned());
    let is_whole = |value: &Value| value.is_integer() || value.kind() == ValueKind::Bool;
    if is_whole(a)
        && is_whole(b)
        && let (Ok(a), Ok(b)) = (i128::try_from(a.clone()), i128::try_from(b.clone()))
    {
        let remainder = a.checked_rem(b).ok_or_else(zero)?;
        let is_other_sign = remainder != 0 && (remainder < 0) != (b < 0);
        return Ok(Value::from(if is_other_sign { remainder + b } else { remainder }));
    }
    let (a, b) = (f64::try_from(a.clone()).map_err(|_| wrong())?, f64::try_from(b.clone()).map_err(|_| wrong())?);
    if b == 0.0 {
        return Err(zero());
    }
    let remainder = a % b;
    Ok(Value::from(if remainder != 0.0 && (remainder < 0.0) != (b < 0.0) { remainder + b } else { remainder }))
}

/// `format % args`, with bounded widths.
pub(super) fn formatted(format: &str, args: &[Value]) -> Result<String, Error> {
    let invalid = |what: &'static str| Error::new(ErrorKind::InvalidOperation, what);
    let is_mapping = matches!(args, [one] if one.kind() == ValueKind::Map);
    let (mut out, mut rest, mut next) = (String::new(), format, args.iter());
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let (spec, after) = Spec::parse(after).ok_or_else(|| invalid("the format is incomplete"))?;
        rest = after;
        let value = match (spec.conversion, spec.key) {
            ('%', _) => {
                out.push('%');
                continue;
            }
            (_, Some(key)) => match args {
                [map] if is_mapping => map.get_item(&Value::from(key))?,
                _ => return Err(invalid("format requires a mapping")),
            },
            (_, None) => next.next().cloned().ok_or_else(|| invalid("not enough arguments for the format"))?,
        };
        out.push_str(&spec.format(&value)?);
    }
    if next.next().is_some() && !is_mapping {
        return Err(invalid("not all arguments are in the format"));
    }
    Ok(out + rest)
}

/// One conversion of a format: `%(key)-5.2f`.
struct Spec<'f> {
    key: Option<&'f str>,
    /// flags, width and precision
    options: &'f str,
    conversion: char,
}

impl<'f> Spec<'f> {
    /// Parses the text after `%`; returns the text after the conversion, too.
    fn parse(text: &'f str) -> Option<(Self, &'f str)> {
        let (key, text) = match text.strip_prefix('(') {
            Some(inside) => inside.split_once(')').map(|(key, text)| (Some(key), text))?,
            None => (None, text),
        };
        let end = text.find(|c: char| !matches!(c, '-' | '+' | '#' | ' ' | '.' | '0'..='9'))?;
        let (options, after) = text.split_at(end);
        let conversion = after.trim_start_matches(['h', 'l', 'L']);
        let letter = conversion.chars().next()?;
        Some((Spec { key, options, conversion: letter }, conversion.get(letter.len_utf8()..)?))
    }

    fn format(&self, value: &Value) -> Result<String, Error> {
        if self.options.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > MAX_WIDTH_DIGITS) {
            return Err(Error::new(ErrorKind::InvalidOperation, "a width in the format is too large"));
        }
        let text = match self.conversion {
            's' => str_of(value),
            'r' | 'a' => repr(value),
            'd' | 'i' | 'u' if value.kind() == ValueKind::Number && !value.is_integer() => {
                let whole = f64::try_from(value.clone())?.trunc() as i64;
                return Spec { key: None, ..*self }.format(&Value::from(whole));
            }
            conversion => {
                return format_filter(
                    FormatStyle::Printf,
                    &format!("%{}{conversion}", self.options),
                    std::slice::from_ref(value),
                );
            }
        };
        let (width, precision) = self.options.split_once('.').unwrap_or((self.options, ""));
        let text: String = match self.options.contains('.') {
            true => text.chars().take(precision.parse().unwrap_or(0)).collect(),
            false => text,
        };
        let width: usize = width.trim_start_matches(['-', '+', '#', ' ', '0']).parse().unwrap_or(0);
        let padding = " ".repeat(width.saturating_sub(text.chars().count()));
        Ok(if self.options.contains('-') { text + &padding } else { padding + &text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_print_as_in_python() {
        let list = Value::from(vec![Value::from(2.0), Value::from(true), Value::from(()), tuple(vec![Value::from("a")])]);
        assert_eq!(str_of(&list), "[2.0, True, None, ('a',)]");
        assert_eq!(str_of(&Value::from("it's")), "it's");
        assert_eq!(repr(&Value::from("it's")), "\"it's\"");
        assert_eq!(repr(&Value::from("it's \"so\"\n\u{7}\u{200B}é\u{E000}")), "'it\\'s \"so\"\\n\\x07\\u200bé\\ue000'");
        assert_eq!(repr(&tuple(Vec::new())), "()");
        for (value, text) in [(1e16, "1e+16"), (1e-5, "1e-05"), (0.1, "0.1"), (1e15, "1000000000000000.0"), (-2.5, "-2.5")] {
            assert_eq!(float_text(value), text);
        }
    }

    #[test]
    fn modulo_formats_texts_and_has_the_sign_of_the_divisor() {
        let text = |format: &str, args: &[Value]| modulo(&Value::from(format), &tuple(args.to_vec())).unwrap().to_string();
        assert_eq!(text("%s (%d letters)", &[Value::from("so"), Value::from(2)]), "so (2 letters)");
        assert_eq!(text("%r %5.2f%% %03d %x", &["a".into(), 2.5.into(), 7.into(), 255.into()]), "'a'  2.50% 007 ff");
        assert_eq!(modulo(&"%s".into(), &Value::from(vec![1, 2])).unwrap().to_string(), "[1, 2]");
        assert_eq!(text("%s", &[Value::from(())]), "None");
        let map = minijinja::context! { role => "user", n => 2 };
        assert_eq!(modulo(&"%(role)s: %(n)03d".into(), &map).unwrap().to_string(), "user: 002");
        for (a, b, want) in [(7, 3, 1), (-7, 3, 2), (7, -3, -2)] {
            assert_eq!(modulo(&a.into(), &b.into()).unwrap(), Value::from(want));
        }
        assert_eq!(modulo(&(-7.5).into(), &2.into()).unwrap(), Value::from(0.5));
        for (a, b) in [(Value::from(1), Value::from(0)), (Value::from(()), Value::from(1)), ("%999999999d".into(), 1.into())] {
            assert!(modulo(&a, &b).is_err());
        }
    }
}
