//! Word files: text as Word shows it, whatever its parts are called.

use crate::make_files::{docx, docx_with, para, read, zip};

fn text(body: &str) -> String {
    read("a.docx", &docx(body)).unwrap_or_else(|error| panic!("{error}")).text
}

fn run(text: &str, properties: &str) -> String {
    format!("<w:r><w:rPr>{properties}</w:rPr><w:t xml:space='preserve'>{text}</w:t></w:r>")
}

/// A paragraph of these runs.
fn runs(runs: &[&str]) -> String {
    format!("<w:p>{}</w:p>", runs.concat())
}

/// A paragraph with properties.
fn styled(properties: &str, text: &str) -> String {
    format!("<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>")
}

fn item(list: u32, level: u32, text: &str) -> String {
    styled(&format!("<w:numPr><w:ilvl w:val='{level}'/><w:numId w:val='{list}'/></w:numPr>"), text)
}

const NUMBERING: &str = "<w:numbering><w:abstractNum w:abstractNumId='0'>\
    <w:lvl w:ilvl='0'><w:start w:val='1'/><w:numFmt w:val='decimal'/><w:pStyle w:val='Clause'/><w:lvlText w:val='%1.'/></w:lvl>\
    <w:lvl w:ilvl='1'><w:start w:val='1'/><w:numFmt w:val='lowerLetter'/><w:lvlText w:val='%1(%2)'/></w:lvl></w:abstractNum>\
    <w:abstractNum w:abstractNumId='1'><w:lvl w:ilvl='0'><w:numFmt w:val='bullet'/><w:lvlText w:val='\u{F0B7}'/></w:lvl></w:abstractNum>\
    <w:num w:numId='1'><w:abstractNumId w:val='0'/></w:num><w:num w:numId='2'><w:abstractNumId w:val='1'/></w:num>\
    <w:num w:numId='3'><w:abstractNumId w:val='0'/><w:lvlOverride w:ilvl='0'><w:startOverride w:val='8'/></w:lvlOverride></w:num></w:numbering>";
const STYLES: &str = "<w:styles><w:style w:type='paragraph' w:styleId='Clause'><w:pPr><w:numPr><w:numId w:val='1'/></w:numPr></w:pPr></w:style>\
    <w:style w:type='paragraph' w:styleId='Own'><w:basedOn w:val='Clause'/></w:style>\
    <w:style w:type='character' w:styleId='Up'><w:rPr><w:vertAlign w:val='superscript'/></w:rPr></w:style></w:styles>";

fn numbered(body: &str) -> String {
    let document = format!("<w:document><w:body>{body}</w:body></w:document>");
    let parts: [(&str, &[u8]); 2] = [("word/numbering.xml", NUMBERING.as_bytes()), ("word/styles.xml", STYLES.as_bytes())];
    read("a.docx", &docx_with(&document, &parts)).unwrap_or_else(|error| panic!("{error}")).text
}

#[test]
fn paragraphs_have_the_numbers_that_word_shows() {
    let body = [
        item(1, 0, "One"),
        item(1, 1, "First"),
        item(1, 1, "Second"),
        styled("<w:pStyle w:val='Own'/>", "Two"),
        item(1, 1, "Again"),
        item(2, 0, "Bullet"),
        item(3, 0, "Eight"),
        item(1, 0, ""),
        item(1, 0, "Ten"),
        styled("<w:pStyle w:val='Clause'/><w:numPr><w:numId w:val='0'/></w:numPr>", "None"),
    ];
    let lines = numbered(&body.concat());
    let expected = ["1. One", "1(a) First", "1(b) Second", "2. Two", "2(a) Again", "- Bullet", "8. Eight", "10. Ten", "None"];
    assert_eq!(lines.split("\n\n").collect::<Vec<_>>(), expected);
}

