//! ZIP archive with a limit on the total of decompressed bytes, and names found as programs of any system write them.
//!
//! ```text
//! bytes, name ──► Archive ──► content of that file, or an error
//! "./Word/Document.xml", "word\\document.xml", "one%201.xhtml" ──► find ──► the name that the archive has
//! ```
//! Invariant: sizes in the archive's headers are not trusted; decompressed bytes are counted.
//! Limits: [`limits::MAX_UNPACKED_BYTES`].

use std::collections::HashMap;
use std::io::{Cursor, Read};

use percent_encoding::percent_decode_str;
use unicode_normalization::UnicodeNormalization;
use zip::ZipArchive;
use zip::result::ZipError;

use super::extracted::ExtractError;
use crate::base::{Bytes, limits};

/// An open archive.
pub struct Archive<'a> {
    zip: ZipArchive<Cursor<&'a [u8]>>,
    left_bytes: u64,
    /// files by name
    files: HashMap<String, usize>,
    /// names of the files, by [`folded`]
    names: HashMap<String, String>,
}

impl<'a> Archive<'a> {
    pub fn open(bytes: &'a [u8]) -> Result<Self, ExtractError> {
        let zip =
            ZipArchive::new(Cursor::new(bytes)).map_err(|e| ExtractError::corrupt(format!("it is not a ZIP archive ({e})")))?;
        let (mut files, mut names) = (HashMap::new(), HashMap::new());
        for (i, name) in zip.file_names().enumerate() {
            let Ok(name) = name else { continue };
            names.entry(folded(&name)).or_insert_with(|| name.clone().into_owned());
            files.entry(name.into_owned()).or_insert(i);
        }
        Ok(Archive { zip, left_bytes: limits::MAX_UNPACKED_BYTES, files, names })
    }

    /// Name in the archive of the file that a path means: exactly it, decoded, or with other capitals, accents or slashes.
    pub fn find(&self, path: &str) -> Option<&str> {
        if let Some((name, _)) = self.files.get_key_value(path.trim_start_matches('/')) {
            return Some(name);
        }
        // Escapes are UTF-8, or Latin-1 as old programs write them.
        let bytes: Vec<u8> = percent_decode_str(path).collect();
        let decoded = String::from_utf8(bytes).unwrap_or_else(|e| e.into_bytes().into_iter().map(char::from).collect());
        let found = self.names.get(&folded(path)).or_else(|| self.names.get(&folded(&decoded)));
        found.map(String::as_str)
    }

    /// Names of all files.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Content of a file; None if the archive has no file of that name.
    pub fn read(&mut self, name: &str) -> Result<Option<Vec<u8>>, ExtractError> {
        let Some(index) = self.find(name).and_then(|name| self.files.get(name)) else { return Ok(None) };
        let file = match self.zip.by_index(*index) {
            Ok(file) => file,
            Err(ZipError::FileNotFound) => return Ok(None),
            Err(e) if e.to_string().contains("assword") => {
                return Err(ExtractError::Protected { how: "by a password".into() });
            }
            Err(e) => return Err(ExtractError::corrupt(format!("{name} in it cannot be decompressed ({e})"))),
        };
        let mut content = Vec::new();
        let read = file.take(self.left_bytes + 1).read_to_end(&mut content);
        let n = content.len() as u64;
        if n > self.left_bytes {
            let what = format!("it decompresses to more than {}", Bytes(limits::MAX_UNPACKED_BYTES));
            return Err(ExtractError::TooLarge { what });
        }
        self.left_bytes -= n;
        read.map_err(|e| ExtractError::corrupt(format!("{name} in it cannot be decompressed ({e})")))?;
        Ok(Some(content))
    }

    /// Content of a file that must exist.
    pub fn require(&mut self, name: &str) -> Result<Vec<u8>, ExtractError> {
        self.read(name)?.ok_or_else(|| ExtractError::corrupt(format!("it has no {name}")))
    }
}

/// Path of the file that `href` means in the file `from`, without its fragment; it never leaves the archive.
pub fn resolve(from: &str, href: &str) -> String {
    let href = href.split('#').next().unwrap_or(href).replace('\\', "/");
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

/// A name without capitals, in composed letters, with plain slashes.
fn folded(name: &str) -> String {
    let name = name.replace('\\', "/");
    let steps = name.split('/').filter(|step| !step.is_empty() && *step != ".");
    steps.collect::<Vec<_>>().join("/").nfc().flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_resolved_inside_the_archive() {
        assert_eq!(resolve("OEBPS/content.opf", "text/ch%201.xhtml#a"), "OEBPS/text/ch%201.xhtml");
        assert_eq!(resolve("OEBPS/text/nav.xhtml", "../ch.xhtml"), "OEBPS/ch.xhtml");
        assert_eq!(resolve("content.opf", "../../../etc/passwd"), "etc/passwd");
        assert_eq!(resolve("a/b.opf", "/c.xhtml"), "c.xhtml");
        assert_eq!(resolve("a/b.opf", ".\\text\\c.xhtml"), "a/text/c.xhtml");
    }

    #[test]
    fn names_are_folded() {
        assert_eq!(folded("./Word\\Cafe\u{301}.xml"), folded("word/CAF\u{C9}.XML"));
    }
}
