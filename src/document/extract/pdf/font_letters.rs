//! Letters of one font whose characters the interpreter does not know or gets wrong.
//!
//! ```text
//! code ──► ToUnicode, as far as it can be read ──► encoding of a CJK collection: CID ──► Unicode
//!          └──► names of glyphs with a number ──► table of the embedded TrueType font, backwards
//! ```
//! Source: ISO 32000-2, 9.10.2; Adobe collections by hayro-cmap.

use std::collections::HashMap;

use hayro_interpret::font::OutlineFontData;
use hayro_interpret::hayro_cmap::{BfString, CMap, CMapName, CidFamily, load_embedded};
use hayro_interpret::hayro_syntax::object::{Array, Dict, Name, Object, Stream, String as PdfString};
use skrifa::MetadataProvider;
use skrifa::raw::FontRef;

use super::symbols::is_unknown;
use super::to_unicode::ToUnicode;

/// Largest number of glyphs of an embedded font whose table is read.
const MAX_GLYPHS: usize = 1 << 17;

/// Letters of a font.
#[derive(Default)]
pub struct FontLetters {
    to_unicode: ToUnicode,
    /// true if the ToUnicode table is a name that makes codes Unicode
    is_unicode: bool,
    cid: Option<CidLetters>,
    /// characters by codes, from the names of glyphs
    named: HashMap<u32, char>,
    /// characters by numbers of glyphs, read when first needed
    glyphs: Option<HashMap<u32, char>>,
    is_composite: bool,
    /// true for a Type 3 font
    pub is_type3: bool,
}

/// Encoding of a composite font.
struct CidLetters {
    /// None if codes are CIDs
    encoding: Option<CMap>,
    collection: Option<CMap>,
    /// true if codes are UTF-16
    is_utf16: bool,
}

impl FontLetters {
    /// Letters of the font of a dictionary.
    pub fn of(font: &Dict<'_>) -> FontLetters {
        let table = font.get::<Stream<'_>>(b"ToUnicode").and_then(|stream| stream.decoded_data().ok());
        let to_unicode = table.map(|data| ToUnicode::parse(&data)).unwrap_or_default();
        let subtype = font.get::<Name<'_>>(b"Subtype");
        let is = |name: &[u8]| subtype.as_ref().is_some_and(|subtype| subtype.as_ref() == name);
        FontLetters {
            to_unicode,
            is_unicode: font.get::<Name<'_>>(b"ToUnicode").is_some_and(|name| name.as_ref().starts_with(b"Identity")),
            cid: is(b"Type0").then(|| CidLetters::of(font)).flatten(),
            named: if is(b"Type0") { HashMap::new() } else { numbered_names(font, is(b"Type3")) },
            glyphs: None,
            is_composite: is(b"Type0"),
            is_type3: is(b"Type3"),
        }
    }

    /// True for a composite font, whose codes may have several bytes.
    pub fn is_composite(&self) -> bool {
        self.is_composite
    }

    /// Text of a code.
    pub fn get(&mut self, code: u32, glyph: Option<u32>, program: impl FnOnce() -> Option<OutlineFontData>) -> Option<String> {
        let known = |text: &String| !text.is_empty() && !text.chars().any(is_unknown);
        let listed = self.to_unicode.get(code).filter(known);
        let unicode = || char::from_u32(code).filter(|c| self.is_unicode && !c.is_control()).map(String::from);
        let by_cid = || self.cid.as_ref().and_then(|cid| cid.get(code)).filter(known);
        let named = || self.named.get(&code).map(|c| c.to_string());
        let text = listed.or_else(unicode).or_else(by_cid).or_else(named);
        text.or_else(|| {
            let glyph = glyph.filter(|glyph| *glyph != 0)?;
            let glyphs = self.glyphs.get_or_insert_with(|| program().map(|data| glyph_letters(&data)).unwrap_or_default());
            glyphs.get(&glyph).map(|c| c.to_string())
        })
    }
}

