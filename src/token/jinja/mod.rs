//! Jinja environment for chat templates: minijinja with the additions of Hugging Face transformers.
//!
//! ```text
//! source ──► without {% generation %} ──► rewrite: `%`, `~`, tuples ──► minijinja with Python's methods, filters and printing
//! ```
//! Additions: `raise_exception`, `strftime_now`, `tojson` in the format of Python's `json.dumps`, `joiner`, `cycler`, Python's
//! methods, ranges and views, and its form of every printed value. Block lines leave no white space (`trim_blocks`, `lstrip_blocks`); nothing is
//! escaped as HTML.

mod filters;
mod json;
mod markup;
mod methods;
mod numbers;
mod python;
mod rewrite;

use std::io;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};

/// Largest nesting of macro calls and includes.
const MAX_DEPTH: usize = 100;

/// An environment without templates.
pub(super) fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    env.set_trim_blocks(true);
    env.set_lstrip_blocks(true);
    env.set_recursion_limit(MAX_DEPTH);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_unknown_method_callback(methods::call);
    env.set_formatter(|out, _, value| match value.as_str() {
        Some(text) => Ok(out.write_str(text)?),
        None => Ok(out.write_str(&python::str_of(value))?),
    });
    env.add_function(python::MOD, python::modulo);
    env.add_function(python::TEXT, python::text_of);
    env.add_function(python::TUPLE, python::tuple_of);
    env.add_function("cycler", |items: Rest<Value>| minijinja_contrib::globals::cycler(items.0));
    env.add_function("joiner", minijinja_contrib::globals::joiner);
    env.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    env.add_function("strftime_now", strftime_now);
    env.add_function("range", python::range);
    // For minijinja, a macro is a mapping.
    let is_macro = |value: &Value| value.as_object().is_some_and(|object| object.type_name().ends_with("::Macro"));
    env.add_test("callable", move |value: &Value| value.kind() == ValueKind::Plain || is_macro(value));
    env.add_test("iterable", |value: &Value| value.is_undefined() || (!value.is_none() && value.try_iter().is_ok()));
    env.add_test("sequence", |value: &Value| {
        value.is_undefined() || matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map)
    });
    env.add_filter("tojson", json::to_json);
    env.add_filter("indent", filters::indent);
    env.add_filter("string", python::str_of);
    env.add_filter("join", filters::join);
    env.add_filter("replace", filters::replace);
    env.add_filter("trim", filters::trim);
    env.add_filter("upper", |text: &Value| python::str_of(text).to_uppercase());
    env.add_filter("lower", |text: &Value| python::str_of(text).to_lowercase());
    env.add_filter("dictsort", |value: &Value, options: Kwargs| {
        minijinja::filters::dictsort(value, options).and_then(filters::pairs)
    });
    env.add_filter("items", |value: &Value| minijinja::filters::items(value).and_then(filters::pairs));
    env.add_filter("title", filters::title);
    env.add_filter("center", filters::center);
    env.add_filter("random", filters::random);
    env.add_filter("wordcount", filters::wordcount);
    env.add_filter("truncate", filters::truncate);
    env.add_filter("wordwrap", filters::wordwrap);
    env.add_filter("round", numbers::round);
    env.add_filter("int", numbers::int);
    env.add_filter("sum", numbers::sum);
    env.add_filter("filesizeformat", numbers::filesizeformat);
    env.add_filter("forceescape", markup::escaped);
    env.add_filter("striptags", markup::striptags);
    env.add_filter("urlencode", markup::urlencode);
    env.add_filter("xmlattr", markup::xmlattr);
    env.add_filter("pprint", python::repr);
    env.add_filter("format", |format: &str, args: Rest<Value>| python::formatted(format, &args.0));
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

/// A template's source as minijinja understands it.
pub(super) fn prepared(source: &str) -> String {
    rewrite::rewritten(&without_generation_tags(source))
}

