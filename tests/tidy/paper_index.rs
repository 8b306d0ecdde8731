//! Index of papers in `src/lib.rs`: from a section of a paper to the files that follow it; they exist and cite the paper.

use crate::citations::{Citation, read};
use crate::rust::is_word;
use crate::sources::Source;

/// A row `| paper | §4.2 eq. 2: subject | files |`.
struct Row<'a> {
    at: String,
    paper: &'a str,
    section: &'a str,
    files: &'a str,
}

/// Rows that name a file or an item that does not exist, a file that does not cite the paper, or no section.
pub fn complaints(lib: &Source, sources: &[Source]) -> Vec<String> {
    let rows = rows(lib);
    let mut found = Vec::new();
    for row in &rows {
        let (_, wrong) = cited(row);
        found.extend(wrong);
        let names = quoted(row.files);
        if names.is_empty() && row.files != "planned" {
            found.push(format!("{}: name the files, or `planned`", row.at));
        }
        let mut file: Option<&Source> = None;
        for name in names {
            if name.contains('/') {
                file = sources.iter().find(|s| s.path == name);
                match file {
                    None => found.push(format!("{}: {name} does not exist", row.at)),
                    Some(file) if !file.comments().contains(row.paper) => {
                        found.push(format!("{}: no comment of {name} cites {}", row.at, row.paper));
                    }
                    Some(_) => {}
                }
            } else if !file.is_some_and(|f| f.code().split(|c| !is_word(c)).any(|word| word == name)) {
                found.push(format!("{}: {name} is not in the file before it", row.at));
            }
        }
    }
    if rows.is_empty() {
        found.push(format!("{}: the index of papers is missing", lib.path));
    }
    found
}

/// Every section that the index names.
pub fn citations(lib: &Source) -> Vec<Citation> {
    rows(lib).iter().flat_map(|row| cited(row).0).collect()
}

/// Paths in backquotes that do not exist. A path with capitals is a pattern: `src/model/arch/NAME.rs`.
pub fn path_complaints(lib: &Source, sources: &[Source]) -> Vec<String> {
    let is_path = |name: &str| ["src/", "shaders/", "tests/", "assets/", "benches/"].iter().any(|top| name.starts_with(top));
    let mut found = Vec::new();
    for (n, line) in lib.comments().lines().enumerate() {
        for name in quoted(line).into_iter().filter(|name| is_path(name) && !name.contains(char::is_uppercase)) {
            if !sources.iter().any(|s| s.is_under(name)) {
                found.push(format!("{}:{}: {name} does not exist", lib.path, n + 1));
            }
        }
    }
    found
}

fn rows(lib: &Source) -> Vec<Row<'_>> {
    let lines = lib.text.lines().enumerate().skip_while(|(_, line)| *line != "//! # Papers").skip(1);
    let lines = lines.take_while(|(_, line)| !line.starts_with("//! #"));
    lines
        .filter_map(|(n, line)| {
            let [_, paper, section, files, _] = line.split('|').map(str::trim).collect::<Vec<_>>()[..] else { return None };
            let is_head = paper == "paper" || paper.starts_with("--");
            (!is_head).then(|| Row { at: format!("{}:{}", lib.path, n + 1), paper, section, files })
        })
        .collect()
}

/// Sections before the colon of a row, divided by commas: each as a comment would cite it.
fn cited(row: &Row<'_>) -> (Vec<Citation>, Vec<String>) {
    let (mut found, mut complaints) = (Vec::new(), Vec::new());
    let sections = row.section.split_once(':').map_or("", |(sections, _)| sections);
    for section in sections.split(", ") {
        let (mut read, wrong) = read(&Source::new(&row.at, &format!("// {} {section}", row.paper)));
        if read.len() != 1 || !wrong.is_empty() {
            complaints.push(format!("{}: `{section}` is no section as `§4.2 eq. 2`, with a colon behind the last one", row.at));
        }
        read.iter_mut().for_each(|c| c.at.clone_from(&row.at));
        found.extend(read);
    }
    (found, complaints)
}

/// Texts between backquotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn index_rule_rejects_rows_that_lead_nowhere() {
    let sources = [Source::new("src/a.rs", "// LeoAM §4.2\nfn f() {}"), Source::new("src/b.rs", "fn f() {}")];
    let said = |row: &str| {
        complaints(&Source::new("src/lib.rs", &format!("//! # Papers\n//! | paper | section | file |\n{row}")), &sources)
    };
    assert_eq!(said("//! | LeoAM | §4.2 eq. 2, §4.3: chunks | `src/a.rs` (`f`) |"), [""; 0]);
    assert_eq!(said("//! | LeoAM | §4.2: chunks | planned |\n//! # Next\n//! | LeoAM | | |"), [""; 0]);
    for row in [
        "| LeoAM | §4.2: chunks | `src/c.rs` |",
        "| LeoAM | §4.2: chunks | `src/b.rs` |",
        "| LeoAM | §4.2: chunks | `src/a.rs` (`g`) |",
        "| LeoAM | §4.2: chunks | later |",
        "| LeoAM | §4.2, eq. 3: chunks | `src/a.rs` |",
        "| LeoAM | chunks | `src/a.rs` |",
    ] {
        assert_eq!(said(&format!("//! {row}")).len(), 1, "{row}");
    }
    assert_eq!(said("").len(), 1, "no index");
}

#[test]
fn index_has_citations_with_their_lines() {
    let lib = Source::new("src/lib.rs", "//! # Papers\n//! | KVPR | §3.2 eq. 6 to 11, §3.3: part | planned |");
    let found = citations(&lib);
    assert_eq!(
        found.iter().map(|c| (c.at.as_str(), c.section.as_str())).collect::<Vec<_>>(),
        [("src/lib.rs:2", "3.2"), ("src/lib.rs:2", "3.3")]
    );
}

#[test]
fn path_rule_rejects_paths_that_do_not_exist() {
    let sources = [Source::new("src/a/b.rs", "")];
    let said = |text: &str| path_complaints(&Source::new("src/lib.rs", text), &sources).len();
    assert_eq!(said("//! `src/a/b.rs`, `src/a`, `src/a/NAME.rs`, `b.rs`\nconst A: &str = \"`src/c`\";"), 0);
    assert_eq!(said("//! `src/a/c.rs`, `tests/a`"), 2);
}
