//! HTML to text: the main content of a page, or all of it if it has no main content.
//!
//! ```text
//! bytes ──► encoding ──► DOM (html5ever) ──► article (Readability)? ──► Flow ──► text
//! ```
//! Invariants: 1. A page is read whole if its main content would lose most of its prose. 2. No recursion: nesting costs
//! memory, not stack. Source: the rules of Mozilla's Readability, as implemented by `dom_smoothie`.
//! Limits: [`limits::MAX_ARTICLE_ELEMENTS`].

use dom_query::{Document as Dom, NodeRef};
use dom_smoothie::{Config, Readability};

use super::extracted::{ExtractError, Extracted, Part, TextLimit};
use super::text_flow::{Flow, Gap};
use crate::base::limits;
use crate::document::encoding;

/// Smallest share of the letters in paragraphs that the main content must keep.
const ARTICLE_SHARE: f64 = 0.5;

pub fn extract(bytes: &[u8]) -> Result<Extracted, ExtractError> {
    let decoded = encoding::decode(bytes, true).map_err(|what| ExtractError::corrupt(format!("it is {what}")))?;
    let text = page_text(&decoded.text);
    TextLimit::default().add(&text)?;
    Ok(Extracted { parts: vec![Part { title: None, text }], is_paged: false, notes: Vec::new() })
}

/// Main content under its title, or the whole page.
fn page_text(html: &str) -> String {
    let whole = || text_of(&Dom::from(html));
    let Some((title, article)) = article(html) else { return whole() };
    let main = text_of(&Dom::from(article.as_str()));
    if (n_letters(&main) as f64) < n_prose_letters(html) as f64 * ARTICLE_SHARE {
        return whole();
    }
    let title = title.trim();
    match main.lines().take(3).any(|line| line.trim() == title) || title.is_empty() {
        true => main,
        false => format!("{title}\n\n{main}"),
    }
}

/// Title and HTML of the main content; None if it cannot be determined.
fn article(html: &str) -> Option<(String, String)> {
    let config = Config { max_elements_to_parse: limits::MAX_ARTICLE_ELEMENTS, ..Config::default() };
    let article = Readability::new(html, None, Some(config)).ok()?.parse().ok()?;
    Some((article.title, article.content.to_string()))
}

/// Number of letters in the page's paragraphs.
fn n_prose_letters(html: &str) -> usize {
    let dom = Dom::from(html);
    dom.select("p, pre").nodes().iter().map(|node| n_letters(&node.text())).sum()
}

fn n_letters(text: &str) -> usize {
    text.chars().filter(|c| c.is_alphanumeric()).count()
}

/// A step of the traversal.
enum Step<'a> {
    Open(NodeRef<'a>),
    Close(Gap),
}

/// All text of a document, laid out like in a browser.
pub fn text_of(dom: &Dom) -> String {
    let mut flow = Flow::default();
    let mut steps = vec![Step::Open(dom.root())];
    while let Some(step) = steps.pop() {
        let node = match step {
            Step::Open(node) => node,
            Step::Close(gap) => {
                flow.end(gap);
                continue;
            }
        };
        if node.is_text() {
            flow.text(&node.text());
            continue;
        }
        let name = node.node_name().unwrap_or_default();
        let around = match around(&name) {
            Around::Skip => continue,
            Around::Break => {
                flow.line_break();
                continue;
            }
            Around::Verbatim => {
                flow.end(Gap::Paragraph);
                flow.verbatim(node.text().trim_matches('\n'));
                flow.end(Gap::Paragraph);
                continue;
            }
            Around::Item => {
                flow.item("- ");
                Gap::Line
            }
            Around::Cell => Gap::Cell,
            Around::Gap(gap) => {
                flow.end(gap);
                gap
            }
        };
        if node.is_element() && node.has_attr("hidden") {
            continue;
        }
        steps.push(Step::Close(around));
        steps.extend(node.children_it(true).map(Step::Open));
    }
    flow.finish()
}

/// Effect of an element on the text flow.
enum Around {
    /// has no readable content
    Skip,
    /// ends a line
    Break,
    /// keeps its white space
    Verbatim,
    /// is a list item
    Item,
    /// is a table cell
    Cell,
    /// is separated by this gap
    Gap(Gap),
}

fn around(name: &str) -> Around {
    match name {
        "script" | "style" | "head" | "template" | "noscript" | "svg" | "iframe" | "object" | "audio" | "video" | "canvas"
        | "select" | "textarea" | "button" | "annotation" | "annotation-xml" => Around::Skip,
        "br" => Around::Break,
        "pre" | "listing" | "xmp" => Around::Verbatim,
        "li" => Around::Item,
        "td" | "th" => Around::Cell,
        "tr" | "dt" | "dd" | "option" | "hr" => Around::Gap(Gap::Line),
        "p" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "div" | "section" | "article" | "aside" | "header" | "footer"
        | "main" | "nav" | "blockquote" | "ul" | "ol" | "dl" | "table" | "figure" | "figcaption" | "caption" | "address"
        | "form" | "fieldset" | "details" | "summary" | "center" => Around::Gap(Gap::Paragraph),
        _ => Around::Gap(Gap::None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(html: &str) -> String {
        text_of(&Dom::from(html))
    }

    #[test]
    fn html_blocks_lists_tables_and_code_keep_their_shape() {
        let html = "<title>T</title><h1>Head</h1><p>One <b>two</b>, th<i>ree</i>.<br>Four<script>x()</script></p>\
            <ul><li>a<li><p>b</p></ul><table><tr><td>1<td>2<tr><td>3<td>4</table><pre>\n  x = 1\n    y</pre>&lt;end&amp;";
        assert_eq!(text(html), "Head\n\nOne two, three.\nFour\n\n- a\n\n- b\n\n1\t2\n3\t4\n\n  x = 1\n    y\n\n<end&");
    }

    #[test]
    fn deeply_nested_html_is_read() {
        let deep = format!("{}deep{}", "<div>".repeat(4000), "</div>".repeat(4000));
        assert_eq!(text(&deep), "deep");
    }

    #[test]
    fn html_page_gives_its_article_only() {
        let prose = "The harbour was built in stone, and the keeper of the lamp, who had walked there, wrote it down. ".repeat(8);
        let paragraphs = format!("<p>{prose}</p>").repeat(6);
        let html = format!(
            "<html><head><title>The harbour</title></head><body><nav><a href=/>Home</a> <a href=/buy>Subscribe now</a></nav>\
             <div class=content><article>{paragraphs}</article></div><footer>All rights reserved</footer></body></html>"
        );
        let text = page_text(&html);
        assert!(text.starts_with("The harbour\n\nThe harbour was built"), "{}", text.get(..80).unwrap());
        assert!(!text.contains("Subscribe") && !text.contains("rights"));
    }
}
