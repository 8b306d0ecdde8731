//! Filters of Jinja that make numbers, with Python's results; minijinja's lack arguments.

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use super::filters::argument;
use super::python::float_text;

/// Most digits after the point that `round` keeps.
const MAX_PRECISION: i64 = 300;

fn invalid(what: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, what)
}

fn whole(value: &Value) -> Option<i128> {
    let is_whole = value.is_integer() || value.kind() == ValueKind::Bool;
    i128::try_from(value.clone()).ok().filter(|_| is_whole)
}

/// `round(value, precision=0, method='common')`; halves go to the even neighbor.
pub(super) fn round(value: &Value, positional: Rest<Value>, options: Kwargs) -> Result<Value, Error> {
    let precision = argument(&positional.0, &options, 0, "precision")?.map_or(Ok(0), i64::try_from)?;
    let method = argument(&positional.0, &options, 1, "method")?;
    options.assert_all_used()?;
    let method = method.as_ref().and_then(Value::as_str).unwrap_or("common");
    if precision.abs() > MAX_PRECISION {
        return Err(invalid("the precision is too large"));
    }
    let whole = whole(value).filter(|_| method == "common");
    if let (Some(value), 0..) = (whole, precision) {
        return Ok(Value::from(value));
    }
    let number = f64::try_from(value.clone())?;
    let scale = 10_f64.powi(i32::try_from(precision).unwrap_or(0));
    let rounded = match (method, usize::try_from(precision)) {
        ("common", Ok(digits)) => format!("{number:.digits$}").parse().unwrap_or(number),
        ("common", Err(_)) => (number * scale).round_ties_even() / scale,
        ("ceil", _) => (number * scale).ceil() / scale,
        ("floor", _) => (number * scale).floor() / scale,
        _ => return Err(invalid("method must be common, ceil or floor")),
    };
    Ok(if whole.is_some() { Value::from(rounded as i128) } else { Value::from(rounded) })
}

/// `int(value, default=0, base=10)`
pub(super) fn int(value: &Value, positional: Rest<Value>, options: Kwargs) -> Result<Value, Error> {
    let default = argument(&positional.0, &options, 0, "default")?.unwrap_or_else(|| Value::from(0));
    let base = argument(&positional.0, &options, 1, "base")?.map_or(Ok(10), u32::try_from)?;
    options.assert_all_used()?;
    if !(2..=36).contains(&base) {
        return Err(invalid("the base must be between 2 and 36"));
    }
    let of_float = |number: f64| number.is_finite().then(|| number.trunc() as i128);
    let number = match value.as_str() {
        Some(text) => whole_of(text, base).or_else(|| text.trim().parse().ok().and_then(of_float)),
        None => whole(value).or_else(|| f64::try_from(value.clone()).ok().and_then(of_float)),
    };
    Ok(number.map_or(default, Value::from))
}

/// `int(text, base)`
fn whole_of(text: &str, base: u32) -> Option<i128> {
    let text = text.trim();
    let (sign, digits) = text.split_at_checked(usize::from(text.starts_with(['-', '+'])))?;
    let prefix = match base {
        16 => "0x",
        8 => "0o",
        2 => "0b",
        _ => "",
    };
    let lower = digits.to_lowercase();
    let digits = lower.strip_prefix(prefix).unwrap_or(&lower);
    let is_grouped = !digits.starts_with('_') && !digits.ends_with('_') && !digits.contains("__");
    let is_unsigned = digits.starts_with(|c: char| c.is_ascii_alphanumeric());
    let number = i128::from_str_radix(&digits.replace('_', ""), base).ok().filter(|_| is_grouped && is_unsigned)?;
    Some(if sign == "-" { -number } else { number })
}

/// `sum(values, attribute=None, start=0)`
pub(super) fn sum(values: &Value, positional: Rest<Value>, options: Kwargs) -> Result<Value, Error> {
    let attribute = argument(&positional.0, &options, 0, "attribute")?;
    let start = argument(&positional.0, &options, 1, "start")?.unwrap_or_else(|| Value::from(0));
    options.assert_all_used()?;
    let mut total = start;
    for value in values.try_iter()? {
        total = added(&total, &attribute_of(value, attribute.as_ref())?)?;
    }
    Ok(total)
}

/// The value at a path such as `a.b`.
fn attribute_of(value: Value, path: Option<&Value>) -> Result<Value, Error> {
    match path.and_then(|path| path.as_str().map(str::to_owned)) {
        Some(path) => path.split('.').try_fold(value, |value, name| value.get_attr(name)),
        None => path.map_or(Ok(value.clone()), |index| value.get_item(index)),
    }
}

fn added(a: &Value, b: &Value) -> Result<Value, Error> {
    if let (Some(a), Some(b)) = (whole(a), whole(b)) {
        return a.checked_add(b).map(Value::from).ok_or_else(|| invalid("the sum is too large"));
    }
    let is_list = |value: &Value| matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
    if is_list(a) && is_list(b) {
        return Ok(a.try_iter()?.chain(b.try_iter()?).collect());
    }
    Ok(Value::from(f64::try_from(a.clone())? + f64::try_from(b.clone())?))
}

/// `filesizeformat(value, binary=False)`
pub(super) fn filesizeformat(value: &Value, positional: Rest<Value>, options: Kwargs) -> Result<String, Error> {
    let is_binary = argument(&positional.0, &options, 0, "binary")?.is_some_and(|binary| binary.is_true());
    options.assert_all_used()?;
    let bytes = f64::try_from(value.clone())?;
    let (base, end) = if is_binary { (1024.0, "iB") } else { (1000.0, "B") };
    if bytes == 1.0 {
        return Ok("1 Byte".to_owned());
    }
    if bytes < base {
        return Ok(format!("{} Bytes", float_text(bytes.trunc()).trim_end_matches(".0")));
    }
    let (mut size, mut units) = (bytes / base, "kMGTPEZY".chars().peekable());
    while size >= base && units.next_if(|unit| *unit != 'Y').is_some() {
        size /= base;
    }
    let unit = units.next().unwrap_or('Y');
    Ok(format!("{size:.1} {}{end}", if is_binary { unit.to_ascii_uppercase() } else { unit }))
}
