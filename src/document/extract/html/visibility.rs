//! Visible content: which elements of a page a reader can see, at once or after a click.
//!
//! ```text
//! <div hidden>, <div style="display: none"> ──► left out, unless a button of the page opens it
//! ```
//! Source: HTML standard, "the hidden attribute"; WAI-ARIA 1.2, `aria-controls`.

use std::collections::HashSet;

use dom_query::{Document as Dom, NodeId, NodeRef};

use super::style_sheet::StyleSheet;

/// Fewest words of a button that is a heading by its place alone.
const MIN_HEADING_WORDS: usize = 3;

/// Elements that something on the page opens.
#[derive(Debug, Default)]
pub struct Opened {
    ids: HashSet<String>,
    panels: HashSet<NodeId>,
}

impl Opened {
    pub fn of(dom: &Dom) -> Opened {
        let mut ids = HashSet::new();
        for name in ["aria-controls", "data-target", "data-bs-target"] {
            for node in dom.select(&format!("[{name}]")).nodes() {
                let value = node.attr_or(name, "");
                ids.extend(value.split_whitespace().map(|id| id.trim_start_matches('#').to_owned()));
            }
        }
        for node in dom.select("[role=tab][href], [data-toggle][href], [data-bs-toggle][href]").nodes() {
            ids.extend(node.attr_or("href", "").strip_prefix('#').map(str::to_owned));
        }
        for node in dom.select("a[href][role=doc-noteref], a[href][epub\\:type~=noteref]").nodes() {
            ids.extend(node.attr_or("href", "").rsplit_once('#').map(|(_, id)| id.to_owned()));
        }
        for node in dom.select("a[href^='#']").nodes() {
            ids.extend(node.attr_or("href", "").strip_prefix('#').map(str::to_owned));
        }
        for node in dom.select("[onclick]").nodes() {
            let script = node.attr_or("onclick", "");
            ids.extend(script.split(['\'', '"']).skip(1).step_by(2).map(|id| id.trim_start_matches('#').to_owned()));
        }
        let buttons = dom.select("button, [aria-expanded]");
        let opening = buttons.nodes().iter().filter(|node| node.has_attr("aria-expanded") || stands_before_panel(node));
        let panels = opening.filter_map(panel_of).map(|panel| panel.id).collect();
        Opened { ids, panels }
    }

    /// True if the element is hidden and stays so.
    pub fn hides(&self, node: &NodeRef<'_>, styles: &StyleSheet) -> bool {
        let hidden = node.attr("hidden");
        let is_hidden = hidden.as_ref().is_some_and(|value| !value.eq_ignore_ascii_case("until-found"))
            || is_hidden_by_style(node, styles)
            || (node.has_name("dialog") && !node.has_attr("open"));
        is_hidden && !self.is_opened(node) && !is_formula_of_picture(node)
    }

    fn is_opened(&self, node: &NodeRef<'_>) -> bool {
        let is_known = node.attr("id").is_some_and(|id| self.ids.contains(&*id));
        is_known || self.panels.contains(&node.id) || node.attr("role").is_some_and(|role| &*role == "tabpanel")
    }
}

/// True if the element is no part of the page by its style. The page itself is shown by its scripts.
fn is_hidden_by_style(node: &NodeRef<'_>, styles: &StyleSheet) -> bool {
    let is = |name: &str, value: &str| styles.value(node, name).is_some_and(|own| own == value);
    let is_page = || ["html", "body", "main", "article"].iter().any(|name| node.has_name(name));
    (is("display", "none") || is("visibility", "hidden")) && !is_page()
}

/// True for a formula that is hidden beside a picture of itself, which has no text.
fn is_formula_of_picture(node: &NodeRef<'_>) -> bool {
    let is_formula = matches!(node.element_children().as_slice(), [only] if only.has_name("math"));
    is_formula && node.parent().is_some_and(|parent| parent.text().trim() == node.text().trim())
}

/// Element that a button or a heading before it opens.
fn panel_of<'a>(node: &NodeRef<'a>) -> Option<NodeRef<'a>> {
    let is_heading =
        |parent: &NodeRef<'_>| matches!(&*parent.node_name().unwrap_or_default(), "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "dt");
    let panel = node.next_element_sibling();
    let panel = panel.or_else(|| node.parent().filter(is_heading)?.next_element_sibling());
    panel.filter(|panel| !panel.has_attr("aria-expanded"))
}

/// True for a button of some words directly before a block, which it opens.
fn stands_before_panel(node: &NodeRef<'_>) -> bool {
    let is_block = |next: NodeRef<'_>| {
        matches!(&*next.node_name().unwrap_or_default(), "div" | "section" | "p" | "ul" | "ol" | "dl" | "table")
    };
    let sends = node.attr("type").is_some_and(|kind| matches!(&*kind, "submit" | "reset"));
    let is_in_form = || node.ancestors_it(None).any(|parent| parent.has_name("form") || parent.has_name("nav"));
    let is_text = || node.text().split_whitespace().count() >= MIN_HEADING_WORDS;
    node.has_name("button") && !sends && node.next_element_sibling().is_some_and(is_block) && is_text() && !is_in_form()
}

/// True for a button whose text is a heading: it opens an answer, a section or a tab.
pub fn is_heading_button(node: &NodeRef<'_>) -> bool {
    let opens = ["aria-expanded", "aria-controls", "data-target", "data-bs-target"].iter().any(|name| node.has_attr(name));
    let is_heading = |parent: NodeRef<'_>| {
        let name = parent.node_name().unwrap_or_default();
        matches!(&*name, "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "summary" | "dt" | "legend" | "caption" | "th")
            || parent.attr("role").is_some_and(|role| &*role == "heading")
    };
    let has_role = node.attr("role").is_some_and(|role| &*role == "tab");
    opens || has_role || stands_before_panel(node) || node.ancestors_it(Some(3)).any(is_heading)
}
