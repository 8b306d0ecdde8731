//! Web pages: the text a reader sees, in its shape, and a count of what is left out.

use crate::make_files::read;

fn text(html: &str) -> String {
    read("a.html", html.as_bytes()).unwrap_or_else(|error| panic!("{error}")).text
}

/// A page of prose with `extra` in its middle, between navigation and footer.
fn page(extra: &str) -> String {
    let prose = "The upper mill stands where the brook leaves the forest, and for two hundred years it has belonged to one family, \
                 which is rare in this valley, where floods, debts and quarrels have moved most houses from hand to hand.";
    format!(
        "<!doctype html><html><head><meta charset=utf-8><title>The mill</title></head><body><header><nav><ul><li><a href=/a>Home</a>\
         <li><a href=/b>Brooks</a></ul></nav></header><div id=menu><a href=/c>All mills</a></div><main><h1>The mill</h1><p>{prose}</p>\
         <p>First, {prose}</p>{extra}<p>Then, {prose}</p><p>At last, {prose}</p></main><footer>Legal notice</footer></body></html>"
    )
}

#[test]
fn main_text_keeps_tables_lists_terms_and_answers() {
    for (extra, expected) in [
        (
            "<div class='table-wrapper extra'><table><tr><th>Day<th>From<th>To<tr><td>Friday<td><td>18</table></div>",
            "Friday\t\t18",
        ),
        ("<ul class=supplies><li><a href=/1>Rope</a><li><a href=/2>Lamp</a></ul>", "- Rope\n- Lamp"),
        ("<ol start=7><li>Close the gate<li>Grease the axle</ol>", "7. Close the gate\n8. Grease the axle"),
        ("<div class=extra><dl><dt>Depth<dd>1.4 m</dl></div>", "Depth\n1.4 m"),
        (
            "<section class=faq><h2>Questions</h2><details><summary>Dogs?</summary><p>On a lead.</details></section>",
            "Questions\n\nDogs?\n\nOn a lead.",
        ),
        (
            "<h3><button aria-expanded=false aria-controls=x>Parking?</button></h3><div id=x hidden><p>Behind the barn.</div>",
            "Parking?\n\nBehind the barn.",
        ),
        (
            "<my-note><template shadowrootmode=open><p>Closed in 1911.</p><slot></slot></template>By whom?</my-note>",
            "Closed in 1911.\n\nBy whom?",
        ),
        ("<p class=extra>Aside, a note.</p>", "Aside, a note."),
    ] {
        let document = read("a.html", page(extra).as_bytes()).unwrap();
        assert!(document.text.contains(expected), "{expected}\nis not in\n{}", document.text);
        for out in ["Home", "Brooks", "All mills", "Legal"] {
            assert!(!document.text.contains(out), "{out}");
        }
        assert!(document.notes[0].contains("words of menus and side matter left out"), "{:?}", document.notes);
    }
}

#[test]
fn answers_beside_the_main_text_are_kept() {
    let html = page("")
        .replace("</main>", "</main><div class=more><h2>Fees</h2><table><tr><th>Who<th>Fee<tr><td>Adults<td>4.20</table></div>");
    let text = text(&html);
    assert!(text.ends_with("Fees\n\nWho\tFee\nAdults\t4.20"), "{text}");
}

#[test]
fn xhtml_pages_are_read_by_the_rules_of_xml() {
    let html = "<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'><head><title/></head><body><p>One<a id='x'/> two.</p></body></html>";
    assert_eq!(text(html), "One two.");
    assert_eq!(text(html.trim_start_matches("<?xml version='1.0'?>")), "One two.", "the namespace declares it too");
}

#[test]
fn wide_tables_name_each_cell() {
    let names: String = (0..10).map(|i| format!("<th>c{i}")).collect();
    let cells: String = (0..10).map(|i| format!("<td>{}", if i == 4 { String::new() } else { (i * 7).to_string() })).collect();
    let text = text(&format!("<table><thead><tr>{names}</thead><tr>{cells}</table>"));
    assert_eq!(text.lines().nth(1).unwrap(), "c0: 0\tc1: 7\tc2: 14\tc3: 21\t\tc5: 35\tc6: 42\tc7: 49\tc8: 56\tc9: 63");
}

