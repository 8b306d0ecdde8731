//! Main content of a page: the part that Readability finds, with the tables, lists and answers that it drops.
//!
//! ```text
//! tree, each element numbered ──► Readability ──► numbers of what it keeps ──► the part around them, without side matter
//! ```
//! Invariant: None if the main content would lose most of the prose. Source: the rules of Mozilla's Readability, as
//! implemented by `dom_smoothie`. Limits: [`limits::MAX_ARTICLE_ELEMENTS`].

use std::collections::{HashMap, HashSet};

use dom_query::{Document as Dom, NodeId, NodeRef};
use dom_smoothie::{Config, Readability};

use super::inline::texts_of;
use super::layout::text_within;
use super::spacing;
use super::visibility::is_heading_button;
use crate::base::limits;

/// Smallest share of the letters in paragraphs that the main content must keep.
const ARTICLE_SHARE: f64 = 0.5;
/// Deepest nesting of a page whose main content is looked for.
const MAX_DEPTH: usize = 300;
/// Attribute with the number of an element.
const NUMBER: &str = "data-strata-number";
/// Largest share of letters in links of a list that is no navigation.
const MAX_LINK_SHARE: f64 = 0.5;
/// Words in classes and ids of elements beside the content, whole or at the end of one: `topnav`.
const SIDE_ENDS: [&str; 6] = ["nav", "navbar", "menu", "footer", "sidebar", "toolbar"];
/// Words that begin so.
const SIDE_STARTS: [&str; 4] = ["recommend", "sponsor", "advert", "breadcrumb"];
/// Words after `social` in names of what is beside the content; `social-security` is content.
const SOCIAL_NAMES: [&str; 8] = ["media", "link", "icon", "button", "bar", "network", "list", "wrapper"];
/// Other words, in the singular.
const SIDE_NAMES: [&str; 16] = [
    "navbox",
    "navigation",
    "share",
    "sharing",
    "comment",
    "related",
    "promo",
    "newsletter",
    "subscribe",
    "cookie",
    "banner",
    "popup",
    "modal",
    "pagination",
    "signup",
    "login",
];

/// Text of the main content under its title; None if there is none.
pub fn of(dom: &Dom, whole: &str) -> Option<String> {
    let elements = numbered(dom)?;
    let article = article(dom)?;
    let found = Dom::from(article.content);
    let numbers = found.select(&format!("[{NUMBER}]"));
    let retained: HashSet<NodeId> =
        numbers.nodes().iter().filter_map(|node| elements.get(node.attr(NUMBER)?.parse::<usize>().ok()?).copied()).collect();
    let found_in = common_ancestor(dom, &retained)?;
    // A table is content as a whole, and so is what stands beside it.
    let table = found_in.ancestors_it(None).chain([found_in]).filter(|node| node.has_name("table") && !is_layout(node)).last();
    let found_in = table.and_then(|table| table.parent()).unwrap_or(found_in);
    // Articles side by side are parts of one text.
    let is_part = |node: &NodeRef<'_>| {
        let others =
            node.parent().map_or(0, |parent| parent.element_children().iter().filter(|node| node.has_name("article")).count());
        node.has_name("article") && others > 1
    };
    let part = found_in.ancestors_it(None).chain([found_in]).filter(is_part).last();
    let found_in = part.and_then(|part| part.parent()).unwrap_or(found_in);
    let root = dom.body().unwrap_or(found_in);
    let found_root = found.root();
    let texts = found_root.descendants_it().filter(NodeRef::is_text).map(|node| node.text().trim().to_owned());
    let skipped = side_matter(&root, &found_in, &Retained { elements: retained, texts: texts.collect() });
    let main = text_within(dom, root, &skipped);
    if (n_letters(&main) as f64) < n_prose_letters(dom, whole) as f64 * ARTICLE_SHARE {
        return None;
    }
    let title = spacing::joined(&article.title).unwrap_or_else(|| article.title.trim().to_owned());
    let letters = without_spaces(&title);
    let is_title = |line: &str| line.len() <= 4 * title.len() && without_spaces(line) == letters;
    let is_in_main = main.lines().take(3).any(is_title) || title.is_empty();
    let title = whole.lines().find(|line| is_title(line)).unwrap_or(&title);
    Some(match is_in_main {
        true => main,
        false => format!("{title}\n\n{main}"),
    })
}

/// A letter-spaced title has lost the spaces between its words.
fn without_spaces(text: &str) -> String {
    text.split_whitespace().collect()
}

/// Title and HTML of the main content.
struct Article {
    title: String,
    content: String,
}

