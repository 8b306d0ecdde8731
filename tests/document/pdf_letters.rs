//! Letters of PDF fonts: broken tables, CJK encodings, Type 3 fonts, private codes, and fonts whose letters stay unknown.

use crate::make_files::{read, refusal};
use crate::make_pdf::{Font, Pdf, composite, embedded, letters, to_unicode};

const SENTENCE: &str = "The axle is greased on Mondays.";

/// Text of a page in a font with this table of letters.
fn with_table(table: &str, codes: &str) -> String {
    let mut pdf = Pdf::default();
    let table = pdf.stream("", table.as_bytes());
    let program = embedded(&mut pdf);
    let font = composite(&mut pdf, &format!("/ToUnicode {table} 0 R"), "/Identity-H", "Identity", &program);
    pdf.page(&format!("BT /F1 12 Tf 1 0 0 1 40 260 Tm {codes} Tj ET"), font, "");
    read("a.pdf", &pdf.bytes()).unwrap().text
}

#[test]
fn broken_tables_of_letters_are_read_as_far_as_they_go() {
    let letters = letters(&[SENTENCE]);
    let code = |c: char| letters.iter().position(|letter| *letter == c).unwrap() + 1;
    let codes = format!("<{}>", SENTENCE.chars().map(|c| format!("{:04X}", code(c))).collect::<String>());
    let table = to_unicode(&letters);
    let ranges: String = letters.iter().map(|c| format!("<{0:04X}> <{0:04X}> [<{1:04X}>]\n", code(*c), u32::from(*c))).collect();
    let ranges = format!("{} beginbfrange\n{ranges}endbfrange\n", letters.len());
    let cases = [
        table.replace("/CMapName", "/CIDSystemInfo << /Registry (Adobe) /Supplement 0 > def /CMapName"),
        table.replace("/CMapName", "/CIDSystemInfo << /Registry (Adobe /CMapName"),
        table.replace("endbfchar\nendcmap", ""),
        table.replace("endbfchar", "endbfchar ] > }"),
        ranges.replacen("[<0020>]", "<0020>]", 1),
        ranges.replacen("[<0020>]", "[<0020>", 1),
    ];
    for table in cases {
        assert_eq!(with_table(&table, &codes), SENTENCE, "{table}");
    }
}

#[test]
fn codes_are_unicode_if_the_table_is_named_identity() {
    let mut pdf = Pdf::default();
    let program = embedded(&mut pdf);
    let font = composite(&mut pdf, "/ToUnicode /Identity-H", "/Identity-H", "Identity", &program);
    pdf.page("BT /F1 12 Tf 1 0 0 1 40 260 Tm <00420072006900640067006500730020006F0066> Tj ET", font, "");
    assert_eq!(read("a.pdf", &pdf.bytes()).unwrap().text, "Bridges of");
}

#[test]
fn letters_of_asian_encodings_come_from_their_collection() {
    let cases = [
        ("90ms-RKSJ-H", "Japan1", "<8E5282CC90858ED4>", "山の水車"),
        ("GBK-EUC-H", "GB1", "<C9BDCBAE>", "山水"),
        ("ETen-B5-H", "CNS1", "<A473A4F4>", "山水"),
        ("KSCms-UHC-H", "Korea1", "<BBEAB9B0>", "산물"),
        ("UniJIS-UCS2-H", "Japan1", "<5C716C348ECA>", "山水車"),
        ("UniGB-UTF16-H", "GB1", "<5C716C34>", "山水"),
        ("Identity-H", "Japan1", "<0001002200230024>", "ABC"),
    ];
    for (encoding, ordering, codes, right) in cases {
        let mut pdf = Pdf::default();
        let program = embedded(&mut pdf);
        let font = composite(&mut pdf, "", &format!("/{encoding}"), ordering, &program);
        pdf.page(&format!("BT /F1 14 Tf 1 0 0 1 20 260 Tm {codes} Tj ET"), font, "");
        assert_eq!(read("a.pdf", &pdf.bytes()).unwrap().text, right, "{encoding}");
    }
}

/// A page in a Type 3 font whose drawings have these names, by their codes.
fn type3(names: &[(u8, String)], codes: &[u8]) -> Pdf {
    let mut pdf = Pdf::default();
    let drawing = pdf.stream("", b"500 0 0 0 500 700 d1 100 0 300 700 re f");
    let differences: String = names.iter().map(|(code, name)| format!("{code} /{name} ")).collect();
    let drawings: String = names.iter().map(|(_, name)| format!("/{name} {drawing} 0 R ")).collect();
    let widths = "500 ".repeat(256);
    let font = pdf.add(format!(
        "<< /Type /Font /Subtype /Type3 /FontBBox [0 0 1000 1000] /FontMatrix [0.001 0 0 0.001 0 0] /FirstChar 0 /LastChar 255 \
         /Widths [{widths}] /Encoding << /Differences [{differences}] >> /CharProcs << {drawings} >> /Resources << >> >>"
    ));
    let codes: String = codes.iter().map(|code| format!("{code:02X}")).collect();
    pdf.page(&format!("BT /F1 12 Tf 1 0 0 1 40 260 Tm <{codes}> Tj ET"), font, "");
    pdf
}

