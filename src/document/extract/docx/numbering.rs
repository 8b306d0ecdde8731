//! Numbers of Word's lists: the text in front of each paragraph, as Word shows it.
//!
//! ```text
//! numbering.xml ──► Numbering ── next(list, level) ──► "1.", "1.1", "(a)", "Article IV", "- "
//! ```
//! Invariants: 1. Lists of one definition count together, until a list starts anew. 2. A level starts anew after a higher
//! one, unless it is said to go on. Source: ECMA-376, part 1, 17.9.

use std::collections::{HashMap, HashSet};

use quick_xml::events::BytesStart;

use super::super::extracted::ExtractError;
use super::super::list_number::NumberFormat;
use super::super::xml::{Rules, Token, attribute, visit};
use super::styles::{Styles, is_on};

/// Levels of a list.
const N_LEVELS: usize = 9;

/// A level of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Level {
    start: i64,
    format: NumberFormat,
    /// `%1.%2` has the numbers of the first two levels
    text: String,
    /// the level starts anew after levels up to this one, from 1; 0 for never
    restart: Option<usize>,
    /// all numbers are decimal
    is_legal: bool,
    style: Option<String>,
}

impl Default for Level {
    fn default() -> Self {
        Level { start: 1, format: NumberFormat::Decimal, text: String::new(), restart: None, is_legal: false, style: None }
    }
}

/// Definition of lists.
#[derive(Debug, Clone, Default)]
struct Definition {
    levels: HashMap<usize, Level>,
    /// style whose list has the levels instead
    link: Option<String>,
}

/// A list.
#[derive(Debug, Clone, Default)]
struct List {
    definition: String,
    starts: HashMap<usize, i64>,
    levels: HashMap<usize, Level>,
}

/// All lists of a file, with their counters.
#[derive(Debug, Default)]
pub struct Numbering {
    definitions: HashMap<String, Definition>,
    lists: HashMap<String, List>,
    /// last number of each level, by definition
    counters: HashMap<String, [Option<i64>; N_LEVELS]>,
    /// lists and levels whose own start was used
    started: HashSet<(String, usize)>,
}

/// Part of the file that is being read.
#[derive(Default)]
struct Place {
    definition: Option<(String, Definition)>,
    list: Option<(String, List)>,
    level: Option<(usize, Level)>,
    overridden: usize,
}

impl Numbering {
    pub fn read(xml: &str) -> Result<Numbering, ExtractError> {
        let (mut numbering, mut place, mut path) = (Numbering::default(), Place::default(), Vec::new());
        visit(xml, Rules::Data, &mut |token| {
            match token {
                Token::Open(e) => {
                    // A format that older programs show instead.
                    if !path.iter().any(|name| name == b"Fallback") {
                        place.open(e);
                    }
                    path.push(e.local_name().as_ref().to_vec());
                }
                Token::Close => numbering.close(&mut place, &path.pop().unwrap_or_default()),
                Token::Text(_) => {}
            }
            Ok(())
        })?;
        Ok(numbering)
    }

    fn close(&mut self, place: &mut Place, name: &[u8]) {
        match name {
            b"lvl" => {
                if let Some((i, level)) = place.level.take().filter(|(i, _)| *i < N_LEVELS) {
                    let list = place.list.as_mut().map(|(_, list)| &mut list.levels);
                    let levels = list.or(place.definition.as_mut().map(|(_, definition)| &mut definition.levels));
                    levels.into_iter().for_each(|levels| drop(levels.insert(i, level.clone())));
                }
            }
            b"abstractNum" => self.definitions.extend(place.definition.take()),
            b"num" => self.lists.extend(place.list.take()),
            _ => {}
        }
    }

    /// The same lists, not counted yet.
    pub fn fresh(&self) -> Numbering {
        Numbering { definitions: self.definitions.clone(), lists: self.lists.clone(), ..Numbering::default() }
    }

