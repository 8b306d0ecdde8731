//! Text rules: module heads, marks of unfinished work, and crates that only some modules may use.

use crate::sources::Source;

/// Marks of unfinished work, split in two halves so that this file does not contain them.
const UNFINISHED: [&str; 5] =
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:"), concat!("#[ign", "ore"), concat!("unimplem", "ented!")];

/// A crate, the only modules that may name it, and the reason.
const CRATES: [(&str, &[&str], &str); 7] = [
    ("anyhow::", &["src/main.rs", "src/cli"], "other modules have one thiserror enum each"),
    ("egui::", &["src/app"], "only the window draws"),
    ("eframe::", &["src/app"], "only the window draws"),
    ("clap::", &["src/cli", "src/engine/api"], "only the command line parses arguments"),
    ("wgpu::", &["src/gpu", "src/app"], "only `gpu` makes devices, pipelines and buffers"),
    ("rusqlite::", &["src/document/catalog", "src/chats"], "only the catalog and the chats are databases"),
    (
        "unsafe ",
        &[
            "src/model",
            "src/kv/store",
            "src/gpu/memory_info.rs",
            "src/gpu/trusted.rs",
            "src/gpu/cooperative.rs",
            "src/gpu/host_memory",
            "src/main.rs",
        ],
        "unsafe stands only where files are mapped, a ring is fed, a driver is queried, our own shaders are compiled, matrix units are asked for or the device reads host memory, and before there are threads",
    ),
];

pub fn no_module_doc(source: &Source) -> Option<String> {
    let first = source.text.lines().find(|l| !l.trim().is_empty())?;
    (!first.starts_with("//! ")).then(|| format!("{}: must begin with //! and its purpose", source.path))
}

/// A shader header has a purpose; one of an entry point also has bindings, grid and workgroup memory.
pub fn shader_header(source: &Source) -> Vec<String> {
    let head: Vec<&str> = source.text.lines().take_while(|l| l.starts_with("//")).collect();
    let header = head.join("\n");
    let complain = |what: &str| format!("{}: the header must say {what}", source.path);
    if head.is_empty() {
        return vec![complain("what the file is for")];
    }
    if !source.text.contains("fn main(") {
        return Vec::new();
    }
    let mut found = Vec::new();
    if !header.contains("Bindings:") {
        found.push(complain("its `Bindings:` with shape and type"));
    }
    if !header.contains("Grid:") {
        found.push(complain("its `Grid:`"));
    }
    if source.text.contains("var<workgroup>") && !header.to_lowercase().contains("workgroup memory") {
        found.push(complain("its `Workgroup memory:`"));
    }
    for name in bound_names(source) {
        if !mentions(&header, &name) {
            found.push(complain(&format!("the binding `{name}`")));
        }
    }
    found
}

/// Names of the variables that `@binding` lines declare.
fn bound_names(source: &Source) -> Vec<String> {
    let mut names: Vec<String> = source
        .code()
        .lines()
        .filter(|l| l.contains("@binding("))
        .filter_map(|l| {
            let declared = l.split_once("var")?.1.split_once(':')?.0;
            declared.rsplit(|c: char| c == '>' || c.is_whitespace()).find(|n| !n.is_empty()).map(str::to_owned)
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

fn mentions(header: &str, name: &str) -> bool {
    header.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == name)
}

pub fn forbidden_words(source: &Source) -> Vec<String> {
    let said = |line: &str| UNFINISHED.iter().copied().find(|w| line.contains(w));
    let lines = source.text.lines().enumerate();
    lines.filter_map(|(n, l)| said(l).map(|w| format!("{}:{}: {w} may not stay", source.path, n + 1))).collect()
}

pub fn foreign_crates(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    for (name, modules, reason) in CRATES {
        if modules.iter().any(|module| source.is_under(module)) {
            continue;
        }
        for (n, line) in source.code().lines().enumerate().filter(|(_, l)| names_crate(l, name)) {
            found.push(format!("{}:{}: {} ({reason}): {}", source.path, n + 1, name.trim_end(), line.trim()));
        }
    }
    found
}

/// True if the line has `name`, not as the end of a longer word.
fn names_crate(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

#[test]
fn text_rules_reject_bad_examples() {
    let rs = |text: &str| Source::new("src/kv/page.rs", text);
    assert!(no_module_doc(&rs("use std::io;\n")).is_some());
    assert!(no_module_doc(&rs("//! Pages.\n")).is_none());
    for word in UNFINISHED {
        assert_eq!(forbidden_words(&rs(&format!("// {word} later"))).len(), 1, "{word}");
    }
    assert_eq!(foreign_crates(&rs("fn f() -> anyhow::Result<()> {}\nfn g(ui: &mut egui::Ui) {}")).len(), 2);
    assert_eq!(foreign_crates(&rs("// egui::Ui\nlet s = \"wgpu::Device\";")), Vec::<String>::new());
    assert_eq!(foreign_crates(&Source::new("src/app/chat.rs", "egui::Ui")), Vec::<String>::new());
}

#[test]
fn shader_rule_rejects_incomplete_headers() {
    let body = "@group(0) @binding(0) var<storage, read> logits: array<f32>;\nvar<workgroup> best: array<f32, 4>;\n\
                @compute @workgroup_size(4)\nfn main() {}\n";
    let said = |head: &str| shader_header(&Source::new("shaders/a/b.wgsl", &format!("{head}{body}"))).len();
    assert_eq!(said(""), 1);
    assert_eq!(said("// The largest logit.\n"), 4);
    assert_eq!(said("// The largest logit.\n// Bindings: logits f32 [V]\n// Grid: one. Workgroup memory: 16 B.\n"), 0);
    assert_eq!(said("// The largest logit.\n// Bindings: other f32 [V]\n// Grid: one. Workgroup memory: 16 B.\n"), 1);
    assert!(shader_header(&Source::new("shaders/common/x.wgsl", "// Helpers.\nfn f() {}\n")).is_empty());
}
