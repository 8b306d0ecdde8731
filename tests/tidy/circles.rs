//! Circle rule: no file of a module uses itself through other files of the module.
//!
//! ```text
//! files without tests ─► imports, paths ─► the file that defines each of them ─► edges ─► groups that reach each other
//! ```
//! A path leads to the file that defines its last name: through modules, and through the re-exports of `mod.rs`. `mod`
//! declarations and re-exports are no edges themselves, and neither is the name of a module alone.

use std::collections::{BTreeMap, BTreeSet};

use crate::known_circles::Known;
use crate::paths::{Import, Path, from_root, module_of, read};
use crate::rust::{Token, tokens, without_tests};
use crate::sources::Source;

/// Files that reach each other, sorted, and the uses among them as `a.rs:12 uses b.rs`.
#[derive(Debug, PartialEq)]
pub struct Circle {
    pub files: Vec<String>,
    pub uses: Vec<String>,
}

/// A module with a file of its own.
struct File {
    path: String,
    module: Vec<String>,
    imports: Vec<Import>,
    paths: Vec<Path>,
    /// names of its types, functions, traits and constants, not of methods
    defined: BTreeSet<String>,
}

struct Tree {
    files: Vec<File>,
    by_module: BTreeMap<Vec<String>, usize>,
}

/// End of a path.
enum Target {
    Item(usize),
    Module,
}

/// Longest chain of re-exports that is followed.
const MAX_HOPS: usize = 12;

/// Every circle among the files of one module of `src`.
pub fn circles(sources: &[&Source]) -> Vec<Circle> {
    let tree = Tree::new(sources);
    let edges = tree.edges();
    let reached: Vec<BTreeSet<usize>> = (0..tree.files.len()).map(|from| reachable(&edges, from)).collect();
    let mut found: Vec<Circle> = Vec::new();
    let mut done = BTreeSet::new();
    for file in 0..tree.files.len() {
        let group: BTreeSet<usize> = reached[file].iter().copied().filter(|other| reached[*other].contains(&file)).collect();
        if group.len() > 1 && done.insert(group.clone()) {
            found.push(tree.circle(&group, &edges));
        }
    }
    found.sort_by(|a, b| a.files.cmp(&b.files));
    found
}

/// Files that can be reached along edges; the file itself only over another one.
fn reachable(edges: &BTreeMap<(usize, usize), usize>, from: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        let next = edges.range((file, 0)..(file + 1, 0)).map(|((_, to), _)| *to);
        open.extend(next.filter(|to| found.insert(*to)));
    }
    found
}

impl Tree {
    fn new(sources: &[&Source]) -> Tree {
        let mut files = Vec::new();
        let mut only_tests = BTreeSet::new();
        for source in sources {
            let Some(module) = module_of(&source.path).filter(|_| !is_test(&source.path)) else { continue };
            let all = tokens(source.code());
            let (shipped, tests) = without_tests(&all);
            only_tests.extend(tests.iter().map(|name| [&module[..], &[(*name).to_owned()]].concat()));
            let (imports, paths) = read(&shipped);
            let defined = items(&shipped);
            files.push(File { path: source.path.clone(), module, imports, paths, defined });
        }
        files.retain(|f| !(1..=f.module.len()).any(|n| only_tests.contains(&f.module[..n])));
        let by_module = files.iter().enumerate().map(|(n, f)| (f.module.clone(), n)).collect();
        Tree { files, by_module }
    }

