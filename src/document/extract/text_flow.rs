//! Text flow: marked-up text to plain text, with white space collapsed and paragraphs a blank line apart.
//!
//! ```text
//! text("A  b"), end(Paragraph), item("- "), text("c") ──► "A b\n\n- c"
//! ```
//! Invariants: 1. No white space at either end of a line, except the indent of a nested item and empty cells.
//! 2. Never more than one blank line.

use super::scripts::{Script, written};

/// Separator between two pieces of text; the largest requested one wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Gap {
    /// nothing
    #[default]
    None,
    /// white space
    Space,
    /// cells of a table
    Cell,
    /// a new line
    Line,
    /// a blank line
    Paragraph,
}

/// A text under construction.
#[derive(Debug, Default)]
pub struct Flow {
    out: String,
    gap: Gap,
    /// marks of the open items that have no text yet, outermost first
    marks: Vec<String>,
    /// true if white space is kept
    is_preformatted: bool,
    /// true after a raised or lowered digit, from which the next digit stays apart
    is_apart: bool,
}

impl Flow {
    /// A flow that keeps all white space.
    pub fn preformatted() -> Flow {
        Flow { is_preformatted: true, ..Flow::default() }
    }

    /// Appends text and collapses its white space.
    pub fn text(&mut self, text: &str) {
        if self.is_preformatted {
            // Line ends between blocks are the source's own.
            let is_between = self.gap >= Gap::Line && text.trim().is_empty();
            if !is_between {
                self.verbatim(text);
            }
            return;
        }
        if text.starts_with(char::is_whitespace) {
            self.end(Gap::Space);
        }
        for word in text.split_whitespace() {
            self.separate();
            self.keep_apart(word);
            // Characters that only control line breaks are dropped.
            self.out.extend(word.chars().filter(|c| !matches!(c, '\u{200B}' | '\u{2060}' | '\u{FEFF}' | '\u{AD}')));
            self.end(Gap::Space);
        }
        let touches = !text.ends_with(char::is_whitespace) && self.gap == Gap::Space && !text.trim().is_empty();
        if touches {
            self.gap = Gap::None;
        }
    }

    /// Appends text verbatim, with all its white space.
    pub fn verbatim(&mut self, text: &str) {
        if !text.is_empty() {
            self.separate();
            self.keep_apart(text);
            self.out.push_str(text);
        }
    }

    /// Appends a superscript, a subscript or the mark of a note.
    pub fn script(&mut self, script: Script, content: &str) {
        let before = if self.gap == Gap::None { self.out.as_str() } else { "" };
        let text = written(script, before, content);
        // A fraction is written with a raised number over a lowered one.
        if script == Script::Lowered
            && let Some((whole, raised)) = self.out.trim_end_matches(['/', '\u{2044}']).rsplit_once('^')
            && self.out.len() > whole.len() + 1 + raised.len()
            && !raised.is_empty()
            && raised.chars().all(|c| c.is_ascii_digit())
        {
            let gap = if whole.ends_with(|c: char| c.is_ascii_digit()) { " " } else { "" };
            self.out = format!("{whole}{gap}{raised}/");
        }
        self.verbatim(&text);
        self.is_apart = text.ends_with(|c: char| c.is_ascii_digit());
    }

    fn keep_apart(&mut self, text: &str) {
        if std::mem::take(&mut self.is_apart)
            && text.starts_with(|c: char| c.is_ascii_digit())
            && !self.out.ends_with([' ', '\n', '\t'])
        {
            self.out.push(' ');
        }
    }

    /// Requests at least this gap before the next text.
    pub fn end(&mut self, gap: Gap) {
        self.gap = self.gap.max(gap);
    }

    /// Keeps a digit at the end apart from the next one.
    pub fn part_digits(&mut self) {
        self.is_apart = self.gap == Gap::None && self.out.ends_with(|c: char| c.is_ascii_digit());
    }

    /// Ends a line; a second call in a row ends the paragraph.
    pub fn line_break(&mut self) {
        if self.is_preformatted {
            return self.verbatim("\n");
        }
        self.gap = if self.gap >= Gap::Line { Gap::Paragraph } else { Gap::Line };
    }

    /// Sets a mark in front of the next text.
    pub fn item(&mut self, mark: impl Into<String>) {
        self.end(Gap::Line);
        self.marks = vec![mark.into()];
    }

    /// Sets a mark in front of the next text, after those of the items around it that have no text yet.
    pub fn open_item(&mut self, mark: String) {
        self.end(Gap::Line);
        self.marks.push(mark);
    }

    /// Ends an item: its mark is dropped if it has no text.
    pub fn close_item(&mut self) {
        self.marks.pop();
        self.end(Gap::Line);
    }

    /// Takes the gap back that was requested before the next text.
    pub fn take_gap(&mut self) -> Gap {
        std::mem::take(&mut self.gap)
    }

    /// Number of bytes that were written.
    pub fn n_bytes(&self) -> usize {
        self.out.len()
    }

    /// True if nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// The text.
    pub fn finish(self) -> String {
        self.out
    }

    fn separate(&mut self) {
        if !self.out.is_empty() {
            let is_ended = self.is_preformatted && self.out.ends_with('\n');
            self.out.push_str(match std::mem::take(&mut self.gap) {
                Gap::Line if is_ended => "",
                Gap::Paragraph if is_ended => "\n",
                Gap::None => "",
                Gap::Space => " ",
                Gap::Cell => "\t",
                Gap::Line => "\n",
                Gap::Paragraph => "\n\n",
            });
        }
        self.gap = Gap::None;
        for (i, mark) in std::mem::take(&mut self.marks).iter().enumerate() {
            self.out.push_str(if i == 0 { mark } else { mark.trim_start() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_collapses_white_space_and_joins_adjacent_words() {
        let mut flow = Flow::default();
        flow.text("  A \n b");
        flow.text("c ");
        flow.text(" d");
        flow.end(Gap::Paragraph);
        flow.end(Gap::Line);
        flow.text("  ");
        flow.item("- ");
        flow.text("e");
        flow.end(Gap::Cell);
        flow.text("f");
        assert_eq!(flow.finish(), "A bc d\n\n- e\tf");
    }

    #[test]
    fn flow_two_line_breaks_are_a_paragraph() {
        let mut flow = Flow::default();
        flow.text("a");
        flow.line_break();
        flow.text("b");
        flow.line_break();
        flow.text(" \n ");
        flow.line_break();
        flow.line_break();
        flow.text("c");
        flow.verbatim(" d\n  e");
        assert_eq!(flow.finish(), "a\nb\n\nc d\n  e");
    }

    #[test]
    fn flow_keeps_scripts_apart_from_the_next_digit() {
        let mut flow = Flow::default();
        for (text, script) in [("2", "10"), ("5 and 3", "1"), ("", "")] {
            flow.text(text);
            flow.script(Script::Raised, script);
        }
        flow.text("/");
        flow.script(Script::Lowered, "2");
        flow.text("8 H");
        flow.script(Script::Lowered, "2");
        flow.text("O");
        assert_eq!(flow.finish(), "2^10 5 and 3 1/2 8 H2O");
    }
}
