//! Layout: the visible text of a tree of elements, in the order and the shape of a browser.
//!
//! ```text
//! tree ──► steps on a stack: open, text, close ──► flows: page, cells, readings ──► text
//! ```
//! Invariants: 1. No recursion. 2. Slots of shadow trees, readings of words and notes stand where a browser shows them.
//! Limits: [`MAX_FLOWS`] tables and readings in one another. Source: HTML standard, "Rendering".

use std::collections::HashSet;

use dom_query::{Document as Dom, NodeId, NodeRef};

use super::super::scripts::{MAX_SCRIPT_CHARS, Script};
use super::super::table_rows::{Cell, Rows};
use super::super::text_flow::{Flow, Gap};
use super::inline::{is_copy_of_formula, is_note, n_words, refers_to_note, script_of_style, short_text, texts_of};
use super::lists::List;
use super::spacing;
use super::style_sheet::StyleSheet;
use super::visibility::{Opened, is_heading_button};

/// Most tables and readings in one another; deeper ones are read as plain blocks.
const MAX_FLOWS: usize = 16;
/// Longest heading whose letters may stand apart, characters.
const MAX_SPACED_CHARS: usize = 80;

/// Longest raised text that stands in brackets, characters; a longer one is a part of the page with no end to its element.
const MAX_ASIDE_CHARS: usize = 400;

/// A step of the traversal.
enum Step<'a> {
    Open(NodeRef<'a>),
    Text(&'static str),
    Operand(NodeRef<'a>),
    Script(Script, NodeRef<'a>),
    Close(End),
    /// end of the content of a slot, or start of it: the host is set, or taken away
    Host(Option<Host<'a>>),
}

/// End of an element.
enum End {
    Gap(Gap),
    Table,
    Row,
    Cell(Cell),
    Group,
    Item,
    Preformatted,
    Script(Script),
    Operand,
    Struck,
    List,
    Reading,
    Ruby,
}

/// An element with a shadow tree.
struct Host<'a> {
    node: NodeRef<'a>,
    /// names of the slots that have their content
    filled: HashSet<String>,
}

/// An open table.
#[derive(Default)]
struct Table {
    rows: Rows,
    /// cells of the open row
    cells: Option<Vec<Cell>>,
    is_head: bool,
}

/// State of the traversal.
struct Layout<'a> {
    dom: &'a Dom,
    skipped: &'a HashSet<NodeId>,
    opened: Opened,
    styles: StyleSheet,
    has_shadows: bool,
    steps: Vec<Step<'a>>,
    base: Flow,
    flows: Vec<Flow>,
    tables: Vec<Table>,
    lists: Vec<List>,
    /// readings of the open words
    readings: Vec<Vec<String>>,
    hosts: Vec<Host<'a>>,
    n_hidden_words: usize,
}

/// All text of a document.
pub fn text_of(dom: &Dom) -> String {
    text_and_hidden_words(dom).0
}

/// All text of a document, and the number of words in it that are hidden.
pub fn text_and_hidden_words(dom: &Dom) -> (String, usize) {
    laid_out(dom, dom.root(), &HashSet::new())
}

/// Text of an element, without those of `skipped`.
pub fn text_within<'a>(dom: &'a Dom, root: NodeRef<'a>, skipped: &'a HashSet<NodeId>) -> String {
    laid_out(dom, root, skipped).0
}

fn laid_out<'a>(dom: &'a Dom, root: NodeRef<'a>, skipped: &'a HashSet<NodeId>) -> (String, usize) {
    let mut layout = Layout {
        dom,
        skipped,
        opened: Opened::of(dom),
        styles: StyleSheet::of(dom),
        has_shadows: !dom.select("template[shadowrootmode], template[shadowroot], template[shadowmode]").is_empty(),
        steps: vec![Step::Open(root)],
        base: Flow::default(),
        flows: Vec::new(),
        tables: Vec::new(),
        lists: Vec::new(),
        readings: Vec::new(),
        hosts: Vec::new(),
        n_hidden_words: 0,
    };
    while let Some(step) = layout.steps.pop() {
        match step {
            Step::Open(node) if node.is_text() => layout.flow().text(&node.text()),
            Step::Open(node) if node.is_element() => layout.open(node),
            Step::Open(node) => layout.push_children(&node),
            Step::Text(text) => layout.flow().verbatim(text),
            Step::Script(script, node) => layout.part(End::Script(script), node),
            Step::Operand(node) => layout.part(End::Operand, node),
            Step::Close(end) => layout.close(end),
            Step::Host(Some(host)) => layout.hosts.push(host),
            Step::Host(None) => drop(layout.hosts.pop()),
        }
    }
    (layout.base.finish(), layout.n_hidden_words)
}