    /// Pairs of files of one module of `src`, with the line of the first use.
    fn edges(&self) -> BTreeMap<(usize, usize), usize> {
        let mut edges = BTreeMap::new();
        for (from, file) in self.files.iter().enumerate() {
            let mut add = |to: usize, line: usize| {
                if to != from && self.files[to].module.first() == file.module.first() {
                    let first = edges.entry((from, to)).or_insert(line);
                    *first = line.min(*first);
                }
            };
            for import in file.imports.iter().filter(|i| !self.is_reexport(file, i)) {
                match self.absolute(file, &import.path).and_then(|path| self.follow(&path, 0)) {
                    Some(Target::Item(to)) => add(to, import.line),
                    Some(Target::Module) if import.name == "*" => {
                        self.module_file(file, &import.path).into_iter().for_each(|to| add(to, import.line));
                    }
                    _ => {}
                }
            }
            for path in &file.paths {
                if let Some(Target::Item(to)) = self.absolute(file, &path.segments).and_then(|path| self.follow(&path, 0)) {
                    add(to, path.line);
                }
            }
        }
        edges
    }

    /// A re-export of a module with files of its own; an edge only where the file uses the name too, as any other path.
    fn is_reexport(&self, file: &File, import: &Import) -> bool {
        import.public && self.by_module.keys().any(|m| m.len() > file.module.len() && m.starts_with(&file.module))
    }

    fn module_file(&self, file: &File, path: &[String]) -> Option<usize> {
        self.by_module.get(&self.absolute(file, path)?).copied()
    }

    /// The path from the crate's root; None for another crate, a local name, or a name of the file itself.
    fn absolute(&self, file: &File, path: &[String]) -> Option<Vec<String>> {
        from_root(&file.module, path).or_else(|| {
            let (name, rest) = path.split_first()?;
            let child = [&file.module[..], std::slice::from_ref(name)].concat();
            let start = if self.by_module.contains_key(&child) {
                child
            } else {
                let import = file.imports.iter().find(|i| i.name == *name && i.path[0] != *name)?;
                self.absolute(file, &import.path)?
            };
            Some([&start[..], rest].concat())
        })
    }

    /// The file that defines the first item on a path from the root; the file of its last module where a macro does.
    fn follow(&self, path: &[String], n_hops: usize) -> Option<Target> {
        let (mut at, mut rest) = self.last_module(path)?;
        if rest.is_empty() {
            // A module and an item may share a name: `pub use sort::sort` beside `mod sort`.
            let (parent, name) = path.split_at(path.len().checked_sub(1)?);
            at = *self.by_module.get(parent)?;
            if self.files[at].imports.iter().all(|i| i.name != name[0]) && self.definer(at, &name[0], 0).is_none() {
                return Some(Target::Module);
            }
            rest = name;
        }
        let (file, name) = (&self.files[at], &rest[0]);
        let named = file.imports.iter().find(|i| i.name == *name && n_hops < MAX_HOPS && !file.defined.contains(name));
        if let Some(import) = named {
            return self.follow(&[&self.absolute(file, &import.path)?[..], &rest[1..]].concat(), n_hops + 1);
        }
        Some(Target::Item(self.definer(at, name, 0).unwrap_or(at)))
    }

    /// The file with this item, as a module sees it: its own, or one of a module of which it imports everything.
    fn definer(&self, at: usize, name: &str, n_hops: usize) -> Option<usize> {
        let file = &self.files[at];
        if file.defined.contains(name) {
            return Some(at);
        }
        let globs = file.imports.iter().filter(|i| i.name == "*" && n_hops < MAX_HOPS);
        globs.filter_map(|i| self.module_file(file, &i.path)).find_map(|to| self.definer(to, name, n_hops + 1))
    }

    /// The deepest file on a path from the root, and what of the path is left in it.
    fn last_module<'a>(&self, path: &'a [String]) -> Option<(usize, &'a [String])> {
        let n_module = (0..=path.len()).rev().find(|n| self.by_module.contains_key(&path[..*n]))?;
        Some((self.by_module[&path[..n_module]], &path[n_module..]))
    }

    fn circle(&self, group: &BTreeSet<usize>, edges: &BTreeMap<(usize, usize), usize>) -> Circle {
        let path = |file: &usize| self.files[*file].path.clone();
        let mut files: Vec<String> = group.iter().map(path).collect();
        files.sort();
        let inside = edges.iter().filter(|((from, to), _)| group.contains(from) && group.contains(to));
        let uses = inside.map(|((from, to), line)| format!("{}:{line} uses {}", path(from), path(to))).collect();
        Circle { files, uses }
    }
}

