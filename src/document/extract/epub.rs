//! EPUB to text: the chapters of the spine, under the titles of the table of contents.
//!
//! ```text
//! ZIP ──► META-INF/container.xml ──► package (OPF): spine ──► chapters (XHTML) ──► parts
//!                                        └── contents: nav or NCX ──► titles ────────┘
//! ```
//! Invariants: 1. Chapters follow the order of the spine, each once. 2. A note reports missing or unreadable chapters.
//! 3. A book with rights management is rejected as such; obfuscated fonts are ignored.
//! Limits: [`limits::MAX_DOCUMENT_PAGES`] chapters, and those of the archive. Source: EPUB 3.3, OPF 2.0.

use std::collections::{HashMap, HashSet};

use dom_query::Document as Dom;
use percent_encoding::percent_decode_str;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::extracted::{ExtractError, Extracted, Part, ReportProgress, TextLimit};
use super::html::text_of;
use super::zip_archive::Archive;
use crate::base::limits;
use crate::document::encoding;

const CONTAINER: &str = "META-INF/container.xml";
const ENCRYPTION: &str = "META-INF/encryption.xml";

pub fn extract(bytes: &[u8], progress: ReportProgress<'_>) -> Result<Extracted, ExtractError> {
    let mut archive = Archive::open(bytes)?;
    let package = Package::read(&mut archive)?;
    if package.spine.len() > limits::MAX_DOCUMENT_PAGES {
        let what = format!("it has {} chapters, but at most {} are supported", package.spine.len(), limits::MAX_DOCUMENT_PAGES);
        return Err(ExtractError::TooLarge { what });
    }
    let locked = archive.read(ENCRYPTION)?.map(|xml| references(&xml)).unwrap_or_default();
    if package.spine.iter().any(|path| locked.contains(path)) {
        return Err(ExtractError::Protected { how: "by digital rights management".into() });
    }
    let titles = package.titles(&mut archive)?;
    let (mut parts, mut limit, mut n_missing) = (Vec::new(), TextLimit::default(), 0);
    for (i, path) in package.spine.iter().enumerate() {
        progress(i, package.spine.len());
        let content = archive.read(path)?.and_then(|bytes| encoding::decode(&bytes, true).ok());
        let Some(content) = content else {
            n_missing += 1;
            continue;
        };
        let dom = Dom::from(content.text);
        let text = text_of(&dom);
        limit.add(&text)?;
        if !text.is_empty() {
            parts.push(Part { title: titles.get(path).cloned().or_else(|| heading(&dom)), text });
        }
    }
    let notes = match n_missing {
        0 => Vec::new(),
        n => vec![format!("{n} of {} chapters are missing from the file or cannot be read.", package.spine.len())],
    };
    Ok(Extracted { parts, is_paged: false, notes })
}

/// First heading of a chapter.
fn heading(dom: &Dom) -> Option<String> {
    let text = dom.select_single("h1, h2, h3").text();
    let title = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (!title.is_empty()).then_some(title)
}

/// Content of the package file.
#[derive(Default)]
struct Package {
    /// paths of the chapters in the archive
    spine: Vec<String>,
    nav: Option<String>,
    ncx: Option<String>,
}

impl Package {
    fn read(archive: &mut Archive<'_>) -> Result<Package, ExtractError> {
        let container = archive.require(CONTAINER)?;
        let mut rootfile = None;
        elements(&container, |name, element| {
            if name == b"rootfile" && rootfile.is_none() {
                rootfile = attribute(element, b"full-path");
            }
        })?;
        let path = rootfile.ok_or_else(|| ExtractError::corrupt("its container has no package"))?;
        let (mut manifest, mut ids, mut package) = (HashMap::new(), Vec::new(), Package::default());
        elements(&archive.require(&path)?, |name, element| match name {
            b"item" => {
                if let (Some(id), Some(href)) = (attribute(element, b"id"), attribute(element, b"href")) {
                    let file = resolve(&path, &href);
                    let properties = attribute(element, b"properties").unwrap_or_default();
                    if properties.split_whitespace().any(|p| p == "nav") {
                        package.nav = Some(file.clone());
                    }
                    if attribute(element, b"media-type").is_some_and(|kind| kind == "application/x-dtbncx+xml") {
                        package.ncx = Some(file.clone());
                    }
                    manifest.insert(id, file);
                }
            }
            b"itemref" => ids.extend(attribute(element, b"idref")),
            _ => {}
        })?;
        let mut seen = HashSet::new();
        let files = ids.iter().filter_map(|id| manifest.get(id));
        package.spine = files.filter(|file| seen.insert((*file).clone())).cloned().collect();
        match package.spine.is_empty() {
            true => Err(ExtractError::corrupt("its package has no chapters")),
            false => Ok(package),
        }
    }

