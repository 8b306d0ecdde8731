//! Text to token ids and back, for every vocabulary that the supported architectures use.
//!
//! ```text
//!            special tokens out          words, merges
//! text ──► [Text, Token, Text, …] ──► Bpe (byte-level BPE) or Spm (SentencePiece) ──► ids
//! ids  ──► Pieces: bytes of each id ──► text (whole code points; see Detokenizer)
//! ```
//! Invariants: 1. `encode` adds no BOS: [`Tokenizer::bos_if_added`] says whether the model wants one; 2. the text of a
//! control token is a token only with `parse_special`; 3. control tokens add nothing to a decoded text; 4. all that
//! came from a file was checked: ids are below [`Tokenizer::vocab_size`].
//! Thread: any; it is not changed after it is built.
//! Source: llama.cpp's `llama_tokenize` for GGUF vocabularies, Hugging Face `tokenizers` for `tokenizer.json`.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::TokenError;
use super::bpe::Bpe;
use super::gguf_vocab::{GgufVocab, token_type};
use super::piece_bytes::{PieceKind, Pieces, Spelling};
use super::pre_tokenizer::pre_kind;
use super::special_tokens::{Fragment, SpecialToken, SpecialTokens, unescape_special};
use super::spm::Spm;

/// Ids with a meaning of their own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpecialIds {
    /// begins a text
    pub bos: Option<u32>,
    /// ends a text
    pub eos: Option<u32>,
    /// ends a turn
    pub eot: Option<u32>,
    /// stands for what has no token
    pub unk: Option<u32>,
    /// fills a batch
    pub pad: Option<u32>,
}

/// Turns text into token ids and back.
#[derive(Debug)]
pub struct Tokenizer {
    pub(super) encoder: Encoder,
    pub(super) pieces: Pieces,
    pub(super) specials: SpecialTokens,
    pub(super) ids: SpecialIds,
    pub(super) ends: BTreeSet<u32>,
    pub(super) add_bos: bool,
    /// the first piece of a text loses one leading space
    pub(super) strips_leading_space: bool,
    pub(super) notes: Vec<String>,
}

#[derive(Debug)]
pub(super) enum Encoder {
    Library(Box<Bpe>),
    Spm(Box<Spm>),
}

/// Tokens that end a turn in some model family. Those in angle brackets alone are also ordinary markup, so they count
/// only where the file marks them as special.
const END_NAMES: [&str; 14] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|return|>",
    "<|call|>",
    "<｜end▁of▁sentence｜>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "</s>",
    "<EOT>",
    "_<EOT>",
];

impl Tokenizer {
    /// Builds the tokenizer of a GGUF file.
    ///
    /// # Errors
    /// A damaged vocabulary, or a kind that is not supported (`bert`, `t5`, `rwkv`, ...).
    pub fn from_gguf(vocab: &GgufVocab) -> Result<Self, TokenError> {
        vocab.check()?;
        match vocab.model.as_str() {
            "gpt2" => Self::byte_level(vocab),
            "llama" => Self::sentence_piece(vocab),
            kind => Err(TokenError::UnsupportedKind { kind: kind.chars().take(40).collect() }),
        }
    }

    fn byte_level(vocab: &GgufVocab) -> Result<Self, TokenError> {
        let pre = pre_kind(vocab.pre.as_deref());
        let encoder = Encoder::Library(Box::new(Bpe::from_gguf(vocab, &pre)?));
        let mut tokenizer = Self::with_vocab(vocab, Spelling::ByteLevel, encoder)?;
        tokenizer.add_bos = vocab.add_bos.unwrap_or(pre.add_bos);
        tokenizer.notes.extend(pre.note);
        Ok(tokenizer)
    }

    fn sentence_piece(vocab: &GgufVocab) -> Result<Self, TokenError> {
        let named = |id: u32, name: &str| vocab.tokens.get(id as usize).is_some_and(|t| t == name).then_some(id);
        let vocab = &GgufVocab {
            unk: vocab.unk.or_else(|| named(0, "<unk>")),
            bos: vocab.bos.or_else(|| named(1, "<s>")),
            eos: vocab.eos.or_else(|| named(2, "</s>")),
            ..vocab.clone()
        };
        let spm = Spm::new(vocab);
        let strips_leading_space = spm.add_space_prefix();
        let mut tokenizer = Self::with_vocab(vocab, Spelling::Metaspace, Encoder::Spm(Box::new(spm)))?;
        tokenizer.add_bos = vocab.add_bos.unwrap_or(true);
        tokenizer.strips_leading_space = strips_leading_space;
        Ok(tokenizer)
    }