impl<'a> Layout<'a> {
    fn flow(&mut self) -> &mut Flow {
        self.flows.last_mut().unwrap_or(&mut self.base)
    }

    fn push_children(&mut self, node: &NodeRef<'a>) {
        self.steps.extend(node.children_it(true).map(Step::Open));
    }

    /// Opens an element that ends with `end`.
    fn enter(&mut self, node: &NodeRef<'a>, end: End) {
        self.steps.push(Step::Close(end));
        let shadow = if self.has_shadows { shadow_root(self.dom, node) } else { None };
        match shadow {
            Some(shadow) => {
                self.hosts.push(Host { node: *node, filled: HashSet::new() });
                self.steps.push(Step::Host(None));
                self.push_children(&shadow);
            }
            None => self.push_children(node),
        }
    }

    fn block(&mut self, node: &NodeRef<'a>, gap: Gap) {
        self.flow().end(gap);
        self.enter(node, End::Gap(gap));
    }

    fn open(&mut self, node: NodeRef<'a>) {
        if self.skipped.contains(&node.id) {
            return;
        }
        if self.opened.hides(&node, &self.styles) {
            self.n_hidden_words += texts_of(&node).map(|text| n_words(&text.text())).sum::<usize>();
            return;
        }
        let name = node.node_name().unwrap_or_default();
        match &*name {
            "script" | "style" | "head" | "template" | "noscript" | "iframe" | "object" | "audio" | "video" | "canvas"
            | "select" | "textarea" | "annotation" | "annotation-xml" | "rp" | "noembed" | "noframes" | "title" | "desc"
            | "metadata" | "defs" | "datalist" => {}
            "button" if !is_heading_button(&node) => {}
            "br" => self.flow().line_break(),
            "pre" | "listing" | "xmp" if self.flows.len() < MAX_FLOWS => {
                self.flow().end(Gap::Paragraph);
                self.flows.push(Flow::preformatted());
                self.enter(&node, End::Preformatted);
            }
            "ol" | "ul" | "menu" | "dir" => {
                let gap = self.list_gap();
                self.flow().end(gap);
                self.lists.push(List::of(&node, &self.styles));
                self.enter(&node, End::List);
            }
            "li" => self.item(&node),
            "table" | "thead" | "tbody" | "tfoot" | "tr" | "td" | "th" => self.open_table_part(&name, &node),
            "dt" | "dd" | "option" | "hr" | "text" => self.block(&node, Gap::Line),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "p" | "div" => self.heading_or_paragraph(&node),
            "pre" | "listing" | "xmp" | "section" | "article" | "aside" | "header" | "footer" | "main" | "nav" | "blockquote"
            | "dl" | "figure" | "figcaption" | "caption" | "address" | "form" | "fieldset" | "details" | "summary" | "center"
            | "body" | "html" | "dialog" | "search" | "hgroup" | "legend" | "level1" | "level2" | "level3" => {
                self.block(&node, Gap::Paragraph)
            }
            "q" => {
                self.steps.push(Step::Text("\u{201D}"));
                self.push_children(&node);
                self.steps.push(Step::Text("\u{201C}"));
            }
            "del" | "s" | "strike" => self.enter(&node, End::Struck),
            "slot" => self.slot(&node),
            "sup" => self.script(if is_note(&node) { Script::Note } else { Script::Raised }, &node),
            "sub" => self.script(Script::Lowered, &node),
            "a" if refers_to_note(&node) => self.script(Script::Note, &node),
            "ruby" => {
                self.readings.push(Vec::new());
                self.enter(&node, End::Ruby);
            }
            "rt" if !self.readings.is_empty() && self.flows.len() < MAX_FLOWS => {
                self.flows.push(Flow::default());
                self.enter(&node, End::Reading);
            }
            "span" if is_copy_of_formula(&node) => {}
            name => match script_of_style(&node, &self.styles) {
                Some(script) => self.script(script, &node),
                None if self.is_block_by_style(&node) => self.block(&node, Gap::Line),
                None => self.formula(name, &node),
            },
        }
    }

