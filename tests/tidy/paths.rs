//! Paths in code: what `use` items bind, and the qualified paths of everything else.

use crate::rust::{Token, is_word};

/// One leaf of a `use` item.
#[derive(Debug, PartialEq)]
pub struct Import {
    pub line: usize,
    /// true with `pub`, `pub(crate)` and `pub(super)`
    pub public: bool,
    /// as written, without a final `self` or `*`
    pub path: Vec<String>,
    /// the name that the file gets; `*` for everything in the module
    pub name: String,
}

/// A path outside of `use` and `mod` items, as written: one name or several.
#[derive(Debug, PartialEq)]
pub struct Path {
    pub line: usize,
    pub segments: Vec<String>,
}

/// Imports and other paths of a file.
pub fn read(tokens: &[Token<'_>]) -> (Vec<Import>, Vec<Path>) {
    let (mut imports, mut paths) = (Vec::new(), Vec::new());
    let text = |at: usize| tokens.get(at).map_or("", |t| t.text);
    let mut at = 0;
    while at < tokens.len() {
        let before = if at == 0 { "" } else { text(at - 1) };
        if text(at) == "use" && text(at + 1) != "<" {
            let mut tree = UseTree { tokens, at: at + 1, public: is_public(&tokens[..at]), imports: &mut imports };
            tree.read(&[]);
            at = tree.at;
        } else if is_name(text(at)) && !matches!(before, "." | "::" | "mod") {
            let mut segments = vec![text(at).to_owned()];
            let line = tokens[at].line;
            while text(at + 1) == "::" && is_name(text(at + 2)) {
                segments.push(text(at + 2).to_owned());
                at += 2;
            }
            if segments != ["self"] {
                paths.push(Path { line, segments });
            }
        }
        at += 1;
    }
    (imports, paths)
}

/// A path from the crate's root, as a module sees it; None if it begins with none of `crate`, `self` and `super`.
pub fn from_root(module: &[String], path: &[String]) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    let n_up = rest.iter().take_while(|s| *s == "super").count();
    let start = match first.as_str() {
        "crate" => 0,
        "self" => module.len().checked_sub(n_up)?,
        "super" => module.len().checked_sub(1 + n_up)?,
        _ => return None,
    };
    Some([&module[..start], &rest[n_up..]].concat())
}

/// Module of a file of `src`; None for `main.rs` and for files elsewhere.
pub fn module_of(path: &str) -> Option<Vec<String>> {
    let inner = path.strip_prefix("src/")?.strip_suffix(".rs").filter(|inner| *inner != "main")?;
    let mut module: Vec<String> = inner.split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib")) {
        module.pop();
    }
    Some(module)
}

/// True if the tokens before `use` end with `pub` or `pub(...)`.
fn is_public(before: &[Token<'_>]) -> bool {
    let mut texts = before.iter().rev().map(|t| t.text);
    match texts.next() {
        Some("pub") => true,
        Some(")") => texts.skip_while(|t| *t != "(").nth(1) == Some("pub"),
        _ => false,
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| is_word(c) && !c.is_ascii_digit())
}

struct UseTree<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    public: bool,
    imports: &'a mut Vec<Import>,
}

impl UseTree<'_> {
    fn text(&self) -> &str {
        self.tokens.get(self.at).map_or(";", |t| t.text)
    }

    /// Reads one branch, up to the `,`, `}` or `;` behind it.
    fn read(&mut self, stem: &[String]) {
        let mut path = stem.to_vec();
        let line = self.tokens.get(self.at).map_or(0, |t| t.line);
        let mut name = None;
        while !matches!(self.text(), "," | "}" | ";") {
            match self.text() {
                "{" => return self.read_list(&path),
                "as" => {
                    self.at += 1;
                    name = Some(self.text().to_owned());
                }
                "*" => name = Some("*".to_owned()),
                "self" if !path.is_empty() => {}
                segment if is_name(segment) => path.push(segment.to_owned()),
                _ => {}
            }
            self.at += 1;
        }
        let name = name.or_else(|| path.last().cloned());
        self.imports.extend(name.map(|name| Import { line, public: self.public, path, name }));
    }

    fn read_list(&mut self, stem: &[String]) {
        while !matches!(self.text(), "}" | ";") {
            self.at += 1;
            if self.text() != "}" {
                self.read(stem);
            }
        }
        self.at += 1;
    }
}

#[test]
fn imports_are_leaves_of_use_items() {
    let read = |code| {
        let (imports, _) = read(&crate::rust::tokens(code));
        let shown = |i: &Import| format!("{}{} as {}", if i.public { "pub " } else { "" }, i.path.join("::"), i.name);
        imports.iter().map(shown).collect::<Vec<_>>()
    };
    assert_eq!(
        read("use crate::a::{self, b::{C, D as E}, f::*,};"),
        ["crate::a as a", "crate::a::b::C as C", "crate::a::b::D as E", "crate::a::f as *"]
    );
    assert_eq!(
        read("pub(crate) use self::a::B; pub use c::D; use e; fn f() -> impl G + use<'a> {}"),
        ["pub self::a::B as B", "pub c::D as D", "e as e"]
    );
}

#[test]
fn paths_are_read_outside_of_use_items() {
    let code = "use a::b; mod c;\nfn f(self, x: super::c::D<e::F>) { x.g::<h>().i; crate::j(1.0) }";
    let (_, paths) = read(&crate::rust::tokens(code));
    let shown: Vec<_> = paths.iter().map(|p| p.segments.join("::")).collect();
    assert_eq!(shown, ["mod", "fn", "f", "x", "super::c::D", "e::F", "x", "h", "crate::j"]);
    assert_eq!(paths.last().map(|p| p.line), Some(2));
}

#[test]
fn relative_paths_begin_at_the_module() {
    let from = |path: &str, text: &str| {
        let segments: Vec<String> = text.split("::").map(str::to_owned).collect();
        from_root(&module_of(path)?, &segments).map(|p| p.join("::"))
    };
    assert_eq!(from("src/a/b.rs", "crate::c::D").as_deref(), Some("c::D"));
    assert_eq!(from("src/a/b.rs", "self::D").as_deref(), Some("a::b::D"));
    assert_eq!(from("src/a/mod.rs", "self::D").as_deref(), Some("a::D"));
    assert_eq!(from("src/a/b/c.rs", "super::super::D").as_deref(), Some("a::D"));
    assert_eq!(
        (from("src/a/b.rs", "std::fmt"), from("src/lib.rs", "super::a"), from("tests/a.rs", "crate::a")),
        (None, None, None)
    );
}
