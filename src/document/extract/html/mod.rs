//! HTML to text: the main content of a page, or all of it if it has no main content.
//!
//! ```text
//! bytes ──► MHTML? its page ──► encoding ──► DOM (html5ever, or XML) ──► main content? ──► layout ──► text
//! ```
//! Invariants: 1. A page is read whole if its main content would lose most of its prose. 2. No recursion: nesting costs
//! memory, not stack. 3. Words that are left out are counted in a notice.

mod inline;
mod layout;
#[cfg(test)]
mod layout_tests;
mod lists;
mod main_content;
mod mhtml;
mod spacing;
mod style_sheet;
mod visibility;
mod xhtml;

use dom_query::Document as Dom;

use super::extracted::{ExtractError, Extracted, Part, TextLimit, one_notice};
use crate::document::encoding::{self, Decoded};

use inline::n_words;
use layout::text_and_hidden_words;
pub use layout::text_of;

pub fn extract(bytes: &[u8]) -> Result<Extracted, ExtractError> {
    let pages = match mhtml::pages(bytes) {
        Some(pages) if pages.is_empty() => return Err(ExtractError::corrupt("it is a saved page without a page in it")),
        Some(pages) => pages,
        None => vec![decoded(bytes)?],
    };
    let (mut text, mut notices) = (String::new(), Vec::new());
    for page in pages {
        let Content { text: content, n_left_out, n_hidden_words } = page_text(&dom_of(&page.text));
        notices.extend(page.notice().filter(|_| page.is_guess || page.n_bad_bytes > 0 || page.n_controls > 0));
        notices.extend((n_left_out > 0).then(|| left_out(n_left_out)));
        notices.extend((n_hidden_words > 0).then(|| hidden(n_hidden_words)));
        text = content;
        // The first page may be a frame around the others.
        if !text.is_empty() {
            break;
        }
    }
    TextLimit::default().add(&text)?;
    Ok(Extracted { parts: vec![Part { title: None, text }], is_paged: false, notes: one_notice(notices) })
}

/// All text of a page, for one that is a part of another file.
///
/// # Errors
/// It is no text.
pub fn whole_text(bytes: &[u8]) -> Result<String, ExtractError> {
    match mhtml::pages(bytes).and_then(|pages| pages.into_iter().next()) {
        Some(page) => Ok(text_of(&dom_of(&page.text))),
        None => Ok(text_of(&dom_of(&decoded(bytes)?.text))),
    }
}

/// Document of a chapter of a book: by the rules of XML, or else by those of HTML.
pub fn chapter_dom(text: &str) -> Dom {
    xhtml::dom(text).unwrap_or_else(|| Dom::from(&*xhtml::as_html(text)))
}

fn decoded(bytes: &[u8]) -> Result<Decoded, ExtractError> {
    encoding::decode(bytes, true).map_err(|what| ExtractError::corrupt(format!("it is {what}")))
}

/// A page that declares to be XML is read as such, if it is.
fn dom_of(text: &str) -> Dom {
    match text.trim_start().starts_with("<?xml") {
        true => chapter_dom(text),
        // Pages of this namespace are often made for the rules of HTML.
        false if xhtml::has_namespace(text) => xhtml::dom(text).unwrap_or_else(|| Dom::from(text)),
        false => Dom::from(text),
    }
}

/// Content of a page.
struct Content {
    /// main content under its title, or the whole page
    text: String,
    /// words outside of the main content
    n_left_out: usize,
    n_hidden_words: usize,
}

fn page_text(dom: &Dom) -> Content {
    let (whole, n_hidden_words) = text_and_hidden_words(dom);
    let Some(main) = main_content::of(dom, &whole) else { return Content { text: whole, n_left_out: 0, n_hidden_words } };
    let n_left_out = n_words(&whole).saturating_sub(n_words(&main));
    Content { text: main, n_left_out, n_hidden_words }
}

/// "1,240 words"
fn words(n_words: usize) -> String {
    let digits = n_words.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    format!("{} {}", groups.join(","), if n_words == 1 { "word" } else { "words" })
}

/// Notice of words outside of the main content.
fn left_out(n_words: usize) -> String {
    format!(
        "{} of menus and side matter left out. To read them too, select all in the browser, paste it into a text file and open \
         that.",
        words(n_words)
    )
}

/// Notice of words that the page hides.
fn hidden(n_words: usize) -> String {
    format!(
        "{} that the page hides left out. To read them too, show them in the browser and save the page again.",
        words(n_words)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_page_gives_its_article_only() {
        let prose = "The harbour was built in stone, and the keeper of the lamp, who had walked there, wrote it down. ".repeat(8);
        let paragraphs = format!("<p>{prose}</p>").repeat(6);
        let html = format!(
            "<html><head><title>The harbour</title></head><body><nav><a href=/>Home</a> <a href=/buy>Subscribe now</a></nav>\
             <div class=content><article>{paragraphs}</article></div><footer>All rights reserved</footer></body></html>"
        );
        let Content { text, n_left_out, n_hidden_words } = page_text(&Dom::from(html));
        assert!(text.starts_with("The harbour\n\nThe harbour was built"), "{}", text.get(..80).unwrap());
        assert!(!text.contains("Subscribe") && !text.contains("rights"));
        assert_eq!((n_left_out, n_hidden_words), (4, 0), "two words of the title take the place of two of six");
        assert!(left_out(1240).starts_with("1,240 words of menus"), "{}", left_out(1240));
    }

    #[test]
    fn hidden_words_are_counted() {
        let html = "<style>.x { display: none }</style><p>Shown.<p hidden>Two words<script>a b</script></p><div class=x>and - <b>three more</b></div>";
        let content = page_text(&Dom::from(html));
        assert_eq!((content.text.as_str(), content.n_hidden_words), ("Shown.", 5));
        assert!(hidden(5).starts_with("5 words that the page hides left out."), "{}", hidden(5));
    }
}