/// Names of the items that are in no braces.
fn items(tokens: &[Token<'_>]) -> BTreeSet<String> {
    let mut nested = 0usize;
    let mut found = BTreeSet::new();
    for pair in tokens.windows(2) {
        match pair[0].text {
            "{" => nested += 1,
            "}" => nested = nested.saturating_sub(1),
            word if nested == 0 && DEFINES.contains(&word) => _ = found.insert(pair[1].text.to_owned()),
            _ => {}
        }
    }
    found
}

/// Words before the name of an item.
const DEFINES: [&str; 9] = ["struct", "enum", "union", "trait", "fn", "const", "static", "type", "macro_rules"];

/// True for a file that is only tests.
fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.ends_with("_tests.rs")
}

/// New circles, known ones that have changed, and known ones that are gone.
pub fn complaints(found: &[Circle], known: &[Known]) -> Vec<String> {
    let mut complaints: Vec<String> =
        known.iter().filter(|k| k.reason.is_empty()).map(|k| format!("{}: its circle needs a reason", k.folder)).collect();
    let mut open: Vec<(&Known, Vec<String>)> = known.iter().map(|k| (k, k.paths())).collect();
    for circle in found {
        let n_shared = |files: &[String]| files.iter().filter(|f| circle.files.contains(f)).count();
        let nearest = (0..open.len()).filter(|n| n_shared(&open[*n].1) > 0).max_by_key(|n| n_shared(&open[*n].1));
        let listed = nearest.map(|n| open.remove(n).1).unwrap_or_default();
        complaints.extend(circle.change_from(&listed));
    }
    complaints.extend(
        open.iter().map(|(k, _)| format!("{}: the circle of {} is gone; remove it from KNOWN_CIRCLES", k.folder, k.files)),
    );
    complaints
}

impl Circle {
    /// A complaint unless it has exactly the listed files.
    fn change_from(&self, listed: &[String]) -> Option<String> {
        let joined: Vec<&str> = self.files.iter().filter(|f| !listed.contains(f)).map(String::as_str).collect();
        let left: Vec<&str> = listed.iter().filter(|f| !self.files.contains(f)).map(String::as_str).collect();
        if joined.is_empty() {
            let advice = "remove them from KNOWN_CIRCLES";
            return (!left.is_empty())
                .then(|| format!("{} are in no circle with {} any more; {advice}", left.join(", "), self.files[0]));
        }
        let is_new = |used: &&String| joined.iter().any(|file| used.split([' ', ':']).any(|word| word == *file));
        let uses: Vec<&str> = self.uses.iter().filter(is_new).map(String::as_str).collect();
        let advice = "Move what they share into a file that uses none of them";
        Some(format!(
            "{}: in a circle with {} files. {advice}:\n    {}",
            joined.join(", "),
            self.files.len(),
            uses.join("\n    ")
        ))
    }
}