    fn is_block_by_style(&self, node: &NodeRef<'_>) -> bool {
        let display = self.styles.value(node, "display");
        display.is_some_and(|display| matches!(display.as_str(), "block" | "flex" | "grid" | "table" | "list-item"))
    }

    /// Gap around a list, which is smaller inside of another.
    fn list_gap(&self) -> Gap {
        if self.lists.is_empty() { Gap::Paragraph } else { Gap::Line }
    }

    fn item(&mut self, node: &NodeRef<'a>) {
        let depth = self.lists.len();
        let mark = self.lists.last_mut().map_or_else(|| "- ".to_owned(), |list| list.mark(node, depth, &self.styles));
        self.flow().open_item(mark);
        self.enter(node, End::Item);
    }

    fn heading_or_paragraph(&mut self, node: &NodeRef<'a>) {
        let is_prose = node.has_name("p") || node.has_name("div");
        let min_letters = if is_prose { spacing::MIN_PROSE_LETTERS } else { spacing::MIN_LETTERS };
        match short_text(node, MAX_SPACED_CHARS).and_then(|text| spacing::joined_if(&text, min_letters)) {
            Some(text) => {
                self.flow().end(Gap::Paragraph);
                self.flow().verbatim(&text);
                self.flow().end(Gap::Paragraph);
            }
            None => self.block(node, Gap::Paragraph),
        }
    }

    fn open_table_part(&mut self, name: &str, node: &NodeRef<'a>) {
        let has_row = self.tables.last().is_some_and(|table| table.cells.is_some());
        let has_room = self.flows.len() < MAX_FLOWS;
        match (name, self.tables.last_mut()) {
            ("table", _) if has_room => {
                self.flow().end(Gap::Paragraph);
                self.tables.push(Table::default());
                self.enter(node, End::Table);
            }
            ("thead" | "tbody" | "tfoot", Some(table)) => {
                table.is_head = name == "thead";
                self.enter(node, End::Group);
            }
            ("tr", Some(table)) if !has_row && has_room => {
                table.cells = Some(Vec::new());
                self.enter(node, End::Row);
            }
            ("td" | "th", Some(table)) if has_row && has_room => {
                let span = |name: &str| node.attr(name).and_then(|span| span.trim().parse().ok()).unwrap_or(1);
                // A span of no rows reaches to the end of the group.
                let n_rows = match span("rowspan") {
                    0 => usize::MAX,
                    n => n,
                };
                let is_header = name == "th" || table.is_head;
                let cell = Cell { text: String::new(), n_columns: span("colspan"), n_rows, is_header };
                self.flows.push(Flow::default());
                self.enter(node, End::Cell(cell));
            }
            ("td" | "th", _) => self.block(node, Gap::Cell),
            _ => self.block(node, Gap::Line),
        }
    }

