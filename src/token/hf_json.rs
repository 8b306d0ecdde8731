//! Hugging Face tokenizer: builds a [`Tokenizer`] from the JSON files of a folder.
//!
//! ```text
//! tokenizer.json ────────► Bpe, pieces, special tokens
//! tokenizer_config.json ─► bos, eos, unk, pad by name; add_bos_token; chat_template
//! generation_config.json ► more end tokens
//! ```
//! Limits: [`MAX_FILE_BYTES`] per file, [`limits::MAX_VOCAB`] ids.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::TokenError;
use super::bpe::Bpe;
use super::piece_bytes::{PieceKind, Pieces, Spelling};
use super::reasoning_marks::is_reasoning_mark;
use super::special_tokens::{SpecialToken, SpecialTokens};
use super::tokenizer::{Encoder, SpecialIds, Tokenizer, is_end_name};
use crate::base::limits;

/// Largest size of a file, bytes.
const MAX_FILE_BYTES: u64 = 128 << 20;

impl Tokenizer {
    /// Builds the tokenizer of a folder with `tokenizer.json`, and optionally `tokenizer_config.json` and
    /// `generation_config.json`.
    ///
    /// # Errors
    /// Those of [`Tokenizer::from_json_files`].
    pub fn from_folder(folder: &Path) -> Result<Self, TokenError> {
        let [config, generation] = ["tokenizer_config.json", "generation_config.json"].map(|name| folder.join(name));
        let existing = |path| Some(path).filter(|p: &&Path| p.is_file());
        Self::from_json_files(&folder.join("tokenizer.json"), existing(&config), existing(&generation))
    }

    /// Builds the tokenizer of a `tokenizer.json`, with the settings of `tokenizer_config.json` and `generation_config.json`.
    ///
    /// # Errors
    /// A file that cannot be read or is not a tokenizer, or an unsupported kind (`WordPiece`, `WordLevel`).
    pub fn from_json_files(
        tokenizer_json: &Path,
        tokenizer_config: Option<&Path>,
        generation_config: Option<&Path>,
    ) -> Result<Self, TokenError> {
        let json = read_json(tokenizer_json)?;
        let config = tokenizer_config.map(read_json).transpose()?.unwrap_or_default();
        let generation = generation_config.map(read_json).transpose()?.unwrap_or_default();
        Self::from_json(json, &config, &generation).map_err(|error| match error {
            TokenError::Encode { reason } => TokenError::BadFile { path: tokenizer_json.to_owned(), reason },
            other => other,
        })
    }

    fn from_json(json: Value, config: &Value, generation: &Value) -> Result<Self, TokenError> {
        let spelling = spelling(&json)?;
        let strips_leading_space = strips_leading_space(json.get("decoder").unwrap_or(&Value::Null));
        let bpe = Bpe::from_json(json)?;
        let tokens = tokens(&bpe)?;
        let (pieces, specials, of_encoder) = pieces(&bpe, &tokens, spelling);
        let by_name = |name: &str| tokens.iter().position(|t| *t == name).and_then(|i| u32::try_from(i).ok());
        let configured = |key: &str| config.get(key).and_then(token_name).and_then(by_name);
        let first_added = bpe.first_added();
        let generated = |key: &str| ids(generation.get(key)).into_iter().filter(|&id| (id as usize) < tokens.len());
        let bos = configured("bos_token").or(first_added).or_else(|| generated("bos_token_id").next());
        let named_ends = specials.iter().filter(|s| is_end_name(&s.text)).map(|s| s.id);
        let mut ends: BTreeSet<u32> = named_ends.collect();
        let eos = configured("eos_token").or_else(|| generated("eos_token_id").next()).or_else(|| ends.first().copied());
        ends.extend(eos);
        ends.extend(generated("eos_token_id"));
        let add_bos = config.get("add_bos_token").and_then(Value::as_bool).unwrap_or(first_added.is_some() && first_added == bos);
        Ok(Tokenizer {
            encoder: Encoder::Bpe(Box::new(bpe)),
            pieces,
            specials: SpecialTokens::new(specials, of_encoder)?,
            ids: SpecialIds { bos, eos, eot: None, unk: configured("unk_token"), pad: configured("pad_token") },
            ends,
            add_bos,
            strips_leading_space,
            notes: Vec::new(),
        })
    }
}