#[test]
fn deleted_paragraphs_have_no_number_and_inserted_ones_do() {
    let deleted = "<w:p><w:pPr><w:numPr><w:ilvl w:val='0'/><w:numId w:val='1'/></w:numPr><w:rPr><w:del w:id='1'/></w:rPr></w:pPr>\
                   <w:del w:id='2'><w:r><w:delText>Old</w:delText></w:r></w:del></w:p>";
    let inserted = "<w:p><w:pPr><w:numPr><w:ilvl w:val='0'/><w:numId w:val='1'/></w:numPr><w:rPr><w:ins w:id='3'/></w:rPr></w:pPr>\
                    <w:ins w:id='4'><w:r><w:t>New</w:t></w:r></w:ins></w:p>";
    assert_eq!(
        numbered(&format!("{}{deleted}{inserted}{}", item(1, 0, "One"), item(1, 0, "Three"))),
        "1. One\n\n2. New\n\n3. Three"
    );
    let moved = "<w:p><w:moveFrom><w:r><w:t>there </w:t></w:r></w:moveFrom><w:r><w:t>Moved </w:t></w:r><w:moveTo><w:r><w:t>here.</w:t></w:r></w:moveTo></w:p>";
    assert_eq!(text(moved), "Moved here.");
}

#[test]
fn raised_and_lowered_runs_stand_apart() {
    let up = "<w:vertAlign w:val='superscript'/>";
    let body =
        runs(&[&run("It holds 10", ""), &run("−", up), &run("3", up), &run(" of 25 km", ""), &run("2", up), &run(", H", "")])
            + &runs(&[
                &run("CO", ""),
                &run("2", "<w:vertAlign w:val='subscript'/>"),
                &run(" in 1848", ""),
                &run("3", "<w:position w:val='6'/>"),
                &run("5", ""),
            ])
            + &runs(&[&run("the 1", ""), &run("st", up), &run(" of May", "")]);
    assert_eq!(text(&body), "It holds 10^−3 of 25 km^2, H\n\nCO2 in 1848^3 5\n\nthe 1st of May");
    assert_eq!(numbered(&runs(&[&run("10", ""), &run("6", "<w:rStyle w:val='Up'/>")])), "10^6");
}

#[test]
fn text_boxes_stand_after_their_paragraph_once() {
    let choice = format!(
        "<mc:Choice><w:drawing><wps:txbx><w:txbxContent>{}{}</w:txbxContent></wps:txbx></w:drawing></mc:Choice>",
        para("Boxed."),
        para("Twice.")
    );
    let fallback = format!(
        "<mc:Fallback><w:pict><v:textbox><w:txbxContent>{}</w:txbxContent></v:textbox></w:pict></mc:Fallback>",
        para("Boxed.")
    );
    let anchored = format!("<w:r><mc:AlternateContent>{choice}{fallback}</mc:AlternateContent></w:r>");
    let empty = format!("<w:r><mc:AlternateContent><mc:Choice><w:drawing/></mc:Choice>{fallback}</mc:AlternateContent></w:r>");
    let cut = |anchor: &str| runs(&[&run("The key is kept by the ", ""), anchor, &run("eldest.", "")]) + &para("End.");
    assert_eq!(text(&cut(&anchored)), "The key is kept by the eldest.\n\nBoxed.\n\nTwice.\n\nEnd.");
    assert_eq!(text(&cut(&empty)), "The key is kept by the eldest.\n\nBoxed.\n\nEnd.", "a choice without text");
    let in_cell = format!("<w:tbl><w:tr><w:tc>{}</w:tc><w:tc>{}</w:tc></w:tr></w:tbl>", cut(&anchored), para("b"));
    assert_eq!(text(&in_cell), "The key is kept by the eldest. End.\tb\n\nBoxed.\n\nTwice.");
}

