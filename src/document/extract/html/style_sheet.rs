//! Style of an element: its own, or that of simple rules in the style sheets of the page.
//!
//! ```text
//! <style>.up, span.c5 { vertical-align: super }</style> ──► StyleSheet ──► value(<i class=up>, "vertical-align") = "super"
//! ```
//! Invariants: 1. Only rules for an element, a class or an id count, and none inside of `@media`. 2. More specific rules win, and
//! later ones of the same kind. Source: CSS 2.2, "Assigning property values". Limits: [`PROPERTIES`].

use std::collections::HashMap;

use dom_query::{Document as Dom, NodeRef};

/// Properties that change the text.
const PROPERTIES: [&str; 5] = ["display", "visibility", "vertical-align", "list-style-type", "list-style"];

/// Values of a property, each the last one for its selector.
#[derive(Debug, Default)]
struct Rules {
    elements: HashMap<String, String>,
    ids: HashMap<String, String>,
    /// by class: element or none, number of the rule, value
    classes: HashMap<String, Vec<(String, usize, String)>>,
}

/// Rules of all style sheets in a page.
#[derive(Debug, Default)]
pub struct StyleSheet {
    /// rules by property
    rules: HashMap<&'static str, Rules>,
    n_rules: usize,
}

impl StyleSheet {
    pub fn of(dom: &Dom) -> StyleSheet {
        let mut sheet = StyleSheet::default();
        for node in dom.select("style").nodes() {
            let media = node.attr_or("media", "all").to_ascii_lowercase();
            let is_unused = node.ancestors_it(None).any(|parent| parent.has_name("noscript") || parent.has_name("template"));
            if matches!(media.as_str(), "" | "all" | "screen") && !is_unused {
                sheet.read(&node.text());
            }
        }
        sheet
    }

    fn read(&mut self, css: &str) {
        let css = without_comments(css);
        let mut rest = css.as_str();
        while let Some((selectors, after)) = rest.split_once('{') {
            let selectors = selectors.rsplit(';').next().unwrap_or(selectors).trim();
            if selectors.starts_with('@') {
                rest = after_block(after);
                continue;
            }
            let (rules, after) = after.split_once('}').unwrap_or((after, ""));
            rest = after;
            self.n_rules += 1;
            for (name, value) in style_rules(rules) {
                let Some(property) = PROPERTIES.iter().find(|property| name.eq_ignore_ascii_case(property)) else { continue };
                for selector in selectors.split(',').map(str::trim).filter(|selector| is_simple(selector)) {
                    let rules = self.rules.entry(property).or_default();
                    let value = value.to_ascii_lowercase();
                    match (selector.split_once('.'), selector.strip_prefix('#')) {
                        (Some((element, class)), _) => {
                            rules.classes.entry(class.to_owned()).or_default().push((element.to_owned(), self.n_rules, value));
                        }
                        (None, Some(id)) => drop(rules.ids.insert(id.to_owned(), value)),
                        (None, None) => drop(rules.elements.insert(selector.to_owned(), value)),
                    }
                }
            }
        }
    }

    /// Value of a property, in small letters: of the element's own style, or of the rule for it that is the most specific.
    pub fn value(&self, node: &NodeRef<'_>, property: &str) -> Option<String> {
        let own = node.attr("style").and_then(|style| {
            let found = style_rules(&style).filter(|(name, _)| name.eq_ignore_ascii_case(property)).last();
            found.map(|(_, value)| value.to_ascii_lowercase())
        });
        let Some(rules) = self.rules.get(property).filter(|_| own.is_none()) else { return own };
        let name = node.node_name().unwrap_or_default();
        if let Some(value) = node.attr("id").filter(|_| !rules.ids.is_empty()).and_then(|id| rules.ids.get(&*id)) {
            return Some(value.clone());
        }
        let classes = node.attr_or("class", "");
        let of_classes = classes.split_whitespace().filter_map(|class| rules.classes.get(class)).flatten();
        let fitting = of_classes.filter(|(element, ..)| element.is_empty() || *element == *name);
        let of_class = fitting.max_by_key(|(element, n, _)| (!element.is_empty(), *n)).map(|(.., value)| value);
        of_class.or_else(|| rules.elements.get(&*name)).cloned()
    }
}

/// Names and values of the rules of a `style` attribute.
pub fn style_rules(style: &str) -> impl Iterator<Item = (&str, &str)> {
    let rules = style.split(';').filter_map(|rule| rule.split_once(':'));
    rules.map(|(name, value)| (name.trim(), value.split('!').next().unwrap_or(value).trim()))
}

/// True for `p`, `.a`, `p.a` and `#a`.
fn is_simple(selector: &str) -> bool {
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_'));
    match selector.split_once(['.', '#']) {
        Some((element, name)) => is_name(name) && (element.is_empty() || (is_name(element) && selector.contains('.'))),
        None => is_name(selector),
    }
}

fn without_comments(css: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(css.len()), css);
    while let Some((before, comment)) = rest.split_once("/*") {
        out.push_str(before);
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    out.push_str(rest);
    out
}

/// Text after the end of a block that may have others in it.
fn after_block(css: &str) -> &str {
    let mut depth = 1;
    for (at, c) in css.char_indices() {
        depth += match c {
            '{' => 1,
            '}' => -1,
            _ => 0,
        };
        if depth == 0 {
            return css.get(at + 1..).unwrap_or_default();
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_specific_rule_gives_the_value() {
        let html = "<style>@charset 'x'; @media print { i { display: none } .a { display: none } }\
            /* b { display: none } */ i, .a { vertical-align: super !important } .b{vertical-align:sub} i.c{vertical-align:top}\
            #d { VERTICAL-ALIGN: Bottom } p i { display: none } i:hover { display: none }</style>\
            <i>1</i><i class=b>2</i><i class='b c'>3</i><i class=c id=d>4</i><i id=d style='vertical-align: sub'>5</i><b>6</b><u class=a>7</u>";
        let dom = Dom::from(html);
        let sheet = StyleSheet::of(&dom);
        let nodes = dom.select("i, b, u");
        let values: Vec<_> = nodes.nodes().iter().map(|node| sheet.value(node, "vertical-align").unwrap_or_default()).collect();
        assert_eq!(values, ["super", "sub", "top", "bottom", "sub", "", "super"]);
        assert!(nodes.nodes().iter().all(|node| sheet.value(node, "display").is_none()));
    }
}
