//! Bookmarks: titles of chapters by the pages that they lead to.
//!
//! Source: ISO 32000-2, 12.3.3 (outline), 12.3.2 (destinations), 7.9.6 (name trees).

use std::collections::{HashMap, HashSet};

use hayro_interpret::hayro_syntax::Pdf;
use hayro_interpret::hayro_syntax::object::{Array, Dict, MaybeRef, Object, ObjectIdentifier, String as PdfString};

use super::text_string::text_string;

/// Largest number of bookmarks, and of names of places.
const MAX_ITEMS: usize = 20_000;
/// Deepest nesting of a tree of names.
const MAX_DEPTH: usize = 16;
/// Bookmarks of one page that are named.
const MAX_OF_PAGE: usize = 3;

/// Titles of pages, by their indices.
pub fn titles(pdf: &Pdf) -> HashMap<usize, String> {
    let xref = pdf.xref();
    let Some(catalog) = xref.get::<Dict<'_>>(xref.root_id()) else { return HashMap::new() };
    let Some(outline) = catalog.get::<Dict<'_>>(b"Outlines") else { return HashMap::new() };
    let pages: HashMap<ObjectIdentifier, usize> =
        pdf.pages().iter().enumerate().filter_map(|(i, page)| Some((page.raw().obj_id()?, i))).collect();
    let mut of_page: HashMap<usize, Vec<String>> = HashMap::new();
    let mut places: Option<HashMap<Vec<u8>, Object<'_>>> = None;
    for item in items(&outline) {
        let Some(title) = item.get::<PdfString<'_>>(b"Title").map(|title| text_string(title.as_bytes())) else { continue };
        let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
        let target = item.get::<Object<'_>>(b"Dest").or_else(|| item.get::<Dict<'_>>(b"A")?.get::<Object<'_>>(b"D"));
        let target = match target {
            Some(Object::Name(name)) => places.get_or_insert_with(|| named_places(&catalog)).get(name.as_ref()).cloned(),
            Some(Object::String(name)) => places.get_or_insert_with(|| named_places(&catalog)).get(name.as_bytes()).cloned(),
            target => target,
        };
        let target = match target {
            Some(Object::Dict(dict)) => dict.get::<Array<'_>>(b"D"),
            Some(Object::Array(array)) => Some(array),
            _ => None,
        };
        let page = target.and_then(|target| match target.raw_iter().next()? {
            MaybeRef::Ref(page) => pages.get(&page.into()).copied(),
            MaybeRef::NotRef(Object::Number(page)) => usize::try_from(page.as_i64()).ok(),
            MaybeRef::NotRef(_) => None,
        });
        if let Some(titles) = page.map(|page| of_page.entry(page).or_default())
            && titles.len() < MAX_OF_PAGE
            && !title.is_empty()
        {
            titles.push(title);
        }
    }
    of_page.into_iter().map(|(page, titles)| (page, titles.join(" \u{B7} "))).collect()
}

/// Items of an outline in reading order.
fn items<'a>(outline: &Dict<'a>) -> Vec<Dict<'a>> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    let mut open: Vec<Dict<'a>> = outline.get::<Dict<'a>>(b"First").into_iter().collect();
    while let Some(item) = open.pop() {
        if found.len() >= MAX_ITEMS || !item.obj_id().is_none_or(|id| seen.insert(id)) {
            continue;
        }
        // The next one is read after the children.
        open.extend(item.get::<Dict<'a>>(b"Next"));
        open.extend(item.get::<Dict<'a>>(b"First"));
        found.push(item);
    }
    found
}

/// Places by their names.
fn named_places<'a>(catalog: &Dict<'a>) -> HashMap<Vec<u8>, Object<'a>> {
    let mut places = HashMap::new();
    if let Some(list) = catalog.get::<Dict<'a>>(b"Dests") {
        for name in list.keys().take(MAX_ITEMS) {
            places.extend(list.get::<Object<'a>>(name.as_ref()).map(|place| (name.as_ref().to_vec(), place)));
        }
    }
    let root = catalog.get::<Dict<'a>>(b"Names").and_then(|names| names.get::<Dict<'a>>(b"Dests"));
    let mut open: Vec<(Dict<'a>, usize)> = root.map(|root| (root, 0)).into_iter().collect();
    let mut n_nodes = 0;
    while let Some((node, depth)) = open.pop() {
        n_nodes += 1;
        let pairs: Vec<Object<'a>> =
            node.get::<Array<'a>>(b"Names").iter().flat_map(|list| list.iter::<Object<'a>>()).take(MAX_ITEMS).collect();
        for pair in pairs.chunks_exact(2) {
            if let [Object::String(name), place] = pair
                && places.len() < MAX_ITEMS
            {
                places.insert(name.as_bytes().to_vec(), place.clone());
            }
        }
        if depth < MAX_DEPTH && n_nodes < MAX_ITEMS {
            let kids = node.get::<Array<'a>>(b"Kids");
            open.extend(kids.iter().flat_map(|kids| kids.iter::<Dict<'a>>()).take(MAX_ITEMS).map(|kid| (kid, depth + 1)));
        }
    }
    places
}