#[test]
fn cells_keep_their_columns() {
    let cell = |properties: &str, text: &str| {
        format!("<w:tc><w:tcPr>{properties}</w:tcPr>{}</w:tc>", if text.is_empty() { "<w:p/>".to_owned() } else { para(text) })
    };
    let row = |cells: &[String]| format!("<w:tr>{}</w:tr>", cells.concat());
    let table = [
        row(&[cell("<w:vMerge w:val='restart'/>", "Jorg"), cell("", ""), cell("", "miller"), cell("", "41")]),
        row(&[cell("<w:vMerge/>", ""), cell("", "1622"), cell("<w:gridSpan w:val='2'/>", "both")]),
        row(&[
            cell("", "Anna"),
            cell("", "two").replace("</w:tc>", &format!("{}</w:tc>", para("lines"))),
            cell("", ""),
            cell("", ""),
        ]),
        format!("<w:tr><w:trPr><w:gridBefore w:val='3'/></w:trPr>{}</w:tr>", cell("", "66")),
        format!("<w:tr><w:trPr><w:del w:id='1'/></w:trPr>{}</w:tr>", cell("", "gone")),
    ];
    let text = text(&format!("{}<w:tbl>{}</w:tbl>{}", para("Sacks."), table.concat(), para("So far.")));
    assert_eq!(text, "Sacks.\n\nJorg\t\tmiller\t41\n\t1622\tboth\t\nAnna\ttwo lines\t\t\n\t\t\t66\n\nSo far.");
}

#[test]
fn fields_show_their_results_and_controls_their_content() {
    let field = |instruction: &str, result: &str| {
        format!(
            "<w:r><w:fldChar w:fldCharType='begin'/></w:r><w:r><w:instrText>{instruction}</w:instrText></w:r>{}<w:r><w:fldChar w:fldCharType='end'/></w:r>",
            if result.is_empty() {
                String::new()
            } else {
                format!("<w:r><w:fldChar w:fldCharType='separate'/></w:r>{}", run(result, ""))
            }
        )
    };
    let body = runs(&[
        &run("See ", ""),
        &field("PAGEREF x \\h", "12"),
        &run(", at 20 ", ""),
        &field(" SYMBOL 176 \\f Symbol ", ""),
        &run("C ", ""),
        "<w:fldSimple w:instr='AUTHOR'><w:r><w:t>Anna</w:t></w:r></w:fldSimple>",
        "<w:sdt><w:sdtPr><w:alias w:val='no'/></w:sdtPr><w:sdtContent><w:smartTag><w:r><w:t xml:space='preserve'> of Ulm</w:t></w:r></w:smartTag></w:sdtContent></w:sdt>",
        "<w:r><w:sym w:font='Wingdings' w:char='F0FC'/><w:noBreakHyphen/><w:t><![CDATA[a < b]]></w:t></w:r>",
        "<w:r><w:fldChar w:fldCharType='begin'><w:ffData><w:checkBox><w:default w:val='1'/></w:checkBox></w:ffData></w:fldChar></w:r>",
        "<w:r><w:instrText> FORMCHECKBOX </w:instrText></w:r><w:r><w:fldChar w:fldCharType='end'/></w:r>",
        &run("hidden", "<w:vanish/>"),
    ]);
    let document = read("a.docx", &docx(&body)).unwrap();
    assert_eq!(document.text, "See 12, at 20 °C Anna of Ulm✓\u{2011}a < b☒");
    assert!(document.notes[0].starts_with("1 hidden word(s)"), "{:?}", document.notes);
}

#[test]
fn notes_and_comments_follow_their_paragraph() {
    let body = "<w:p><w:r><w:t>One</w:t><w:footnoteReference w:id='5'/><w:t> and two</w:t><w:endnoteReference w:id='5'/>\
        <w:commentReference w:id='0'/><w:t>.</w:t></w:r></w:p><w:p><w:r><w:t>Next</w:t><w:footnoteReference w:id='2'/></w:r></w:p>";
    let document = format!("<w:document><w:body>{body}</w:body></w:document>");
    let note = |kind: &str, id: u32, text: &str| format!("<w:{kind} w:id='{id}' w:author='Anna'>{}</w:{kind}>", para(text));
    let footnotes = format!("<w:footnotes>{}{}</w:footnotes>", note("footnote", 2, "Second."), note("footnote", 5, "First."));
    let endnotes = format!("<w:endnotes>{}</w:endnotes>", note("endnote", 5, "Last."));
    let comments = format!("<w:comments>{}</w:comments>", note("comment", 0, "Sure?"));
    let parts: [(&str, &[u8]); 3] = [
        ("word/footnotes.xml", footnotes.as_bytes()),
        ("word/endnotes.xml", endnotes.as_bytes()),
        ("word/comments.xml", comments.as_bytes()),
    ];
    let expected = "One[1] and two[i].\n\n[1] First.\n\n[i] Last.\n\n[Comment by Anna: Sure?]\n\nNext[2]\n\n[2] Second.";
    assert_eq!(read("a.docx", &docx_with(&document, &parts)).unwrap().text, expected);
}

