//! Builder of PDF files with fonts, fields and bookmarks.

use std::fmt::Write;

/// Numbered objects, pages and catalog of a PDF file. Objects 1 and 2 are the catalog and the page tree.
#[derive(Default)]
pub struct Pdf {
    objects: Vec<Vec<u8>>,
    pages: Vec<usize>,
    /// further entries of the catalog
    pub catalog: String,
}

impl Pdf {
    /// Adds an object; returns its number.
    pub fn add(&mut self, object: impl Into<Vec<u8>>) -> usize {
        self.objects.push(object.into());
        self.objects.len() + 2
    }

    /// Adds a stream with these entries in its dictionary.
    pub fn stream(&mut self, entries: &str, data: &[u8]) -> usize {
        let head = format!("<< {entries} /Length {} >>\nstream\n", data.len());
        self.add([head.as_bytes(), data, b"\nendstream"].concat())
    }

    /// Adds a page of 400 by 300 points with `font` as `/F1`; returns its number.
    pub fn page(&mut self, content: &str, font: usize, entries: &str) -> usize {
        self.page_with(content, &format!("/Font << /F1 {font} 0 R >>"), entries)
    }

    /// Adds a page with these resources; `entries` are further ones of its dictionary.
    pub fn page_with(&mut self, content: &str, resources: &str, entries: &str) -> usize {
        let content = self.stream("", content.as_bytes());
        let edges = if entries.contains("/MediaBox") { "" } else { "/MediaBox [0 0 400 300]" };
        let page =
            format!("<< /Type /Page /Parent 2 0 R {edges} /Resources << {resources} >> /Contents {content} 0 R {entries} >>");
        let page = self.add(page);
        self.pages.push(page);
        page
    }

    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        let kids: String = self.pages.iter().map(|page| format!("{page} 0 R ")).collect();
        let catalog = format!("<< /Type /Catalog /Pages 2 0 R {} >>", self.catalog).into_bytes();
        let tree = format!("<< /Type /Pages /Kids [{kids}] /Count {} >>", self.pages.len()).into_bytes();
        let (mut out, mut places) = (b"%PDF-1.7\n".to_vec(), Vec::new());
        for (i, object) in [catalog, tree].iter().chain(&self.objects).enumerate() {
            places.push(out.len());
            out.extend(format!("{} 0 obj\n", i + 1).bytes().chain(object.iter().copied()).chain(*b"\nendobj\n"));
        }
        let xref = out.len();
        let mut table = format!("xref\n0 {}\n0000000000 65535 f \n", places.len() + 1);
        places.iter().for_each(|at| writeln!(table, "{at:010} 00000 n ").unwrap());
        let end = format!("trailer\n<< /Size {} /Root 1 0 R >>\nstartxref\n{xref}\n%%EOF\n", places.len() + 1);
        out.extend(table.bytes().chain(end.bytes()));
        out
    }
}

/// A font with two-byte codes and a ToUnicode table: every letter is half an em wide, a space a quarter.
pub struct Font {
    pub number: usize,
    letters: Vec<char>,
}

impl Font {
    /// Font of the letters of some texts.
    pub fn of(pdf: &mut Pdf, texts: &[&str]) -> Font {
        let letters = letters(texts);
        let table = to_unicode(&letters);
        let table = pdf.stream("", table.as_bytes());
        Font { number: composite(pdf, &format!("/ToUnicode {table} 0 R"), "/Identity-H", "Identity", ""), letters }
    }

    /// A text as codes.
    pub fn hex(&self, text: &str) -> String {
        let code = |c: char| format!("{:04X}", self.letters.iter().position(|letter| *letter == c).unwrap() + 1);
        format!("<{}>", text.chars().map(code).collect::<String>())
    }

    /// A line of text at a place.
    pub fn line(&self, text: &str, x: f64, y: f64, size: f64) -> String {
        self.line_with(text, x, y, size, "")
    }

    /// A line after further operators.
    pub fn line_with(&self, text: &str, x: f64, y: f64, size: f64, operators: &str) -> String {
        format!("BT /F1 {size} Tf {operators} 1 0 0 1 {x} {y} Tm {} Tj ET\n", self.hex(text))
    }
}

/// Width of a text, points.
pub fn width(text: &str, size: f64) -> f64 {
    text.chars().map(|c| if c == ' ' { 0.25 } else { 0.5 }).sum::<f64>() * size
}

/// Letters of texts, the space first, so that its code is 1.
pub fn letters(texts: &[&str]) -> Vec<char> {
    let mut letters: Vec<char> = texts.iter().flat_map(|text| text.chars()).chain([' ']).collect();
    letters.sort_unstable();
    letters.dedup();
    let space = letters.iter().position(|c| *c == ' ').unwrap();
    letters.remove(space);
    letters.insert(0, ' ');
    letters
}

/// A table of letters whose codes count from 1.
pub fn to_unicode(letters: &[char]) -> String {
    let utf16 = |c: char| c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("{unit:04X}")).collect::<String>();
    let chars: String = letters.iter().enumerate().map(|(i, c)| format!("<{:04X}> <{}>\n", i + 1, utf16(*c))).collect();
    let head = "/CMapName /Letters def\n1 begincodespacerange\n<0000> <FFFF>\nendcodespacerange\n";
    format!("{head}{} beginbfchar\n{chars}endbfchar\nendcmap\n", letters.len())
}

/// A composite font; `descriptor` are entries of its font descriptor.
pub fn composite(pdf: &mut Pdf, entries: &str, encoding: &str, ordering: &str, descriptor: &str) -> usize {
    let descriptor = format!("<< /Type /FontDescriptor /FontName /Made /Flags 4 {descriptor} >>");
    let descriptor = pdf.add(descriptor);
    let system = format!("/CIDSystemInfo << /Registry (Adobe) /Ordering ({ordering}) /Supplement 0 >>");
    let part = format!(
        "<< /Type /Font /Subtype /CIDFontType0 /BaseFont /Made {system} /FontDescriptor {descriptor} 0 R /DW 500 /W [1 [250]] >>"
    );
    let part = pdf.add(part);
    pdf.add(format!(
        "<< /Type /Font /Subtype /Type0 /BaseFont /Made /Encoding {encoding} /DescendantFonts [{part} 0 R] {entries} >>"
    ))
}

/// An embedded font program whose glyphs have no names that a reader can use.
pub fn embedded(pdf: &mut Pdf) -> String {
    let data = hayro_font::StandardFont::Helvetica.get_font_data().0;
    let program = pdf.stream("/Subtype /CIDFontType0C", (*data).as_ref());
    format!("/FontFile3 {program} 0 R")
}

/// A line of right-to-left text as it stands from left to right, with the order of numbers kept.
pub fn visual(text: &str) -> String {
    let reversed: Vec<char> = text.chars().rev().collect();
    let is_number = |c: &char| c.is_ascii_digit();
    let runs = reversed.chunk_by(|a, b| is_number(a) == is_number(b));
    runs.flat_map(|run| if is_number(&run[0]) { run.iter().rev().copied().collect() } else { run.to_vec() }).collect()
}