fn article(dom: &Dom) -> Option<Article> {
    let config = Config { max_elements_to_parse: limits::MAX_ARTICLE_ELEMENTS, ..Config::default() };
    let article = Readability::with_document(dom.clone(), None, Some(config)).ok()?.parse().ok()?;
    Some(Article { title: article.title, content: article.content.to_string() })
}

/// Numbers the elements, and returns them by number; None if there are too many, or if they are nested too deeply.
fn numbered(dom: &Dom) -> Option<Vec<NodeId>> {
    let elements: Vec<NodeRef<'_>> = dom.root().descendants_it().filter(NodeRef::is_element).collect();
    let mut depths: HashMap<NodeId, usize> = HashMap::new();
    for node in elements.iter().take(limits::MAX_ARTICLE_ELEMENTS) {
        let depth = node.parent().and_then(|parent| depths.get(&parent.id)).map_or(0, |depth| depth + 1);
        depths.insert(node.id, depth);
    }
    if elements.len() > limits::MAX_ARTICLE_ELEMENTS || depths.values().any(|depth| *depth > MAX_DEPTH) {
        return None;
    }
    elements.iter().enumerate().for_each(|(i, node)| node.set_attr(NUMBER, &i.to_string()));
    Some(elements.into_iter().map(|node| node.id).collect())
}

/// The smallest element around all of these.
fn common_ancestor<'a>(dom: &'a Dom, retained: &HashSet<NodeId>) -> Option<NodeRef<'a>> {
    let mut path: Option<Vec<NodeId>> = None;
    for id in retained {
        let node = dom.tree.get(id)?;
        let mut own: Vec<NodeId> = node.ancestors_it(None).map(|node| node.id).collect();
        own.reverse();
        own.push(*id);
        path = Some(match path {
            None => own,
            Some(path) => path.into_iter().zip(own).take_while(|(a, b)| a == b).map(|(a, _)| a).collect(),
        });
    }
    dom.tree.get(path?.last()?)
}

/// Elements that Readability keeps. It makes some anew, which are known by their texts.
struct Retained {
    elements: HashSet<NodeId>,
    texts: HashSet<String>,
}

impl Retained {
    /// True if most of the text of an element is retained.
    fn has_text_of(&self, node: &NodeRef<'_>) -> bool {
        let (mut n_all, mut n_retained) = (0, 0);
        for text in node.descendants_it().filter(NodeRef::is_text) {
            let text = text.text();
            n_all += text.trim().len();
            n_retained += if self.texts.contains(text.trim()) { text.trim().len() } else { 0 };
        }
        n_all > 0 && 2 * n_retained > n_all
    }
}

/// Elements under the root that are beside the content.
fn side_matter(root: &NodeRef<'_>, found_in: &NodeRef<'_>, retained: &Retained) -> HashSet<NodeId> {
    // Ancestors of an element that is retained are retained, whatever they are called.
    let mut around: HashSet<NodeId> = HashSet::new();
    for node in root.descendants_it().filter(|node| retained.elements.contains(&node.id)) {
        for parent in node.ancestors_it(None) {
            if !around.insert(parent.id) {
                break;
            }
        }
    }
    // Elements beside the part that was found must be more than text to be content.
    let (mut skipped, mut open) = (HashSet::new(), vec![(*root, root.id == found_in.id)]);
    while let Some((node, is_inside)) = open.pop() {
        for child in node.children_it(false).filter(NodeRef::is_element) {
            let is_known = retained.elements.contains(&child.id) || around.contains(&child.id) || retained.has_text_of(&child);
            if is_known && child.has_name("table") && !is_layout(&child) {
                skipped.extend(child.descendants_it().filter(is_side_matter).map(|inner| inner.id));
            } else if is_known {
                open.push((child, is_inside || child.id == found_in.id));
            } else if is_content(&child, is_inside) {
                skipped.extend(child.descendants_it().filter(is_side_matter).map(|inner| inner.id));
            } else if has_content(&child) {
                open.push((child, true));
            } else {
                skipped.insert(child.id);
            }
        }
    }
    skipped
}

/// True for an element that is content although Readability drops it: text in the part that it finds, and what opens.
fn is_content(node: &NodeRef<'_>, is_inside: bool) -> bool {
    let is_text = || is_inside && (link_share(node) <= MAX_LINK_SHARE || is_in_main(node));
    !is_side_matter(node) && (is_answer(node) || is_text())
}

/// True for an element with answers, tables or terms in it.
fn has_content(node: &NodeRef<'_>) -> bool {
    !is_side_matter(node) && node.descendants_it().any(|inner| is_answer(&inner) && !is_inside_side_matter(&inner, node))
}

