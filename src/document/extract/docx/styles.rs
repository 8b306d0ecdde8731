//! Styles of a DOCX file: the list that a paragraph style numbers, and raised or hidden character styles.
//!
//! ```text
//! styles.xml ──► Styles ──► list of "Heading2": numId 4, level 1;  "FootnoteReference": raised
//! ```
//! Limits: [`MAX_ANCESTORS`]. Source: ECMA-376, part 1, 17.7.

use std::collections::HashMap;

use super::super::extracted::ExtractError;
use super::super::scripts::Script;
use super::super::xml::{Rules, Token, attribute, visit};

/// Most styles that one style may be based on, in a row.
const MAX_ANCESTORS: usize = 16;

/// Style of a paragraph or a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Style {
    based_on: Option<String>,
    list: Option<String>,
    level: Option<usize>,
    /// None if the style leaves it open; Some(None) for text on the line
    script: Option<Option<Script>>,
    is_hidden: Option<bool>,
}

/// All styles, by id.
#[derive(Debug, Default)]
pub struct Styles {
    styles: HashMap<String, Style>,
    default_paragraph: Option<String>,
}

impl Styles {
    pub fn read(xml: &str) -> Result<Styles, ExtractError> {
        let mut styles = Styles::default();
        let mut current: Option<(String, Style)> = None;
        let mut path: Vec<Vec<u8>> = Vec::new();
        visit(xml, Rules::Data, &mut |token| {
            match token {
                Token::Open(e) => {
                    let name = e.local_name().as_ref().to_vec();
                    let value = || attribute(e, b"val");
                    match (name.as_slice(), &mut current) {
                        (b"style", _) => {
                            let id = attribute(e, b"styleId").unwrap_or_default();
                            let is_default = attribute(e, b"default").is_some_and(|v| is_on(&v));
                            if is_default && attribute(e, b"type").is_some_and(|kind| kind == "paragraph") {
                                styles.default_paragraph = Some(id.clone());
                            }
                            current = Some((id, Style::default()));
                        }
                        (b"basedOn", Some((_, style))) => style.based_on = value(),
                        (b"numId", Some((_, style))) => style.list = value(),
                        (b"ilvl", Some((_, style))) => style.level = value().and_then(|v| v.parse().ok()),
                        (b"vertAlign", Some((_, style))) => {
                            style.script = Some(match value().as_deref() {
                                Some("superscript") => Some(Script::Raised),
                                Some("subscript") => Some(Script::Lowered),
                                _ => None,
                            });
                        }
                        (b"vanish", Some((_, style))) => style.is_hidden = Some(value().is_none_or(|v| is_on(&v))),
                        _ => {}
                    }
                    path.push(name);
                }
                Token::Close => {
                    if path.pop().as_deref() == Some(b"style")
                        && let Some((id, style)) = current.take()
                    {
                        styles.styles.insert(id, style);
                    }
                }
                Token::Text(_) => {}
            }
            Ok(())
        })?;
        Ok(styles)
    }

    /// The style and those that it is based on, nearest first.
    fn chain<'s>(&'s self, id: &str) -> impl Iterator<Item = (&'s str, &'s Style)> {
        let first = self.styles.get_key_value(id);
        let next = |(_, style): &(&'s String, &'s Style)| self.styles.get_key_value(style.based_on.as_ref()?);
        std::iter::successors(first, next).take(MAX_ANCESTORS).map(|(id, style)| (id.as_str(), style))
    }

    /// List and level of a paragraph style; the list of "0" is none. The style that has the list is third.
    pub fn list(&self, id: Option<&str>) -> Option<(&str, Option<usize>, &str)> {
        let id = id.or(self.default_paragraph.as_deref())?;
        let level = self.chain(id).find_map(|(_, style)| style.level);
        self.chain(id).find_map(|(own, style)| Some((style.list.as_deref()?, level, own)))
    }

    /// Script of a style's text, by the nearest style that sets it.
    pub fn script(&self, id: &str) -> Option<Script> {
        self.chain(id).find_map(|(_, style)| style.script).flatten()
    }

    /// True if the text of a style is hidden, by the nearest style that sets it; None if none does.
    pub fn is_hidden(&self, id: &str) -> Option<bool> {
        self.chain(id).find_map(|(_, style)| style.is_hidden)
    }
}

/// Value of an on-off property.
pub fn is_on(value: &str) -> bool {
    !matches!(value, "0" | "false" | "off")
}
