//! Rules of the project, checked on its source: layers, circles, sizes, headers, citations, vocabulary, unfinished work.
//!
//! Each rule is a function from text to complaints, so that tests can check it on bad examples.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod circles;
mod citations;
mod fields;
mod headless;
mod heads;
mod known_circles;
mod layers;
mod paper_index;
mod paths;
mod rust;
mod sources;
mod terms;
mod text;
mod vocabulary;

use std::path::Path;

use sources::{Source, tracked};

/// Files that may exceed the line limit, with their limit and the reason.
const LONGER_FILES: [(&str, usize, &str); 0] = [];
/// Names allowed at the top level, apart from dot-files.
const TOP_LEVEL: [&str; 8] = ["Cargo.toml", "Cargo.lock", "README.md", "LICENSE", "src", "shaders", "assets", "tests"];
const TOP_LEVEL_OPTIONAL: [&str; 1] = ["benches"];
const MAX_LINES: usize = 500;
const MAX_MAIN_LINES: usize = 80;
/// Pages that a reader sees first, with their limit in bytes.
const MAX_PAGE_BYTES: [(&str, usize); 2] = [("README.md", 8000), ("assets/demo-model/README.md", 4000)];

#[track_caller]
fn assert_none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

fn rust_under(folder: &str) -> Vec<&'static Source> {
    tracked().iter().filter(|s| s.is_under(folder) && s.has_extension("rs")).collect()
}

#[test]
fn modules_import_lower_layers_only() {
    assert_none(tracked().iter().filter(|s| s.is_under("src")).flat_map(layers::complaints).collect());
}

#[test]
fn interface_of_the_engine_stands_alone() {
    let interface = rust_under(layers::INTERFACE);
    assert!(!interface.is_empty(), "{} has moved", layers::INTERFACE);
    assert_none(interface.into_iter().flat_map(layers::interface_complaints).collect());
}

#[test]
fn layer_table_names_every_module_of_the_crate() {
    let declared: Vec<String> = tracked()
        .iter()
        .filter(|s| s.path == "src/lib.rs")
        .flat_map(|s| s.text.lines().filter_map(|l| l.strip_prefix("pub mod ")?.strip_suffix(';').map(str::to_owned)))
        .collect();
    let mut table: Vec<&str> = layers::TABLE.iter().map(|(name, _)| *name).collect();
    table.sort_unstable();
    assert_eq!(declared, table);
}

#[test]
fn files_of_a_module_do_not_use_each_other_in_circles() {
    let found = circles::circles(&rust_under("src"));
    assert_none(circles::complaints(&found, &known_circles::KNOWN_CIRCLES));
}

#[test]
fn files_are_within_the_line_limit() {
    let capped = |s: &&Source| s.has_extension("rs") || s.has_extension("wgsl");
    assert_none(tracked().iter().filter(capped).filter_map(too_long).collect());
    for (path, _, reason) in LONGER_FILES {
        assert!(!reason.is_empty() && tracked().iter().any(|s| s.path == path), "{path} may be long, but does not exist");
    }
}

#[test]
fn structs_have_few_fields() {
    let rust = tracked().iter().filter(|s| s.has_extension("rs"));
    assert_none(fields::complaints(&rust.flat_map(fields::structs).collect::<Vec<_>>()));
}

#[test]
fn pages_for_readers_are_short() {
    for (path, max) in MAX_PAGE_BYTES {
        let page = tracked().iter().find(|s| s.path == path);
        assert_none(page.map_or_else(|| vec![format!("{path} is missing")], |page| too_large(page, max).into_iter().collect()));
    }
}

#[test]
fn every_source_file_has_a_module_head() {
    let documented = |s: &&Source| s.has_extension("rs") && (s.is_under("src") || s.path.ends_with("/main.rs"));
    assert_none(tracked().iter().filter(documented).filter_map(text::no_module_doc).collect());
}

#[test]
fn module_heads_begin_with_a_short_sentence() {
    assert_none(heads::complaints(&rust_under("src")));
}

#[test]
fn every_shader_has_a_complete_header() {
    assert_none(tracked().iter().filter(|s| s.has_extension("wgsl")).flat_map(text::shader_header).collect());
}

#[test]
fn nothing_is_ignored_or_unfinished() {
    let read = |s: &&Source| ["rs", "wgsl", "toml", "md"].iter().any(|e| s.has_extension(e)) && s.path != "Cargo.lock";
    assert_none(tracked().iter().filter(read).flat_map(text::forbidden_words).collect());
}

