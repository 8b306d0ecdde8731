//! Books: chapters by the rules of XML, found however the package writes their addresses.

use crate::make_files::{epub, read, zip};

fn chapter(head: &str, body: &str) -> String {
    format!(
        "<?xml version='1.0'?><!DOCTYPE html><html xmlns='http://www.w3.org/1999/xhtml'><head>{head}</head><body>{body}</body></html>"
    )
}

fn text(chapter: &str) -> String {
    read("a.epub", &epub(&[("one.xhtml", chapter)], &[])).unwrap_or_else(|error| panic!("{error}")).text
}

#[test]
fn empty_elements_of_xhtml_do_not_swallow_what_follows() {
    let names = [
        "title", "script", "style", "textarea", "iframe", "object", "audio", "video", "canvas", "noscript", "select", "a", "b",
        "p", "xmp",
    ];
    for name in names {
        let text = text(&chapter(&format!("<{name}/>"), &format!("<p>Before.</p><{name} class='x'/><p>After.</p>")));
        assert_eq!(text, "Before.\n\nAfter.", "{name}");
    }
}

#[test]
fn chapters_that_are_almost_xml_keep_their_text_too() {
    let broken = chapter("<title/>", "<p>One <b>two</p><script src='x'/><p>Three<br>four <![CDATA[5 < 6]]></p>");
    assert_eq!(text(&broken), "One two\n\nThree\nfour 5 < 6");
}

#[test]
fn literal_sections_entities_and_prefixes_are_read() {
    let body = "<p>It was <![CDATA[water < 3 feet & rising]]>.</p><p>caf&eacute;&nbsp;&#8212; &amp; more</p>";
    assert_eq!(text(&chapter("", body)), "It was water < 3 feet & rising.\n\ncafé — & more");
    let prefixed =
        "<h:html xmlns:h='http://www.w3.org/1999/xhtml'><h:body><h:h1>Head</h:h1><h:p>One<h:br/>two</h:p></h:body></h:html>";
    assert_eq!(text(prefixed), "Head\n\nOne\ntwo");
    let own = "<!DOCTYPE html [<!ENTITY mill 'Oberm&#252;hle'>]><html><body><p>The &mill;.</p></body></html>";
    assert_eq!(text(own), "The Obermühle.");
}

#[test]
fn chapters_in_utf_16_are_read() {
    let html = "<?xml version='1.0' encoding='utf-16'?><html><body><p>Grüße.</p></body></html>";
    let bytes: Vec<u8> = "\u{FEFF}".encode_utf16().chain(html.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    assert_eq!(read("a.epub", &book(&[("OPS/one.xhtml", &bytes)], &["one.xhtml"])).unwrap().text, "Grüße.");
}

/// A book with these files, whose package has these addresses.
fn book(files: &[(&str, &[u8])], addresses: &[&str]) -> Vec<u8> {
    let items: String = addresses
        .iter()
        .enumerate()
        .map(|(i, a)| format!("<item id='c{i}' href='{a}' media-type='application/xhtml+xml'/>"))
        .collect();
    let refs: String = (0..addresses.len()).map(|i| format!("<itemref idref='c{i}'/>")).collect();
    let package = format!("<package><manifest>{items}</manifest><spine>{refs}</spine></package>");
    let container = b"<container><rootfiles><rootfile full-path='OPS/book.opf'/></rootfiles></container>".as_slice();
    let mut all = vec![
        ("mimetype", b"application/epub+zip".as_slice()),
        ("META-INF/container.xml", container),
        ("OPS/book.opf", package.as_bytes()),
    ];
    all.extend_from_slice(files);
    zip(&all)
}

#[test]
fn chapters_are_found_however_their_address_is_written() {
    for (name, address) in [
        ("OPS/text/one.xhtml", "text/one.xhtml#start"),
        ("OPS/text/one.xhtml", "./Text/../TEXT/One.XHTML"),
        ("OPS/text/one.xhtml", "text\\one.xhtml"),
        ("OPS/text/one.xhtml", "/OPS/text/one.xhtml"),
        ("OPS/text/one%201.xhtml", "text/one%201.xhtml"),
        ("OPS/text/one 1.xhtml", "text/one%201.xhtml"),
        ("OPS/text/one+1.xhtml", "text/one+1.xhtml"),
        ("OPS/text/Kapitel_\u{E4}.xhtml", "text/Kapitel_a\u{308}.xhtml"),
        ("OPS/text/Kapitel_a\u{308}.xhtml", "text/Kapitel_%C3%A4.xhtml"),
        ("OPS\\text\\one.xhtml", "text/one.xhtml"),
        ("OPS/text/one.xhtml", "text//one.xhtml?x=1"),
        ("OPS/text/one.xhtml", "/text/one.xhtml"),
        ("OPS/text/M\u{FC}hle.xhtml", "text/M%FChle.xhtml"),
    ] {
        let document =
            read("a.epub", &book(&[(name, b"<p>Words.</p>")], &[address])).unwrap_or_else(|error| panic!("{address}: {error}"));
        assert_eq!((document.text.as_str(), document.notes.len()), ("Words.", 0), "{address}");
    }
}

#[test]
fn titles_of_an_older_table_of_contents_have_their_entities() {
    let ncx = "<?xml version='1.0'?><ncx><navMap><navPoint><navLabel><text>Gates &amp; weirs, caf&#233;s</text></navLabel>\
               <content src='one.xhtml#a'/></navPoint></navMap></ncx>";
    let package = "<package><manifest><item id='c' href='one.xhtml' media-type='application/xhtml+xml'/><item id='n' href='toc.ncx'/></manifest>\
                   <spine toc='n'><itemref idref='c'/></spine></package>";
    let container = b"<container><rootfile full-path='book.opf'/></container>".as_slice();
    let files = [
        ("META-INF/container.xml", container),
        ("book.opf", package.as_bytes()),
        ("toc.ncx", ncx.as_bytes()),
        ("one.xhtml", b"<p>Words.</p>"),
    ];
    let document = read("a.epub", &zip(&files)).unwrap();
    assert_eq!(document.sections[0].title, "Gates & weirs, cafés");
}

#[test]
fn raised_numbers_and_readings_of_a_book_stand_apart() {
    let body = "<p>10<sup>6</sup> barrels in 1848<a epub:type='noteref' href='n.xhtml#n1'>3</a>, <ruby>水<rt>すい</rt>車<rt>しゃ</rt></ruby>を</p>";
    assert_eq!(text(&chapter("", body)), "10^6 barrels in 1848[3], 水車（すいしゃ）を");
}

#[test]
fn chapters_that_the_package_lacks_are_counted() {
    let package = "<package><manifest><item id='c' href='one.xhtml' media-type='application/xhtml+xml'/></manifest>\
                   <spine><itemref idref='c'/><itemref idref='gone'/></spine></package>";
    let container = b"<container><rootfile full-path='book.pdf' media-type='application/pdf'/>\
                      <rootfile full-path='b.opf' media-type='application/oebps-package+xml'/></container>"
        .as_slice();
    let files = [
        ("META-INF/container.xml", container),
        ("book.pdf", b"%PDF-1.4".as_slice()),
        ("b.opf", package.as_bytes()),
        ("one.xhtml", b"<p>Words.</p>"),
    ];
    let document = read("a.epub", &zip(&files)).unwrap();
    assert_eq!(document.text, "Words.");
    assert!(document.notes[0].contains("1 of 2 chapters are missing"), "{:?}", document.notes);
}
