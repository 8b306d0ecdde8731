//! Field rule: a struct has at most 20 fields, unless it is a wire format.

use crate::rust::{Token, tokens};
use crate::sources::Source;

const MAX_FIELDS: usize = 20;

/// A struct and the number of its fields.
#[derive(Debug, PartialEq)]
pub struct Fields {
    pub path: String,
    pub name: String,
    pub n_fields: usize,
}

/// Every struct of a file.
pub fn structs(source: &Source) -> Vec<Fields> {
    let all = tokens(source.code());
    let mut found = Vec::new();
    for (at, pair) in all.windows(2).enumerate() {
        let [keyword, name] = pair else { continue };
        if keyword.text == "struct" && name.text != "$" {
            let n_fields = n_fields(&all[at + 2..]);
            found.push(Fields { path: source.path.clone(), name: name.text.to_owned(), n_fields });
        }
    }
    found
}

/// Number of fields of the struct whose name has just been read.
fn n_fields(tokens: &[Token<'_>]) -> usize {
    let (mut braces, mut nested, mut n_colons) = (0usize, 0usize, 0);
    for token in tokens {
        match token.text {
            ";" if braces + nested == 0 => break,
            "{" if nested == 0 => braces += 1,
            "}" if nested == 0 => {
                braces -= 1;
                if braces == 0 {
                    break;
                }
            }
            "(" | "[" | "<" | "{" => nested += 1,
            ")" | "]" | ">" | "}" => nested = nested.saturating_sub(1),
            ":" if braces == 1 && nested == 0 => n_colons += 1,
            _ => {}
        }
    }
    n_colons
}

/// Structs that may have any number of fields, and why.
const WIRE_FORMATS: [(&str, &str, &str); 4] = [
    ("src/cli/bench/line.rs", "Line", "a row of `strata bench -o json` and `-o csv`"),
    ("src/cli/summary.rs", "AskSummary", "the summary line of `strata ask --json`"),
    ("src/engine/api/summary.rs", "RequestSummary", "the cost of an answer, as JSON in `chats.sqlite`"),
    ("src/telemetry/chrome_trace/read.rs", "Args", "the arguments of every event of a Chrome trace"),
];

/// Structs with too many fields today, with their number. The list only shrinks, and so do the numbers.
const LARGE_TODAY: [(&str, &str, usize); 0] = [];

/// Structs with too many fields, and entries of the two lists that are no longer needed.
pub fn complaints(found: &[Fields]) -> Vec<String> {
    compare(found, &WIRE_FORMATS, &LARGE_TODAY)
}

fn compare(found: &[Fields], wire: &[(&str, &str, &str)], large: &[(&str, &str, usize)]) -> Vec<String> {
    let count = |path: &str, name: &str| found.iter().find(|f| f.path == path && f.name == name).map_or(0, |f| f.n_fields);
    let new = found.iter().filter_map(|Fields { path, name, n_fields }| {
        let limit = large.iter().find(|(p, n, _)| p == path && n == name).map_or(MAX_FIELDS, |(.., n)| *n);
        let is_wire = wire.iter().any(|(p, n, _)| p == path && n == name);
        (*n_fields > limit && !is_wire)
            .then(|| format!("{path}: {name} has {n_fields} fields; the limit is {limit}. Group those that belong together"))
    });
    let lower = large.iter().filter(|(path, name, limit)| count(path, name) < *limit).map(|(path, name, limit)| {
        let n_fields = count(path, name);
        let advice = if n_fields > MAX_FIELDS { "lower its number" } else { "remove its entry" };
        format!("{path}: {name} has {n_fields} fields and {limit} in LARGE_TODAY; {advice}")
    });
    let unneeded = wire.iter().filter(|(path, name, reason)| count(path, name) <= MAX_FIELDS || reason.is_empty());
    let unneeded = unneeded.map(|(path, name, _)| format!("{path}: {name} is gone, small or without a reason in WIRE_FORMATS"));
    new.chain(lower).chain(unneeded).collect()
}

#[test]
fn fields_are_counted_in_every_kind_of_struct() {
    let count = |text: &str| structs(&Source::new("a.rs", text)).iter().map(|f| f.n_fields).collect::<Vec<_>>();
    assert_eq!(count("struct A { pub b: u8, /* c: u8, */ #[serde(default = \"d: e\")] pub(super) f: std::io::Error }"), [2]);
    assert_eq!(
        count("struct A<T: B> where T: C { d: HashMap<u8, E>, f: Box<dyn Fn(u8) -> u8>, g: (u8, u8) } struct H;"),
        [2 + 1, 0]
    );
    assert_eq!(count("struct A(u8, u8); fn f() { let a = A { b: 1, c: 2 }; struct D { e: [u8; 4] } }"), [0, 1]);
}

#[test]
fn field_rule_rejects_large_structs_and_stale_entries() {
    let text = format!("struct A {{ {} }}", (0..=MAX_FIELDS).map(|n| format!("f{n}: u8, ")).collect::<String>());
    let large = structs(&Source::new("a.rs", &text));
    let small = [Fields { path: "a.rs".to_owned(), name: "A".to_owned(), n_fields: MAX_FIELDS }];
    assert_eq!(compare(&large, &[], &[]).len(), 1);
    assert_eq!(compare(&large, &[("a.rs", "A", "a record")], &[]), [""; 0]);
    assert_eq!(compare(&large, &[], &[("a.rs", "A", 21)]), [""; 0]);
    assert_eq!(compare(&large, &[], &[("a.rs", "A", 22)]).len(), 1, "it has shrunk");
    assert_eq!(compare(&small, &[], &[]), [""; 0]);
    assert_eq!(compare(&small, &[], &[("a.rs", "A", 21)]).len(), 1, "it needs no entry any more");
    assert_eq!(compare(&small, &[("a.rs", "A", "a record")], &[]).len(), 1, "it needs no exception any more");
}