    fn with_vocab(vocab: &GgufVocab, spelling: Spelling, encoder: Encoder) -> Result<Self, TokenError> {
        let is_phi3 = is_phi3(vocab);
        let mut pieces = Pieces::default();
        let mut specials = Vec::new();
        let mut ends: BTreeSet<u32> = [vocab.eos, vocab.eot].into_iter().flatten().collect();
        for (id, text) in (0u32..).zip(&vocab.tokens) {
            let mut kind = vocab.token_types.get(id as usize).copied().unwrap_or(token_type::NORMAL);
            let marked = matches!(kind, token_type::CONTROL | token_type::USER_DEFINED);
            if is_end_name(text) && (marked || text.contains('|')) {
                kind = token_type::CONTROL;
                ends.insert(id);
            }
            let control = matches!(kind, token_type::CONTROL | token_type::UNKNOWN);
            if control || kind == token_type::USER_DEFINED {
                let rstrip = is_phi3 && !matches!(text.as_str(), "<unk>" | "<s>" | "<|endoftext|>");
                specials.push(SpecialToken { id, text: text.clone(), control, rstrip, ..SpecialToken::default() });
                let piece_kind = if control { PieceKind::Control } else { PieceKind::Text };
                pieces.push(text, Spelling::Literal, piece_kind);
            } else {
                pieces.push(text, spelling, PieceKind::Text);
            }
        }
        let ids = SpecialIds { bos: vocab.bos, eos: vocab.eos, eot: vocab.eot, unk: vocab.unk, pad: vocab.pad };
        Ok(Tokenizer {
            encoder,
            pieces,
            specials: SpecialTokens::new(specials)?,
            ids,
            ends,
            add_bos: false,
            strips_leading_space: false,
            notes: Vec::new(),
        })
    }

    /// Token ids of `text`, without BOS. With `parse_special` the text of a control token becomes that token, except
    /// where [`Tokenizer::escape_special`] hid it.
    ///
    /// # Errors
    /// The tokenizer's own failure on this text.
    pub fn encode(&self, text: &str, parse_special: bool) -> Result<Vec<u32>, TokenError> {
        let mut out = Vec::with_capacity(text.len() / 4 + 8);
        for (i, fragment) in self.specials.split(text, parse_special).into_iter().enumerate() {
            match fragment {
                Fragment::Token(id) => out.push(id),
                Fragment::Text(text) => {
                    let text = if parse_special { unescape_special(text) } else { Cow::Borrowed(text) };
                    match &self.encoder {
                        Encoder::Library(pipeline) => pipeline.encode(&text, i == 0, &mut out)?,
                        Encoder::Spm(spm) => spm.encode(&text, &mut out),
                    }
                }
            }
        }
        Ok(out)
    }

    /// A text that someone wrote, made safe to stand inside a prompt that is encoded with `parse_special`: control
    /// tokens in it stay text (`<|im_end|>` in a document ends no turn).
    pub fn escape_special<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.specials.escape_special(text)
    }

    /// Text of `ids`. Bytes that are no UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// An id outside the vocabulary.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokenError> {
        let mut bytes = Vec::new();
        let mut first = true;
        for &id in ids {
            bytes.extend_from_slice(self.shown_bytes(id, &mut first)?);
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The bytes that `id` stands for; those of a control token are its name.
    ///
    /// # Errors
    /// An id outside the vocabulary.
    pub fn token_bytes(&self, id: u32) -> Result<Vec<u8>, TokenError> {
        Ok(self.pieces.get(id)?.0.to_vec())
    }

    /// What `id` adds to an answer. `first` says that nothing was added before, and is updated.
    pub(super) fn shown_bytes(&self, id: u32, first: &mut bool) -> Result<&[u8], TokenError> {
        let (bytes, kind) = self.pieces.get(id)?;
        if kind != PieceKind::Text || bytes.is_empty() {
            return Ok(&[]);
        }
        let at_start = std::mem::replace(first, false);
        Ok(bytes.strip_prefix(b" ").filter(|_| at_start && self.strips_leading_space).unwrap_or(bytes))
    }

    /// V: ids are below this.
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// Ids with a meaning of their own.
    pub fn special_ids(&self) -> SpecialIds {
        self.ids
    }

    /// BOS, where the model was trained with it in front of every prompt.
    pub fn bos_if_added(&self) -> Option<u32> {
        self.ids.bos.filter(|_| self.add_bos)
    }

    /// An answer ends at `id`.
    pub fn is_end(&self, id: u32) -> bool {
        self.ends.contains(&id)
    }

    /// Every id that ends an answer.
    pub fn end_ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.ends.iter().copied()
    }

    /// `id` is a control token: it is not part of the text.
    pub fn is_control(&self, id: u32) -> bool {
        self.pieces.get(id).is_ok_and(|(_, kind)| kind == PieceKind::Control)
    }

    /// The id of a control or user-defined token, by its text.
    pub fn special_id(&self, text: &str) -> Option<u32> {
        match self.specials.split(text, true).as_slice() {
            [Fragment::Token(id)] => Some(*id),
            _ => None,
        }
    }

    /// Sentences that the user should see once, for example that the pre-tokenizer is not known.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// A name that ends a turn in some family.
pub(super) fn is_end_name(text: &str) -> bool {
    END_NAMES.contains(&text)
}

/// Phi-3's special tokens swallow the white space after them, which no GGUF key says.
fn is_phi3(vocab: &GgufVocab) -> bool {
    let has = |name: &str| vocab.tokens.iter().any(|t| t == name);
    vocab.model == "llama" && has("<|end|>") && has("<|assistant|>") && has("<|user|>")
}