#[test]
fn readings_follow_the_paragraph_and_keep_the_word_whole() {
    let ruby = |reading: &str, word: &str| {
        format!("<w:r><w:ruby><w:rt>{}</w:rt><w:rubyBase>{}</w:rubyBase></w:ruby></w:r>", run(reading, ""), run(word, ""))
    };
    let body = runs(&[
        &run("兄は", ""),
        &ruby("すい", "水"),
        &ruby("しゃ", "車"),
        &run("を", ""),
        &ruby("た", "建"),
        &run("てた。", ""),
    ]);
    assert_eq!(text(&body), "兄は水車を建てた。 (水車: すいしゃ, 建: た)");
}

#[test]
fn formulas_keep_their_powers_and_fractions() {
    let math = |name: &str, inner: &str| format!("<m:{name}>{inner}</m:{name}>");
    let letter = |text: &str| format!("<m:r><m:t>{text}</m:t></m:r>");
    let power = math("sSup", &(math("e", &letter("x")) + &math("sup", &letter("2"))));
    let fraction = math("f", &(math("num", &letter("a+b")) + &math("den", &letter("c"))));
    let brackets =
        math("d", &("<m:dPr><m:begChr m:val='['/><m:endChr m:val=']'/></m:dPr>".to_owned() + &math("e", &letter("y"))));
    assert_eq!(text(&format!("<w:p>{}</w:p>", math("oMath", &(power + &letter("=") + &fraction + &brackets)))), "x^2=(a+b)/c[y]");
}

const RELATIONS: &str = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";

fn relations(entries: &[(&str, &str, &str)]) -> String {
    let entry = |(id, kind, target): &(&str, &str, &str)| format!("<Relationship Id='{id}' Type='{kind}' Target='{target}'/>");
    format!("<Relationships>{}</Relationships>", entries.iter().map(entry).collect::<String>())
}

#[test]
fn parts_are_found_by_their_relationships() {
    let document =
        "<x:document><x:body><x:p><x:r><x:t>Text</x:t><x:footnoteReference x:id='1'/></x:r></x:p></x:body></x:document>";
    let notes = "<footnotes><footnote id='1'><p><r><t>Noted.</t></r></p></footnote></footnotes>";
    let strict = "http://purl.oclc.org/ooxml/officeDocument/relationships";
    for (base, target, main, rels, of_notes, notes_name) in [
        (RELATIONS, "word/main.xml", "word/main.xml", "word/_rels/main.xml.rels", "n.xml", "word/n.xml"),
        (strict, "/doc/d.xml", "doc/d.xml", "doc/_rels/d.xml.rels", "/notes/a.xml", "notes/a.xml"),
        (RELATIONS, "./Word/Document.xml", "word/document.xml", "word/_rels/document.xml.rels", "../Word/N.xml", "word/n.xml"),
        (RELATIONS, "word\\document.xml", "word\\document.xml", "word\\_rels\\document.xml.rels", "n.xml", "word\\n.xml"),
        (RELATIONS, "main.xml", "main.xml", "_rels/main.xml.rels", "a%20b.xml", "a b.xml"),
    ] {
        let root = relations(&[("r1", &format!("{base}/officeDocument"), target)]);
        let own = relations(&[("r7", &format!("{base}/footnotes"), of_notes)]);
        let files: [(&str, &[u8]); 4] = [
            ("_rels/.rels", root.as_bytes()),
            (main, document.as_bytes()),
            (rels, own.as_bytes()),
            (notes_name, notes.as_bytes()),
        ];
        let read = read("a.docx", &zip(&files)).unwrap_or_else(|error| panic!("{target}: {error}"));
        assert_eq!(read.text, "Text[1]\n\n[1] Noted.", "{target}");
    }
    let types = "<Types><Override PartName='/a/b.xml' ContentType='application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml'/></Types>";
    let files: [(&str, &[u8]); 2] = [("[Content_Types].xml", types.as_bytes()), ("a/b.xml", document.as_bytes())];
    assert_eq!(read("a.docx", &zip(&files)).unwrap().text, "Text[1]", "by content type");
}

