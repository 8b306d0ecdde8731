//! Rows of a table as lines, with a tab between cells and an empty place for every empty or merged cell.
//!
//! ```text
//! cells: text, columns, rows ──► Rows ──► "Jorg\t\tmiller\t41"        many columns: "Name: Jorg\t\tTrade: miller\t…"
//! ```
//! Invariants: 1. A cell stands in the same column of every row. 2. A cell covers no row of another group.
//! Limits: [`MAX_SPAN`].

use super::text_flow::{Flow, Gap};

/// Most columns that one cell may cover.
const MAX_SPAN: usize = 64;
/// Most columns whose meaning a reader finds by counting; in wider tables each cell has its header.
const MAX_PLAIN_COLUMNS: usize = 8;
/// Shortest text with paragraphs that is no cell but the content of a page laid out as a table, bytes.
const PROSE_BYTES: usize = 400;

/// A cell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cell {
    /// text, possibly of several lines
    pub text: String,
    /// number of columns that it covers, 1 if unknown
    pub n_columns: usize,
    /// number of rows that it covers, 1 if unknown
    pub n_rows: usize,
    /// true for the header of a column
    pub is_header: bool,
}

/// Rows of a table so far.
#[derive(Debug, Default)]
pub struct Rows {
    /// rows that are not written yet, each with true for the last one of a group
    rows: Vec<(Vec<Cell>, bool)>,
    headers: Vec<String>,
    /// rows that a cell above still covers, by column
    covered: Vec<usize>,
    has_body: bool,
}

impl Rows {
    /// Appends a row.
    pub fn add(&mut self, cells: Vec<Cell>) {
        self.rows.push((cells, false));
    }

    /// Ends a group of rows, which no cell of it reaches beyond.
    pub fn end_group(&mut self) {
        self.rows.last_mut().into_iter().for_each(|(_, is_last)| *is_last = true);
    }

    /// Writes the rows that were appended since the last call.
    pub fn write(&mut self, flow: &mut Flow) {
        let rows = std::mem::take(&mut self.rows);
        let is_layout = is_layout(&rows);
        for (cells, is_last) in rows {
            self.write_row(cells, is_layout, flow);
            if is_last {
                self.covered.clear();
            }
        }
    }

    fn write_row(&mut self, cells: Vec<Cell>, is_layout: bool, flow: &mut Flow) {
        let is_title = cells.len() == 1 && self.covered.iter().all(|rows| *rows == 0);
        let has_blocks = cells.iter().any(|cell| has_table(&cell.text) || (is_layout && is_prose(&cell.text)));
        if is_title || has_blocks {
            self.has_body |= cells.iter().any(|cell| !cell.is_header);
            for cell in &cells {
                let gap = if has_blocks || cell.text.contains('\n') { Gap::Paragraph } else { Gap::Line };
                write(flow, gap, &cell.text);
            }
            self.columns(cells, false);
            return;
        }
        let is_header = !self.has_body && !cells.is_empty() && cells.iter().all(|cell| cell.is_header || cell.text.is_empty());
        let columns = self.columns(cells, is_header);
        if columns.iter().all(String::is_empty) {
            return;
        }
        self.has_body |= !is_header;
        let names_cells = !is_header && self.headers.len() > MAX_PLAIN_COLUMNS;
        let named = columns.into_iter().enumerate().map(|(i, text)| match self.headers.get(i) {
            Some(header) if names_cells && !header.is_empty() && !text.is_empty() => format!("{header}: {text}"),
            _ => text,
        });
        write(flow, Gap::Line, &named.collect::<Vec<_>>().join("\t"));
    }

    /// Text of each column.
    fn columns(&mut self, cells: Vec<Cell>, is_header: bool) -> Vec<String> {
        let mut columns = Vec::new();
        for cell in cells {
            while self.is_covered(columns.len()) {
                columns.push(String::new());
            }
            let text = cell.text.split_whitespace().collect::<Vec<_>>().join(" ");
            for i in 0..cell.n_columns.clamp(1, MAX_SPAN) {
                let at = columns.len();
                if is_header {
                    self.headers.resize(self.headers.len().max(at + 1), String::new());
                    if let Some(header) = self.headers.get_mut(at) {
                        let gap = if header.is_empty() || text.is_empty() { "" } else { " " };
                        *header = format!("{header}{gap}{text}");
                    }
                }
                self.covered.resize(self.covered.len().max(at + 1), 0);
                if let Some(rows) = self.covered.get_mut(at) {
                    *rows = cell.n_rows.max(1) - 1;
                }
                columns.push(if i == 0 { text.clone() } else { String::new() });
            }
        }
        for at in columns.len()..self.covered.len() {
            if self.is_covered(at) {
                columns.resize(at + 1, String::new());
            }
        }
        columns
    }