    /// Title of each chapter in the table of contents.
    fn titles(&self, archive: &mut Archive<'_>) -> Result<HashMap<String, String>, ExtractError> {
        let mut titles = HashMap::new();
        let mut add = |from: &str, href: &str, title: &str| {
            let file = resolve(from, href.split('#').next().unwrap_or(href));
            let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
            if !title.is_empty() {
                titles.entry(file).or_insert(title);
            }
        };
        if let Some(path) = &self.nav
            && let Some(content) = archive.read(path)?.and_then(|xml| encoding::decode(&xml, true).ok())
        {
            let dom = Dom::from(content.text);
            for link in dom.select("nav a[href]").nodes() {
                add(path, &link.attr_or("href", ""), &link.text());
            }
        } else if let Some(path) = &self.ncx
            && let Some(xml) = archive.read(path)?
        {
            ncx_links(&xml).iter().for_each(|(href, title)| add(path, href, title));
        }
        Ok(titles)
    }
}

/// Links with titles in an NCX table of contents.
fn ncx_links(xml: &[u8]) -> Vec<(String, String)> {
    let mut reader = Reader::from_reader(xml);
    let (mut links, mut label, mut in_label) = (Vec::new(), String::new(), false);
    while let Ok(event) = reader.read_event() {
        match event {
            Event::Eof => break,
            Event::Start(e) if e.local_name().as_ref() == b"navLabel" => {
                label.clear();
                in_label = true;
            }
            Event::End(e) if e.local_name().as_ref() == b"navLabel" => in_label = false,
            Event::Text(text) if in_label => label.push_str(&text.decode().unwrap_or_default()),
            Event::Start(e) | Event::Empty(e) if e.local_name().as_ref() == b"content" => {
                links.extend(attribute(&e, b"src").map(|src| (src, label.clone())));
            }
            _ => {}
        }
    }
    links
}

/// Paths of encrypted files in the archive.
fn references(xml: &[u8]) -> HashSet<String> {
    let mut found = HashSet::new();
    // An invalid list still gives the entries before the error.
    let _ = elements(xml, |name, element| {
        if name == b"CipherReference" {
            found.extend(attribute(element, b"URI").map(|uri| resolve("", &uri)));
        }
    });
    found
}

/// Visits every element of an XML file, with its name without prefix.
fn elements(xml: &[u8], mut visit: impl FnMut(&[u8], &BytesStart<'_>)) -> Result<(), ExtractError> {
    let mut reader = Reader::from_reader(xml);
    reader.config_mut().check_end_names = false;
    loop {
        match reader.read_event().map_err(|e| ExtractError::corrupt(format!("its XML is invalid ({e})")))? {
            Event::Eof => return Ok(()),
            Event::Start(e) | Event::Empty(e) => visit(e.local_name().as_ref(), &e),
            _ => {}
        }
    }
}

fn attribute(element: &BytesStart<'_>, name: &[u8]) -> Option<String> {
    let found = element.attributes().with_checks(false).flatten().find(|a| a.key.local_name().as_ref() == name)?;
    let value = String::from_utf8_lossy(&found.value).into_owned();
    Some(quick_xml::escape::unescape(&value).map(|v| v.into_owned()).unwrap_or(value))
}

/// Path in the archive of a link in the file `from`; it never leaves the archive.
fn resolve(from: &str, href: &str) -> String {
    let href = percent_decode_str(href).decode_utf8_lossy();
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut path: Vec<&str> = folder.split('/').filter(|_| !href.starts_with('/')).collect();
    for step in href.split('/') {
        match step {
            ".." => {
                path.pop();
            }
            "." => {}
            step => path.push(step),
        }
    }
    path.retain(|step| !step.is_empty());
    path.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_resolved_inside_the_archive() {
        assert_eq!(resolve("OEBPS/content.opf", "text/ch%201.xhtml"), "OEBPS/text/ch 1.xhtml");
        assert_eq!(resolve("OEBPS/text/nav.xhtml", "../ch.xhtml"), "OEBPS/ch.xhtml");
        assert_eq!(resolve("content.opf", "../../../etc/passwd"), "etc/passwd");
        assert_eq!(resolve("a/b.opf", "/c.xhtml"), "c.xhtml");
    }

    #[test]
    fn older_table_of_contents_gives_titles() {
        let ncx = b"<ncx><navMap><navPoint><navLabel><text>One</text></navLabel><content src='a.html#x'/></navPoint>\
                    <navPoint><navLabel><text>Two</text></navLabel><content src='b.html'/></navPoint></navMap></ncx>";
        let links = ncx_links(ncx);
        assert_eq!(links, [("a.html#x".to_owned(), "One".to_owned()), ("b.html".to_owned(), "Two".to_owned())]);
    }
}
