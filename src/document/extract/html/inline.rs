//! Inline elements of a page: short texts, marks of notes, raised and lowered text, and copies of formulas.
//!
//! Source: HTML standard, "Text-level semantics"; DPUB-ARIA 1.1, `doc-noteref`; EPUB 3.3, `noteref`.

use dom_query::NodeRef;

use super::super::scripts::Script;
use super::style_sheet::StyleSheet;

/// Most nodes of a short element, such as a superscript.
const MAX_SHORT_NODES: usize = 64;

/// Text of an element of a few nodes and characters; None if it is longer.
pub fn short_text(node: &NodeRef<'_>, max_chars: usize) -> Option<String> {
    let (mut text, mut n_chars) = (String::new(), 0);
    for (i, child) in node.descendants_it().enumerate() {
        if i >= MAX_SHORT_NODES {
            return None;
        }
        if child.is_text() {
            let own = child.text();
            n_chars += own.chars().filter(|c| !c.is_whitespace()).count();
            if n_chars > max_chars || own.len() > 8 * max_chars {
                return None;
            }
            text.push_str(&own);
        }
        if child.has_name("br") {
            text.push_str("  ");
        }
    }
    Some(text)
}

/// True for a superscript that is the mark of a note: a link inside, around it or by its role.
pub fn is_note(node: &NodeRef<'_>) -> bool {
    let is_link = |node: &NodeRef<'_>| node.has_name("a") && node.attr("href").is_some_and(|href| href.contains('#'));
    node.element_children().iter().any(is_link)
        || node.ancestors_it(Some(2)).any(|parent| is_link(&parent))
        || has_note_role(node)
}

/// True for a link that is the mark of a note by its role, raised or not.
pub fn refers_to_note(node: &NodeRef<'_>) -> bool {
    has_note_role(node) && !node.element_children().iter().any(|child| child.has_name("sup"))
}

fn has_note_role(node: &NodeRef<'_>) -> bool {
    let is = |name: &str, value: &str| node.attr(name).is_some_and(|own| own.split_whitespace().any(|word| word == value));
    is("role", "doc-noteref") || is("epub:type", "noteref")
}

/// Texts of an element, without those of its scripts and style sheets.
pub fn texts_of<'a>(node: &NodeRef<'a>) -> impl Iterator<Item = NodeRef<'a>> {
    let is_code = |parent: NodeRef<'_>| matches!(&*parent.node_name().unwrap_or_default(), "script" | "style" | "noscript");
    node.descendants_it().filter(move |text| text.is_text() && !text.parent().is_some_and(is_code))
}

/// Number of words with a letter or a digit.
pub fn n_words(text: &str) -> usize {
    text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

/// Script of an element that is raised or lowered by its style.
pub fn script_of_style(node: &NodeRef<'_>, styles: &StyleSheet) -> Option<Script> {
    match styles.value(node, "vertical-align")?.as_str() {
        "super" => Some(if is_note(node) { Script::Note } else { Script::Raised }),
        "sub" => Some(Script::Lowered),
        _ => None,
    }
}

/// True for the drawn copy of a formula that stands beside its MathML.
pub fn is_copy_of_formula(node: &NodeRef<'_>) -> bool {
    node.has_class("katex-html") && node.parent().is_some_and(|parent| parent.has_class("katex"))
}
