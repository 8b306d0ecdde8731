//! Document names: several documents of the same name are told apart by their folders, or else by a number.
//!
//! ```text
//! /a/2023/report.pdf, /a/2024/report.pdf ──► 2023/report.pdf, 2024/report.pdf
//! ```

use std::collections::HashSet;
use std::path::Path;

use super::folded_text::FoldedText;

/// Distinct names of documents, given as name and path. A name that no other document has stays as it is.
pub fn distinct_names(documents: &[(&str, Option<&Path>)]) -> Vec<String> {
    let key = |name: &str| FoldedText::new(name).as_str().to_owned();
    let keys: Vec<String> = documents.iter().map(|(name, _)| key(name)).collect();
    let mut used: HashSet<String> = HashSet::new();
    let mut names = Vec::with_capacity(documents.len());
    for (i, (name, path)) in documents.iter().enumerate() {
        let same = || documents.iter().enumerate().filter(|(j, _)| *j != i && keys.get(*j) == keys.get(i));
        let others: Vec<Option<&Path>> = same().map(|(_, (_, path))| *path).collect();
        let within = if others.is_empty() { None } else { path.and_then(|path| folder_apart(path, &others)) };
        let wanted = within.map_or_else(|| (*name).to_owned(), |folder| format!("{folder}/{name}"));
        let numbered = |n: usize| if n == 1 { wanted.clone() } else { format!("{wanted} ({n})") };
        // A number that is free: at most one name per document is in use.
        let free = (1..=documents.len() + 1).map(numbered).find(|name| !used.contains(&key(name)));
        let free = free.unwrap_or(wanted.clone());
        used.insert(key(&free));
        names.push(free);
    }
    names
}

/// The fewest folders of a path that no other path ends with; None if there are none.
fn folder_apart(path: &Path, others: &[Option<&Path>]) -> Option<String> {
    let folders = |path: &Path| -> Vec<String> {
        let parts = path.parent().into_iter().flat_map(Path::components);
        let names = parts.filter_map(|part| match part {
            std::path::Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
            _ => None,
        });
        let mut names: Vec<String> = names.collect();
        names.reverse();
        names
    };
    let own = folders(path);
    let others: Vec<Vec<String>> = others.iter().flatten().map(|path| folders(path)).collect();
    let is_apart = |n: &usize| others.iter().all(|other| other.get(..*n) != own.get(..*n));
    let n = (1..=own.len()).find(is_apart)?;
    let mut shown = own.get(..n)?.to_vec();
    shown.reverse();
    Some(shown.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(documents: &[(&str, &str)]) -> Vec<String> {
        let documents: Vec<(&str, Option<&Path>)> = documents
            .iter()
            .map(|(name, path)| (*name, Some(Path::new(*path)).filter(|path| !path.as_os_str().is_empty())))
            .collect();
        distinct_names(&documents)
    }

    #[test]
    fn names_are_told_apart_by_the_fewest_folders() {
        assert_eq!(names(&[("a.txt", "/x/a.txt"), ("b.txt", "/y/b.txt")]), ["a.txt", "b.txt"]);
        assert_eq!(names(&[("a.txt", "/x/a.txt"), ("a.txt", "/y/a.txt")]), ["x/a.txt", "y/a.txt"]);
        let three = [("a.txt", "/1/x/a.txt"), ("a.txt", "/2/x/a.txt"), ("a.txt", "y/a.txt"), ("b.txt", "")];
        assert_eq!(names(&three), ["1/x/a.txt", "2/x/a.txt", "y/a.txt", "b.txt"]);
        assert_eq!(names(&[("Jo\u{308}rg.txt", "/x/1.txt"), ("Jörg.txt", "/y/1.txt")]), ["x/Jo\u{308}rg.txt", "y/Jörg.txt"]);
    }

    #[test]
    fn names_without_folders_are_numbered() {
        assert_eq!(names(&[("a.txt", ""), ("a.txt", ""), ("a.txt", "")]), ["a.txt", "a.txt (2)", "a.txt (3)"]);
        assert_eq!(names(&[("a.txt", "a.txt"), ("a.txt", "b/a.txt")]), ["a.txt", "b/a.txt"]);
        assert_eq!(names(&[("a.txt", "/x/a.txt"), ("a.txt", "/x/a.txt")]), ["a.txt", "a.txt (2)"]);
        assert_eq!(names(&[("a (2)", ""), ("a", ""), ("a", "")]), ["a (2)", "a", "a (3)"]);
        assert_eq!(names(&[]), Vec::<String>::new());
    }
}