/// True if a font has a ToUnicode table that the interpreter cannot read, but that has letters.
pub fn is_broken(font: &Dict<'_>) -> bool {
    let Some(Ok(table)) = font.get::<Stream<'_>>(b"ToUnicode").map(|stream| stream.decoded_data()) else { return false };
    CMap::parse(&table, load_embedded).is_none() && !ToUnicode::parse(&table).is_empty()
}

impl CidLetters {
    fn of(font: &Dict<'_>) -> Option<CidLetters> {
        let parse = |name: CMapName<'_>| CMap::parse(load_embedded(name)?, load_embedded);
        let (encoding, is_utf16) = match font.get::<Object<'_>>(b"Encoding")? {
            Object::Name(name) if name.as_ref().starts_with(b"Identity") => (None, false),
            Object::Name(name) => {
                let name: &[u8] = name.as_ref();
                let is_utf16 = [b"UCS2".as_slice(), b"UTF16"].iter().any(|part| name.windows(part.len()).any(|at| at == *part));
                (Some(parse(CMapName::from_bytes(name))?), is_utf16)
            }
            Object::Stream(stream) => (Some(CMap::parse(&stream.decoded_data().ok()?, load_embedded)?), false),
            _ => return None,
        };
        let descendant = font.get::<Array<'_>>(b"DescendantFonts")?.iter::<Dict<'_>>().next();
        let info = descendant.and_then(|font| font.get::<Dict<'_>>(b"CIDSystemInfo"));
        let by_font = info.and_then(|info| {
            let (registry, ordering) = (info.get::<PdfString<'_>>(b"Registry")?, info.get::<PdfString<'_>>(b"Ordering")?);
            Some(CidFamily::from_registry_ordering(registry.as_bytes(), ordering.as_bytes()))
        });
        let by_encoding = encoding.as_ref().and_then(|cmap| cmap.metadata().character_collection.clone()).map(|c| c.family);
        let collection = [by_encoding, by_font].into_iter().flatten().find_map(|family| family.ucs2_cmap()).and_then(parse);
        Some(CidLetters { encoding, collection, is_utf16 })
    }

    fn get(&self, code: u32) -> Option<String> {
        if self.is_utf16 {
            let units = [(code >> 16) as u16, code as u16];
            let text = String::from_utf16(if units[0] == 0 { &units[1..] } else { &units }).ok()?;
            return (!text.chars().any(char::is_control)).then_some(text);
        }
        let cid = match &self.encoding {
            Some(cmap) => (1..=4).find_map(|n_bytes| cmap.lookup_cid_code(code, n_bytes))?,
            None => code,
        };
        match self.collection.as_ref()?.lookup_bf_string(cid)? {
            BfString::Char(c) => Some(c.to_string()),
            BfString::String(text) => Some(text),
        }
    }
}

/// Characters of an embedded font's glyphs, from its own table of characters.
fn glyph_letters(program: &OutlineFontData) -> HashMap<u32, char> {
    let Ok(font) = FontRef::new(program.data.as_ref().as_ref()) else { return HashMap::new() };
    let mut letters = HashMap::new();
    for (code, glyph) in font.charmap().mappings().take(MAX_GLYPHS) {
        if let Some(c) = char::from_u32(code).filter(|c| !is_unknown(*c)) {
            letters.entry(glyph.to_u32()).or_insert(c);
        }
    }
    letters
}

