//! Numbers of ordered lists: `start`, `type`, `reversed`, `value` and styles, nested lists indented.
//!
//! ```text
//! <ol start=5 type=a><li>x<li value=9>y</ol> ──► "e. x", "i. y"
//! ```
//! Source: HTML standard, "the ol element" and "ordinal value". Limits: [`MAX_INDENT`].

use dom_query::NodeRef;

use super::super::list_number::NumberFormat;
use super::style_sheet::StyleSheet;

/// Deepest list that is indented further than the one around it.
const MAX_INDENT: usize = 8;

/// An open list.
#[derive(Debug)]
pub struct List {
    next: i64,
    step: i64,
    format: NumberFormat,
}

impl List {
    /// List of an `ol`, `ul`, `menu` or `dir` element.
    pub fn of(node: &NodeRef<'_>, styles: &StyleSheet) -> List {
        let format = style_format(node, styles);
        let format = format.or_else(|| NumberFormat::of_html(&node.attr("type")?));
        if !node.has_name("ol") {
            let format = format.filter(|format| *format != NumberFormat::Decimal);
            return List { next: 1, step: 1, format: format.unwrap_or(NumberFormat::Bullet) };
        }
        let is_reversed = node.has_attr("reversed");
        let n_items = || node.children_it(false).filter(|child| child.has_name("li")).count();
        let first = if is_reversed { i64::try_from(n_items()).unwrap_or(1) } else { 1 };
        let start = node.attr("start").and_then(|start| integer(&start));
        let format = format.unwrap_or_default();
        List { next: start.unwrap_or(first), step: if is_reversed { -1 } else { 1 }, format }
    }

    /// Mark of the next item, in a list inside of `depth - 1` others.
    pub fn mark(&mut self, item: &NodeRef<'_>, depth: usize, styles: &StyleSheet) -> String {
        let n = item.attr("value").and_then(|value| integer(&value)).unwrap_or(self.next);
        self.next = n.saturating_add(self.step);
        let own = style_format(item, styles);
        let own = own.or_else(|| NumberFormat::of_html(&item.attr("type")?));
        let indent = "  ".repeat(depth.clamp(1, MAX_INDENT) - 1);
        match own.unwrap_or(self.format) {
            NumberFormat::None => indent,
            NumberFormat::Bullet => format!("{indent}- "),
            format => format!("{indent}{}. ", format.write(n)),
        }
    }
}

/// An integer, as HTML parses it: what follows the digits does not count.
fn integer(text: &str) -> Option<i64> {
    let text = text.trim_start();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits.get(..end)?.parse::<i32>().ok().map(|n| i64::from(n) * sign)
}

fn style_format(node: &NodeRef<'_>, styles: &StyleSheet) -> Option<NumberFormat> {
    let value = styles.value(node, "list-style-type").or_else(|| styles.value(node, "list-style"))?;
    value.split_whitespace().find_map(NumberFormat::of_html)
}