impl Known {
    fn paths(&self) -> Vec<String> {
        self.files.split_whitespace().map(|f| format!("{}/{f}", self.folder)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = files.iter().map(|(path, text)| Source::new(&format!("src/{path}"), text)).collect();
        circles(&sources.iter().collect::<Vec<_>>()).into_iter().map(|c| c.files.join(" ")).collect()
    }

    #[test]
    fn circle_rule_finds_children_that_use_their_parent() {
        let parent = "mod b; mod c; pub use c::D; pub struct E; fn f() { b::g(); }";
        let pairs = [("a/mod.rs", parent), ("a/b.rs", "use super::E; pub fn g() {}"), ("a/c.rs", "pub struct D;")];
        assert_eq!(found(&pairs), ["src/a/b.rs src/a/mod.rs"]);
        assert_eq!(found(&[pairs[0], ("a/b.rs", "use crate::a::D; pub fn g() {}"), pairs[2]]), [""; 0], "D is in c.rs");
        assert_eq!(found(&[pairs[0], ("a/b.rs", "pub fn g() { let e: super::E; }"), pairs[2]]), ["src/a/b.rs src/a/mod.rs"]);
        let borrowed = ("a/mod.rs", "mod b; mod c; pub use c::D; fn f(d: &mut D) { b::g(d); }");
        assert_eq!(found(&[borrowed, ("a/b.rs", "use super::D; pub fn g(d: &mut D) {}"), pairs[2]]), [""; 0], "D is borrowed");
    }

    #[test]
    fn circle_rule_follows_reexports_aliases_and_modules() {
        let module = "pub mod b; mod c; mod d; pub use c::{C as Alias}; pub use d::*;";
        let b = ("a/b.rs", "use crate::a::Alias; pub struct B;");
        assert_eq!(found(&[("a/mod.rs", module), b, ("a/c.rs", "use super::b; pub struct C(b::B);")]), ["src/a/b.rs src/a/c.rs"]);
        let d = ("a/d.rs", "use crate::a::b::B; pub fn d() {}");
        assert_eq!(
            found(&[("a/mod.rs", module), ("a/b.rs", "use super::*; pub struct B; fn e() { crate::a::d() }"), d]),
            ["src/a/b.rs src/a/d.rs"]
        );
        let three = [("a/b.rs", "use super::c::C;"), ("a/c.rs", "use super::d::D;"), ("a/d.rs", "use super::b::B;")];
        assert_eq!(found(&three), ["src/a/b.rs src/a/c.rs src/a/d.rs"]);
    }

    #[test]
    fn circle_rule_ignores_tests_other_modules_and_modules_alone() {
        let b = ("a/b.rs", "use super::c::C; pub struct B;");
        let in_tests = ("a/c.rs", "pub struct C; #[cfg(test)] mod tests { use crate::a::b::B; }");
        assert_eq!(found(&[b, in_tests]), [""; 0]);
        assert_eq!(found(&[b, ("a/c.rs", "pub struct C; // crate::a::b::B\nconst D: &str = \"crate::a::b::B\";")]), [""; 0]);
        assert_eq!(found(&[("a/mod.rs", "#[cfg(test)] mod c;"), b, ("a/c.rs", "use super::b::B; struct C;")]), [""; 0]);
        assert_eq!(found(&[("a/b.rs", "use crate::c::d::D;"), ("c/d.rs", "use crate::a::b::B;")]), [""; 0], "layers forbid it");
        assert_eq!(found(&[b, ("a/c.rs", "use super::b; pub struct C;")]), [""; 0], "b is only named");
    }

    #[test]
    fn known_circles_are_exactly_those_found() {
        let known = |files| [Known { folder: "src/a", files, reason: "as agreed" }];
        let pair = [Circle { files: vec!["src/a/b.rs".to_owned(), "src/a/c.rs".to_owned()], uses: Vec::new() }];
        assert_eq!(complaints(&pair, &known("b.rs c.rs")), [""; 0]);
        assert_eq!(complaints(&pair, &[]).len(), 1, "a new circle");
        assert_eq!(complaints(&[], &known("b.rs c.rs")).len(), 1, "a circle that is gone");
        assert_eq!(complaints(&pair, &known("b.rs c.rs d.rs")).len(), 1, "a circle without d.rs");
        assert_eq!(complaints(&pair, &known("b.rs d.rs")).len(), 1, "a circle with c.rs in place of d.rs");
        assert_eq!(complaints(&pair, &[Known { folder: "src/a", files: "b.rs c.rs", reason: "" }]).len(), 1, "no reason");
    }
}
