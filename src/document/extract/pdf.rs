//! PDF to text, page by page.
//!
//! ```text
//! bytes ──► objects, decryption (hayro) ──► page ──► glyphs with position and character ──► lines ──► part
//! ```
//! Invariants: 1. Part i is page i + 1 of the file, even if empty. 2. A note reports pages that cannot be read; other pages
//! are unaffected. 3. Nothing is rendered: images are not decoded. Text under a scan (OCR) counts as text.
//! Limits: [`limits::MAX_DOCUMENT_PAGES`], [`MAX_PAGE_GLYPHS`]. Source: ISO 32000-2; characters by hayro-interpret.

use std::panic::{AssertUnwindSafe, catch_unwind};

use hayro_interpret::font::{Glyph as PdfGlyph, GlyphRun};
use hayro_interpret::hayro_cmap::{BfString, WritingMode};
use hayro_interpret::hayro_syntax::page::Page;
use hayro_interpret::hayro_syntax::{DecryptionError, LoadPdfError, Pdf};
use hayro_interpret::kurbo::{Affine, BezPath, Rect};
use hayro_interpret::{
    BlendMode, ClipPath, Context, Device, DrawMode, DrawProps, Image, ImageDrawProps, InterpreterCache, InterpreterSettings,
    SoftMask, interpret_page,
};

use super::extracted::{ExtractError, Extracted, Part, ReportProgress, TextLimit};
use super::glyph_layout::{Glyph, page_text};
use crate::base::limits;

/// Largest number of glyphs of one page.
const MAX_PAGE_GLYPHS: usize = 400_000;
/// Glyph units per em.
const EM_UNITS: f64 = 1000.0;
/// Largest share of glyphs without a character.
const MAX_UNMAPPED_SHARE: f64 = 0.5;

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
    let cache = InterpreterCache::new();
    let (mut parts, mut limit, mut totals) = (Vec::new(), TextLimit::default(), Totals::default());
    for (i, page) in pages.iter().enumerate() {
        progress(i, n_pages);
        let reader = catch_unwind(AssertUnwindSafe(|| read_page(page, &pdf, &cache)));
        let text = match reader {
            Ok(reader) => {
                totals.add(&reader);
                page_text(&reader.glyphs)
            }
            Err(_) => {
                totals.n_failed += 1;
                String::new()
            }
        };
        limit.add(&text)?;
        totals.n_empty += usize::from(text.is_empty());
        parts.push(Part { title: None, text });
    }
    if totals.n_unnamed as f64 > totals.n_glyphs as f64 * MAX_UNMAPPED_SHARE {
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

/// Counts over all pages.
#[derive(Default)]
struct Totals {
    n_glyphs: usize,
    n_unnamed: usize,
    n_empty: usize,
    n_failed: usize,
    n_truncated: usize,
}

impl Totals {
    fn add(&mut self, page: &PageReader) {
        self.n_glyphs += page.glyphs.len() + page.n_unnamed;
        self.n_unnamed += page.n_unnamed;
        self.n_truncated += usize::from(page.glyphs.len() >= MAX_PAGE_GLYPHS);
    }

    fn notes(&self, n_pages: usize) -> Vec<String> {
        let counted = [
            (self.n_empty - self.n_failed, "have no text: they are empty or images"),
            (self.n_failed, "could not be read: the file is corrupt there"),
            (self.n_truncated, "have more letters than the limit for one page"),
        ];
        let notes = counted.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} of {n_pages} pages {what}."));
        let unnamed = (self.n_unnamed > 0).then(|| {
            let share = self.n_unnamed as f64 / self.n_glyphs as f64 * 100.0;
            format!("{share:.1} % of the letters are missing: their fonts have no character codes.")
        });
        notes.chain(unnamed).collect()
    }
}

fn read_page<'a>(page: &Page<'a>, pdf: &'a Pdf, cache: &InterpreterCache<'a>) -> PageReader {
    let mut reader = PageReader::default();
    let nowhere = Rect::new(0.0, 0.0, 1.0, 1.0);
    let mut context = Context::new(Affine::IDENTITY, nowhere, cache, pdf.xref(), InterpreterSettings::default());
    interpret_page(page, &mut context, &mut reader);
    reader
}

/// Device that collects the glyphs of a page and renders nothing.
#[derive(Default)]
struct PageReader {
    glyphs: Vec<Glyph>,
    n_unnamed: usize,
}

impl PageReader {
    fn take(&mut self, glyph: &PdfGlyph<'_>, at: Affine, mode: WritingMode) {
        let [a, b, c, d, x, y] = at.as_coeffs();
        let width = match glyph {
            PdfGlyph::Outline(g) => g.advance_width(),
            PdfGlyph::Type3(g) => g.advance_width(),
        };
        let (axis, advance) = match mode {
            WritingMode::Horizontal => ([a, b], f64::from(width.unwrap_or(0.0))),
            // Downwards, one em per character.
            WritingMode::Vertical => ([-c, -d], EM_UNITS),
        };
        let scale = axis[0].hypot(axis[1]);
        let size = c.hypot(d).max(scale) * EM_UNITS;
        let finite = [x, y, scale, size, advance].iter().all(|v| v.is_finite());
        if !finite || scale <= 0.0 {
            return;
        }
        match glyph.as_unicode() {
            Some(letters) => {
                let text = match letters {
                    BfString::Char(c) => c.to_string(),
                    BfString::String(s) => s,
                };
                let direction = [axis[0] / scale, axis[1] / scale];
                self.glyphs.push(Glyph { text, origin: [x, y], direction, size, advance: advance * scale });
            }
            None => self.n_unnamed += 1,
        }
    }
}

impl Device<'_> for PageReader {
    fn draw_path(&mut self, _: &BezPath, _: DrawProps<'_>, _: &DrawMode) {}

    fn push_clip_path(&mut self, _: &ClipPath) {}

    fn push_transparency_group(&mut self, _: f32, _: Option<SoftMask<'_>>, _: BlendMode) {}

    fn draw_glyph_run(&mut self, run: &GlyphRun<'_, '_>, props: DrawProps<'_>, _: &DrawMode) {
        for glyph in run.glyphs() {
            if self.glyphs.len() < MAX_PAGE_GLYPHS {
                self.take(glyph, props.transform * glyph.transform(), run.writing_mode());
            }
        }
    }

    fn draw_image(&mut self, _: Image<'_, '_>, _: ImageDrawProps<'_>) {}

    fn pop_clip(&mut self) {}

    fn pop_transparency_group(&mut self) {}
}
