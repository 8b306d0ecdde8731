//! Command-line input: documents, texts and token ids in the form that the engine takes.
//!
//! ```text
//! --doc FILE ─► Document ─► text, blank line, question          --text FILE ─► UTF-8 ─► Tokenizer ─► ids
//! ```
//! Invariant: an unreadable file ends the command with its name in the message, before a model is loaded.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::CliError;
use super::summary::{Quote, Quotes};
use crate::base::Bytes;
use crate::base::limits::MAX_DOCUMENT_BYTES;
use crate::document::{self, Document, QuoteKind};
use crate::engine::{self, ModelSource};
use crate::model::read_vocab;
use crate::token::Tokenizer;

/// Reads every document, in order.
///
/// # Errors
/// [`CliError::Input`] for the first unreadable document.
pub fn read_documents(paths: &[PathBuf]) -> Result<Vec<Document>, CliError> {
    let mut docs = paths.iter().map(|path| read_document(path)).collect::<Result<Vec<_>, _>>()?;
    // `a/x.txt` and `./b/x.txt` may be given in other ways, which name more folders.
    let whole: Vec<PathBuf> = paths.iter().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone())).collect();
    let named: Vec<(&str, Option<&Path>)> =
        docs.iter().zip(&whole).map(|(doc, path)| (doc.name.as_str(), Some(path.as_path()))).collect();
    let names = document::distinct_names(&named);
    docs.iter_mut().zip(names).for_each(|(doc, name)| doc.name = name);
    Ok(docs)
}

/// Notices of all documents, with their names.
pub fn notes(docs: &[Document]) -> impl Iterator<Item = String> {
    docs.iter().flat_map(|doc| doc.notes.iter().map(|note| format!("{}: {note}", doc.name)))
}

/// Reads a document.
///
/// # Errors
/// [`CliError::Input`] if it cannot be read.
pub fn read_document(path: &Path) -> Result<Document, CliError> {
    Document::open(path).map_err(input)
}

/// Quotations of an answer with their locations, and the mentions that a list misses. With `whole`, an answer without
/// quotation marks is one quotation (the built-in model answers in quoted document text), unless it found nothing.
pub fn quotes_in(answer: &str, whole: bool, docs: &[Document]) -> Quotes {
    let mut all = Quotes::default();
    for quote in document::quotes_in(answer, whole, docs) {
        let found = quote.found.as_ref().and_then(|place| Some((place, docs.get(place.document)?)));
        let list = if quote.kind == QuoteKind::MissingMention { &mut all.missing } else { &mut all.quotes };
        list.push(Quote {
            found: found.is_some(),
            document: found.map(|(_, doc)| doc.name.clone()),
            page: found.map(|(place, doc)| doc.page_number(place.page)),
            byte_range: found.map(|(place, _)| [place.bytes.start, place.bytes.end]),
            text: quote.text,
        });
    }
    all
}

/// Content of a text file.
///
/// # Errors
/// [`CliError::Input`] with the file and the fault.
pub fn read_text(path: &Path) -> Result<String, CliError> {
    let shown = path.display();
    let size = std::fs::metadata(path).map_err(|e| cannot_read(path, &e))?;
    if size.is_dir() {
        return Err(CliError::Input(format!("{shown} is a folder. Give a file")));
    }
    if size.len() > MAX_DOCUMENT_BYTES {
        return Err(CliError::Input(format!(
            "{shown} has {}, but at most {} are supported. Split the file",
            Bytes(size.len()),
            Bytes(MAX_DOCUMENT_BYTES)
        )));
    }
    let bytes = std::fs::read(path).map_err(|e| cannot_read(path, &e))?;
    let text = String::from_utf8(bytes).map_err(|e| {
        CliError::Input(format!("{shown} is not UTF-8 text (byte {}). Save it as UTF-8", e.utf8_error().valid_up_to()))
    })?;
    if text.contains('\0') {
        return Err(CliError::Input(format!("{shown} is a binary file. Give a text file")));
    }
    if text.trim().is_empty() {
        return Err(CliError::Input(format!("{shown} is empty. Give a file with text")));
    }
    Ok(text)
}

/// Options of tokenization.
#[derive(Debug, Clone, Copy)]
pub struct Encoding {
    /// true to put the start token in front, if the model uses one
    pub with_start: bool,
    /// true to parse `<|im_start|>` and the like as control tokens
    pub parse_special: bool,
}

/// Token ids of a text for this model.
///
/// # Errors
/// [`CliError::Input`] if the model or its tokenizer cannot be read.
pub fn token_ids(source: &ModelSource, text: &str, encoding: Encoding) -> Result<Vec<u32>, CliError> {
    let tokenizer = tokenizer(source)?;
    let mut ids: Vec<u32> = tokenizer.bos_if_added().filter(|_| encoding.with_start).into_iter().collect();
    ids.extend(tokenizer.encode(text, encoding.parse_special).map_err(input)?);
    Ok(ids)
}

/// Tokenizer of a model; a GGUF file without weights or a folder without `config.json` is enough.
///
/// # Errors
/// [`CliError::Input`] if no tokenizer can be read.
pub fn tokenizer(source: &ModelSource) -> Result<Arc<Tokenizer>, CliError> {
    engine::tokenizer(source).or_else(|error| {
        let alone = match source {
            ModelSource::Path(folder) if folder.is_dir() => Tokenizer::from_folder(folder).ok(),
            ModelSource::Path(file) => read_vocab(file).ok().and_then(|vocab| Tokenizer::from_gguf(&vocab).ok()),
            ModelSource::BuiltIn | ModelSource::Synthetic { .. } => None,
        };
        // The error of the model is more useful than that of its tokenizer.
        alone.map(Arc::new).ok_or_else(|| input(error))
    })
}