/// Replaces `{% generation %}` and its end, which mark text for training, by blocks without effect.
fn without_generation_tags(source: &str) -> String {
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
        environment().render_str(&prepared(source), minijinja::context! { none => (), yes => true }).unwrap()
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
    fn methods_and_filters_follow_python() {
        for (source, want) in [
            ("{{ 'a b c'.partition(' ') }}{{ 'a b c'.rpartition(' ')[2] }}", "('a', ' ', 'b c')c"),
            (
                "{{ 'a b c'.rsplit(' ', 1) }}{{ ' a  b '.split() }}{{ 'a,b,c'.split(',', maxsplit=1) }}",
                "['a b', 'c']['a', 'b']['a', 'b,c']",
            ),
            ("{{ ' a  b  c '.split(None, 1) }}{{ ' a  b  c '.rsplit(None, 1) }}", "['a', 'b  c '][' a  b', 'c']"),
            ("{{ 'xyx'.removeprefix('x').removesuffix('x') }}{{ '-7'.zfill(4) }}{{ '7'.zfill(3) }}", "y-007007"),
            (
                "{{ 'user'.center(8, '*') }}{{ 'user'.center(7, '*') }}{{ 'u'.ljust(3, '.') }}{{ 'u'.rjust(3) }}",
                "**user****user*u..  u",
            ),
            ("{{ 'a-b'.swapcase() }}{{ \"they're\".title() }}{{ 'éA'.capitalize() }}", "A-BThey'ReÉa"),
            (
                "{{ 'éab'.find('b') }}{{ 'éab'.index('a') }}{{ 'abab'.rfind('b') }}{{ 'x'.find('y') }}{{ 'abab'.count('ab') }}",
                "213-12",
            ),
            ("{{ 'a\\r\\nb\\x0bc'.splitlines() }}{{ 'a\\tb'.expandtabs(4) }}", "['a', 'b', 'c']a   b"),
            ("{{ ''.isdigit() }}{{ '12'.isdigit() }}{{ 'ab1'.isalnum() }}{{ 'A1'.isupper() }}", "FalseTrueTrueTrue"),
            ("{{ [1, 2].index(2) }}{{ {'a': 1}.items() }}{{ '-'.join([1, none]) }}", "1dict_items([('a', 1)])1-None"),
            ("{{ 'one two three'|wordwrap(7) }}|{{ 'abcdefgh'|wordwrap(width=3) }}", "one two\nthree|abc\ndef\ngh"),
            ("{{ 'one two three'|truncate(9, leeway=0) }}{{ 'ab'|center(5) }}|{{ 'a b-c'|wordcount }}", "one...  ab |3"),
            ("{% set j = joiner('; ') %}{% for x in [1, 2] %}{{ j() }}{{ x }}{% endfor %}", "1; 2"),
            ("{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}", "aba"),
            ("{{ [1, 'a', none] | join(', ') }}{{ 1.0 ~ true ~ [none] }}{{ none | string }}", "1, a, None1.0True[None]None"),
            ("{{ '%s=%d' | format('a', 3) }}{{ 'abc' is sequence }}{{ 7 % 3 }}{{ 'a' 'b' }}", "a=3True1ab"),
            ("{{ {'a': 1} | tojson(4) }}", "{\n    \"a\": 1\n}"),
            ("{{ 'é' | tojson(true) }}{{ [1] | tojson(false, 2) }}", "\"\\u00e9\"[\n  1\n]"),
            ("{{ {'a': 1}.keys() }}{{ {'a': 1}.values() }}", "dict_keys(['a'])dict_values([1])"),
            ("{{ {'a': 1}.items() }}{{ {'a': 1}.items() | list }}", "dict_items([('a', 1)])[('a', 1)]"),
            ("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}{{ 'a' in {'a': 1}.keys() }}", "a1True"),
            ("{{ range(5) }}{{ range(3, 0, -1) }}{{ range(1, 9, 3) | list }}", "range(0, 5)range(3, 0, -1)[1, 4, 7]"),
            ("{% for i in range(3, 0, -1) %}{{ i }}{% endfor %}{{ range(0) | list }}{{ range(4)[-1] }}", "321[]3"),
            ("{{ 2.5 | round }}{{ 2.567 | round(2) }} {{ 2.1 | round(0, 'ceil') }}{{ 3 | round }}", "2.02.57 3.03"),
            ("{{ 2.5 | round(method='floor') }}{{ 1234 | round(-2) }}", "2.01200"),
            ("{{ 3.7 | int }}{{ '12' | int + 1 }}{{ 'x' | int(5) }}{{ '1.9' | int }}{{ none | int }}", "313510"),
            ("{{ 'ff' | int(0, 16) }} {{ '-0x1F' | int(base=16) }} {{ '1_000' | int }} {{ '--1' | int }}", "255 -31 1000 0"),
            ("{{ [[1], [2]] | sum(start=[]) }}{{ [{'a': {'b': 1}}] | sum('a.b') }}{{ [1, 2.5] | sum }}", "[1, 2]13.5"),
            ("{{ '%d' % 3.7 }}{{ '%03i' % -1.5 }}{{ range is callable }}{{ 'a' is callable }}", "3-01TrueFalse"),
            ("{% macro f() %}{% endmacro %}{{ f is callable }}{{ {'a': 1} is callable }}", "TrueFalse"),
            ("{{ 'a\nb' | indent('>>', true) }}|{{ [1, [2]] | pprint }}{{ 'a' | pprint }}", ">>a\n>>b|[1, [2]]'a'"),
            ("{{ 'é /' | urlencode }} {{ {'a': 'b c'} | urlencode }}", "%C3%A9%20/ a=b+c"),
            ("{{ '<b>x</b> <!-- y -->&lt;z' | striptags }}{{ '<\"&' | forceescape }}", "x <z&lt;&#34;&amp;"),
            ("{{ {'a': 1, 'b': none} | xmlattr }}|{{ {} | xmlattr }}", " a=\"1\"|"),
            ("{{ 12345678 | filesizeformat }} {{ 1 | filesizeformat }} {{ 999 | filesizeformat }}", "12.3 MB 1 Byte 999 Bytes"),
            ("{{ 2048 | filesizeformat(true) }}{{ 'hello'.translate({104: 'j', 101: none}) }}", "2.0 KiBjllo"),
            (
                "{{ '½'.isnumeric() }}{{ '½'.isdigit() }}{{ '²'.isdigit() }}{{ '²'.isdecimal() }}{{ '٣'.isdecimal() }}",
                "TrueFalseTrueFalseTrue",
            ),
        ] {
            assert_eq!(render(source), want, "{source}");
        }
    }

    #[test]
    fn generation_tags_are_replaced_with_their_white_space_marks() {
        let source = "a {%- generation -%} b {% endgeneration %}{% if generation %}{% endif %}{% broken";
        let want = "a {%- if true -%} b {% endif %}{% if generation %}{% endif %}{% broken";
        assert_eq!(without_generation_tags(source), want);
    }
}