#[test]
fn papers_are_cited_in_one_form() {
    assert_none(citations::form_complaints(&citing()));
}

#[test]
fn index_of_papers_leads_to_files_that_cite_them() {
    let lib = lib();
    assert_none(paper_index::complaints(lib, tracked()));
    assert_none(paper_index::path_complaints(lib, tracked()));
}

#[test]
fn citations_lead_to_sections_of_the_papers() {
    let folder = sources::papers();
    let cited: Vec<_> = citing().into_iter().flat_map(|s| citations::read(s).0).chain(paper_index::citations(lib())).collect();
    for (paper, file) in citations::PAPERS {
        let Ok(text) = std::fs::read_to_string(folder.join(file)) else {
            eprintln!("skipped: citations_lead_to_sections_of_the_papers: no {file} in {}", folder.display());
            continue;
        };
        assert_none(cited.iter().filter(|c| c.paper == paper).filter_map(|c| citations::resolve(c, &text)).collect());
    }
}

/// Files whose comments cite papers.
fn citing() -> Vec<&'static Source> {
    let cites = |s: &&Source| s.has_extension("wgsl") || s.has_extension("rs") && (s.is_under("src") || s.is_under("benches"));
    tracked().iter().filter(cites).collect()
}

fn lib() -> &'static Source {
    tracked().iter().find(|s| s.path == "src/lib.rs").expect("src/lib.rs")
}

#[test]
fn home_made_words_become_fewer() {
    let is_code = |s: &&Source| s.has_extension("rs") || s.has_extension("wgsl");
    let index = vocabulary::Index::new(&tracked().iter().filter(is_code).collect::<Vec<_>>());
    assert_none(vocabulary::complaints(&index, &terms::TERMS, &terms::EXCEPTIONS));
    assert_none(vocabulary::retired(&index, &terms::RETIRED));
}

#[test]
fn program_without_the_window_compiles_no_crate_of_it() {
    assert_none(headless::complaints(&headless::tree()));
}

#[test]
fn crates_are_named_only_in_their_modules() {
    assert_none(tracked().iter().filter(|s| s.is_under("src")).flat_map(text::foreign_crates).collect());
}

#[test]
fn top_level_has_only_agreed_names() {
    let names = sources::top_level();
    assert_none(top_level_complaints(&names));
    for name in TOP_LEVEL {
        assert!(names.iter().any(|n| n == name), "{name} is missing");
    }
}

fn top_level_complaints(names: &[String]) -> Vec<String> {
    let allowed = |n: &str| n.starts_with('.') || TOP_LEVEL.contains(&n) || TOP_LEVEL_OPTIONAL.contains(&n);
    names
        .iter()
        .filter(|n| !allowed(n))
        .map(|n| format!("{n}: not agreed at the top level; put it under assets/ or tests/"))
        .collect()
}

fn too_long(source: &Source) -> Option<String> {
    let allowed = LONGER_FILES.iter().find(|(path, ..)| *path == source.path).map(|(_, lines, _)| *lines);
    let cap = if source.path == "src/main.rs" { MAX_MAIN_LINES } else { allowed.unwrap_or(MAX_LINES) };
    let n_lines = source.text.lines().count();
    (n_lines > cap).then(|| format!("{}: {n_lines} lines, {cap} is the most; split it by what its parts are about", source.path))
}

fn too_large(page: &Source, max: usize) -> Option<String> {
    let n_bytes = page.text.len();
    (n_bytes > max)
        .then(|| format!("{}: {n_bytes} bytes; the limit is {max}. Move the details to a page of their own", page.path))
}

#[test]
fn length_and_top_level_rules_reject_bad_examples() {
    assert!(too_long(&Source::new("src/a/b.rs", &"//\n".repeat(MAX_LINES + 1))).is_some());
    assert!(too_long(&Source::new("src/main.rs", &"//\n".repeat(MAX_MAIN_LINES + 1))).is_some());
    assert!(too_long(&Source::new("src/a/b.rs", &"//\n".repeat(MAX_LINES))).is_none());
    assert!(too_large(&Source::new("README.md", "12345"), 4).is_some());
    assert!(too_large(&Source::new("README.md", "1234"), 4).is_none());
    let names = ["src", ".ci", "notes.txt"].map(str::to_owned);
    assert_eq!(top_level_complaints(&names).len(), 1);
    assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs").is_file());
}