/// Characters of codes whose glyphs are called by a number, such as `a97`, or whose Type 3 drawings have no usable name.
fn numbered_names(font: &Dict<'_>, is_type3: bool) -> HashMap<u32, char> {
    let differences = font.get::<Dict<'_>>(b"Encoding").and_then(|encoding| encoding.get::<Array<'_>>(b"Differences"));
    let (mut names, mut code) = (Vec::new(), 0_i64);
    for object in differences.iter().flat_map(|list| list.iter::<Object<'_>>()).take(512) {
        match object {
            Object::Number(number) => code = number.as_i64(),
            Object::Name(name) => {
                names.extend(u8::try_from(code).ok().map(|code| (code, name.as_str().to_owned())));
                code = code.saturating_add(1);
            }
            _ => {}
        }
    }
    let printable = |code: u32| char::from_u32(code).filter(|c| !c.is_control());
    // A number in the name is the character if all names are built so; else it only counts glyphs.
    let number = |name: &str| name.trim_start_matches(|c: char| c.is_ascii_alphabetic()).parse::<u32>().ok();
    let prefix = |name: &str| name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
    let numbered: Vec<(u8, &str, u32)> =
        names.iter().filter_map(|(code, name)| Some((*code, name.as_str(), number(name)?))).collect();
    let prefixes: std::collections::HashSet<String> = numbered.iter().map(|(_, name, _)| prefix(name)).collect();
    let is_scheme = prefixes.len() == 1 && numbered.len() * 10 >= names.len() * 8;
    let numbers: Vec<u32> = numbered.iter().map(|(_, _, number)| *number).collect();
    // A count of glyphs begins at 0 or 1, whatever their codes are.
    let are_codes = numbered.iter().all(|(code, _, number)| u32::from(*code) == *number);
    if is_scheme && (prefixes.contains("a") || prefixes.contains("")) && is_text(&numbers, are_codes) {
        let ligature = |number: u32| if is_tex_text(&numbers) { tex_ligature(number) } else { None };
        let letter = |number: u32| printable(number).or_else(|| ligature(number));
        return numbered.iter().filter_map(|(code, _, number)| Some((u32::from(*code), letter(*number)?))).collect();
    }
    let codes: Vec<u32> = names.iter().map(|(code, _)| u32::from(*code)).collect();
    if is_type3 && is_text(&codes, false) {
        return codes.iter().filter_map(|code| Some((*code, printable(*code)?))).collect();
    }
    HashMap::new()
}

/// True if numbers are codes of letters, and no count of glyphs: most are ASCII letters, with gaps between them unless they are
/// sure to be codes. Control codes, which bitmap fonts of TeX have for ligatures, do not count.
fn is_text(numbers: &[u32], are_codes: bool) -> bool {
    let mut sorted: Vec<u32> = numbers.iter().copied().filter(|n| *n >= 0x20).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let is_letter = |n: &&u32| char::from_u32(**n).is_some_and(|c| c.is_ascii_alphanumeric());
    let n_letters = sorted.iter().filter(is_letter).count();
    let is_count = !are_codes && sorted.windows(2).all(|pair| matches!(pair, [a, b] if b - a == 1)) && sorted.len() < 90;
    let in_range = sorted.iter().all(|n| *n <= 0xFF) && sorted.len() * 3 >= numbers.len() * 2;
    in_range && !sorted.is_empty() && n_letters * 3 >= sorted.len() * 2 && (!is_count || sorted.len() == 1)
}

/// True if numbers are codes of TeX's text encoding OT1. Mathematical fonts have Greek letters in place of ligatures, and no full
/// stop or comma at the places of ASCII.
fn is_tex_text(numbers: &[u32]) -> bool {
    let n_small = numbers.iter().filter(|n| (0x61..=0x7A).contains(*n)).count();
    n_small >= 6 && numbers.iter().all(|n| *n < 0x80) && numbers.iter().any(|n| matches!(n, 0x2C | 0x2E))
}

/// Ligature of a code of OT1.
fn tex_ligature(code: u32) -> Option<char> {
    match code {
        11 => Some('\u{FB00}'),
        12 => Some('\u{FB01}'),
        13 => Some('\u{FB02}'),
        14 => Some('\u{FB03}'),
        15 => Some('\u{FB04}'),
        _ => None,
    }
}
