//! XHTML to a document, by the rules of XML: an element that closes itself is empty, and CDATA is text.
//!
//! ```text
//! <title/><p>a<![CDATA[ < b]]></p> ──► the same tree as of <title></title><p>a &lt; b</p>
//! ```
//! Invariant: None if the text is no XML, so that it can be read by the rules of HTML.

use std::borrow::Cow;

use dom_query::{Document as Dom, NodeId};

use super::super::xml::{Rules, Token, visit};

/// First bytes, in which a file declares to be XHTML.
const HEAD_BYTES: usize = 2048;

/// Document of a text that is XML.
pub fn dom(text: &str) -> Option<Dom> {
    if !text.trim_start().starts_with('<') {
        return None;
    }
    let dom = Dom::default();
    let mut open: Vec<NodeId> = vec![dom.root().id];
    let mut has_root = false;
    let read = visit(text, Rules::Xhtml, &mut |token| {
        let parent = open.last().copied();
        match token {
            Token::Open(e) => {
                has_root = true;
                let node = dom.tree.new_element(&String::from_utf8_lossy(e.local_name().as_ref()).to_ascii_lowercase());
                for attribute in e.attributes().with_checks(false).flatten() {
                    let name = String::from_utf8_lossy(attribute.key.as_ref()).into_owned();
                    let value = String::from_utf8_lossy(&attribute.value);
                    node.set_attr(&name, &quick_xml::escape::unescape(&value).unwrap_or_else(|_| value.clone()));
                }
                if let Some(parent) = parent {
                    dom.tree.append_child_of(&parent, &node.id);
                }
                open.push(node.id);
            }
            Token::Close => drop(open.pop()),
            Token::Text(text) => {
                if let Some(parent) = parent.filter(|_| open.len() > 1) {
                    let node = dom.tree.new_text(text);
                    dom.tree.append_child_of(&parent, &node.id);
                }
            }
        }
        Ok(())
    });
    (read.is_ok() && has_root).then_some(dom)
}

/// Text of XHTML that is no XML, with its empty elements closed and its literal sections escaped, to be read as HTML.
pub fn as_html(text: &str) -> Cow<'_, str> {
    if !head(text).contains("<?xml") && !has_namespace(text) {
        return Cow::Borrowed(text);
    }
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once('<') {
        out.push_str(before);
        if let Some((literal, after)) = after.strip_prefix("![CDATA[").and_then(|literal| literal.split_once("]]>")) {
            out.push_str(&literal.replace('&', "&amp;").replace('<', "&lt;"));
            rest = after;
            continue;
        }
        out.push('<');
        rest = after;
        let Some((tag, after)) = rest.split_once('>') else { continue };
        let name: String = tag.chars().take_while(|c| c.is_ascii_alphanumeric()).collect();
        if let Some(open) = tag.strip_suffix('/').filter(|open| !name.is_empty() && !open.contains('<') && !is_void(&name)) {
            out.push_str(&format!("{open}></{name}>"));
            rest = after;
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// True for a text that declares the namespace of XHTML.
pub fn has_namespace(text: &str) -> bool {
    head(text).contains("http://www.w3.org/1999/xhtml")
}

fn head(text: &str) -> &str {
    text.get(..floor(text, HEAD_BYTES)).unwrap_or(text)
}

/// True for an element of HTML that has no content.
fn is_void(name: &str) -> bool {
    matches!(
        name.to_ascii_lowercase().as_str(),
        "area"
            | "base"
            | "br"
            | "col"
            | "embed"
            | "hr"
            | "img"
            | "input"
            | "link"
            | "meta"
            | "param"
            | "source"
            | "track"
            | "wbr"
    )
}

/// Largest position up to `at` between two characters.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xhtml_that_is_no_xml_keeps_its_empty_elements() {
        let broken = "<?xml version='1.0'?><html><title/><p>a<br/><![CDATA[1 < 2]]><script src='x'/><b>c</p>d";
        assert!(dom(broken).is_none());
        assert_eq!(
            as_html(broken),
            "<?xml version='1.0'?><html><title></title><p>a<br/>1 &lt; 2<script src='x'></script><b>c</p>d"
        );
        assert_eq!(as_html("<p>a<b/>"), "<p>a<b/>", "HTML ignores the slash");
    }
}
