//! A page: its glyphs with position and characters, and which of them a reader sees.
//!
//! ```text
//! content stream, form fields ──► hayro ──► PageReader (device) ──► glyphs, hidden glyphs, counts
//! ```
//! Invariants: 1. Nothing is rendered: images are not decoded. 2. A glyph without known characters is one mark.

use hayro_interpret::font::{Glyph as PdfGlyph, GlyphRun};
use hayro_interpret::hayro_cmap::WritingMode;
use hayro_interpret::hayro_syntax::object::{Dict, Stream, String as PdfString};
use hayro_interpret::kurbo::{Affine, BezPath, Point, Rect, Shape};
use hayro_interpret::{BlendMode, ClipPath, Device, DrawMode, DrawProps, Image, ImageDrawProps, Paint, SoftMask};

use super::fonts::Fonts;
use super::text_string::text_string;
use super::visibility::{Color, Hidden, Visibility};
use crate::document::extract::layout::{Glyph, UNKNOWN};

/// Largest number of glyphs of one page.
pub const MAX_PAGE_GLYPHS: usize = 400_000;
/// Smallest width of a line that can carry a letter, points.
const MIN_STROKE: f64 = 3.0;
/// Largest number of lines of one shape that are remembered.
const MAX_STROKES: usize = 64;
/// Glyph units per em.
const EM_UNITS: f64 = 1000.0;

/// A glyph of the page, and whether it is hidden.
pub struct Placed {
    pub glyph: Glyph,
    pub hidden: Option<Hidden>,
}

/// Device that collects the glyphs of a page and renders nothing.
pub struct PageReader<'f, 'a> {
    fonts: &'f mut Fonts<'a>,
    visibility: Visibility,
    pub glyphs: Vec<Placed>,
    /// true while the content of a form field is drawn
    pub floats: bool,
    /// text of the marked content that is open, and whether it was written; one for each level
    replaced: Vec<Option<(String, bool)>>,
    /// see [`is_stretched`], of the last run
    is_stretched: bool,
    /// first glyph of those that may be painted by what is drawn through them
    clipping: Option<usize>,
}

impl<'f, 'a> PageReader<'f, 'a> {
    pub fn new(fonts: &'f mut Fonts<'a>, page: Rect) -> Self {
        let visibility = Visibility::new(page);
        PageReader {
            fonts,
            visibility,
            glyphs: Vec::new(),
            floats: false,
            replaced: Vec::new(),
            is_stretched: false,
            clipping: None,
        }
    }

    /// Glyphs of the page and, if it is a scan, true.
    pub fn finish(mut self) -> (Vec<Placed>, bool) {
        for (n, placed) in self.glyphs.iter_mut().enumerate() {
            if placed.hidden.is_none() && !placed.glyph.floats && self.visibility.covers(middle(&placed.glyph), n) {
                placed.hidden = Some(Hidden::Unseen);
            }
        }
        (self.glyphs, self.visibility.is_scan())
    }

    fn take(&mut self, glyph: &PdfGlyph<'_>, at: Affine, run: Run) {
        let [a, b, c, d, x, y] = at.as_coeffs();
        let (axis, advance) = match run.mode {
            WritingMode::Horizontal => ([a, b], width(glyph)),
            // Downwards, one em per character.
            WritingMode::Vertical => ([-c, -d], EM_UNITS),
        };
        let length = axis[0].hypot(axis[1]);
        let scale = if run.is_stretched { c.hypot(d) } else { length };
        let size = c.hypot(d).max(scale) * EM_UNITS;
        let finite = [x, y, scale, size, advance].iter().all(|v| v.is_finite());
        if !finite || scale <= 0.0 || length <= 0.0 {
            return;
        }
        let direction = [axis[0] / length, axis[1] / length];
        let text = match self.replaced.iter_mut().rev().flatten().next() {
            Some((_, true)) => return self.widen([x, y], direction, advance * scale),
            Some((text, is_written)) => {
                *is_written = true;
                text.clone()
            }
            None => self.fonts.text(glyph).unwrap_or_else(|| UNKNOWN.to_string()),
        };
        if text.is_empty() && self.replaced.is_empty() {
            return;
        }
        let glyph = Glyph { text, origin: [x, y], direction, size, advance: advance * scale, floats: self.floats };
        let hidden = match () {
            () if self.visibility.hides(middle(&glyph), run.color.filter(|_| run.is_painted)) => Some(Hidden::Unseen),
            () if !run.is_painted => Some(Hidden::NotPainted),
            () => None,
        };
        self.glyphs.push(Placed { glyph, hidden });
    }
}