#[test]
fn parts_put_in_whole_are_read_where_they_stand() {
    let inner = docx(&para("From a document."));
    let rels = relations(&[
        ("a", &format!("{RELATIONS}/aFChunk"), "a.html"),
        ("b", &format!("{RELATIONS}/aFChunk"), "b.docx"),
        ("c", &format!("{RELATIONS}/aFChunk"), "c.txt"),
        ("d", &format!("{RELATIONS}/aFChunk"), "d.rtf"),
        ("e", &format!("{RELATIONS}/aFChunk"), "e.dat"),
    ]);
    let chunks = ["a", "b", "c", "d", "e"].map(|id| format!("<w:altChunk r:id='{id}'/>")).concat();
    let document = format!("<w:document><w:body>{}{chunks}{}</w:body></w:document>", para("Before."), para("After."));
    let parts: [(&str, &[u8]); 6] = [
        ("word/_rels/document.xml.rels", rels.as_bytes()),
        ("word/e.dat", b"<p>From a fragment.</p>"),
        ("word/a.html", b"<html><body><p>From a page.</p></body></html>"),
        ("word/b.docx", &inner),
        ("word/c.txt", b"From a text."),
        ("word/d.rtf", b"{\\rtf1 no}"),
    ];
    let read = read("a.docx", &docx_with(&document, &parts)).unwrap();
    assert_eq!(read.text, "Before.\n\nFrom a page.\n\nFrom a document.\n\nFrom a text.\n\nFrom a fragment.\n\nAfter.");
    assert!(read.notes[0].starts_with("1 part(s) of the file could not be read"), "{:?}", read.notes);
}

#[test]
fn headers_are_counted_and_left_out() {
    let document = format!("<w:document><w:body>{}</w:body></w:document>", para("Body."));
    let header = format!("<w:hdr>{}</w:hdr>", para("Mill of Ulm"));
    let rels = relations(&[("a", &format!("{RELATIONS}/header"), "header1.xml")]);
    let parts: [(&str, &[u8]); 2] = [("word/_rels/document.xml.rels", rels.as_bytes()), ("word/header1.xml", header.as_bytes())];
    let read = read("a.docx", &docx_with(&document, &parts)).unwrap();
    assert_eq!((read.text.as_str(), read.notes.len()), ("Body.", 1));
    assert!(read.notes[0].starts_with("3 word(s) of headers and footers"), "{:?}", read.notes);
}