    /// Parts of MathML, and elements that are inline or unknown.
    fn formula(&mut self, name: &str, node: &NodeRef<'a>) {
        let parts = |kinds: &[Script]| -> Option<Vec<Step<'a>>> {
            let children = node.element_children();
            let (base, scripts) = children.split_first().filter(|(_, scripts)| scripts.len() == kinds.len())?;
            let scripts = kinds.iter().zip(scripts).map(|(kind, part)| Step::Script(*kind, *part));
            Some(std::iter::once(Step::Open(*base)).chain(scripts).collect())
        };
        let steps = match name {
            "msup" => parts(&[Script::Exponent]),
            "msub" | "munder" => parts(&[Script::Lowered]),
            "msubsup" | "munderover" => parts(&[Script::Lowered, Script::Exponent]),
            "mfrac" => match node.element_children().as_slice() {
                [over, under] => Some(vec![Step::Operand(*over), Step::Text("/"), Step::Operand(*under)]),
                _ => None,
            },
            "mroot" => match node.element_children().as_slice() {
                [base, index] => Some(vec![Step::Text("("), Step::Open(*index), Step::Text(")\u{221A}"), Step::Operand(*base)]),
                _ => None,
            },
            "mtable" => Some(matrix(node)),
            _ => None,
        };
        match steps {
            Some(steps) => self.steps.extend(steps.into_iter().rev()),
            None if name == "msqrt" && self.flows.len() < MAX_FLOWS => {
                self.flow().verbatim("\u{221A}");
                self.flows.push(Flow::default());
                self.enter(node, End::Operand);
            }
            None => self.enter(node, End::Gap(Gap::None)),
        }
    }

    /// Reads the content of an element by itself, as a script.
    fn script(&mut self, script: Script, node: &NodeRef<'a>) {
        match self.flows.len() < MAX_FLOWS {
            true => {
                self.flows.push(Flow::default());
                self.enter(node, End::Script(script));
            }
            false => self.enter(node, End::Gap(Gap::None)),
        }
    }

    /// Reads an element by itself, as a part of a formula.
    fn part(&mut self, end: End, node: NodeRef<'a>) {
        if self.flows.len() < MAX_FLOWS {
            self.flows.push(Flow::default());
            self.steps.push(Step::Close(end));
        }
        self.steps.push(Step::Open(node));
    }

    /// The host's children that belong to a slot, or what the slot has for none.
    fn slot(&mut self, node: &NodeRef<'a>) {
        let Some(mut host) = self.hosts.pop() else { return self.enter(node, End::Gap(Gap::None)) };
        let name = node.attr_or("name", "").to_string();
        let belongs = |child: &NodeRef<'a>| match child.is_element() {
            true => *child.attr_or("slot", "") == *name && !child.has_name("template"),
            false => child.is_text() && name.is_empty(),
        };
        let content: Vec<NodeRef<'a>> = host.node.children_it(true).filter(belongs).collect();
        let is_empty = content.iter().all(|child| child.is_text() && child.text().trim().is_empty());
        if !host.filled.insert(name) || is_empty {
            self.hosts.push(host);
            return self.enter(node, End::Gap(Gap::None));
        }
        // Slots inside of the content belong to another host.
        self.steps.push(Step::Host(Some(host)));
        self.steps.extend(content.into_iter().map(Step::Open));
    }

    fn close(&mut self, end: End) {
        match end {
            End::Gap(gap) => self.flow().end(gap),
            End::List => {
                self.lists.pop();
                let gap = self.list_gap();
                self.flow().end(gap);
            }
            End::Item => self.flow().close_item(),
            End::Preformatted => {
                let text = self.flows.pop().unwrap_or_default().finish();
                self.flow().verbatim(text.trim_matches('\n'));
                self.flow().end(Gap::Paragraph);
            }
            End::Struck => self.flow().part_digits(),
            End::Script(script) => self.end_script(script),
            End::Operand => {
                let text = self.flows.pop().unwrap_or_default().finish();
                let is_simple = text.chars().all(|c| c.is_alphabetic()) || text.chars().all(|c| c.is_numeric() || c == '.');
                self.flow().verbatim(&if is_simple { text } else { format!("({text})") });
            }
            End::Group => {
                if let Some(table) = self.tables.last_mut() {
                    table.is_head = false;
                    table.rows.end_group();
                }
            }
            End::Cell(mut cell) => {
                cell.text = self.flows.pop().unwrap_or_default().finish();
                if let Some(cells) = self.tables.last_mut().and_then(|table| table.cells.as_mut()) {
                    cells.push(cell);
                }
            }
            End::Row => {
                if let Some(table) = self.tables.last_mut() {
                    let cells = table.cells.take().unwrap_or_default();
                    table.rows.add(cells);
                }
            }
            End::Table => {
                let flow = self.flows.last_mut().unwrap_or(&mut self.base);
                self.tables.pop().into_iter().for_each(|mut table| table.rows.write(flow));
                flow.end(Gap::Paragraph);
            }
            End::Reading => {
                let reading = self.flows.pop().unwrap_or_default().finish();
                self.readings.last_mut().into_iter().for_each(|readings| readings.push(reading.clone()));
            }
            End::Ruby => self.end_ruby(),
        }
    }

    /// Writes a script: a sign and its text, or a longer text in brackets after a space.
    fn end_script(&mut self, script: Script) {
        let mut inner = self.flows.pop().unwrap_or_default();
        let gap = inner.take_gap();
        let content = inner.finish();
        // An element that is raised in one that is raised is raised once.
        let content = content.strip_prefix(['^', '_']).unwrap_or(&content);
        let flow = self.flow();
        match content.chars().count() {
            0 => {}
            ..=MAX_SCRIPT_CHARS if !content.contains('\n') => flow.script(script, content),
            n => {
                let is_aside = n <= MAX_ASIDE_CHARS && !content.contains('\n') && !content.starts_with(['(', '[']);
                flow.end(Gap::Space);
                flow.verbatim(&if is_aside { format!("({content})") } else { content.to_owned() });
                flow.end(Gap::Space);
            }
        }
        flow.end(gap);
    }

    /// Writes the readings of a word in brackets after it.
    fn end_ruby(&mut self) {
        let readings = self.readings.pop().unwrap_or_default();
        let is_latin = readings.iter().any(|reading| reading.contains(|c: char| c.is_ascii_alphabetic()));
        let reading = readings.join(if is_latin { " " } else { "" });
        if reading.trim().is_empty() {
            return;
        }
        let flow = self.flow();
        let gap = flow.take_gap();
        flow.verbatim(&if is_latin { format!(" ({reading})") } else { format!("\u{FF08}{reading}\u{FF09}") });
        flow.end(gap);
    }
}

/// Rows of a matrix, in square brackets: `[1, 2; 3, 4]`.
fn matrix<'a>(node: &NodeRef<'a>) -> Vec<Step<'a>> {
    let mut steps = vec![Step::Text("[")];
    for (i, row) in node.element_children().into_iter().enumerate() {
        for (j, cell) in row.element_children().into_iter().enumerate() {
            steps.extend(match (i, j) {
                (0, 0) => None,
                (_, 0) => Some(Step::Text("; ")),
                _ => Some(Step::Text(", ")),
            });
            steps.push(Step::Open(cell));
        }
    }
    steps.push(Step::Text("]"));
    steps
}

/// Content of the shadow tree that an element declares.
fn shadow_root<'a>(dom: &'a Dom, node: &NodeRef<'a>) -> Option<NodeRef<'a>> {
    let names = ["shadowrootmode", "shadowroot", "shadowmode"];
    let is_root = |child: &NodeRef<'_>| child.has_name("template") && names.iter().any(|name| child.has_attr(name));
    let template = node.children_it(false).find(is_root)?;
    let contents = template.element_ref().and_then(|element| element.template_contents);
    contents.and_then(|id| dom.tree.get(&id)).or(Some(template))
}
