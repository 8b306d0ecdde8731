//! Visible content: which elements of a page a reader can see, at once or after a click.
//!
//! ```text
//! <div hidden>, <div style="display: none"> ──► left out, unless a button of the page opens it
//! ```
//! Source: HTML standard, "the hidden attribute"; WAI-ARIA 1.2, `aria-controls`.

use std::collections::HashSet;

use dom_query::{Document as Dom, NodeRef};

/// Elements that something on the page opens.
#[derive(Debug, Default)]
pub struct Opened {
    ids: HashSet<String>,
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
        Opened { ids }
    }

    /// True if the element is hidden and stays so.
    pub fn hides(&self, node: &NodeRef<'_>) -> bool {
        let hidden = node.attr("hidden");
        let is_hidden = hidden.as_ref().is_some_and(|value| !value.eq_ignore_ascii_case("until-found"))
            || node.attr("style").is_some_and(|style| is_hidden_by(&style))
            || (node.has_name("dialog") && !node.has_attr("open"));
        is_hidden && !self.is_opened(node)
    }

    fn is_opened(&self, node: &NodeRef<'_>) -> bool {
        let is_known = node.attr("id").is_some_and(|id| self.ids.contains(&*id));
        is_known || node.attr("role").is_some_and(|role| &*role == "tabpanel")
    }
}

/// Names and values of the rules of a `style` attribute.
pub fn style_rules(style: &str) -> impl Iterator<Item = (&str, &str)> {
    let rules = style.split(';').filter_map(|rule| rule.split_once(':'));
    rules.map(|(name, value)| (name.trim(), value.trim()))
}

fn is_hidden_by(style: &str) -> bool {
    style_rules(style).any(|(name, value)| {
        let value = value.trim_end_matches("!important").trim();
        let is = |a: &str, b: &str| name.eq_ignore_ascii_case(a) && value.eq_ignore_ascii_case(b);
        is("display", "none") || is("visibility", "hidden")
    })
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
    opens || has_role || node.ancestors_it(Some(3)).any(is_heading)
}