#[test]
fn numbers_stand_in_front_of_boxes_formulas_and_empty_cells() {
    let list = "<w:pPr><w:numPr><w:ilvl w:val='0'/><w:numId w:val='1'/></w:numPr></w:pPr>";
    let boxed = [item(1, 0, "In"), item(1, 0, "Out")].concat();
    let body = format!("<w:p><w:r><w:pict><w:txbxContent>{boxed}</w:txbxContent></w:pict></w:r></w:p>");
    assert_eq!(numbered(&body), "1. In\n\n2. Out");
    let fraction = "<m:oMath><m:f><m:num><m:r><m:t>3</m:t></m:r></m:num><m:den><m:r><m:t>4</m:t></m:r></m:den></m:f></m:oMath>";
    assert_eq!(numbered(&format!("<w:p>{list}{fraction}</w:p>")), "1. 3/4");
    let cell = |content: &str| format!("<w:tc>{content}</w:tc>");
    let row = |name: &str| format!("<w:tr>{}{}</w:tr>", cell(&item(1, 0, "")), cell(&para(name)));
    assert_eq!(numbered(&format!("<w:tbl>{}{}</w:tbl>", row("Gate"), row("Wheel"))), "1.\tGate\n2.\tWheel");
    let joined = format!(
        "<w:p><w:pPr><w:numPr><w:ilvl w:val='0'/><w:numId w:val='1'/></w:numPr><w:rPr><w:del w:id='1'/></w:rPr></w:pPr>\
         <w:r><w:t xml:space='preserve'>First </w:t></w:r></w:p>{}{}",
        item(1, 0, "and second."),
        item(1, 0, "Next")
    );
    assert_eq!(numbered(&joined), "1. First and second.\n\n2. Next");
}

#[test]
fn styles_and_symbol_fonts_of_runs_change_no_sign() {
    let symbol =
        "<w:p><w:r><w:rPr><w:rFonts w:ascii='Symbol'/></w:rPr><w:t>a</w:t><w:sym w:font='Symbol' w:char='F0B4'/></w:r></w:p>";
    assert_eq!(text(symbol), "α×");
    let styles = "<w:styles><w:style w:styleId='Hide'><w:rPr><w:vanish/></w:rPr></w:style>\
        <w:style w:styleId='Show'><w:basedOn w:val='Hide'/><w:rPr><w:vanish w:val='0'/></w:rPr></w:style>\
        <w:style w:styleId='Up'><w:rPr><w:vertAlign w:val='superscript'/></w:rPr></w:style>\
        <w:style w:styleId='Flat'><w:basedOn w:val='Up'/><w:rPr><w:vertAlign w:val='baseline'/></w:rPr></w:style></w:styles>";
    let body = [
        styled("<w:pStyle w:val='Hide'/>", "Top of Form"),
        runs(&[&run("10", ""), &run("6", "<w:rStyle w:val='Flat'/>"), &run(" shown", "<w:rStyle w:val='Show'/>")]),
    ];
    let document = format!("<w:document><w:body>{}</w:body></w:document>", body.concat());
    let read = read("a.docx", &docx_with(&document, &[("word/styles.xml", styles.as_bytes())])).unwrap();
    assert_eq!(read.text, "106 shown");
}

#[test]
fn terms_of_formulas_stand_apart() {
    let math = |name: &str, inner: &str| format!("<m:{name}>{inner}</m:{name}>");
    let term = |text: &str| math("e", &format!("<m:r><m:t>{text}</m:t></m:r>"));
    let row = |a: &str, b: &str| math("mr", &format!("{}{}", term(a), term(b)));
    for (formula, expected) in [
        (math("d", &math("e", &math("m", &format!("{}{}", row("1", "2"), row("3", "4"))))), "(1, 2; 3, 4)"),
        (math("d", &format!("<m:dPr><m:begChr m:val='{{'/><m:endChr m:val='}}'/></m:dPr>{}{}", term("3"), term("4"))), "{3|4}"),
        (math("eqArr", &format!("{}{}", term("x=12"), term("y=4"))), "x=12; y=4"),
        (math("nary", &format!("<m:naryPr/>{}", term("F"))), "\u{222B}F"),
        (math("nary", &format!("<m:naryPr><m:chr m:val='\u{2211}'/></m:naryPr>{}", term("F"))), "\u{2211}F"),
        (math("rad", &format!("{}{}", math("deg", "<m:r><m:t>3</m:t></m:r>"), term("27"))), "^3\u{221A}27"),
        (math("rad", &format!("<m:deg/>{}", term("2"))), "\u{221A}2"),
    ] {
        assert_eq!(text(&format!("<w:p><m:oMath>{formula}</m:oMath></w:p>")), expected);
    }
}
