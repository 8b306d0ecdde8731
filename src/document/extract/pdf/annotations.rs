//! Annotations: what form fields, comments and stamps say on a page.
//!
//! ```text
//! annotation ──► appearance stream, drawn ──► glyphs;  no text in it ──► value of the field, placed in its box
//!            └──► a comment ──► note under the page
//! ```
//! Source: ISO 32000-2, 12.5.5 (appearance streams), 12.7.4 (field types).

use hayro_interpret::hayro_syntax::content::TypedIter;
use hayro_interpret::hayro_syntax::object::{Array, Dict, Name, Object, Rect as PdfRect, Stream, String as PdfString};
use hayro_interpret::hayro_syntax::page::{Page, Resources};
use hayro_interpret::hayro_syntax::xref::XRef;
use hayro_interpret::kurbo::{Affine, Rect, Shape};
use hayro_interpret::{Context, InterpreterCache, InterpreterSettings, interpret};
use quick_xml::escape::unescape;

use super::page::PageReader;
use super::text_string::text_string;

/// Largest number of annotations of a page.
const MAX_ANNOTATIONS: usize = 20_000;
/// Deepest nesting of fields.
const MAX_PARENTS: usize = 16;
/// Annotation flags: hidden, and not shown on a screen.
const NOT_SHOWN: u32 = 1 << 1 | 1 << 5;
/// Field flags: a push button, and a password.
const PUSH_BUTTON: u32 = 1 << 16;
const PASSWORD: u32 = 1 << 13;

/// Draws the annotations of a page; returns the texts of its comments.
pub fn draw<'a>(
    page: &Page<'a>,
    xref: &'a XRef,
    cache: &InterpreterCache<'a>,
    reader: &mut PageReader<'_, 'a>,
    edges: Rect,
) -> Vec<String> {
    let Some(annotations) = page.raw().get::<Array<'a>>(b"Annots") else { return Vec::new() };
    let form = xref.get::<Dict<'a>>(xref.root_id()).and_then(|catalog| catalog.get::<Dict<'a>>(b"AcroForm"));
    let is_stale = form.as_ref().and_then(|form| form.get::<bool>(b"NeedAppearances")).unwrap_or(false);
    let mut notes = Vec::new();
    for annotation in annotations.iter::<Dict<'a>>().take(MAX_ANNOTATIONS) {
        let subtype = annotation.get::<Name<'_>>(b"Subtype");
        let subtype = subtype.as_ref().map_or(b"".as_slice(), |name| name.as_ref());
        if annotation.get::<u32>(b"F").unwrap_or(0) & NOT_SHOWN != 0 || subtype == b"Popup" {
            continue;
        }
        let drawing = Drawing { page, xref, cache, edges };
        if subtype == b"Widget" {
            drawing.field(&annotation, is_stale, reader);
        } else if !drawing.appearance(&annotation, reader) && subtype != b"Link" {
            notes.extend(comment(&annotation));
        }
    }
    notes
}

/// Text of a comment, with its author.
fn comment(annotation: &Dict<'_>) -> Option<String> {
    let text = |key: &[u8]| annotation.get::<PdfString<'_>>(key).map(|text| text_string(text.as_bytes()).trim().to_owned());
    let body = text(b"Contents").filter(|text| !text.is_empty()).or_else(|| rich_text(annotation))?;
    Some(match text(b"T").filter(|author| !author.is_empty()) {
        Some(author) => format!("[Note by {author}: {body}]"),
        None => format!("[Note: {body}]"),
    })
}

/// Text of a comment that has only rich text, without its marks.
fn rich_text(annotation: &Dict<'_>) -> Option<String> {
    let rich = match annotation.get::<Object<'_>>(b"RC")? {
        Object::String(text) => text_string(text.as_bytes()),
        Object::Stream(stream) => text_string(&stream.decoded_data().ok()?),
        _ => return None,
    };
    // Text follows the end of each mark.
    let texts = rich.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text));
    let words: Vec<&str> = texts.flat_map(str::split_whitespace).collect();
    let text = words.join(" ");
    let text = unescape(&text).map_or(text.clone(), |text| text.into_owned());
    Some(text).filter(|text| !text.is_empty())
}

struct Drawing<'d, 'a> {
    page: &'d Page<'a>,
    xref: &'a XRef,
    cache: &'d InterpreterCache<'a>,
    edges: Rect,
}

