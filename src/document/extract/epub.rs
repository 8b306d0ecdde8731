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

use dom_query::{Document as Dom, NodeRef, Selection};

use super::extracted::{ExtractError, Extracted, Part, ReportProgress, TextLimit, one_notice};
use super::html::{chapter_dom, text_of};
use super::xml::{Rules, Token, attribute, elements, visit};
use super::zip_archive::{Archive, resolve};
use crate::base::limits;
use crate::document::encoding::{self, Decoded};

const CONTAINER: &str = "META-INF/container.xml";
const ENCRYPTION: &str = "META-INF/encryption.xml";

pub fn extract(bytes: &[u8], progress: ReportProgress<'_>) -> Result<Extracted, ExtractError> {
    let mut archive = Archive::open(bytes)?;
    let package = Package::read(&mut archive)?;
    if package.spine.len() > limits::MAX_DOCUMENT_PAGES {
        let what = format!("it has {} chapters, but at most {} are supported", package.spine.len(), limits::MAX_DOCUMENT_PAGES);
        return Err(ExtractError::TooLarge { what });
    }
    let locked = text_at(&mut archive, ENCRYPTION)?.map(|xml| references(&xml.text)).unwrap_or_default();
    let locked: HashSet<String> = locked.iter().map(|path| file_at(&archive, "", path)).collect();
    if package.spine.iter().any(|path| locked.contains(path)) {
        return Err(ExtractError::Protected { how: "by digital rights management".into() });
    }
    let titles = package.titles(&mut archive)?;
    let (mut parts, mut limit, mut n_bad_letters) = (Vec::new(), TextLimit::default(), 0);
    let (mut n_missing, mut styles) = (package.n_unknown, HashMap::new());
    for (i, path) in package.spine.iter().enumerate() {
        progress(i, package.spine.len());
        let Some(content) = text_at(&mut archive, path)? else {
            n_missing += 1;
            continue;
        };
        n_bad_letters += content.n_bad_bytes;
        let dom = chapter_dom(&content.text);
        add_styles(&dom, path, &mut archive, &mut styles)?;
        let text = text_of(&dom);
        limit.add(&text)?;
        if !text.is_empty() {
            parts.push(Part { title: titles.get(path).cloned().or_else(|| heading(&dom)), text });
        }
    }
    let mut notices = package.notices;
    if n_missing > 0 {
        let n_chapters = package.spine.len() + package.n_unknown;
        notices.push(format!("{n_missing} of {n_chapters} chapters are missing from the file or cannot be read."));
    }
    if n_bad_letters > 0 {
        notices.push(format!("{n_bad_letters} damaged letter(s) are shown as \u{FFFD}."));
    }
    Ok(Extracted { parts, is_paged: false, notes: one_notice(notices) })
}

/// Puts the style sheets that a chapter links to into it; `styles` has those that were read, by path.
fn add_styles(
    dom: &Dom,
    path: &str,
    archive: &mut Archive<'_>,
    styles: &mut HashMap<String, String>,
) -> Result<(), ExtractError> {
    for link in dom.select("link[rel~=stylesheet][href]").nodes() {
        let file = file_at(archive, path, &link.attr_or("href", ""));
        if !styles.contains_key(&file) {
            let css = text_at(archive, &file)?.map(|css| css.text).unwrap_or_default();
            styles.insert(file.clone(), css);
        }
        if let Some(css) = styles.get(&file).filter(|css| !css.is_empty()) {
            let style = dom.tree.new_element("style");
            let text = dom.tree.new_text(css.as_str());
            dom.tree.append_child_of(&style.id, &text.id);
            dom.tree.append_child_of(&link.id, &style.id);
        }
    }
    Ok(())
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
    /// number of chapters that the spine names but the package does not have
    n_unknown: usize,
    nav: Option<String>,
    ncx: Option<String>,
    notices: Vec<String>,
}

impl Package {
    fn read(archive: &mut Archive<'_>) -> Result<Package, ExtractError> {
        let path = Self::path(archive)?;
        let xml = text_at(archive, &path)?.ok_or_else(|| ExtractError::corrupt(format!("it has no {path}")))?.text;
        let (mut manifest, mut documents, mut ids, mut package) = (HashMap::new(), Vec::new(), Vec::new(), Package::default());
        let mut toc = None;
        elements(&xml, |name, element| match name {
            b"item" => {
                if let (Some(id), Some(href)) = (attribute(element, b"id"), attribute(element, b"href")) {
                    let file = file_at(archive, &path, &href);
                    let properties = attribute(element, b"properties").unwrap_or_default();
                    let kind = attribute(element, b"media-type").unwrap_or_default();
                    if properties.split_whitespace().any(|p| p == "nav") {
                        package.nav = Some(file.clone());
                    }
                    if kind == "application/x-dtbncx+xml" {
                        package.ncx = Some(file.clone());
                    }
                    if kind.contains("html") {
                        documents.push(file.clone());
                    }
                    manifest.insert(id, file);
                }
            }
            b"spine" => toc = attribute(element, b"toc"),
            b"itemref" => ids.extend(attribute(element, b"idref")),
            _ => {}
        })?;
        package.ncx = package.ncx.or_else(|| manifest.get(&toc?).cloned());
        let mut seen = HashSet::new();
        package.n_unknown = ids.iter().filter(|id| !manifest.contains_key(*id)).count();
        let files = ids.iter().filter_map(|id| manifest.get(id));
        package.spine = files.filter(|file| seen.insert((*file).clone())).cloned().collect();
        if package.spine.is_empty() && !documents.is_empty() {
            package.notices.push("The file does not tell the order of its chapters: they stand as it lists them.".to_owned());
            package.spine = documents;
        }
        match package.spine.is_empty() {
            true => Err(ExtractError::corrupt("its package has no chapters")),
            false => Ok(package),
        }
    }