/// A page that a browser saved whole, in this encoding of its bytes.
fn saved(content_type: &str, transfer: &str, body: &str) -> Vec<u8> {
    format!(
        "From: <Saved by a browser>\r\nSubject: x\r\nMIME-Version: 1.0\r\nContent-Type: multipart/related;\r\n\ttype=\"text/html\";\r\n\t\
         boundary=\"--b--\"\r\n\r\n\r\n----b--\r\nContent-Type: {content_type}\r\nContent-Transfer-Encoding: {transfer}\r\n\
         Content-Location: http://a.invalid/\r\n\r\n{body}\r\n----b--\r\nContent-Type: image/gif\r\nContent-Transfer-Encoding: base64\r\n\r\n\
         R0lGODlhAQABAAAAACw=\r\n----b----\r\n"
    )
    .into_bytes()
}

#[test]
fn saved_pages_are_read_as_pages() {
    for (name, content_type, transfer, body) in [
        ("a.mhtml", "text/html", "quoted-printable", "<p>It cost =E2=80=94 of oak=\r\n and stone.</p>"),
        ("a.mht", "text/html; charset=windows-1252", "quoted-printable", "<p>It cost =97 of oak and stone.</p>"),
        ("a.mhtml", "text/html; charset=utf-8", "base64", "PHA+SXQgY29zdCDigJQgb2Ygb2FrIGFuZA0KIHN0b25lLjwvcD4="),
        ("a.html", "text/html", "8bit", "<p>It cost \u{2014} of oak and stone.</p>"),
    ] {
        let document = read(name, &saved(content_type, transfer, body)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(document.text, "It cost \u{2014} of oak and stone.", "{transfer}");
    }
}

#[test]
fn saved_pages_begin_with_the_part_that_they_name() {
    let part = |id: &str, body: &str| format!("--b\r\nContent-Type: text/html\r\nContent-ID: <{id}>\r\n\r\n{body}\r\n");
    let message = format!(
        "MIME-Version: 1.0\r\nContent-Type: multipart/related; boundary=\"b\"; start=\"<root>\"\r\n\r\n{}{}--b--\r\n",
        part("ad", "<p>Buy now.</p>"),
        part("root", "<p>It was built of oak.</p>")
    );
    assert_eq!(read("a.mht", message.as_bytes()).unwrap_or_else(|error| panic!("{error}")).text, "It was built of oak.");
}

#[test]
fn long_cells_and_names_that_only_sound_like_side_matter_are_kept() {
    let long = "<p>The gate is to be shut at dusk, and whoever shuts it hangs the key on the nail beside the door.</p>".repeat(5);
    let table = format!(
        "<table><tr><th>No<th>Rule<th>Who<tr><td>R1<td>Short.<td>Anna<tr><td>R2<td>{long}<td>Jo<tr><td>R3<td>Last.<td>Eve</table>"
    );
    let text = text(&format!("<title>Rules</title><h1>Rules</h1>{table}"));
    assert!(text.contains("R1\tShort.\tAnna\nR2\tThe gate") && text.ends_with("\tJo\nR3\tLast.\tEve"), "{text}");
    let page = page(
        "<section id=social-security><p>The widow receives nine guilders.</section><section class=commentary><p>The clerk remarks.</section>",
    );
    let text = read("a.html", page.as_bytes()).unwrap().text;
    assert!(text.contains("nine guilders") && text.contains("The clerk remarks"), "{text}");
}

#[test]
fn articles_side_by_side_are_one_text() {
    let parts = "<article><h2>First</h2><p>Short one.</p></article>";
    let page = page("").replace("<main>", &format!("<main>{parts}<article>")).replace("</main>", "</article></main>");
    let text = text(&page);
    assert!(text.contains("First\n\nShort one.") && !text.contains("Brooks"), "{text}");
}
