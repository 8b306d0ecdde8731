//! Layer rule: a module imports only modules of a lower layer.
//!
//! Imports are parsed from paths in the code, not in comments: `crate::gpu`, `crate::{base, gpu::Buffer}`, and
//! `super::super::gpu` if it reaches the top. `lib.rs` and `main.rs` are above every layer. Inside the engine, its interface
//! uses no other part of it.

use crate::paths::{from_root, module_of, read};
use crate::rust::{tokens, without_tests};
use crate::sources::Source;

/// Every module with its layer, as in `src/lib.rs`.
pub const TABLE: [(&str, u8); 12] = [
    ("base", 0),
    ("reference", 1),
    ("telemetry", 1),
    ("document", 2),
    ("token", 2),
    ("gpu", 2),
    ("chats", 3),
    ("model", 3),
    ("kv", 3),
    ("engine", 4),
    ("cli", 5),
    ("app", 5),
];

pub fn complaints(source: &Source) -> Vec<String> {
    if !source.has_extension("rs") {
        return Vec::new();
    }
    let Some(own) = top_module_of(&source.path) else { return Vec::new() };
    let Some(own_layer) = layer(own) else { return vec![format!("{}: module {own} is in no layer", source.path)] };
    let mut found = Vec::new();
    for (n, line) in imports(source) {
        if line != own && layer(&line).is_none_or(|l| l >= own_layer) {
            found.push(format!("{}:{n}: {own} (layer {own_layer}) may not use {line}", source.path));
        }
    }
    found
}

/// Module of a file: `gpu` for `src/gpu/kernels/norm.rs`, None for `src/lib.rs`.
fn top_module_of(path: &str) -> Option<&str> {
    let below = path.strip_prefix("src/")?;
    match below.split_once('/') {
        Some((module, _)) => Some(module),
        None => below.strip_suffix(".rs").filter(|name| !matches!(*name, "lib" | "main")),
    }
}

fn layer(module: &str) -> Option<u8> {
    TABLE.iter().find(|(name, _)| *name == module).map(|(_, layer)| *layer)
}

/// Top-level modules that the code names, with the line.
fn imports(source: &Source) -> Vec<(usize, String)> {
    let code = source.code();
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let n = line_of(code, at);
        found.extend(heads(&code[at + "crate::".len()..]).into_iter().map(|name| (n, name)));
    }
    found.extend(climbs(source, code));
    found
}

/// Top-level modules reached by `super::` chains.
fn climbs(source: &Source, code: &str) -> Vec<(usize, String)> {
    let depth = source.path.matches('/').count() - usize::from(source.path.ends_with("/mod.rs"));
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = code[at..].find("super::").map(|i| at + i) {
        let mut rest = &code[start..];
        let mut n_up = 0;
        while let Some(next) = rest.strip_prefix("super::") {
            rest = next;
            n_up += 1;
        }
        at = code.len() - rest.len();
        if n_up >= depth.max(1) && n_up > 1 || (n_up == 1 && depth == 1) {
            found.extend(heads(rest).into_iter().filter(|name| layer(name).is_some()).map(|name| (line_of(code, start), name)));
        }
    }
    found
}

/// First names of a path or of a braced list of paths.
fn heads(rest: &str) -> Vec<String> {
    let name = |text: &str| text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(list) = rest.strip_prefix('{') else { return vec![name(rest)] };
    let mut names = Vec::new();
    let (mut nested, mut start) = (0usize, 0usize);
    for (at, c) in list.char_indices() {
        match c {
            '{' => nested += 1,
            '}' if nested > 0 => nested -= 1,
            ',' | '}' if nested == 0 => {
                names.push(name(&list[start..at]));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names.retain(|n| !n.is_empty());
    names
}

/// Folder of the engine's interface: plain data that other modules of the engine use, and not the other way round.
pub const INTERFACE: &str = "src/engine/api";

/// Paths in the interface to another part of the engine; tests may use them.
pub fn interface_complaints(source: &Source) -> Vec<String> {
    let Some(module) = module_of(&source.path).filter(|_| source.is_under(INTERFACE)) else { return Vec::new() };
    let all = tokens(source.code());
    let (imports, paths) = read(&without_tests(&all).0);
    let named = imports.iter().map(|i| (i.line, &i.path)).chain(paths.iter().map(|p| (p.line, &p.segments)));
    let absolute = named.filter_map(|(n, path)| Some((n, from_root(&module, path)?)));
    let inner = absolute
        .filter(|(_, path)| path.first().is_some_and(|top| top == "engine") && path.get(1).is_none_or(|part| part != "api"));
    inner
        .map(|(n, path)| format!("{}:{n}: the interface may use only crate::engine::api, not {}", source.path, path.join("::")))
        .collect()
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

#[test]
fn layer_rule_rejects_upward_and_sideways_imports() {
    let said = |path: &str, text: &str| complaints(&Source::new(path, text)).len();
    assert_eq!(said("src/gpu/device.rs", "use crate::engine::EngineEvent;"), 1);
    assert_eq!(said("src/gpu/device.rs", "use crate::token::Tokenizer;"), 1, "sideways");
    assert_eq!(said("src/engine/worker.rs", "use crate::{base::Bytes, app::{self, run}, cli};"), 2);
    assert_eq!(said("src/gpu/kernels/norm.rs", "fn f() -> super::super::super::kv::Page {}"), 1);
    assert_eq!(said("src/cli/ask.rs", "let x = crate::app::run();"), 1);
    assert_eq!(said("src/novel/mod.rs", ""), 1, "a module without a layer");
}

#[test]
fn layer_rule_accepts_downward_imports_and_prose() {
    let said = |path: &str, text: &str| complaints(&Source::new(path, text));
    let text =
        "//! [`crate::app`]\nuse crate::base::{Bytes, limits};\nuse super::super::buffer;\nuse crate::gpu::Gpu; // crate::cli\n";
    assert_eq!(said("src/gpu/kernels/norm.rs", text), Vec::<String>::new());
    assert_eq!(said("src/main.rs", "use crate::app::run;"), Vec::<String>::new());
    assert_eq!(said("src/engine/mod.rs", "mod tests { use super::super::engine; use super::command; }"), Vec::<String>::new());
    assert_eq!(heads("{a::{b, c}, d}; crate::x"), ["a", "d"]);
}

#[test]
fn interface_rule_rejects_the_rest_of_the_engine() {
    let said = |text: &str| interface_complaints(&Source::new("src/engine/api/event.rs", text)).len();
    assert_eq!(said("use crate::engine::worker::Worker;"), 1);
    assert_eq!(said("use crate::engine::{api::Prompt, sampler};"), 1);
    assert_eq!(said("use crate::{engine::Prompt, kv};"), 1, "a re-export of the engine");
    assert_eq!(said("fn f(x: super::super::error::EngineError) {}"), 1);
    assert_eq!(said("use crate::engine::api::Prompt; use super::request::Message; pub(crate) use crate::kv::policy;"), 0);
    assert_eq!(said("#[cfg(test)] mod tests { use crate::engine::worker; }"), 0);
    assert_eq!(interface_complaints(&Source::new("src/engine/worker.rs", "use crate::engine::sampler;")), [""; 0]);
}