fn input(error: impl std::fmt::Display) -> CliError {
    CliError::Input(error.to_string())
}

fn cannot_read(path: &Path, error: &std::io::Error) -> CliError {
    CliError::Input(match error.kind() {
        std::io::ErrorKind::NotFound => format!("{} does not exist. Check the path", path.display()),
        _ => format!("{} could not be read: {error}", path.display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::DocumentRef;

    #[test]
    fn quotes_have_their_location_or_none() {
        let docs = [Document::from_bytes("rents.txt", b"In 1662 the rents rose.\n\nThe harbour was built later.").unwrap()];
        let quotes = quotes_in("He says \"the harbour was never built\" and \"the rents rose\".", false, &docs).quotes;
        assert_eq!(quotes.len(), 2);
        assert_eq!((quotes[0].found, quotes[0].byte_range), (false, None));
        let rents = Quote {
            text: "the rents rose".into(),
            found: true,
            document: Some("rents.txt".into()),
            page: Some(1),
            byte_range: Some([8, 22]),
        };
        assert_eq!(quotes[1], rents);
    }

    #[test]
    fn answers_of_the_built_in_model_are_quotes() {
        let docs = [Document::from_bytes("rents.txt", b"In 1662 the rents rose. So they say.").unwrap()];
        let whole = |answer: &str| quotes_in(answer, true, &docs).quotes;
        assert_eq!(whole(" the rents rose.")[0].byte_range, Some([8, 23]));
        assert!(!whole(" the rents fell.")[0].found);
        assert_eq!(whole(" I cannot find that in the document."), []);
        assert_eq!(whole(" I am the small model built into Strata."), []);
        // Text of its own at an answer's end is no quotation.
        let all_found = |answer: &str| whole(answer).iter().map(|quote| quote.found).collect::<Vec<_>>();
        assert_eq!(all_found(" - the rents rose.\n- So they say.\n- rents: no more mentions."), [true, true]);
        assert!(whole(" - rents: no more mentions.").is_empty());
        assert_eq!(all_found(" In 1662 the rents rose. So yes."), [true]);
        assert_eq!(all_found(" the rents rose. They: no more mentions of it."), [false]);
        assert_eq!(quotes_in("the rents rose.", false, &docs), Quotes::default());
    }

    #[test]
    fn missing_mentions_of_a_list_follow_its_quotes() {
        let docs = [Document::from_bytes("rents.txt", b"In 1662 the rents rose. So they say. Then the rents fell.").unwrap()];
        let list = quotes_in(" - rents rose.\n- rents: no more mentions.", true, &docs);
        let missing: Vec<_> = list.missing.iter().map(|mention| (mention.text.as_str(), mention.byte_range)).collect();
        assert_eq!((list.quotes.len(), list.quotes[0].byte_range), (1, Some([12, 23])));
        assert_eq!(missing, [("Then the rents fell.", Some([37, 57]))]);
        assert_eq!(quotes_in(" - rents rose.\n- rents fell.\n- rents: no more mentions.", true, &docs).missing, []);
        assert_eq!(
            quotes_in(" - rents rose.\n- rents: no more mentions.", false, &docs),
            Quotes::default(),
            "text of another model"
        );
    }

    #[test]
    fn references_end_where_the_prompt_has_the_texts() {
        let doc = |name: &str, text: &str| Document::from_bytes(name, text.as_bytes()).unwrap();
        let three = [doc("a.txt", "Rents rose."), doc("b.md", "Rents fell."), doc("c.md", "So they say.")];
        let references = DocumentRef::joined(&three, false);
        let prompt = document::join_for_prompt(&three, "Why?");
        for (reference, doc) in references.iter().zip(&three) {
            let text = prompt.get(..reference.end_byte).unwrap();
            assert!(text.ends_with(doc.text.as_str()) && !reference.save, "{text}");
            assert_eq!((reference.content_hash, &reference.name), (doc.content_hash.0, &doc.name));
            assert_eq!((reference.bytes, reference.pages), (doc.bytes, 1));
        }
        assert_eq!(prompt.get(references[2].end_byte..), Some("\n\nWhy?"));
    }

    #[test]
    fn documents_of_the_same_name_are_named_by_their_folders() {
        let dir = tempfile::tempdir().unwrap();
        let file = |folder: &str| {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
            let path = dir.path().join(folder).join("notes.txt");
            std::fs::write(&path, folder).unwrap();
            path
        };
        let docs = read_documents(&[file("old"), file("new")]).unwrap();
        assert_eq!(docs.iter().map(|doc| doc.name.as_str()).collect::<Vec<_>>(), ["old/notes.txt", "new/notes.txt"]);
        assert_eq!(read_documents(&[file("old")]).unwrap()[0].name, "notes.txt");
    }

    #[test]
    fn unreadable_texts_are_rejected_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        for (path, why) in [
            (dir.path().join("absent.txt"), "does not exist"),
            (dir.path().to_path_buf(), "folder"),
            (file("empty.txt", b" \n"), "empty"),
            (file("binary.bin", b"ELF\0\x01"), "binary"),
            (file("latin1.txt", b"caf\xe9"), "UTF-8"),
        ] {
            let error = read_text(&path).unwrap_err();
            assert!(matches!(error, CliError::Input(_)) && error.to_string().contains(why), "{error}");
        }
        assert_eq!(read_text(&file("ok.txt", "café\n".as_bytes())).unwrap(), "café\n");
    }
}
