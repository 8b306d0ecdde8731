//! Layout tests: text of small pages.

use dom_query::Document as Dom;

use super::layout::text_of;

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
        ("It costs <del>19</del><ins>12</ins> guilders, <s>30</s>25.", "It costs 19 12 guilders, 30 25."),
        ("He said <q>no</q>.", "He said \u{201C}no\u{201D}."),
        ("<h1>C H A P T E R &nbsp; O N E</h1><p>A B C D</p>", "CHAPTER ONE\n\nA B C D"),
    ] {
        assert_eq!(text(html), expected, "{html}");
    }
}

#[test]
fn formulas_and_raised_text_keep_their_structure() {
    for (html, expected) in [
        ("10<sup>10<sup>100</sup></sup>, 2<sup><var>n</var></sup>, 3<sup><code>6</code></sup>", "10^(10^100), 2^n, 3^6"),
        ("10<sup><span style='vertical-align:super !important'>6</span></sup> sacks", "10^6 sacks"),
        (
            "by hand<sup>as the clerk of the parish of the mill has it</sup> in May",
            "by hand (as the clerk of the parish of the mill has it) in May",
        ),
        ("<msup><mi>x</mi><mfrac><mn>1</mn><mn>2</mn></mfrac></msup>", "x^(1/2)"),
        ("<mfrac><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow><mrow><mn>2</mn><mi>c</mi></mrow></mfrac>", "(a+b)/(2c)"),
        ("<mroot><mn>27</mn><mn>3</mn></mroot> <msqrt><mi>a</mi><mo>+</mo><mi>b</mi></msqrt>", "(3)\u{221A}27 \u{221A}(a+b)"),
        ("<mtable><mtr><mtd>1</mtd><mtd>2</mtd></mtr><mtr><mtd>3</mtd><mtd>4</mtd></mtr></mtable>", "[1, 2; 3, 4]"),
    ] {
        let html = if html.starts_with("<m") { format!("<math>{html}</math>") } else { html.to_owned() };
        assert_eq!(text(&html), expected, "{html}");
    }
}

#[test]
fn preformatted_text_is_that_which_a_reader_sees() {
    let html =
        "<pre>one<br>two <b hidden>no</b>10<sup>6</sup>\n   three</pre><pre><ol><li>int a;</li>\n<li>int b;</li></ol></pre>";
    assert_eq!(text(html), "one\ntwo 10^6\n   three\n\n1. int a;\n2. int b;");
}

#[test]
fn marks_of_empty_items_stay_with_them() {
    assert_eq!(text("<ul><li><img></ul><p>Shut.</p><ol><li>One<li></ol>After."), "Shut.\n\n1. One\n\nAfter.");
    let nested = "<ol><li><ol type=a><li>Tallow.<li>No oil.</ol><li><ol><li></ol><li>Sweep.</ol>";
    assert_eq!(text(nested), "1. a. Tallow.\n  b. No oil.\n3. Sweep.");
}

#[test]
fn merged_cells_of_tables_end_with_their_group() {
    let html = "<table><tbody><tr><td rowspan=0>A<td>1<tr><td>2</tbody><tbody><tr><td>B<td>3</tbody></table>";
    assert_eq!(text(html), "A\t1\n\t2\nB\t3");
}

#[test]
fn shadow_trees_show_their_slots() {
    let html = "<my-note><template shadowmode=open><style>p{}</style><p>In. <slot name=x>none</slot></p><slot></slot>\
        <slot name=y>else</slot></template><b slot=x>X</b><p>Light <slot>inner</slot></p></my-note><template>no</template>end";
    assert_eq!(text(html), "In. X\n\nLight inner\n\nelseend");
}

#[test]
fn style_sheets_of_the_page_hide_raise_and_separate() {
    let html = "<style>.gone{display:none} #x{visibility:hidden} .up{vertical-align:super} .roman{list-style-type:upper-roman}</style>\
        <p class=gone>no</p><p>10<span class=up>6</span> <b style='display:block'>One</b><b style='display: block'>Two</b></p>\
        <div id=x>no</div><ol class=roman><li>a</ol><p>Its energy is <span><span style='display:none'><math><mi>E</mi></math></span><img></span>.</p>";
    assert_eq!(text(html), "10^6\nOne\nTwo\n\nI. a\n\nIts energy is E.");
}

#[test]
fn panels_that_something_on_the_page_opens_are_read() {
    let html = "<style>.panel{display:none}</style><button class=accordion>Can it be seen?</button><div class=panel>No.</div>\
        <h3 onclick=\"toggle('a1')\">When?</h3><div id=a1 style='display:none'>In May.</div><a href='#a2'>Who?</a><div id=a2 hidden>Eve.</div>\
        <div role=button aria-expanded=false>Where?</div><div style='display:none'>Here.</div><button>Send</button>";
    assert_eq!(text(html), "Can it be seen?\n\nNo.\n\nWhen?\n\nIn May.\n\nWho?\n\nEve.\n\nWhere?\n\nHere.");
}