    /// Level of the list that belongs to a paragraph style.
    pub fn level_of_style(&self, list: &str, style: &str) -> Option<usize> {
        let list = self.lists.get(list)?;
        let levels = &self.definitions.get(&list.definition)?.levels;
        levels.iter().find(|(_, level)| level.style.as_deref() == Some(style)).map(|(i, _)| *i)
    }

    /// Text in front of the next paragraph of a list; None if it has none.
    pub fn next(&mut self, id: &str, level: usize, styles: &Styles) -> Option<String> {
        let Numbering { definitions, lists, counters, started } = self;
        let (level, list) = (level.min(N_LEVELS - 1), lists.get(id)?);
        let definition = definition(definitions, lists, &list.definition, styles)?;
        let level_at = |i: usize| list.levels.get(&i).or_else(|| definition.levels.get(&i));
        let own = level_at(level)?;
        let counters = counters.entry(list.definition.clone()).or_default();
        let start = list.starts.get(&level).copied().unwrap_or(own.start);
        let starts_anew = list.starts.contains_key(&level) && started.insert((id.to_owned(), level));
        counters[level] = Some(counters[level].filter(|_| !starts_anew).map_or(start, |n| n.saturating_add(1)));
        for (i, counter) in counters.iter_mut().enumerate().skip(level + 1) {
            let restarts = match level_at(i).and_then(|level| level.restart) {
                Some(0) => false,
                Some(up_to) => level < up_to,
                None => true,
            };
            *counter = counter.filter(|_| !restarts);
        }
        if own.format == NumberFormat::Bullet {
            return Some("- ".to_owned());
        }
        let usual = Level::default();
        let number = |i: usize| {
            let level = level_at(i).unwrap_or(&usual);
            let start = list.starts.get(&i).copied().unwrap_or(level.start);
            let n = counters.get(i).copied().flatten().unwrap_or(start);
            if own.is_legal { NumberFormat::Decimal.write(n) } else { level.format.write(n) }
        };
        let text = with_numbers(&own.text, number);
        (!text.trim().is_empty()).then(|| format!("{} ", text.trim()))
    }
}

/// Definition of lists, or the one that its style leads to.
fn definition<'n>(
    definitions: &'n HashMap<String, Definition>,
    lists: &HashMap<String, List>,
    id: &str,
    styles: &Styles,
) -> Option<&'n Definition> {
    let own = definitions.get(id)?;
    let linked = own.link.as_deref().filter(|_| own.levels.is_empty()).and_then(|style| {
        let (list, ..) = styles.list(Some(style))?;
        definitions.get(&lists.get(list)?.definition)
    });
    Some(linked.unwrap_or(own))
}

impl Place {
    fn open(&mut self, e: &BytesStart<'_>) {
        let value = || attribute(e, b"val");
        let number = |name: &[u8]| attribute(e, name).and_then(|v| v.parse::<i64>().ok());
        let index = || attribute(e, b"ilvl").and_then(|v| v.parse().ok()).unwrap_or_default();
        match e.local_name().as_ref() {
            b"abstractNum" => self.definition = attribute(e, b"abstractNumId").map(|id| (id, Definition::default())),
            b"num" => self.list = attribute(e, b"numId").map(|id| (id, List::default())),
            b"abstractNumId" => {
                if let (Some((_, list)), Some(id)) = (&mut self.list, value()) {
                    list.definition = id;
                }
            }
            b"numStyleLink" => {
                if let Some((_, definition)) = &mut self.definition {
                    definition.link = value();
                }
            }
            b"lvlOverride" => self.overridden = index(),
            b"startOverride" => {
                if let (Some((_, list)), Some(start)) = (&mut self.list, number(b"val")) {
                    list.starts.insert(self.overridden.min(N_LEVELS - 1), start);
                }
            }
            b"lvl" => self.level = Some((index(), Level::default())),
            name => self.level_property(name, e),
        }
    }

