//! XHTML to a document, by the rules of XML: an element that closes itself is empty, and CDATA is text.
//!
//! ```text
//! <title/><p>a<![CDATA[ < b]]></p> ──► the same tree as of <title></title><p>a &lt; b</p>
//! ```
//! Invariant: None if the text is no XML, so that it can be read by the rules of HTML.

use dom_query::{Document as Dom, NodeId};

use super::super::xml::{Rules, Token, visit};

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
