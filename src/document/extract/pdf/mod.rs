//! PDF to text, page by page.
//!
//! ```text
//! bytes ──► objects, decryption (hayro) ──► page ──► glyphs with position and character ──► lines ──► part
//!                        └──► bookmarks ──► titles      └──► comments, form values
//! ```
//! Invariants: 1. Part i is page i + 1 of the file, even if empty. 2. A note reports pages that cannot be read; other pages
//! are unaffected. 3. Invisible text is left out and counted, unless it is all that the page has, or recognized text of
//! a scan. Limits: [`limits::MAX_DOCUMENT_PAGES`], [`page::MAX_PAGE_GLYPHS`]. Source: ISO 32000-2; characters by
//! hayro-interpret.

mod annotations;
mod bookmarks;
mod font_letters;
mod fonts;
mod page;
mod symbols;
mod text_string;
mod to_unicode;
mod totals;
mod visibility;

use std::panic::{AssertUnwindSafe, catch_unwind};

use hayro_interpret::hayro_syntax::page::Page;
use hayro_interpret::hayro_syntax::{DecryptionError, LoadPdfError, Pdf};
use hayro_interpret::kurbo::{Affine, Rect};
use hayro_interpret::{Context, InterpreterCache, InterpreterSettings, RenderContent, interpret_page};

use super::extracted::{ExtractError, Extracted, Part, ReportProgress, TextLimit};
use super::layout::{Glyph, UNKNOWN, page_text};
use crate::base::limits;
use fonts::Fonts;
use page::{MAX_PAGE_GLYPHS, PageReader};
use totals::Totals;
use visibility::Hidden;

/// Largest share of a page's glyphs without a character.
const MAX_UNKNOWN_SHARE: f64 = 0.5;

pub fn extract(bytes: &[u8], progress: ReportProgress<'_>) -> Result<Extracted, ExtractError> {
    let pdf = Pdf::new(bytes.to_vec()).map_err(load_error)?;
    let pages = pdf.pages();
    let n_pages = pages.len();
    if n_pages == 0 {
        return Err(ExtractError::corrupt("it has no readable page"));
    }
    if n_pages > limits::MAX_DOCUMENT_PAGES {
        let what = format!("it has {n_pages} pages, but at most {} are supported", limits::MAX_DOCUMENT_PAGES);
        return Err(ExtractError::TooLarge { what });
    }
    let (cache, mut fonts) = (InterpreterCache::new(), Fonts::default());
    let mut titles = catch_unwind(AssertUnwindSafe(|| bookmarks::titles(&pdf))).unwrap_or_default();
    let (mut parts, mut limit, mut totals) = (Vec::new(), TextLimit::default(), Totals::default());
    for (i, page) in pages.iter().enumerate() {
        progress(i, n_pages);
        let text = catch_unwind(AssertUnwindSafe(|| read_page(page, &pdf, &cache, &mut fonts, &mut totals)));
        totals.n_failed += usize::from(text.is_err());
        let text = text.unwrap_or_default();
        limit.add(&text)?;
        totals.n_empty += usize::from(text.is_empty());
        parts.push(Part { title: titles.remove(&i), text });
    }
    if totals.n_unreadable > 0 && totals.n_empty == n_pages {
        return Err(ExtractError::NoLetters);
    }
    Ok(Extracted { parts, is_paged: true, notes: totals.notes(n_pages) })
}

fn load_error(error: LoadPdfError) -> ExtractError {
    match error {
        LoadPdfError::Decryption(DecryptionError::PasswordProtected) => ExtractError::Protected { how: "by a password".into() },
        LoadPdfError::Decryption(_) => ExtractError::Protected { how: "by an unsupported encryption".into() },
        LoadPdfError::Invalid => ExtractError::corrupt("it is not a valid PDF"),
    }
}

/// Text of a page, and of the comments on it.
fn read_page<'a>(
    page: &Page<'a>,
    pdf: &'a Pdf,
    cache: &InterpreterCache<'a>,
    fonts: &mut Fonts<'a>,
    totals: &mut Totals,
) -> String {
    let edges = edges(page);
    fonts.visit(page.resources(), 0);
    let mut reader = PageReader::new(fonts, edges);
    let settings = InterpreterSettings { render_content: RenderContent::PAGE, ..InterpreterSettings::default() };
    let mut context = Context::new(Affine::IDENTITY, edges, cache, pdf.xref(), settings);
    interpret_page(page, &mut context, &mut reader);
    let notes = annotations::draw(page, pdf.xref(), cache, &mut reader, edges);
    let (placed, is_scan) = reader.finish();
    totals.n_truncated += usize::from(placed.len() >= MAX_PAGE_GLYPHS);
    let (mut seen, mut unpainted, mut unseen) = (Vec::new(), Vec::new(), Vec::new());
    for placed in placed {
        match placed.hidden {
            None => seen.push(placed.glyph),
            Some(Hidden::NotPainted) if is_scan => {
                unpainted.push(placed.glyph.clone());
                seen.push(placed.glyph);
            }
            Some(Hidden::NotPainted) => unpainted.push(placed.glyph),
            Some(Hidden::Unseen) => unseen.push(placed.glyph),
        }
    }
    let has_text = |glyphs: &[Glyph]| glyphs.iter().any(|glyph| !glyph.text.trim().is_empty());
    if is_scan && has_text(&unpainted) {
        totals.n_recognized += 1;
    } else if !has_text(&seen) && has_text(&unpainted) {
        seen = unpainted;
        totals.n_hidden_pages += 1;
    } else if !has_text(&seen) && has_text(&unseen) {
        seen = std::mem::take(&mut unseen);
        totals.n_hidden_pages += 1;
    } else {
        totals.n_hidden_words += n_words(unpainted);
    }
    totals.n_hidden_words += n_words(unseen);
    let n_unknown = seen.iter().filter(|glyph| glyph.text.contains(UNKNOWN)).count();
    totals.n_glyphs += seen.len();
    totals.n_unknown += n_unknown;
    let is_unreadable = n_unknown as f64 > seen.len() as f64 * MAX_UNKNOWN_SHARE;
    totals.n_unreadable += usize::from(is_unreadable);
    let body = if is_unreadable { String::new() } else { page_text(seen) };
    let is_new = |note: &String| note.strip_prefix("[Note: ").is_none_or(|note| !body.contains(note.trim_end_matches(']')));
    let notes: Vec<String> = notes.into_iter().filter(is_new).collect();
    [body].into_iter().chain(notes).filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// The part of the page that is shown.
fn edges(page: &Page<'_>) -> Rect {
    let shown = page.intersected_crop_box();
    let shown = Rect::new(shown.x0, shown.y0, shown.x1, shown.y1).abs();
    let whole = page.media_box();
    let whole = Rect::new(whole.x0, whole.y0, whole.x1, whole.y1).abs();
    let has_area = |rect: &Rect| rect.is_finite() && rect.area() > 1.0;
    // A page without a size shows everything.
    [shown, whole].into_iter().find(has_area).unwrap_or(Rect::new(-1e6, -1e6, 1e6, 1e6))
}

fn n_words(glyphs: Vec<Glyph>) -> usize {
    if glyphs.is_empty() { 0 } else { page_text(glyphs).split_whitespace().count() }
}