    /// True if a cell above reaches down to this place, of which one row is done with that.
    fn is_covered(&mut self, column: usize) -> bool {
        let rows = self.covered.get_mut(column).filter(|rows| **rows > 0);
        rows.map(|rows| *rows -= 1).is_some()
    }
}

/// True for a page laid out as a table: it has no headers, and no rows of three cells but one.
fn is_layout(rows: &[(Vec<Cell>, bool)]) -> bool {
    let has_headers = rows.iter().any(|(cells, _)| cells.iter().any(|cell| cell.is_header));
    !has_headers && rows.iter().filter(|(cells, _)| cells.len() > 2).count() < 2
}

/// True for the content of a page, rather than of a cell.
fn is_prose(text: &str) -> bool {
    text.len() >= PROSE_BYTES && text.contains("\n\n")
}

/// True for a text with another table in it.
fn has_table(text: &str) -> bool {
    text.contains('\t') && text.contains('\n')
}

fn write(flow: &mut Flow, gap: Gap, text: &str) {
    if !text.is_empty() {
        flow.end(gap);
        flow.verbatim(text);
        flow.end(gap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(texts: &[&str]) -> Vec<Cell> {
        texts.iter().map(|text| Cell { text: (*text).to_owned(), ..Cell::default() }).collect()
    }

    fn text(rows: Vec<Vec<Cell>>) -> String {
        let (mut flow, mut table) = (Flow::default(), Rows::default());
        rows.into_iter().for_each(|row| table.add(row));
        table.write(&mut flow);
        flow.finish()
    }

    #[test]
    fn empty_and_merged_cells_keep_their_columns() {
        let mut merged = cells(&["a", "b", "c"]);
        merged[0].n_rows = 2;
        merged[2].n_rows = 2;
        let wide = vec![Cell { text: "wide".into(), n_columns: 2, ..Cell::default() }, cells(&["d"]).remove(0)];
        assert_eq!(text(vec![merged, cells(&["x"]), wide]), "a\tb\tc\n\tx\t\nwide\t\td");
        let mut merged = cells(&["a", "b", "c"]);
        merged[1].n_rows = 2;
        assert_eq!(text(vec![merged, cells(&["x", "y"]), cells(&["", "1 \n 2", ""])]), "a\tb\tc\nx\t\ty\n\t1 2\t");
    }

    #[test]
    fn merged_cells_end_with_their_group_and_no_row_forgets_them() {
        let mut merged = cells(&["a", "b", "c"]);
        merged[0].n_rows = usize::MAX;
        merged[2].n_rows = 80;
        let mut table = Rows::default();
        table.add(merged);
        table.add(cells(&["d"]));
        (0..70).for_each(|_| table.add(cells(&["e"])));
        table.end_group();
        table.add(cells(&["f", "g"]));
        let mut flow = Flow::default();
        table.write(&mut flow);
        let expected = format!("a\tb\tc\n\td\t\n{}f\tg", "\te\t\n".repeat(70));
        assert_eq!(flow.finish(), expected);
        let mut merged = cells(&["a", "b", "c", "d"]);
        merged[0].n_rows = 2;
        merged[3].n_rows = 3;
        assert_eq!(text(vec![merged, cells(&["x"]), cells(&["y", "z"])]), "a\tb\tc\td\n\tx\t\t\ny\tz\t\t");
    }

    #[test]
    fn wide_tables_name_their_cells() {
        let names = ["n", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug"];
        let header = cells(&names).into_iter().map(|cell| Cell { is_header: true, ..cell }).collect();
        let row = cells(&["x", "1", "", "3", "4", "5", "6", "7", "8"]);
        let expected =
            "n\tjan\tfeb\tmar\tapr\tmay\tjun\tjul\taug\nn: x\tjan: 1\t\tmar: 3\tapr: 4\tmay: 5\tjun: 6\tjul: 7\taug: 8";
        assert_eq!(text(vec![header, row]), expected);
    }

    #[test]
    fn pages_laid_out_as_a_table_keep_their_paragraphs() {
        let page = format!("{}\n\nend", "words ".repeat(100).trim());
        assert_eq!(text(vec![cells(&["menu", &page])]), format!("menu\n\n{page}"));
        let rule = cells(&["R1", &page, "", "1651"]);
        let rows = text(vec![rule, cells(&["R2", "short", "Eve", "1660"])]);
        assert!(rows.starts_with("R1\twords") && rows.ends_with("end\t\t1651\nR2\tshort\tEve\t1660"), "{rows}");
        assert_eq!(text(vec![cells(&["a\n\nb"]), cells(&["c", "d\n\ne"])]), "a\n\nb\n\nc\td e");
    }
}