impl<'a> PageReader<'_, 'a> {
    /// Widens the last glyph, whose text stands for this one too.
    fn widen(&mut self, origin: [f64; 2], direction: [f64; 2], advance: f64) {
        let Some(last) = self.glyphs.last_mut().map(|placed| &mut placed.glyph) else { return };
        let moved = [origin[0] - last.origin[0], origin[1] - last.origin[1]];
        let across = moved[0] * direction[1] - moved[1] * direction[0];
        if across.abs() < last.size / 2.0 {
            last.advance = last.advance.max(moved[0] * direction[0] + moved[1] * direction[1] + advance);
        }
    }

    /// Places a text that is not drawn by the file.
    pub fn place(&mut self, text: &str, origin: [f64; 2], size: f64, width: f64) {
        let glyph = Glyph { text: text.to_owned(), origin, direction: [1.0, 0.0], size, advance: width, floats: true };
        if self.glyphs.len() < MAX_PAGE_GLYPHS {
            self.glyphs.push(Placed { glyph, hidden: None });
        }
    }

    /// Remembers the lines of a shape that are wide enough to carry a letter.
    fn stroke(&mut self, shape: &impl Shape, transform: Affine, mode: &DrawMode) {
        let (DrawMode::Stroke(props) | DrawMode::FillAndStroke(_, props)) = mode else { return };
        let half = f64::from(props.line_width) / 2.0 * transform.determinant().abs().sqrt();
        if half < MIN_STROKE / 2.0 {
            return;
        }
        for segment in shape.path_segments(0.1).take(MAX_STROKES) {
            let area = transform.transform_rect_bbox(segment.bounding_box()).inflate(half, half);
            self.visibility.paint(area, None, self.glyphs.len());
        }
    }

    /// Lists the fonts of a form that is drawn next.
    pub fn visit_form(&mut self, form: &Stream<'a>) {
        self.fonts.visit_form(form, 0);
    }

    /// Clips what is drawn next.
    pub fn push_clip(&mut self, clip: Rect) {
        self.visibility.push_clip(clip);
    }

    /// Ends a clip of [`PageReader::push_clip`].
    pub fn pop_clip(&mut self) {
        self.visibility.pop_clip();
    }
}

/// Properties of a glyph run.
#[derive(Clone, Copy)]
struct Run {
    mode: WritingMode,
    color: Color,
    is_painted: bool,
    /// see [`is_stretched`]
    is_stretched: bool,
}

/// Advance of a glyph, glyph units.
fn width(glyph: &PdfGlyph<'_>) -> f64 {
    let width = match glyph {
        PdfGlyph::Outline(g) => g.advance_width(),
        PdfGlyph::Type3(g) => g.advance_width(),
    };
    f64::from(width.unwrap_or(0.0))
}

/// True if glyphs are stretched to their width, as those of a font in place of another are; their advances are not. None if
/// the run does not show it.
fn is_stretched(run: &GlyphRun<'_, '_>) -> Option<bool> {
    let mut errors = [0.0, 0.0];
    let mut differs = false;
    for pair in run.glyphs().windows(2).take(64) {
        let [first, second] = pair else { continue };
        let [a, b, c, d, x, y] = first.transform().as_coeffs();
        let [.., x2, y2] = second.transform().as_coeffs();
        let step = (x2 - x).hypot(y2 - y);
        let (length, height) = (a.hypot(b), c.hypot(d));
        differs |= (length - height).abs() > 0.01 * height;
        errors[0] += (step - width(first) * length).abs();
        errors[1] += (step - width(first) * height).abs();
    }
    match (run.glyphs().len() > 1, differs) {
        (false, _) => None,
        (true, false) => Some(false),
        (true, true) => Some(errors[1] < errors[0]),
    }
}