    /// Path of the package: the one that the container names, or the first one that there is.
    fn path(archive: &mut Archive<'_>) -> Result<String, ExtractError> {
        let mut rootfiles = Vec::new();
        if let Some(container) = text_at(archive, CONTAINER)? {
            elements(&container.text, |name, element| {
                if name == b"rootfile" {
                    let is_package = attribute(element, b"media-type").is_none_or(|kind| kind.contains("oebps-package"));
                    rootfiles.extend(attribute(element, b"full-path").map(|path| (is_package, path)));
                }
            })?;
        }
        // A book may have other forms of itself, such as a PDF.
        let rootfile = rootfiles.iter().find(|(is_package, _)| *is_package).or(rootfiles.first()).map(|(_, path)| path.clone());
        let named = rootfile.as_ref().and_then(|path| archive.find(&resolve("", path)));
        let any = || archive.names().filter(|name| name.to_ascii_lowercase().ends_with(".opf")).min();
        let found = named.or_else(any).map(str::to_owned).or(rootfile);
        found.ok_or_else(|| ExtractError::corrupt("its container has no package"))
    }

    /// Title of each chapter in the table of contents.
    fn titles(&self, archive: &mut Archive<'_>) -> Result<HashMap<String, String>, ExtractError> {
        let mut links = Vec::new();
        if let Some(path) = &self.nav
            && let Some(content) = text_at(archive, path)?
        {
            let dom = chapter_dom(&content.text);
            let is_toc =
                |nav: &NodeRef<'_>| nav.attr("epub:type").is_some_and(|kind| kind.split_whitespace().any(|k| k == "toc"));
            let navs = dom.select("nav");
            let toc = navs.nodes().iter().find(|nav| is_toc(nav)).or(navs.nodes().first());
            let found = toc.map(|nav| Selection::from(*nav).select("a[href]"));
            links.extend(
                found.iter().flat_map(|a| a.nodes()).map(|a| (path, a.attr_or("href", "").to_string(), a.text().to_string())),
            );
        }
        if let Some(path) = self.ncx.as_ref().filter(|_| links.is_empty())
            && let Some(xml) = text_at(archive, path)?
        {
            links.extend(ncx_links(&xml.text).into_iter().map(|(href, title)| (path, href, title)));
        }
        let mut titles = HashMap::new();
        for (from, href, title) in links {
            let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
            if !title.is_empty() {
                titles.entry(file_at(archive, from, &href)).or_insert(title);
            }
        }
        Ok(titles)
    }
}

/// Links with titles in an NCX table of contents.
fn ncx_links(xml: &str) -> Vec<(String, String)> {
    let (mut links, mut label, mut path) = (Vec::new(), String::new(), Vec::new());
    // An invalid table still gives the links before the error.
    let _ = visit(xml, Rules::Xhtml, &mut |token| {
        match token {
            Token::Open(e) => {
                let name = e.local_name().as_ref().to_vec();
                match name.as_slice() {
                    b"navLabel" => label.clear(),
                    b"content" => links.extend(attribute(e, b"src").map(|src| (src, label.clone()))),
                    _ => {}
                }
                path.push(name);
            }
            Token::Close => drop(path.pop()),
            Token::Text(text) if path.iter().any(|name| name == b"navLabel") => label.push_str(text),
            Token::Text(_) => {}
        }
        Ok(())
    });
    links
}

/// Paths of encrypted files in the archive.
fn references(xml: &str) -> HashSet<String> {
    let mut found = HashSet::new();
    // An invalid list still gives the entries before the error.
    let _ = elements(xml, |name, element| {
        if name == b"CipherReference" {
            found.extend(attribute(element, b"URI").map(|uri| resolve("", &uri)));
        }
    });
    found
}

/// Text of a file in the archive; None if it has none of that name, or that is text.
fn text_at(archive: &mut Archive<'_>, path: &str) -> Result<Option<Decoded>, ExtractError> {
    Ok(archive.read(path)?.and_then(|bytes| encoding::decode(&bytes, true).ok()))
}

/// Path that a link of a package means: that of a file, or the link's own if there is no such file.
fn file_at(archive: &Archive<'_>, from: &str, href: &str) -> String {
    let path = resolve(from, href);
    let without_query = || path.split('?').next().and_then(|path| archive.find(path));
    // Some programs write addresses of their own folder with a slash in front.
    let in_folder = || archive.find(&resolve(from, href.strip_prefix('/')?));
    archive.find(&path).or_else(without_query).or_else(in_folder).map_or_else(|| path.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_table_of_contents_gives_titles() {
        let ncx = "<ncx><navMap><navPoint><navLabel><text>One</text></navLabel><content src='a.html#x'/></navPoint>\
                    <navPoint><navLabel><text>Two &amp; caf&#233;s, na&iuml;ve</text></navLabel><content src='b.html'/></navPoint></navMap></ncx>";
        let links = ncx_links(ncx);
        assert_eq!(links, [("a.html#x".to_owned(), "One".to_owned()), ("b.html".to_owned(), "Two & cafés, naïve".to_owned())]);
    }
}