/// Parses a JSON file.
pub(super) fn read_json(path: &Path) -> Result<Value, TokenError> {
    let unreadable = |reason: String| TokenError::Unreadable { path: path.to_owned(), reason };
    let bad = |reason: String| TokenError::BadFile { path: path.to_owned(), reason };
    let size = std::fs::metadata(path).map_err(|e| unreadable(e.to_string()))?;
    if size.is_dir() {
        return Err(unreadable("it is a folder".into()));
    }
    if size.len() > MAX_FILE_BYTES {
        return Err(bad(format!("it has {} bytes, but at most {MAX_FILE_BYTES} are supported", size.len())));
    }
    let bytes = std::fs::read(path).map_err(|e| unreadable(e.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|e| bad(e.to_string()))
}

/// Form of the file's token texts; an error if the tokenizer's kind is not supported.
fn spelling(json: &Value) -> Result<Spelling, TokenError> {
    let model = json.get("model").unwrap_or(&Value::Null);
    let text = |key: &str| model.get(key).and_then(Value::as_str).unwrap_or_default();
    let kind = match text("type") {
        "" if model.get("merges").is_some() => "BPE",
        "" if model.get("unk_id").is_some() => "Unigram",
        kind => kind,
    };
    // Prefixes and suffixes of word parts belong to kinds that no supported architecture uses.
    let affixed = !text("continuing_subword_prefix").is_empty() || !text("end_of_word_suffix").is_empty();
    if !matches!(kind, "BPE" | "Unigram") || affixed {
        let kind = if kind.is_empty() { "unknown" } else { kind };
        return Err(TokenError::UnsupportedKind { kind: kind.chars().take(40).collect() });
    }
    let steps = ["decoder", "pre_tokenizer", "normalizer"].map(|part| json.get(part).map(Value::to_string).unwrap_or_default());
    let has = |what: &str| steps.iter().any(|s| s.contains(what));
    Ok(match () {
        () if has("\"ByteLevel\"") => Spelling::ByteLevel,
        () if has("\u{2581}") || has("\"ByteFallback\"") => Spelling::Metaspace,
        () => Spelling::Literal,
    })
}

/// True if the decoder removes one space at the start of a text.
fn strips_leading_space(decoder: &Value) -> bool {
    let is = |key: &str, value: Value| decoder.get(key) == Some(&value);
    match decoder.get("type").and_then(Value::as_str) {
        Some("Sequence") => {
            decoder.get("decoders").and_then(Value::as_array).is_some_and(|steps| steps.iter().any(strips_leading_space))
        }
        Some("Strip") => is("content", " ".into()) && decoder.get("start").and_then(Value::as_u64).is_some_and(|n| n > 0),
        Some("Metaspace") => !is("prepend_scheme", "never".into()) && !is("add_prefix_space", false.into()),
        _ => false,
    }
}

/// Text of every id; empty for an id without a token.
fn tokens(bpe: &Bpe) -> Result<Vec<String>, TokenError> {
    let library = bpe.library();
    let mut by_id: Vec<(u32, String)> = library.get_vocab(false).into_iter().map(|(text, id)| (id, text)).collect();
    by_id.extend(library.get_added_tokens_decoder().into_iter().map(|(id, token)| (id, token.content)));
    let n = by_id.iter().map(|(id, _)| *id as usize + 1).max().unwrap_or(0);
    if n == 0 {
        return Err(TokenError::NoTokens);
    }
    if n > limits::MAX_VOCAB {
        return Err(TokenError::TooMany { what: "token ids", got: n, max: limits::MAX_VOCAB });
    }
    let mut tokens = vec![String::new(); n];
    for (id, text) in by_id {
        if let Some(slot) = tokens.get_mut(id as usize) {
            *slot = text;
        }
    }
    Ok(tokens)
}

/// Bytes of every token, the special ones, and those that the library finds by itself.
fn pieces(bpe: &Bpe, tokens: &[String], spelling: Spelling) -> (Pieces, Vec<SpecialToken>, Vec<SpecialToken>) {
    let added = bpe.library().get_added_tokens_decoder();
    let mut pieces = Pieces::default();
    let (mut specials, mut of_library) = (Vec::new(), Vec::new());
    for (id, text) in (0u32..).zip(tokens) {
        let Some(token) = added.get(&id) else {
            pieces.push(text, spelling, PieceKind::Text);
            continue;
        };
        let is_hidden = token.special && !is_reasoning_mark(text);
        let kind = if is_hidden { PieceKind::Control } else { PieceKind::Text };
        pieces.push(text, Spelling::Literal, kind);
        let list = if token.special { &mut specials } else { &mut of_library };
        list.push(SpecialToken {
            id,
            text: text.clone(),
            control: token.special,
            lstrip: token.lstrip,
            rstrip: token.rstrip,
            single_word: token.single_word,
        });
    }
    (pieces, specials, of_library)
}

/// `"<s>"` or `{"content": "<s>", ...}`.
pub(super) fn token_name(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

/// `2` or `[2, 7]`.
fn ids(value: Option<&Value>) -> Vec<u32> {
    let id = |v: &Value| v.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Some(Value::Array(list)) => list.iter().filter_map(id).collect(),
        Some(one) => id(one).into_iter().collect(),
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn spelling_follows_the_steps_and_other_kinds_are_rejected() {
        let byte_level = json!({"model": {"type": "BPE"}, "decoder": {"type": "ByteLevel"}});
        let metaspace = json!({"model": {"merges": []}, "normalizer": {"type": "Prepend", "prepend": "\u{2581}"}});
        assert_eq!(spelling(&byte_level).unwrap(), Spelling::ByteLevel);
        assert_eq!(spelling(&metaspace).unwrap(), Spelling::Metaspace);
        for (model, message) in [
            (json!({"type": "WordPiece"}), "'WordPiece'"),
            (json!({"type": "BPE", "continuing_subword_prefix": "##"}), "'BPE'"),
            (json!({}), "'unknown'"),
        ] {
            let sentence = spelling(&json!({ "model": model })).unwrap_err().to_string();
            assert!(sentence.contains(message), "{sentence}");
        }
    }

    #[test]
    fn ids_and_names_are_read_in_both_forms() {
        assert_eq!(ids(Some(&json!([1, 2, -1, "x", 5_000_000_000_u64]))), [1, 2]);
        assert_eq!(ids(Some(&json!(7))), [7]);
        assert_eq!(token_name(&json!({"content": "<s>"})), Some("<s>"));
        assert_eq!(token_name(&json!("<s>")), Some("<s>"));
        assert_eq!(token_name(&json!(null)), None);
    }
}
