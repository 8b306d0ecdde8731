//! XML to events: open, close and text, with references and CDATA resolved and nesting limited.
//!
//! ```text
//! <w:t>a &amp; <![CDATA[b]]></w:t> ──► Open(t) Text("a ") Text("&") Text(" ") Text("b") Close
//! ```
//! Invariants: 1. Names are those without prefix. 2. No entity that the file defines is expanded, except a short plain text.
//! Limits: [`limits::MAX_XML_DEPTH`], [`MAX_ENTITY_BYTES`].

use std::collections::HashMap;

use quick_xml::Reader;
use quick_xml::escape::{resolve_html5_entity, resolve_xml_entity};
use quick_xml::events::{BytesRef, BytesStart, Event};

use super::extracted::ExtractError;
use crate::base::limits;

/// Longest text of an entity that a file of [`Rules::Xhtml`] may define.
const MAX_ENTITY_BYTES: usize = 64;

/// An event.
pub enum Token<'a> {
    /// start of an element
    Open(&'a BytesStart<'a>),
    /// end of the innermost element
    Close,
    /// text
    Text(&'a str),
}

/// Treatment of entities and of wrong ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// only XML's five predefined entities; elements may end with any name
    Data,
    /// entities of HTML and short ones of the file; every element must end with its name
    Xhtml,
}

/// Visits the events of an XML text.
///
/// # Errors
/// It is no XML, or nested too deeply, or the visitor fails.
pub fn visit(
    xml: &str,
    rules: Rules,
    visitor: &mut dyn FnMut(Token<'_>) -> Result<(), ExtractError>,
) -> Result<(), ExtractError> {
    let mut reader = Reader::from_str(xml);
    reader.config_mut().check_end_names = rules == Rules::Xhtml;
    reader.config_mut().allow_dangling_amp = true;
    let invalid = |e: &dyn std::fmt::Display| ExtractError::corrupt(format!("its XML is invalid ({e})"));
    let (mut depth, mut entities) = (0_usize, HashMap::new());
    loop {
        match reader.read_event().map_err(|e| invalid(&e))? {
            Event::Eof if depth > 0 && rules == Rules::Xhtml => return Err(invalid(&"an element has no end")),
            Event::Eof => return Ok(()),
            Event::Start(e) => {
                depth += 1;
                if depth > limits::MAX_XML_DEPTH {
                    return Err(ExtractError::corrupt("its XML is nested too deeply"));
                }
                visitor(Token::Open(&e))?;
            }
            Event::Empty(e) => {
                visitor(Token::Open(&e))?;
                visitor(Token::Close)?;
            }
            Event::End(_) => {
                depth = depth.saturating_sub(1);
                visitor(Token::Close)?;
            }
            Event::Text(text) => visitor(Token::Text(&text.decode().map_err(|e| invalid(&e))?))?,
            Event::CData(text) => visitor(Token::Text(&text.decode().map_err(|e| invalid(&e))?))?,
            Event::GeneralRef(name) => visitor(Token::Text(&referenced(&name, rules, &entities)))?,
            Event::DocType(text) if rules == Rules::Xhtml => entities = defined(&String::from_utf8_lossy(&text)),
            _ => {}
        }
    }
}

/// Visits every element, with its name without prefix.
///
/// # Errors
/// It is no XML.
pub fn elements(xml: &str, mut visitor: impl FnMut(&[u8], &BytesStart<'_>)) -> Result<(), ExtractError> {
    visit(xml, Rules::Data, &mut |token| {
        if let Token::Open(e) = token {
            visitor(e.local_name().as_ref(), e);
        }
        Ok(())
    })
}

/// Value of an attribute, by its name without prefix.
pub fn attribute(element: &BytesStart<'_>, name: &[u8]) -> Option<String> {
    let found = element.attributes().with_checks(false).flatten().find(|a| a.key.local_name().as_ref() == name)?;
    let value = String::from_utf8_lossy(&found.value).into_owned();
    Some(quick_xml::escape::unescape(&value).map(|v| v.into_owned()).unwrap_or(value))
}

/// Text of `&amp;` or `&#8211;`; unknown entities are empty.
fn referenced(name: &BytesRef<'_>, rules: Rules, entities: &HashMap<String, String>) -> String {
    if let Ok(Some(c)) = name.resolve_char_ref() {
        return c.to_string();
    }
    let Ok(name) = std::str::from_utf8(name) else { return String::new() };
    let known = match rules {
        Rules::Data => resolve_xml_entity(name),
        Rules::Xhtml => resolve_html5_entity(name).or_else(|| entities.get(name).map(String::as_str)),
    };
    known.unwrap_or_default().to_owned()
}

/// Entities of a document type that are short plain texts: no markup, no references, nothing external.
fn defined(doctype: &str) -> HashMap<String, String> {
    let definitions = doctype.split("<!ENTITY").skip(1).filter_map(|definition| {
        let (name, rest) = definition.trim_start().split_once(char::is_whitespace)?;
        let rest = rest.trim_start();
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let text = rest.get(1..)?.split(quote).next()?;
        let text = quick_xml::escape::unescape(text).ok()?.into_owned();
        let is_plain = text.len() <= MAX_ENTITY_BYTES && !text.contains(['&', '<']);
        is_plain.then(|| (name.to_owned(), text))
    });
    definitions.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(xml: &str, rules: Rules) -> Option<String> {
        let mut out = String::new();
        let done = visit(xml, rules, &mut |token| {
            match token {
                Token::Open(e) => out.push_str(&format!("<{}>", String::from_utf8_lossy(e.local_name().as_ref()))),
                Token::Close => out.push_str("</>"),
                Token::Text(text) => out.push_str(text),
            }
            Ok(())
        });
        done.ok().map(|()| out)
    }

    #[test]
    fn text_has_its_references_and_literal_sections() {
        let xml = "<x:a>caf&#233; &amp; <![CDATA[1 < 2 & 3]]><b/>&nbsp;.</x:a>";
        assert_eq!(text(xml, Rules::Data).unwrap(), "<a>café & 1 < 2 & 3<b></>.</>");
        assert_eq!(text(xml, Rules::Xhtml).unwrap(), "<a>café & 1 < 2 & 3<b></>\u{A0}.</>");
        assert_eq!(text("<a>you & me & Co</a>", Rules::Xhtml).unwrap(), "<a>you & me & Co</>");
        let own = "<!DOCTYPE a [<!ENTITY me 'Anna &#252; Jo'><!ENTITY bad '<b>'><!ENTITY f SYSTEM 'file:///x'>]><a>&me;&bad;&f;&none;</a>";
        assert_eq!(text(own, Rules::Xhtml).unwrap(), "<a>Anna ü Jo</>");
        assert_eq!(text(own, Rules::Data).unwrap(), "<a></>");
    }

    #[test]
    fn wrong_ends_are_errors_of_xhtml() {
        for xml in ["<a><b></a></b>", "<a><p>x", "<a>x<br></a>"] {
            assert!(text(xml, Rules::Xhtml).is_none(), "{xml}");
        }
        assert!(text("<a><b></a></b>", Rules::Data).is_some());
    }
}
