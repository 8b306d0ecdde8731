//! What a reader sees of a PDF page: hidden text is left out and counted.

use strata::document::Document;

use crate::make_files::read;
use crate::make_pdf::{Font, Pdf};

const SEEN: [&str; 2] = ["The bridge is closed at dusk.", "The eldest keeps the key."];
const SECRET: &str = "The bridge is always open.";

/// A page of the seen lines with other content between them.
fn document(between: impl Fn(&Font) -> String, entries: &str) -> Document {
    let mut pdf = Pdf::default();
    let font = Font::of(&mut pdf, &[SEEN[0], SEEN[1], SECRET]);
    let [first, last] = [(SEEN[0], 260.0), (SEEN[1], 220.0)].map(|(text, y)| font.line(text, 40.0, y, 12.0));
    pdf.page(&format!("{first}q {} Q\n{last}", between(&font)), font.number, entries);
    read("a.pdf", &pdf.bytes()).unwrap()
}

#[test]
fn clipped_unpainted_covered_and_white_text_is_left_out_and_counted() {
    // Operators before the line, its place, and operators after it.
    let cases = [
        ("clip", "0 0 20 20 re W n", [40.0, 240.0], ""),
        ("nested clip", "0 0 400 300 re W n 0 0 20 300 re W n", [40.0, 240.0], ""),
        ("not painted", "3 Tr", [40.0, 240.0], ""),
        ("white", "1 1 1 rg", [40.0, 240.0], ""),
        ("white as gray", "1 g", [40.0, 240.0], ""),
        ("black on black", "0 g 30 230 300 22 re f", [40.0, 240.0], ""),
        ("below the page", "", [40.0, -60.0], ""),
        ("beside the page", "", [640.0, 150.0], ""),
        ("painted over", "", [40.0, 240.0], "1 g 30 230 300 22 re f"),
    ];
    for (name, before, [x, y], after) in cases {
        let document = document(|font| format!("{before} {} {after}", font.line(SECRET, x, y, 12.0)), "");
        assert!(SEEN.iter().all(|line| document.text.contains(line)), "{name}: {}", document.text);
        assert!(!document.text.contains("open"), "{name}: {}", document.text);
        assert!(
            document.notes.iter().any(|note| note.starts_with("5 hidden words were left out")),
            "{name}: {:?}",
            document.notes
        );
    }
    let cropped = document(|font| font.line(SECRET, 40.0, 50.0, 12.0), "/CropBox [0 100 400 300]");
    assert!(!cropped.text.contains("open"), "{}", cropped.text);
}

#[test]
fn visible_text_of_any_color_stays() {
    let cases = [
        "0 g 30 230 300 22 re f 1 g",
        "0.2 0.2 0.6 rg 30 235 m 300 230 l 330 260 l 30 255 l f 1 1 1 rg",
        "0.9 g",
        "0 0 1 rg 0 0 400 300 re W n",
        "20 w 0 0 0.5 RG 30 244 m 330 244 l S 1 g",
        "1 Tr",
        "7 Tr",
    ];
    for before in cases {
        let after = if before == "7 Tr" { "0 0 1 rg 0 0 400 300 re f" } else { "" };
        let document = document(|font| format!("{before} {} {after}", font.line(SECRET, 40.0, 240.0, 12.0)), "");
        // What is painted through letters that clip needs their outlines, which this font has.
        assert!(document.text.contains(SECRET) || before == "7 Tr", "{before}: {}", document.text);
    }
}

#[test]
fn recognized_text_of_scans_is_taken_and_reported() {
    let mut pdf = Pdf::default();
    let font = Font::of(&mut pdf, &SEEN);
    let image = "/Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8";
    let image = pdf.stream(image, b"\xEE");
    let resources = format!("/Font << /F1 {} 0 R >> /XObject << /Im {image} 0 R >>", font.number);
    let lines = |mode: &str| [(SEEN[0], 260.0), (SEEN[1], 220.0)].map(|(t, y)| font.line_with(t, 40.0, y, 12.0, mode)).concat();
    pdf.page_with(&format!("q 400 0 0 300 0 0 cm /Im Do Q {}", lines("3 Tr")), &resources, "");
    let scan = read("scan.pdf", &pdf.bytes()).unwrap();
    assert_eq!(scan.text, SEEN.join("\n\n"));
    assert!(scan.notes[0].contains("1 of 1 pages are scans"), "{:?}", scan.notes);
    // Without a picture, but nothing else on the page.
    let mut pdf = Pdf::default();
    let font = Font::of(&mut pdf, &SEEN);
    pdf.page(&font.line_with(SEEN[0], 40.0, 260.0, 12.0, "3 Tr"), font.number, "");
    let alone = read("alone.pdf", &pdf.bytes()).unwrap();
    assert_eq!((alone.text.as_str(), alone.notes.len()), (SEEN[0], 1));
    assert!(alone.notes[0].contains("only hidden text"), "{:?}", alone.notes);
}