#[test]
fn type_3_letters_come_from_names_or_codes() {
    let letters: Vec<u8> = letters(&[SENTENCE]).into_iter().map(|c| c as u8).collect();
    let text: Vec<u8> = SENTENCE.bytes().collect();
    let numbered: Vec<_> = letters.iter().map(|c| (*c, format!("a{c}"))).collect();
    assert_eq!(read("a.pdf", &type3(&numbered, &text).bytes()).unwrap().text, SENTENCE);
    let unnamed: Vec<_> = letters.iter().enumerate().map(|(i, c)| (*c, format!("drawing{}", i * 7))).collect();
    assert_eq!(read("a.pdf", &type3(&unnamed, &text).bytes()).unwrap().text, SENTENCE);
    let unicode: Vec<_> = letters.iter().enumerate().map(|(i, c)| (i as u8, format!("uni{:04X}", u32::from(*c)))).collect();
    let codes: Vec<u8> = text.iter().map(|c| letters.iter().position(|letter| letter == c).unwrap() as u8).collect();
    assert_eq!(read("a.pdf", &type3(&unicode, &codes).bytes()).unwrap().text, SENTENCE);
    // Codes and names that only count the drawings say nothing.
    let counted: Vec<_> = letters.iter().enumerate().map(|(i, _)| (i as u8, format!("g{i}"))).collect();
    assert!(refusal("a.pdf", &type3(&counted, &codes).bytes()).contains("without character codes"));
}

#[test]
fn bitmap_fonts_of_tex_have_their_letters_and_ligatures() {
    let named = |codes: &[u8]| -> Vec<(u8, String)> { codes.iter().map(|code| (*code, format!("a{code}"))).collect() };
    // Codes 12 and 14 are fi and ffi.
    let text = b"The \x0Crst o\x0Ece of brothers, who kept it.";
    let mut codes = text.to_vec();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(read("a.pdf", &type3(&named(&codes), text).bytes()).unwrap().text, "The first office of brothers, who kept it.");
    // A mathematical font has a Greek letter there.
    assert_eq!(read("a.pdf", &type3(&named(b"\x0Cnxyz"), b"x\x0Cyzn").bytes()).unwrap().text, "x\u{FFFD}yzn");
    // Letters side by side are no count of drawings if they are at their own codes.
    assert_eq!(read("a.pdf", &type3(&named(b"abc"), b"cab").bytes()).unwrap().text, "cab");
}

#[test]
fn letters_that_lead_to_control_characters_are_marked() {
    let table = "/CMapName /Letters def 1 begincodespacerange <0000> <FFFF> endcodespacerange\n\
        3 beginbfchar <0022> <0041> <0023> <0042> <0024> <0007> endbfchar endcmap";
    assert_eq!(with_table(table, "<0022002300240023>"), "AB\u{FFFD}B");
}

#[test]
fn names_of_glyphs_in_tables_of_letters_are_read() {
    let table = "/CMapName /Letters def 1 begincodespacerange <0000> <FFFF> endcodespacerange\n\
        3 beginbfchar <0022> /A <0023> /uni00E9 <0024> /period endbfchar endcmap";
    assert_eq!(with_table(table, "<0022002300240023>"), "Aé\u{FFFD}é");
}

#[test]
fn unknown_letters_are_marked_and_counted() {
    let mut pdf = Pdf::default();
    let font = Font::of(&mut pdf, &[SENTENCE]);
    let program = embedded(&mut pdf);
    let unknown = composite(&mut pdf, "", "/Identity-H", "Identity", &program);
    let resources = format!("/Font << /F1 {} 0 R /F2 {unknown} 0 R >>", font.number);
    let secret = "BT /F2 12 Tf 1 0 0 1 40 230 Tm <00220023002400250026> Tj ET\n";
    pdf.page_with(&(font.line(SENTENCE, 40.0, 260.0, 12.0) + secret), &resources, "");
    pdf.page_with(secret, &resources, "");
    let document = read("a.pdf", &pdf.bytes()).unwrap();
    assert_eq!(document.text, format!("{SENTENCE}\n\n\u{FFFD}"));
    assert_eq!(document.pages.len(), 2);
    assert!(document.notes[0].starts_with("1 of 2 pages were left out: most of their letters"), "{:?}", document.notes);
    assert!(document.notes.iter().any(|note| note.contains("% of the letters are missing")), "{:?}", document.notes);
}

#[test]
fn private_codes_become_their_sign_or_a_mark() {
    let text = |letter: char| {
        let mut pdf = Pdf::default();
        let line = format!("{letter} grease the axle");
        let font = Font::of(&mut pdf, &[&line]);
        pdf.page(&font.line(&line, 40.0, 260.0, 12.0), font.number, "");
        read("a.pdf", &pdf.bytes()).unwrap().text
    };
    assert_eq!(text('\u{F0B7}'), "• grease the axle");
    assert_eq!(text('\u{F0FC}'), "✓ grease the axle");
    assert_eq!(text('\u{E123}'), "\u{FFFD} grease the axle");
}
