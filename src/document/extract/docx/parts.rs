//! Parts of a DOCX file, found by relationship and content type rather than by name.
//!
//! ```text
//! _rels/.rels ──► main part ──► its .rels: footnotes, comments, numbering, styles, parts by id
//! ```
//! Invariant: a missing list of relationships is replaced by the usual names. Source: ECMA-376, part 2, chapter 6 (OPC).

use std::collections::HashMap;

use super::super::extracted::ExtractError;
use super::super::xml::{attribute, elements};
use super::super::zip_archive::{Archive, resolve};
use crate::document::encoding;

const ROOT_RELATIONS: &str = "_rels/.rels";
const CONTENT_TYPES: &str = "[Content_Types].xml";
const USUAL_MAIN: &str = "word/document.xml";

/// Relationship to a part of the archive.
#[derive(Debug, Clone)]
struct Relation {
    /// last step of the type's address, such as `footnotes`
    kind: String,
    path: String,
}

/// The archive with its main part and the relationships of it.
pub struct Parts<'a> {
    archive: Archive<'a>,
    main: String,
    relations: HashMap<String, Relation>,
}

impl<'a> Parts<'a> {
    pub fn open(bytes: &'a [u8]) -> Result<Self, ExtractError> {
        let mut archive = Archive::open(bytes)?;
        let main = main_part(&mut archive)?;
        let relations = relations_of(&mut archive, &main)?;
        Ok(Parts { archive, main, relations })
    }

    /// XML of the main part.
    pub fn main(&mut self) -> Result<String, ExtractError> {
        text_of(&self.archive.require(&self.main)?)
    }

    /// XML of the first part of a kind, such as `numbering`; None if there is none.
    pub fn of_kind(&mut self, kind: &str) -> Result<Option<String>, ExtractError> {
        let paths = self.paths_of_kind(kind);
        match paths.first() {
            Some(path) => self.archive.read(path)?.map(|bytes| text_of(&bytes)).transpose(),
            None => Ok(None),
        }
    }

    /// XML of all parts of a kind, such as `header`.
    pub fn all_of_kind(&mut self, kind: &str) -> Result<Vec<String>, ExtractError> {
        let mut found = Vec::new();
        for path in self.paths_of_kind(kind) {
            found.extend(self.archive.read(&path)?.map(|bytes| text_of(&bytes)).transpose()?);
        }
        Ok(found)
    }

    fn paths_of_kind(&self, kind: &str) -> Vec<String> {
        let related = self.relations.values().filter(|relation| relation.kind == kind);
        let mut paths: Vec<String> = related.map(|relation| relation.path.clone()).collect();
        paths.sort();
        if paths.is_empty() {
            let usual = resolve(&self.main, &format!("{kind}.xml"));
            paths.extend(self.archive.find(&usual).map(str::to_owned));
        }
        paths
    }

    /// Content type of a part; None if the archive has none for it.
    pub fn content_type(&mut self, path: &str) -> Result<Option<String>, ExtractError> {
        let Some(bytes) = self.archive.read(CONTENT_TYPES)? else { return Ok(None) };
        let (mut own, mut usual) = (None, None);
        let _ = elements(&text_of(&bytes)?, |_, element| {
            let is_own = attribute(element, b"PartName").is_some_and(|name| resolve("", &name).eq_ignore_ascii_case(path));
            let ends_so = |end: String| path.to_ascii_lowercase().ends_with(&format!(".{}", end.to_ascii_lowercase()));
            if is_own {
                own = attribute(element, b"ContentType");
            } else if attribute(element, b"Extension").is_some_and(ends_so) {
                usual = attribute(element, b"ContentType");
            }
        });
        Ok(own.or(usual))
    }

    /// Name and content of the part with this relationship; None if there is none.
    pub fn by_id(&mut self, id: &str) -> Result<Option<(String, Vec<u8>)>, ExtractError> {
        let Some(path) = self.relations.get(id).map(|relation| relation.path.clone()) else { return Ok(None) };
        Ok(self.archive.read(&path)?.map(|bytes| (path, bytes)))
    }
}

/// Text of an XML part.
pub fn text_of(bytes: &[u8]) -> Result<String, ExtractError> {
    match encoding::decode(bytes, true) {
        Ok(decoded) => Ok(decoded.text),
        Err(what) => Err(ExtractError::corrupt(format!("a part of it is {what}"))),
    }
}

/// Name of the part with the text.
fn main_part(archive: &mut Archive<'_>) -> Result<String, ExtractError> {
    let is_main_relation = |kind: &str| kind.ends_with("/officeDocument");
    if let Some(path) = listed(archive, ROOT_RELATIONS, [b"Type", b"Target"], is_main_relation)? {
        return Ok(path);
    }
    let is_main_type = |kind: &str| (kind.contains("ordprocessingml") || kind.contains("ms-word")) && kind.ends_with("main+xml");
    let path = listed(archive, CONTENT_TYPES, [b"ContentType", b"PartName"], is_main_type)?;
    Ok(path.unwrap_or_else(|| USUAL_MAIN.to_owned()))
}

/// The first part of the archive that the file `list` has with such a kind. The attributes have kind and path.
fn listed(
    archive: &mut Archive<'_>,
    list: &str,
    [kind, path]: [&[u8]; 2],
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Option<String>, ExtractError> {
    let Some(bytes) = archive.read(list)? else { return Ok(None) };
    let mut found = Vec::new();
    // An invalid list still gives the parts before the error.
    let _ = elements(&text_of(&bytes)?, |_, element| {
        if attribute(element, kind).is_some_and(|kind| is_wanted(&kind)) {
            found.extend(attribute(element, path).map(|path| resolve("", &path)));
        }
    });
    Ok(found.iter().find_map(|path| archive.find(path)).map(str::to_owned))
}

/// Relationships of a part, by their ids.
fn relations_of(archive: &mut Archive<'_>, part: &str) -> Result<HashMap<String, Relation>, ExtractError> {
    let part = part.replace('\\', "/");
    let (folder, file) = part.rsplit_once('/').unwrap_or(("", &part));
    let gap = if folder.is_empty() { "" } else { "/" };
    let Some(bytes) = archive.read(&format!("{folder}{gap}_rels/{file}.rels"))? else { return Ok(HashMap::new()) };
    let mut relations = HashMap::new();
    let _ = elements(&text_of(&bytes)?, |_, element| {
        let is_outside = attribute(element, b"TargetMode").is_some_and(|mode| mode == "External");
        let (id, kind, target) = (attribute(element, b"Id"), attribute(element, b"Type"), attribute(element, b"Target"));
        if let (false, Some(id), Some(kind), Some(target)) = (is_outside, id, kind, target) {
            let kind = kind.rsplit('/').next().unwrap_or_default().to_owned();
            relations.insert(id, Relation { kind, path: resolve(&part, &target) });
        }
    });
    Ok(relations)
}