impl<'a> Drawing<'_, 'a> {
    /// Draws the value of a form field.
    fn field(&self, field: &Dict<'a>, is_stale: bool, reader: &mut PageReader<'_, 'a>) {
        reader.floats = true;
        let kind = inherited(field, b"FT").and_then(Object::into_name);
        let flags = inherited(field, b"Ff").and_then(Object::into_i32).unwrap_or(0).cast_unsigned();
        match kind.as_ref().map_or(b"".as_slice(), |name| name.as_ref()) {
            b"Btn" if flags & PUSH_BUTTON == 0 => self.place(field, if is_on(field) { "[x]" } else { "[ ]" }, reader),
            b"Tx" | b"Ch" => {
                let value = value(field).filter(|_| flags & PASSWORD == 0).unwrap_or_default();
                let is_drawn = (!is_stale || value.is_empty()) && self.appearance(field, reader);
                if !is_drawn {
                    self.place(field, &value, reader);
                }
            }
            _ => {
                // The text of a button belongs to no line.
                reader.floats = false;
                self.appearance(field, reader);
            }
        }
        reader.floats = false;
    }

    /// Draws the appearance stream; false if it has no letters.
    fn appearance(&self, annotation: &Dict<'a>, reader: &mut PageReader<'_, 'a>) -> bool {
        let n_before = reader.glyphs.len();
        if let Some(stream) = appearance_stream(annotation)
            && let Some(rect) = rect(annotation)
        {
            self.draw(&stream, rect, reader);
        }
        let drawn = reader.glyphs.get(n_before..).unwrap_or_default();
        drawn.iter().any(|placed| placed.hidden.is_none() && !placed.glyph.text.trim().is_empty())
    }

    fn draw(&self, stream: &Stream<'a>, rect: Rect, reader: &mut PageReader<'_, 'a>) {
        let form = stream.dict();
        let (Ok(content), Some(bounds)) = (stream.decoded_data(), form.get::<[f64; 4]>(b"BBox")) else { return };
        let matrix = Affine::new(form.get::<[f64; 6]>(b"Matrix").unwrap_or([1.0, 0.0, 0.0, 1.0, 0.0, 0.0]));
        let bounds = matrix.transform_rect_bbox(Rect::new(bounds[0], bounds[1], bounds[2], bounds[3]).abs());
        let scale = [rect.width() / bounds.width(), rect.height() / bounds.height()]
            .map(|s| if s.is_finite() && s > 0.0 { s } else { 1.0 });
        let moved = [rect.x0 - scale[0] * bounds.x0, rect.y0 - scale[1] * bounds.y0];
        let at = Affine::new([scale[0], 0.0, 0.0, scale[1], moved[0], moved[1]]) * matrix;
        reader.visit_form(stream);
        let settings = InterpreterSettings::default();
        let mut context = Context::new(at, self.edges, self.cache, self.xref, settings);
        let resources = form.get::<Dict<'a>>(b"Resources").map(Resources::new);
        reader.push_clip(rect.to_path(0.1).bounding_box());
        interpret(
            TypedIter::new(content.as_ref()),
            resources.as_ref().unwrap_or_else(|| self.page.resources()),
            &mut context,
            reader,
        );
        reader.pop_clip();
    }

    /// Places a text in the box of a field.
    fn place(&self, field: &Dict<'a>, text: &str, reader: &mut PageReader<'_, 'a>) {
        let Some(rect) = rect(field) else { return };
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let size = font_size(field).unwrap_or((rect.height() / lines.len().max(1) as f64 * 0.7).clamp(4.0, 12.0));
        let top = if lines.len() > 1 { rect.y1 - size } else { rect.center().y - size * 0.35 };
        for (n, line) in lines.iter().enumerate() {
            let width = (line.chars().count() as f64 * size / 2.0).min(rect.width().max(size));
            reader.place(line, [rect.x0 + 2.0, top - n as f64 * size * 1.2], size, width);
        }
    }
}

/// Size in the default appearance of a field, such as `/Helv 11 Tf`.
fn font_size(field: &Dict<'_>) -> Option<f64> {
    let look = inherited(field, b"DA")?.into_string()?;
    let look = String::from_utf8_lossy(look.as_bytes()).into_owned();
    let words: Vec<&str> = look.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "Tf")?;
    words.get(at.checked_sub(1)?)?.parse().ok().filter(|size| (3.0..200.0).contains(size))
}

fn rect(annotation: &Dict<'_>) -> Option<Rect> {
    let rect = annotation.get::<PdfRect>(b"Rect")?;
    Some(Rect::new(rect.x0, rect.y0, rect.x1, rect.y1).abs()).filter(|rect| rect.is_finite())
}

fn appearance_stream<'a>(annotation: &Dict<'a>) -> Option<Stream<'a>> {
    match annotation.get::<Dict<'a>>(b"AP")?.get::<Object<'a>>(b"N")? {
        Object::Stream(stream) => Some(stream),
        Object::Dict(states) => states.get::<Stream<'a>>(annotation.get::<Name<'_>>(b"AS")?),
        _ => None,
    }
}

/// Entry of a field or of the nearest parent that has it.
fn inherited<'a>(field: &Dict<'a>, key: &[u8]) -> Option<Object<'a>> {
    let mut field = field.clone();
    for _ in 0..MAX_PARENTS {
        if let Some(entry) = field.get::<Object<'a>>(key) {
            return Some(entry);
        }
        field = field.get::<Dict<'a>>(b"Parent")?;
    }
    None
}

/// True if a check box or radio button is set.
fn is_on(field: &Dict<'_>) -> bool {
    let state = field.get::<Name<'_>>(b"AS").or_else(|| inherited(field, b"V").and_then(Object::into_name));
    state.is_some_and(|state| state.as_ref() != b"Off")
}

/// Value of a text or choice field; choices by the names that are shown.
fn value(field: &Dict<'_>) -> Option<String> {
    let shown = |chosen: String| {
        let options = inherited(field, b"Opt").and_then(Object::into_array);
        let pair = |option: Object<'_>| {
            let pair: Vec<String> = option.into_array()?.iter::<PdfString<'_>>().map(|s| text_string(s.as_bytes())).collect();
            <[String; 2]>::try_from(pair).ok()
        };
        let mut options = options.iter().flat_map(|options| options.iter::<Object<'_>>()).take(MAX_ANNOTATIONS).filter_map(pair);
        options.find(|[export, _]| *export == chosen).map_or(chosen, |[_, shown]| shown)
    };
    match inherited(field, b"V")? {
        Object::String(text) => Some(shown(text_string(text.as_bytes()))),
        Object::Name(name) => Some(shown(name.as_str().to_owned())),
        Object::Number(number) => Some(number.as_f64().to_string()),
        Object::Stream(stream) => Some(text_string(&stream.decoded_data().ok()?)),
        Object::Array(list) => {
            let chosen = list.iter::<PdfString<'_>>().map(|text| shown(text_string(text.as_bytes())));
            Some(chosen.collect::<Vec<_>>().join(", "))
        }
        _ => None,
    }
}
