//! Fonts of a document, to look up letters that the interpreter does not know.
//!
//! Reason: a glyph that is drawn does not tell its font, so fonts are told apart by their program, width and code.
//! Invariants: 1. A font dictionary is read once. 2. Documents without such letters only pay for listing their fonts and for a look at their tables.

use std::collections::{HashMap, HashSet};

use hayro_font::{Font, FontCache, FontGlyph};
use hayro_interpret::font::Glyph;
use hayro_interpret::hayro_syntax::object::{Dict, Name, ObjectIdentifier, Stream};
use hayro_interpret::hayro_syntax::page::Resources;
use hayro_interpret::{CacheKey, InterpreterSettings};

use super::font_letters::{FontLetters, is_broken};
use super::symbols::{is_private, is_unknown, sign};

/// Largest number of fonts that are told apart.
const MAX_FONTS: usize = 4096;
/// Deepest nesting of forms whose fonts are listed.
const MAX_DEPTH: usize = 6;

/// Fonts seen so far.
#[derive(Default)]
pub struct Fonts<'a> {
    settings: InterpreterSettings,
    cache: FontCache<'a>,
    seen: HashSet<ObjectIdentifier>,
    seen_inline: HashSet<u128>,
    fonts: Vec<ListedFont<'a>>,
    n_broken: usize,
    known: HashMap<(u128, u32), Option<String>>,
}

/// A font of the document, whose letters are read when they are first needed.
struct ListedFont<'a> {
    dict: Dict<'a>,
    /// true if the interpreter cannot read its table of letters
    is_broken: bool,
    read: Option<DocumentFont<'a>>,
}

struct DocumentFont<'a> {
    font: Option<Font<'a>>,
    letters: FontLetters,
}

impl<'a> Fonts<'a> {
    /// Lists the fonts of a page or form, and of the forms in it.
    pub fn visit(&mut self, resources: &Resources<'a>, depth: usize) {
        for name in resources.fonts.keys() {
            let is_new = match resources.fonts.get_ref(name.as_ref()) {
                Some(object) => self.seen.insert(object.into()),
                None => true,
            };
            if is_new
                && self.fonts.len() < MAX_FONTS
                && let Some(font) = resources.get_font(&name)
            {
                self.add(font, depth);
            }
        }
        if depth >= MAX_DEPTH {
            return;
        }
        for name in resources.x_objects.keys() {
            let is_new = resources.x_objects.get_ref(name.as_ref()).is_none_or(|object| self.seen.insert(object.into()));
            if is_new && let Some(form) = resources.get_x_object(&name) {
                self.visit_form(&form, depth);
            }
        }
    }

    /// Lists the fonts of a form.
    pub fn visit_form(&mut self, form: &Stream<'a>, depth: usize) {
        if form.dict().get::<Name<'_>>(b"Subtype").is_none_or(|subtype| subtype.as_ref() == b"Form")
            && let Some(resources) = form.dict().get::<Dict<'a>>(b"Resources")
        {
            self.visit(&Resources::new(resources), depth + 1);
        }
    }

    fn add(&mut self, font: Dict<'a>, depth: usize) {
        if !self.seen_inline.insert(font.cache_key()) {
            return;
        }
        if let Some(resources) = font.get::<Dict<'a>>(b"Resources").filter(|_| depth < MAX_DEPTH) {
            self.visit(&Resources::new(resources), depth + 1);
        }
        let is_broken = is_broken(&font);
        self.n_broken += usize::from(is_broken);
        self.fonts.push(ListedFont { dict: font, is_broken, read: None });
    }

    /// Text of a glyph; None if its characters cannot be known, empty if it also draws nothing.
    pub fn text(&mut self, glyph: &Glyph<'_>) -> Option<String> {
        let text = glyph.as_unicode().map(|text| match text {
            hayro_interpret::hayro_cmap::BfString::Char(c) => c.to_string(),
            hayro_interpret::hayro_cmap::BfString::String(text) => text,
        });
        // A line end that draws something is a letter of a wrong table.
        let is_blank = |c: char| is_white_control(c) && draws_nothing(glyph);
        let is_sure = text.as_ref().is_some_and(|text| !text.chars().any(|c| is_unknown(c) && !is_blank(c)));
        if is_sure && self.n_broken == 0 {
            return text;
        }
        let looked_up = self.look_up(glyph, is_sure);
        if looked_up.is_some() || is_sure {
            return looked_up.or(text);
        }
        let font = match glyph {
            Glyph::Outline(outline) => outline.font_data().and_then(|data| data.postscript_name),
            Glyph::Type3(_) => None,
        };
        let readable = |c: char| match c {
            c if is_private(c) => sign(c, font.as_deref()),
            c => (!c.is_control() || is_white_control(c)).then_some(c),
        };
        text?.chars().map(readable).collect::<Option<String>>().filter(|text| !text.is_empty())
    }

    fn look_up(&mut self, glyph: &Glyph<'_>, only_broken: bool) -> Option<String> {
        let key = match glyph {
            Glyph::Outline(outline) => {
                outline.identifier().cache_key() ^ u128::from(outline.advance_width().unwrap_or(0.0).to_bits())
            }
            Glyph::Type3(glyph) => u128::from(glyph.advance_width().unwrap_or(0.0).to_bits()),
        };
        let key = (key ^ (u128::from(only_broken) << 64), glyph.char_code());
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let mut found = None;
        for ListedFont { dict, read, .. } in self.fonts.iter_mut().filter(|font| font.is_broken || !only_broken) {
            let font = read.get_or_insert_with(|| DocumentFont::of(dict));
            if font.font.is_none() {
                font.font = self.cache.font(dict, &self.settings.font_resolver, &self.settings.cmap_resolver);
            }
            found = font.text(glyph);
            if found.is_some() {
                break;
            }
        }
        // A glyph that draws nothing is no letter that a reader misses.
        let found = found.or_else(|| (!only_broken && draws_nothing(glyph)).then(String::new));
        self.known.insert(key, found.clone());
        found
    }
}

fn is_white_control(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r')
}

fn draws_nothing(glyph: &Glyph<'_>) -> bool {
    matches!(glyph, Glyph::Outline(outline) if outline.outline().is_empty())
}

impl<'a> DocumentFont<'a> {
    fn of(dict: &Dict<'a>) -> DocumentFont<'a> {
        DocumentFont { font: None, letters: FontLetters::of(dict) }
    }

    /// Text of a glyph if it is of this font.
    fn text(&mut self, glyph: &Glyph<'_>) -> Option<String> {
        let (font, code) = (self.font.as_ref()?, glyph.char_code());
        let is_simple = font.is_horizontal() && code <= 0xFF;
        match glyph {
            Glyph::Outline(outline) => {
                if self.letters.is_type3 || (!is_simple && !self.letters.is_composite()) {
                    return None;
                }
                let FontGlyph::Outline(other) = font.glyph(font.map_code(code), code) else { return None };
                let is_same = other.identifier() == outline.identifier() && other.advance_width() == outline.advance_width();
                is_same.then(|| self.letters.get(code, Some(outline.glyph_id().to_u32()), || outline.font_data()))?
            }
            Glyph::Type3(type3) => {
                if !self.letters.is_type3 || !is_simple {
                    return None;
                }
                let FontGlyph::Type3(other) = font.glyph(font.map_code(code), code) else { return None };
                let is_same = Some(other.advance_width()) == type3.advance_width() && other.as_unicode() == type3.as_unicode();
                is_same.then(|| self.letters.get(code, None, || None))?
            }
        }
    }
}
