//! Fields of Word: the result is text, the instruction is not, unless it is a sign without a result.
//!
//! ```text
//! begin, "SYMBOL 176 \f Symbol", end ──► °       begin, "PAGEREF x", separate, 12, end ──► 12
//! ```
//! Source: ECMA-376, part 1, 17.16.

use super::symbols::character;

/// Part of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Instruction,
    Result,
}

/// Fields that are open, outermost first.
#[derive(Debug, Default)]
pub struct Fields {
    open: Vec<(Side, String)>,
    /// check mark or selected entry of the innermost field
    shown: Option<String>,
}

impl Fields {
    pub fn begin(&mut self) {
        self.open.push((Side::Instruction, String::new()));
    }

    pub fn separate(&mut self) {
        if let Some((side, _)) = self.open.last_mut() {
            *side = Side::Result;
        }
    }

    /// Ends a field, and returns its text if it has an instruction only.
    pub fn end(&mut self) -> Option<String> {
        let (side, instruction) = self.open.pop()?;
        let shown = self.shown.take();
        if shown.is_some() {
            return shown;
        }
        if side == Side::Result { None } else { text_of(&instruction) }
    }

    /// Sets the text of a check box or a list.
    pub fn show(&mut self, text: &str) {
        self.shown = Some(text.to_owned()).filter(|_| !self.open.is_empty());
    }

    /// Appends to the instruction.
    pub fn instruct(&mut self, text: &str) {
        if let Some((Side::Instruction, instruction)) = self.open.last_mut() {
            instruction.push_str(text);
        }
    }

    /// True if text is part of an instruction.
    pub fn is_instruction(&self) -> bool {
        self.open.iter().any(|(side, _)| *side == Side::Instruction)
    }

    /// Forgets instructions without an end.
    pub fn abandon(&mut self) {
        self.open.retain(|(side, _)| *side == Side::Result);
    }
}

/// Text of a field without a result: `SYMBOL 176 \f "Symbol"` and `EQ \o\ad(\s\up 9(reading),word)`.
fn text_of(instruction: &str) -> Option<String> {
    let mut words = instruction.split_whitespace();
    match words.next()?.to_ascii_uppercase().as_str() {
        "SYMBOL" => {
            let code = words.next()?;
            let code = match code.strip_prefix("0x").or_else(|| code.strip_prefix("0X")) {
                Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                None => code.parse().ok()?,
            };
            let font = instruction.split("\\f").nth(1).map(|rest| rest.trim().trim_start_matches('"'));
            let font = font.and_then(|rest| rest.split(['"', '\\']).next()).unwrap_or_default().trim();
            character(font, code).map(String::from)
        }
        "EQ" => {
            if let Some(formula) = formula(instruction.trim_start().get("EQ".len()..)?) {
                return Some(formula);
            }
            let inner = instruction.split_once('(')?.1.trim_end().strip_suffix(')')?;
            let reading =
                inner.split_once("\\up").and_then(|(_, rest)| rest.split_once('(')).and_then(|(_, rest)| rest.split_once(')'));
            let (reading, word) = reading.and_then(|(reading, rest)| Some((reading, rest.rsplit_once([',', ';'])?.1)))?;
            Some(format!("{}（{}）", word.trim(), reading.trim()))
        }
        // The name of a macro, then the text of its button.
        "MACROBUTTON" => {
            let rest = instruction.trim_start().split_once(char::is_whitespace)?.1.trim_start();
            Some(rest.split_once(char::is_whitespace)?.1.trim().to_owned())
        }
        _ => None,
    }
}

/// Fraction `\f(1,2)`, root `\r(3,27)` and number in a circle `\o\ac(○,3)` of an EQ field.
fn formula(instruction: &str) -> Option<String> {
    let (switch, rest) = instruction.trim().split_once('(')?;
    let (first, second) = rest.strip_suffix(')')?.split_once([',', ';'])?;
    let (first, second) = (first.trim(), second.trim());
    if second.contains(['\\', '(']) {
        return None;
    }
    Some(match switch.trim().to_ascii_lowercase().as_str() {
        "\\f" => format!("{}/{}", in_parentheses(first), in_parentheses(second)),
        "\\r" => format!("{first}\u{221A}{}", in_parentheses(second)),
        "\\o\\ac" if matches!(first, "○" | "◯" | "〇") => format!("({second})"),
        _ => return None,
    })
}

/// A term of several words or operators in parentheses.
pub fn in_parentheses(text: &str) -> String {
    if text.chars().all(char::is_alphanumeric) { text.to_owned() } else { format!("({text})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_without_result_are_signs_or_readings() {
        let read = |instruction: &str| {
            let mut fields = Fields::default();
            fields.begin();
            fields.instruct(instruction);
            fields.end()
        };
        assert_eq!(read(" SYMBOL 176 \\f \"Symbol\" \\s 10 ").as_deref(), Some("°"));
        assert_eq!(read("SYMBOL 0xFC \\f Wingdings").as_deref(), Some("✓"));
        assert_eq!(read(" EQ \\* jc2 \\* hps10 \\o\\ad(\\s\\up 9(すい),水)").as_deref(), Some("水（すい）"));
        assert_eq!(read(" EQ \\f(1,2)").as_deref(), Some("1/2"));
        assert_eq!(read("EQ \\f(a+b;2)").as_deref(), Some("(a+b)/2"));
        assert_eq!(read("EQ \\r(,2)").as_deref(), Some("\u{221A}2"));
        assert_eq!(read("EQ \\r(3,27)").as_deref(), Some("3\u{221A}27"));
        assert_eq!(read("eq \\o\\ac(○,3)").as_deref(), Some("(3)"));
        assert_eq!(read("MACROBUTTON NoMacro [Name of the miller]").as_deref(), Some("[Name of the miller]"));
        assert_eq!(read("PAGEREF _Toc1 \\h"), None);
    }
}