/// A point inside of a letter.
fn middle(glyph: &Glyph) -> Point {
    let [dx, dy] = glyph.direction;
    // A quarter of an em above the baseline.
    let (along, up) = (glyph.advance / 2.0, glyph.size / 4.0);
    Point::new(glyph.origin[0] + dx * along - dy * up, glyph.origin[1] + dy * along + dx * up)
}

fn color(paint: &Paint<'_>) -> Color {
    match paint {
        Paint::Color(color) => Some(color.to_rgba().components()),
        Paint::Pattern(_) => None,
    }
}

impl<'a> Device<'a> for PageReader<'_, 'a> {
    fn draw_path(&mut self, path: &BezPath, props: DrawProps<'a>, mode: &DrawMode) {
        self.stroke(path, props.transform, mode);
        if matches!(mode, DrawMode::Fill(_) | DrawMode::FillAndStroke(..)) {
            // Its shape is not known, so a letter on it counts as seen.
            self.visibility.paint(props.transform.transform_rect_bbox(path.bounding_box()), None, self.glyphs.len());
        }
    }

    fn draw_rect(&mut self, rect: &Rect, props: DrawProps<'a>, mode: &DrawMode) {
        self.stroke(rect, props.transform, mode);
        if matches!(mode, DrawMode::Fill(_) | DrawMode::FillAndStroke(..)) {
            let is_flat = props.soft_mask.is_none() && props.blend_mode == BlendMode::Normal;
            let [_, b, c, ..] = props.transform.as_coeffs();
            let color = color(&props.paint).filter(|_| is_flat && b.abs() < 1e-6 && c.abs() < 1e-6);
            self.visibility.paint(props.transform.transform_rect_bbox(*rect), color, self.glyphs.len());
        }
    }

    fn push_clip_path(&mut self, clip: &ClipPath) {
        let clip = clip.path.bounding_box();
        // Letters that clip are painted by what is drawn inside of them.
        if let Some(first) = self.clipping.take() {
            let pending = self.glyphs.get_mut(first..).unwrap_or_default();
            for placed in pending.iter_mut().filter(|placed| placed.hidden == Some(Hidden::NotPainted)) {
                if clip.inflate(placed.glyph.size, placed.glyph.size).contains(middle(&placed.glyph)) {
                    placed.hidden = None;
                }
            }
        }
        self.visibility.push_clip(clip);
    }

    fn push_clip_rect(&mut self, rect: &Rect) {
        self.clipping = None;
        self.visibility.push_clip(*rect);
    }

    fn push_transparency_group(&mut self, opacity: f32, _: Option<SoftMask<'a>>, _: BlendMode) {
        self.visibility.push_group(opacity);
    }

    fn draw_glyph_run(&mut self, run: &GlyphRun<'_, 'a>, props: DrawProps<'a>, mode: &DrawMode) {
        let is_painted = !matches!(mode, DrawMode::Invisible);
        if is_painted {
            self.clipping = None;
        } else {
            self.clipping.get_or_insert(self.glyphs.len());
        }
        let mode = run.writing_mode();
        if let (WritingMode::Horizontal, Some(is_stretched)) = (mode, is_stretched(run)) {
            self.is_stretched = is_stretched;
        }
        let color = if is_painted { color(&props.paint) } else { None };
        let is_stretched = self.is_stretched && mode == WritingMode::Horizontal;
        for glyph in run.glyphs() {
            if self.glyphs.len() < MAX_PAGE_GLYPHS {
                self.take(glyph, props.transform * glyph.transform(), Run { mode, color, is_painted, is_stretched });
            }
        }
    }

    fn draw_image(&mut self, _: Image<'a, '_>, props: ImageDrawProps<'a>) {
        let unit = Rect::new(0.0, 0.0, 1.0, 1.0);
        self.visibility.picture(props.transform.transform_rect_bbox(unit), self.glyphs.len());
    }

    fn pop_clip(&mut self) {
        self.visibility.pop_clip();
    }

    fn pop_transparency_group(&mut self) {
        self.visibility.pop_group();
    }

    fn begin_marked_content(&mut self, _: &[u8], properties: Option<&Dict<'_>>) {
        let text = properties.and_then(|dict| dict.get::<PdfString<'_>>(b"ActualText"));
        self.replaced.push(text.map(|text| (text_string(text.as_bytes()), false)));
    }

    fn end_marked_content(&mut self) {
        self.replaced.pop();
    }
}
