//! Forms, comments and bookmarks of PDF files.

use strata::document::Document;

use crate::make_files::read;
use crate::make_pdf::{Font, Pdf};

/// A page of labels with these annotations, as dictionaries.
fn document(labels: &[(&str, f64)], annotations: &[&str], form: &str) -> Document {
    let mut pdf = Pdf::default();
    let texts: Vec<&str> = labels.iter().map(|(text, _)| *text).collect();
    let font = Font::of(&mut pdf, &texts);
    let numbers: String =
        annotations.iter().map(|entries| format!("{} 0 R ", pdf.add(format!("<< /Type /Annot {entries} >>")))).collect();
    let content: String = labels.iter().map(|(text, y)| font.line(text, 40.0, *y, 11.0)).collect();
    pdf.page(&content, font.number, &format!("/Annots [{numbers}]"));
    pdf.catalog = format!("/AcroForm << /Fields [{numbers}] {form} >>");
    read("form.pdf", &pdf.bytes()).unwrap()
}

#[test]
fn form_values_stand_at_their_labels() {
    let labels = [("Order of flour", 260.0), ("Name:", 230.0), ("Baker:", 210.0), ("Paid:", 190.0), ("Days:", 170.0)];
    let field =
        |kind: &str, y: f64, more: &str| format!("/Subtype /Widget /FT /{kind} /Rect [100 {} 300 {}] {more}", y - 3.0, y + 11.0);
    let fields = [
        field("Tx", 230.0, "/V (J\\374rgen M\\374ller) /DA (/Helv 11 Tf 0 g)"),
        field("Ch", 210.0, "/V (w) /Opt [[(w) (Widow Anders)] [(p) (Old Peer)]]"),
        field("Btn", 190.0, "/V /Yes /AS /Yes"),
        field("Ch", 170.0, "/V [(Monday) (Friday)]"),
        field("Tx", 150.0, "/V (secret) /Ff 8192"),
    ];
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    let text = document(&labels, &fields, "/NeedAppearances true").text;
    let lines: Vec<String> =
        text.lines().filter(|l| !l.is_empty()).map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(lines, ["Order of flour", "Name: Jürgen Müller", "Baker: Widow Anders", "Paid: [x]", "Days: Monday, Friday"]);
}

#[test]
fn value_under_its_label_is_read_after_it() {
    let fields = ["/Subtype /Widget /FT /Tx /V (Oberbach) /Rect [40 236 200 250] /DA (/Helv 11 Tf)"];
    let text = document(&[("Family name", 255.0), ("Place of birth", 215.0)], &fields, "").text;
    assert_eq!(text.split_whitespace().collect::<Vec<_>>().join(" "), "Family name Oberbach Place of birth");
}

#[test]
fn values_with_a_drawing_are_read_once() {
    let mut pdf = Pdf::default();
    let font = Font::of(&mut pdf, &["Name:", "Jorg Oberbach"]);
    let resources = format!("/Resources << /Font << /F1 {} 0 R >> >>", font.number);
    let drawing = font.line("Jorg Oberbach", 2.0, 3.0, 11.0);
    let drawing = pdf.stream(&format!("/Type /XObject /Subtype /Form /BBox [0 0 200 14] {resources}"), drawing.as_bytes());
    let field = format!(
        "<< /Type /Annot /Subtype /Widget /FT /Tx /V (Jorg Oberbach) /Rect [100 227 300 241] /AP << /N {drawing} 0 R >> >>"
    );
    let field = pdf.add(field);
    pdf.page(&font.line("Name:", 40.0, 230.0, 11.0), font.number, &format!("/Annots [{field} 0 R]"));
    pdf.catalog = format!("/AcroForm << /Fields [{field} 0 R] >>");
    assert_eq!(read("form.pdf", &pdf.bytes()).unwrap().text, "Name:\tJorg Oberbach");
}

#[test]
fn comments_are_notes_under_the_page() {
    let notes = [
        "/Subtype /Text /Rect [300 240 320 260] /T (Anna) /Contents (Check this.)",
        "/Subtype /Highlight /Rect [40 238 200 254] /Contents <FEFF00570068006F003F>",
        "/Subtype /FreeText /Rect [40 150 300 180] /Contents (Paid in full.)",
        "/Subtype /FreeText /Rect [40 120 300 140] /RC (<?xml version=\"1.0\"?><body><p>Salt &amp; <b>rye</b></p></body>)",
        "/Subtype /Text /Rect [300 240 320 260] /F 2 /Contents (not shown)",
        "/Subtype /Popup /Rect [300 240 320 260] /Contents (not a note)",
    ];
    let text = document(&[("It cost twelve guilders.", 260.0)], &notes, "").text;
    assert_eq!(
        text,
        "It cost twelve guilders.\n\n[Note by Anna: Check this.]\n\n[Note: Who?]\n\n[Note: Paid in full.]\n\n[Note: Salt & rye]"
    );
}

#[test]
fn bookmarks_are_titles_of_sections() {
    let mut pdf = Pdf::default();
    let font = Font::of(&mut pdf, &["One page of words."]);
    let pages: Vec<usize> =
        (0..4).map(|_| pdf.page(&font.line("One page of words.", 40.0, 260.0, 11.0), font.number, "")).collect();
    let item = |title: &str, more: &str| format!("<< /Title {title} {more} >>");
    let last = pdf.add(item("(The end)", "/A << /S /GoTo /D (the end) >>"));
    let child = pdf.add(item("(Stones)", &format!("/Dest [{} 0 R /XYZ 0 300 0]", pages[1])));
    let first = pdf.add(item(
        "<FEFF0042007200FC0063006B0065>",
        &format!("/Dest [{} 0 R /Fit] /First {child} 0 R /Next {last} 0 R", pages[0]),
    ));
    pdf.catalog = format!(
        "/Outlines << /First {first} 0 R >> /Names << /Dests << /Kids [<< /Names [(the end) << /D [{} 0 R /Fit] >>] >>] >> >>",
        pages[3]
    );
    let document = read("book.pdf", &pdf.bytes()).unwrap();
    let titles: Vec<_> = document.sections.iter().map(|s| (s.title.as_str(), document.page_of(s.first_byte))).collect();
    assert_eq!(titles, [("Brücke", 0), ("Stones", 1), ("The end", 3)]);
}
