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
use super::inline::{is_copy_of_formula, is_note, refers_to_note, script_of_style, short_text};
use super::lists::List;
use super::spacing;
use super::visibility::{Opened, is_heading_button};

/// Most tables and readings in one another; deeper ones are read as plain blocks.
const MAX_FLOWS: usize = 16;
/// Longest heading whose letters may stand apart, characters.
const MAX_SPACED_CHARS: usize = 80;

/// A step of the traversal.
enum Step<'a> {
    Open(NodeRef<'a>),
    Text(&'static str),
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
    Head,
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
    has_shadows: bool,
    steps: Vec<Step<'a>>,
    base: Flow,
    flows: Vec<Flow>,
    tables: Vec<Table>,
    lists: Vec<List>,
    /// readings of the open words
    readings: Vec<Vec<String>>,
    hosts: Vec<Host<'a>>,
}

/// All text of a document.
pub fn text_of(dom: &Dom) -> String {
    text_within(dom, dom.root(), &HashSet::new())
}

/// Text of an element, without those of `skipped`.
pub fn text_within<'a>(dom: &'a Dom, root: NodeRef<'a>, skipped: &'a HashSet<NodeId>) -> String {
    let mut layout = Layout {
        dom,
        skipped,
        opened: Opened::of(dom),
        has_shadows: !dom.select("template[shadowrootmode], template[shadowroot]").is_empty(),
        steps: vec![Step::Open(root)],
        base: Flow::default(),
        flows: Vec::new(),
        tables: Vec::new(),
        lists: Vec::new(),
        readings: Vec::new(),
        hosts: Vec::new(),
    };
    while let Some(step) = layout.steps.pop() {
        match step {
            Step::Open(node) if node.is_text() => layout.flow().text(&node.text()),
            Step::Open(node) if node.is_element() => layout.open(node),
            Step::Open(node) => layout.push_children(&node),
            Step::Text(text) => layout.flow().verbatim(text),
            Step::Script(script, node) => layout.script(script, &node),
            Step::Close(end) => layout.close(end),
            Step::Host(Some(host)) => layout.hosts.push(host),
            Step::Host(None) => drop(layout.hosts.pop()),
        }
    }
    layout.base.finish()
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
        if self.skipped.contains(&node.id) || self.opened.hides(&node) {
            return;
        }
        let name = node.node_name().unwrap_or_default();
        match &*name {
            "script" | "style" | "head" | "template" | "noscript" | "iframe" | "object" | "audio" | "video" | "canvas"
            | "select" | "textarea" | "annotation" | "annotation-xml" | "rp" | "noembed" | "noframes" | "title" | "desc"
            | "metadata" | "defs" | "datalist" => {}
            "button" if !is_heading_button(&node) => {}
            "br" => self.flow().line_break(),
            "pre" | "listing" | "xmp" => {
                self.flow().end(Gap::Paragraph);
                let text = node.text();
                self.flow().verbatim(text.trim_matches('\n'));
                self.flow().end(Gap::Paragraph);
            }
            "ol" | "ul" | "menu" | "dir" => {
                let gap = self.list_gap();
                self.flow().end(gap);
                self.lists.push(List::of(&node));
                self.enter(&node, End::List);
            }
            "li" => self.item(&node),
            "table" | "thead" | "tr" | "td" | "th" => self.open_table_part(&name, &node),
            "dt" | "dd" | "option" | "hr" | "text" => self.block(&node, Gap::Line),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "p" => self.heading_or_paragraph(&node),
            "div" | "section" | "article" | "aside" | "header" | "footer" | "main" | "nav" | "blockquote" | "dl" | "figure"
            | "figcaption" | "caption" | "address" | "form" | "fieldset" | "details" | "summary" | "center" | "body" | "html"
            | "dialog" | "search" | "hgroup" | "legend" | "level1" | "level2" | "level3" => self.block(&node, Gap::Paragraph),
            "q" => {
                self.steps.push(Step::Text("\u{201D}"));
                self.push_children(&node);
                self.steps.push(Step::Text("\u{201C}"));
            }
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
            name => match script_of_style(&node) {
                Some(script) => self.script(script, &node),
                None => self.formula(name, &node),
            },
        }
    }

    /// Gap around a list, which is smaller inside of another.
    fn list_gap(&self) -> Gap {
        if self.lists.is_empty() { Gap::Paragraph } else { Gap::Line }
    }

    fn item(&mut self, node: &NodeRef<'a>) {
        let depth = self.lists.len();
        let mark = self.lists.last_mut().map_or_else(|| "- ".to_owned(), |list| list.mark(node, depth));
        self.flow().item(mark);
        self.enter(node, End::Gap(Gap::Line));
    }

    fn heading_or_paragraph(&mut self, node: &NodeRef<'a>) {
        match short_text(node, MAX_SPACED_CHARS).and_then(|text| spacing::joined(&text)) {
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
            ("thead", Some(table)) => {
                table.is_head = true;
                self.enter(node, End::Head);
            }
            ("tr", Some(table)) if !has_row && has_room => {
                table.cells = Some(Vec::new());
                self.enter(node, End::Row);
            }
            ("td" | "th", Some(table)) if has_row && has_room => {
                let span = |name: &str| node.attr(name).and_then(|span| span.trim().parse().ok()).unwrap_or(1);
                let is_header = name == "th" || table.is_head;
                let cell = Cell { text: String::new(), n_columns: span("colspan"), n_rows: span("rowspan"), is_header };
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
            "msup" => parts(&[Script::Raised]),
            "msub" | "munder" => parts(&[Script::Lowered]),
            "msubsup" | "munderover" => parts(&[Script::Lowered, Script::Raised]),
            "mfrac" => match node.element_children().as_slice() {
                [over, under] => Some(vec![Step::Open(*over), Step::Text("/"), Step::Open(*under)]),
                _ => None,
            },
            "msqrt" => {
                self.flow().verbatim("\u{221A}");
                None
            }
            _ => None,
        };
        match steps {
            Some(steps) => self.steps.extend(steps.into_iter().rev()),
            None => self.enter(node, End::Gap(Gap::None)),
        }
    }

    /// A short element as a script; the content of a longer one as plain text.
    fn script(&mut self, script: Script, node: &NodeRef<'a>) {
        let is_plain = node.element_children().iter().all(|child| {
            matches!(
                &*child.node_name().unwrap_or_default(),
                "a" | "b"
                    | "i"
                    | "em"
                    | "strong"
                    | "span"
                    | "small"
                    | "font"
                    | "mn"
                    | "mo"
                    | "mi"
                    | "mrow"
                    | "mtext"
                    | "cite"
                    | "u"
            )
        });
        match short_text(node, MAX_SCRIPT_CHARS).filter(|_| is_plain) {
            Some(text) => self.flow().script(script, &text.split_whitespace().collect::<Vec<_>>().join(" ")),
            None => self.enter(node, End::Gap(Gap::None)),
        }
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
            End::Head => self.tables.last_mut().into_iter().for_each(|table| table.is_head = false),
            End::Cell(mut cell) => {
                cell.text = self.flows.pop().unwrap_or_default().finish();
                if let Some(cells) = self.tables.last_mut().and_then(|table| table.cells.as_mut()) {
                    cells.push(cell);
                }
            }
            End::Row => {
                let flow = self.flows.last_mut().unwrap_or(&mut self.base);
                if let Some(table) = self.tables.last_mut() {
                    let cells = table.cells.take().unwrap_or_default();
                    table.rows.add(cells, flow);
                }
            }
            End::Table => {
                self.tables.pop();
                self.flow().end(Gap::Paragraph);
            }
            End::Reading => {
                let reading = self.flows.pop().unwrap_or_default().finish();
                self.readings.last_mut().into_iter().for_each(|readings| readings.push(reading.clone()));
            }
            End::Ruby => self.end_ruby(),
        }
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

/// Content of the shadow tree that an element declares.
fn shadow_root<'a>(dom: &'a Dom, node: &NodeRef<'a>) -> Option<NodeRef<'a>> {
    let is_root =
        |child: &NodeRef<'_>| child.has_name("template") && (child.has_attr("shadowrootmode") || child.has_attr("shadowroot"));
    let template = node.children_it(false).find(is_root)?;
    let contents = template.element_ref().and_then(|element| element.template_contents);
    contents.and_then(|id| dom.tree.get(&id)).or(Some(template))
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
        for (open, close) in [("<div>", "</div>"), ("<table><tr><td>", "</table>"), ("<ruby>a<rt>", ""), ("<ul><li>", "</ul>")] {
            let deep = format!("{}deep{}", open.repeat(4000), close.repeat(4000));
            assert!(text(&deep).contains("deep"), "{open}");
        }
    }

    #[test]
    fn lists_keep_their_numbers() {
        let html = "<ol start=5><li>a<li>b<ol type=a><li>c<li>d</ol><li value=9>e<li>f</ol>\
            <ol reversed><li>g<li>h</ol><ol style='list-style-type: upper-roman'><li>i</ol><ol type=I start=x><li>j</ol>\
            <ul style='list-style:none'><li>k</ul>";
        let expected = "5. a\n6. b\n  a. c\n  b. d\n9. e\n10. f\n\n2. g\n1. h\n\nI. i\n\nI. j\n\nk";
        assert_eq!(text(html), expected);
    }

    #[test]
    fn tables_keep_empty_and_merged_cells() {
        let html = "<table><caption>Sacks</caption><thead><tr><th>Name<th>Born<th>Sacks</thead><tr><td rowspan=2>Jorg<td><td>41\
            <tr><td>1622<td><p>1</p><p>7</p><tr><td colspan=2>All<td>66</table>";
        assert_eq!(text(html), "Sacks\n\nName\tBorn\tSacks\nJorg\t\t41\n\t1622\t1 7\nAll\t\t66");
    }

    #[test]
    fn hidden_text_stays_out_unless_a_button_opens_it() {
        let html = "<p hidden>no<p style='color:red; DISPLAY : none !important'>no<dialog>no</dialog>\
            <h3><button aria-expanded=false aria-controls=a>Why?</button></h3><div id=a hidden>Because.</div><button>Share</button>\
            <a role=doc-noteref href='#n1'>1</a><aside id=n1 hidden>Note</aside><div role=tabpanel hidden>Tab</div><p hidden=until-found>Found<details><summary>More</summary>Rest</details>";
        assert_eq!(text(html), "Why?\n\nBecause.\n\n[1]\n\nNote\n\nTab\n\nFound\n\nMore\n\nRest");
    }

    #[test]
    fn scripts_readings_and_formulas_stand_apart() {
        for (html, expected) in [
            ("10<sup>6</sup> barrels, 25 km<sup>2</sup>", "10^6 barrels, 25 km^2"),
            ("in 1848<sup><a href='#n'>3</a></sup>, wrote<a href=x#n><sup>4</sup></a>", "in 1848[3], wrote[4]"),
            ("end<a epub:type=noteref href=n.html>5</a> 1<sup>st</sup> H<sub>2</sub>O", "end[5] 1st H2O"),
            ("兄は<ruby>水<rt>すい</rt>車<rt>しゃ</rt></ruby>を", "兄は水車（すいしゃ）を"),
            ("<ruby>帳簿<rp>（</rp><rt>ちょうぼ</rt><rp>）</rp></ruby>を", "帳簿（ちょうぼ）を"),
            ("<ruby>北京 <rt>Běi</rt><rt>jīng</rt></ruby> is", "北京 (Běi jīng) is"),
            ("10<span style='font-size:70%; vertical-align: super'>6</span>", "10^6"),
            ("<math><msup><mi>x</mi><mn>2</mn></msup><mo>+</mo><mfrac><mn>1</mn><mn>2</mn></mfrac></math>", "x^2+1/2"),
            ("He said <q>no</q>.", "He said \u{201C}no\u{201D}."),
            ("<h1>C H A P T E R &nbsp; O N E</h1><p>A B C D</p>", "CHAPTER ONE\n\nA B C D"),
        ] {
            assert_eq!(text(html), expected, "{html}");
        }
    }

    #[test]
    fn shadow_trees_show_their_slots() {
        let html = "<my-note><template shadowrootmode=open><style>p{}</style><p>In. <slot name=x>none</slot></p><slot></slot>\
            <slot name=y>else</slot></template><b slot=x>X</b><p>Light <slot>inner</slot></p></my-note><template>no</template>end";
        assert_eq!(text(html), "In. X\n\nLight inner\n\nelseend");
    }
}