    fn level_property(&mut self, name: &[u8], e: &BytesStart<'_>) {
        let Some((_, level)) = &mut self.level else { return };
        let value = || attribute(e, b"val");
        match name {
            b"start" => level.start = value().and_then(|v| v.parse().ok()).unwrap_or(1),
            b"numFmt" => {
                // "001, 002, 003, ..."
                let width = attribute(e, b"format").map(|format| format.chars().take_while(char::is_ascii_digit).count());
                level.format = match (value(), width) {
                    (Some(name), Some(width @ 2..)) if name == "custom" => NumberFormat::Zeros(width),
                    (name, _) => NumberFormat::of_word(&name.unwrap_or_default()),
                };
            }
            b"lvlText" => level.text = value().unwrap_or_default(),
            b"lvlRestart" => level.restart = value().and_then(|v| v.parse().ok()),
            b"isLgl" => level.is_legal = value().is_none_or(|v| is_on(&v)),
            b"pStyle" => level.style = value(),
            _ => {}
        }
    }
}

/// Text with `%1` to `%9` replaced.
fn with_numbers(text: &str, number: impl Fn(usize) -> String) -> String {
    let (mut out, mut chars) = (String::new(), text.chars().peekable());
    while let Some(c) = chars.next() {
        match chars.peek().and_then(|digit| digit.to_digit(10)).filter(|digit| c == '%' && *digit > 0) {
            Some(digit) => {
                chars.next();
                out.push_str(&number(digit as usize - 1));
            }
            None => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbering(levels: &str, lists: &str) -> Numbering {
        Numbering::read(&format!("<w:numbering><w:abstractNum w:abstractNumId='7'>{levels}</w:abstractNum>{lists}</w:numbering>"))
            .unwrap()
    }

    fn level(i: usize, format: &str, text: &str, more: &str) -> String {
        format!("<w:lvl w:ilvl='{i}'><w:start w:val='1'/><w:numFmt w:val='{format}'/>{more}<w:lvlText w:val='{text}'/></w:lvl>")
    }

    fn list(id: &str, more: &str) -> String {
        format!("<w:num w:numId='{id}'><w:abstractNumId w:val='7'/>{more}</w:num>")
    }

    fn texts(numbering: &mut Numbering, paragraphs: &[(&str, usize)]) -> Vec<String> {
        let next =
            |(id, level): &(&str, usize)| numbering.next(id, *level, &Styles::default()).unwrap_or_default().trim().to_owned();
        paragraphs.iter().map(next).collect()
    }

    #[test]
    fn levels_start_anew_after_higher_ones() {
        let levels = level(0, "decimal", "%1.", "") + &level(1, "decimal", "%1.%2", "") + &level(2, "lowerLetter", "(%3)", "");
        let mut numbering = numbering(&levels, &list("1", ""));
        let paragraphs = [("1", 0), ("1", 1), ("1", 1), ("1", 2), ("1", 2), ("1", 0), ("1", 1), ("1", 2), ("2", 0)];
        assert_eq!(texts(&mut numbering, &paragraphs), ["1.", "1.1", "1.2", "(a)", "(b)", "2.", "2.1", "(a)", ""]);
    }

    #[test]
    fn lists_of_a_definition_count_on_unless_they_start_anew() {
        let start = "<w:lvlOverride w:ilvl='0'><w:startOverride w:val='4'/></w:lvlOverride>";
        let lists = list("1", "") + &list("2", "") + &list("3", start);
        let mut numbering = numbering(&level(0, "upperRoman", "Article %1", ""), &lists);
        let paragraphs = [("1", 0), ("2", 0), ("3", 0), ("3", 0), ("1", 0)];
        assert_eq!(texts(&mut numbering, &paragraphs), ["Article I", "Article II", "Article IV", "Article V", "Article VI"]);
    }

    #[test]
    fn level_may_go_on_and_be_decimal() {
        let levels = level(0, "upperRoman", "%1", "") + &level(1, "decimal", "%1.%2", "<w:lvlRestart w:val='0'/><w:isLgl/>");
        let mut numbering = numbering(&levels, &list("1", ""));
        assert_eq!(texts(&mut numbering, &[("1", 0), ("1", 1), ("1", 0), ("1", 1)]), ["I", "1.1", "II", "2.2"]);
        assert_eq!(texts(&mut numbering, &[("1", 5)]), [""], "no such level");
    }
}