/// True for answers that open, tables, terms and shadow trees, which are content wherever they stand.
fn is_answer(node: &NodeRef<'_>) -> bool {
    match &*node.node_name().unwrap_or_default() {
        "button" => is_heading_button(node),
        "details" | "template" | "dl" => true,
        "table" => !is_layout(node),
        _ => false,
    }
}

/// True inside of what the page itself calls its main content.
fn is_in_main(node: &NodeRef<'_>) -> bool {
    let is_main = |parent: NodeRef<'_>| {
        parent.has_name("main") || parent.has_name("article") || parent.attr("role").is_some_and(|role| &*role == "main")
    };
    node.ancestors_it(None).any(is_main)
}

fn is_inside_side_matter(node: &NodeRef<'_>, end: &NodeRef<'_>) -> bool {
    node.ancestors_it(None).take_while(|parent| parent.id != end.id).any(|parent| is_side_matter(&parent))
}

/// True for navigation, headers, footers and what classes and ids call so.
fn is_side_matter(node: &NodeRef<'_>) -> bool {
    let name = node.node_name().unwrap_or_default();
    let role = node.attr_or("role", "");
    if matches!(&*name, "nav" | "header" | "footer" | "form" | "script" | "style" | "noscript")
        || matches!(&*role, "navigation" | "banner" | "contentinfo" | "search" | "menu" | "menubar" | "toolbar")
    {
        return true;
    }
    let names = [node.attr_or("class", ""), node.attr_or("id", "")];
    names.iter().any(|names| names.split_whitespace().any(is_side_name))
}

fn is_side_name(name: &str) -> bool {
    let mut words: Vec<String> = words_of(name).map(|word| word.trim_end_matches('s').to_owned()).collect();
    // `side-bar` and `sideBar` are one word to some.
    words.push(words.concat());
    let is_side = |(i, word): (usize, &String)| match word.as_str() {
        "social" => words.get(i + 1).is_none_or(|next| next == "social" || SOCIAL_NAMES.contains(&next.as_str())),
        word => {
            SIDE_NAMES.contains(&word)
                || SIDE_ENDS.iter().any(|end| word.ends_with(end))
                || SIDE_STARTS.iter().any(|start| word.starts_with(start))
        }
    };
    words.iter().enumerate().any(is_side)
}

/// Words of names such as `page-footer`, `page_footer` and `pageFooter`, in small letters.
fn words_of(names: &str) -> impl Iterator<Item = String> {
    let mut words = vec![String::new()];
    let mut is_small = false;
    for c in names.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && is_small) {
            words.push(String::new());
        }
        is_small = c.is_lowercase();
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    words.into_iter()
}

/// True for a table without rows of several cells.
fn is_layout(table: &NodeRef<'_>) -> bool {
    let has_table = table.descendants_it().any(|node| node.has_name("table"));
    let is_wide =
        |row: &NodeRef<'_>| row.element_children().iter().filter(|cell| cell.has_name("td") || cell.has_name("th")).count() > 1;
    has_table || table.descendants_it().filter(|node| node.has_name("tr") && is_wide(node)).count() < 2
}

/// Share of the letters that are in links.
fn link_share(node: &NodeRef<'_>) -> f64 {
    let (mut n_all, mut n_linked) = (0, 0);
    for text in node.descendants_it().filter(NodeRef::is_text) {
        let n = n_letters(&text.text());
        n_all += n;
        n_linked += if text.ancestors_it(Some(4)).any(|parent| parent.has_name("a")) { n } else { 0 };
    }
    if n_all == 0 { 1.0 } else { f64::from(u32::try_from(n_linked).unwrap_or(u32::MAX)) / n_all as f64 }
}

/// Number of letters in the page's paragraphs, and at most of its text.
fn n_prose_letters(dom: &Dom, whole: &str) -> usize {
    let texts = |node: &NodeRef<'_>| -> usize { texts_of(node).map(|text| n_letters(&text.text())).sum() };
    let n: usize = dom.select("p, pre").nodes().iter().map(texts).sum();
    n.min(n_letters(whole))
}

fn n_letters(text: &str) -> usize {
    text.chars().filter(|c| c.is_alphanumeric()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn side_names_are_whole_words() {
        for name in
            ["nav", "page-footer", "SideBar", "topnav", "comments", "social", "social-links", "newsletterBox", "recommended"]
        {
            assert!(is_side_name(name), "{name}");
        }
        for name in ["commentary", "unavailable-days", "social-security", "shareholders", "canvas", "content", "bannerman"] {
            assert!(!is_side_name(name), "{name}");
        }
    }
}
