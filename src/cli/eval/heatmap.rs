//! Heat map as one SVG file: a grid of shaded cells with labels, for reports.
//!
//! ```text
//! HeatMap { title, row and column labels, cells [rows][columns] } ─► SVG text
//! ```
//! Invariants: 1. The file is self-contained: no script, no font, no link. 2. Labels are escaped, and the image is as wide as
//! the longest line.
//! Units: pixels; shade from 0 (light) to 1 (dark).

use std::fmt::Write;

const CELL_WIDTH: usize = 72;
const CELL_HEIGHT: usize = 34;
/// Width of cells without text.
const BARE_CELL_WIDTH: usize = 18;
const LEFT: usize = 96;
const TOP: usize = 84;
const BOTTOM: usize = 44;
const RIGHT: usize = 24;
/// Width per character of the title, and of other lines.
const TITLE_CHAR_WIDTH: usize = 11;
const CHAR_WIDTH: usize = 8;
/// Colors of shade 0 and 1, and of an empty cell.
const LIGHT: [u8; 3] = [0xf3, 0xf6, 0xfb];
const DARK: [u8; 3] = [0x0b, 0x4f, 0x8a];
const EMPTY: &str = "#d9d9d9";
/// Shade from which text is white.
const WHITE_TEXT_SHADE: f64 = 0.55;

/// One cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// shade, 0 to 1
    pub shade: f64,
    /// text in the cell; may be empty
    pub text: String,
}

/// A grid to draw.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HeatMap {
    /// title
    pub title: String,
    /// setting of the measurement
    pub subtitle: String,
    /// meaning of rows and columns, under the grid
    pub caption: String,
    /// one label per row
    pub row_labels: Vec<String>,
    /// one label per column
    pub column_labels: Vec<String>,
    /// cells by row; None if nothing was measured
    pub cells: Vec<Vec<Option<Cell>>>,
}

impl HeatMap {
    /// Content of the SVG file.
    pub fn svg(&self) -> String {
        let cell_width = if self.has_text() { CELL_WIDTH } else { BARE_CELL_WIDTH };
        let n_columns = self.cells.iter().map(Vec::len).max().unwrap_or(0);
        let lines = [(&self.title, TITLE_CHAR_WIDTH), (&self.subtitle, CHAR_WIDTH), (&self.caption, CHAR_WIDTH)];
        let longest = lines.iter().map(|(line, char_width)| line.chars().count() * char_width).max().unwrap_or(0);
        let width = (LEFT + n_columns * cell_width).max(longest) + RIGHT;
        let height = TOP + self.cells.len() * CELL_HEIGHT + BOTTOM;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
        );
        text(&mut svg, TextStyle { x: 16, y: 28, anchor: "start", style: "font-size=\"17\" font-weight=\"bold\"" }, &self.title);
        text(&mut svg, TextStyle { x: 16, y: 50, anchor: "start", style: "fill=\"#555555\"" }, &self.subtitle);
        for (i, label) in self.column_labels.iter().enumerate() {
            text(
                &mut svg,
                TextStyle { x: LEFT + i * cell_width + cell_width / 2, y: TOP - 8, anchor: "middle", style: "" },
                label,
            );
        }
        for (row_idx, row) in self.cells.iter().enumerate() {
            let y = TOP + row_idx * CELL_HEIGHT;
            let label = self.row_labels.get(row_idx).map_or("", String::as_str);
            text(&mut svg, TextStyle { x: LEFT - 8, y: y + CELL_HEIGHT / 2 + 5, anchor: "end", style: "" }, label);
            for (column_idx, cell) in row.iter().enumerate() {
                draw_cell(&mut svg, LEFT + column_idx * cell_width, y, cell_width, cell.as_ref());
            }
        }
        text(&mut svg, TextStyle { x: 16, y: height - 16, anchor: "start", style: "fill=\"#555555\"" }, &self.caption);
        svg.push_str("</svg>\n");
        svg
    }

    fn has_text(&self) -> bool {
        self.cells.iter().flatten().flatten().any(|cell| !cell.text.is_empty())
    }
}

/// Position and style of a text.
struct TextStyle {
    x: usize,
    y: usize,
    anchor: &'static str,
    style: &'static str,
}

fn text(svg: &mut String, style: TextStyle, content: &str) {
    let TextStyle { x, y, anchor, style } = style;
    let space = if style.is_empty() { "" } else { " " };
    // Writing to a String cannot fail.
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\"{space}{style}>{}</text>", escaped(content));
}

fn draw_cell(svg: &mut String, x: usize, y: usize, width: usize, cell: Option<&Cell>) {
    let fill = cell.map_or_else(|| EMPTY.to_owned(), |cell| color(cell.shade));
    let (w, h) = (width - 2, CELL_HEIGHT - 2);
    let _ = writeln!(svg, "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" fill=\"{fill}\"/>");
    if let Some(cell) = cell.filter(|cell| !cell.text.is_empty()) {
        let style = if cell.shade >= WHITE_TEXT_SHADE { "fill=\"#ffffff\"" } else { "fill=\"#222222\"" };
        text(svg, TextStyle { x: x + width / 2 - 1, y: y + CELL_HEIGHT / 2 + 4, anchor: "middle", style }, &cell.text);
    }
}

/// `#rrggbb` between light and dark.
fn color(shade: f64) -> String {
    let share = if shade.is_finite() { shade.clamp(0.0, 1.0) } else { 0.0 };
    let mixed = LIGHT.iter().zip(DARK).map(|(light, dark)| {
        let value = f64::from(*light) + (f64::from(dark) - f64::from(*light)) * share;
        format!("{:02x}", value.round() as u8)
    });
    format!("#{}", mixed.collect::<String>())
}

/// Escapes text for XML; control characters, which XML cannot represent, become spaces.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> HeatMap {
        let cell = |shade: f64, text: &str| Some(Cell { shade, text: text.into() });
        HeatMap {
            title: "Found <facts> & \"more\"".into(),
            subtitle: "tiny\u{7}".into(),
            caption: "rows: depth".into(),
            row_labels: vec!["0 %".into(), "100 %".into()],
            column_labels: vec!["1024".into(), "2048".into()],
            cells: vec![vec![cell(0.0, "0 %"), cell(1.0, "100 %")], vec![cell(0.5, "50 %"), None]],
        }
    }

    #[test]
    fn heat_map_has_a_shaded_cell_per_value_and_gray_empty_ones() {
        let svg = map().svg();
        assert_eq!(svg.matches("<rect").count(), 1 + 4);
        for fill in ["#f3f6fb", "#0b4f8a", EMPTY] {
            assert_eq!(svg.matches(&format!("fill=\"{fill}\"")).count(), 1, "{fill}");
        }
        for label in [">0 %<", ">100 %<", ">50 %<", ">1024<", ">2048<", ">rows: depth<"] {
            assert!(svg.contains(label), "{label}");
        }
        assert!(svg.contains("fill=\"#ffffff\">100 %<") && svg.contains("fill=\"#222222\">0 %<"));
    }

    #[test]
    fn heat_map_labels_cannot_break_the_file() {
        let svg = map().svg();
        assert!(svg.contains("Found &lt;facts&gt; &amp; &quot;more&quot;") && svg.contains(">tiny <"));
        let tags = svg.matches('<').count();
        assert_eq!(tags, svg.matches('>').count());
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn heat_map_shades_are_clamped_and_an_empty_one_is_still_a_file() {
        assert_eq!((color(-1.0), color(7.0), color(f64::NAN)), (color(0.0), color(1.0), color(0.0)));
        assert_eq!(HeatMap::default().svg().matches("<rect").count(), 1);
    }
}
