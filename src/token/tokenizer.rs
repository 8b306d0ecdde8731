//! Tokenizer: text to token ids and back, for every vocabulary of the supported architectures.
//!
//! ```text
//!            split off special tokens     split words, merge
//! text ──► [Text, Token, Text, …] ──► Bpe (byte-level BPE) or Spm (SentencePiece) ──► ids
//! ids  ──► Pieces: bytes of each id ──► text (whole code points; see Detokenizer)
//! ```
//! Invariants: 1. `encode` adds no BOS; [`Tokenizer::bos_if_added`] returns it if the model uses one. 2. The text of a
//! control token, and of any token that marks parts of a conversation, is a token only with `parse_special`. 3. Control tokens add nothing to a decoded text. 4. All data of a
//! file was validated: ids are below [`Tokenizer::vocab_size`].
//! Thread: any; immutable once built.
//! Source: llama.cpp's `llama_tokenize` for GGUF vocabularies, Hugging Face `tokenizers` for `tokenizer.json`.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::TokenError;
use super::bpe::{Before, Bpe};
use super::gguf_vocab::{GgufVocab, token_type};
use super::piece_bytes::{PieceKind, Pieces, Spelling};
use super::pre_tokenizer::pre_kind;
use super::reasoning_marks::is_reasoning_mark;
use super::special_tokens::{Fragment, SpecialToken, SpecialTokens, unescape_special};
use super::spm::Spm;

/// Ids of special tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpecialIds {
    /// begins a text
    pub bos: Option<u32>,
    /// ends a text
    pub eos: Option<u32>,
    /// ends a turn
    pub eot: Option<u32>,
    /// unknown text
    pub unk: Option<u32>,
    /// pads a batch
    pub pad: Option<u32>,
}

/// Converts text to token ids and back.
#[derive(Debug)]
pub struct Tokenizer {
    pub(super) encoder: Encoder,
    pub(super) pieces: Pieces,
    pub(super) specials: SpecialTokens,
    pub(super) ids: SpecialIds,
    pub(super) ends: BTreeSet<u32>,
    pub(super) add_bos: bool,
    /// true if the first piece of a text loses one leading space
    pub(super) strips_leading_space: bool,
    pub(super) notes: Vec<String>,
}

#[derive(Debug)]
pub(super) enum Encoder {
    Bpe(Box<Bpe>),
    Spm(Box<Spm>),
}

/// Tokens that end a turn in some model family. Those in plain angle brackets are also common markup, so they count only
/// if the file marks them as special.
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
    /// A corrupt vocabulary, or an unsupported kind (`bert`, `t5`, `rwkv`, ...).
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
        let encoder = Encoder::Bpe(Box::new(Bpe::from_gguf(vocab, &pre)?));
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
        Ok(tokenizer.without_marks_in_text())
    }

    /// The tokenizer of a model with this chat template: user-defined tokens that stand in it are its marks, which a document
    /// cannot forge.
    ///
    /// # Errors
    /// More text of special tokens than the limits allow.
    pub fn with_marks_of(mut self, template: &str) -> Result<Self, TokenError> {
        self.specials = self.specials.with_marks_of(template)?;
        Ok(self.without_marks_in_text())
    }

    fn without_marks_in_text(mut self) -> Self {
        if let Encoder::Spm(spm) = &mut self.encoder {
            spm.leave_out(|id| self.specials.is_mark(id) && self.ids.unk != Some(id));
        }
        self
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
                let is_hidden = control && !is_reasoning_mark(text);
                let piece_kind = if is_hidden { PieceKind::Control } else { PieceKind::Text };
                pieces.push(text, Spelling::Literal, piece_kind);
            } else {
                pieces.push(text, spelling, PieceKind::Text);
            }
        }
        let ids = SpecialIds { bos: vocab.bos, eos: vocab.eos, eot: vocab.eot, unk: vocab.unk, pad: vocab.pad };
        Ok(Tokenizer {
            encoder,
            pieces,
            specials: SpecialTokens::new(specials, Vec::new())?,
            ids,
            ends,
            add_bos: false,
            strips_leading_space: false,
            notes: Vec::new(),
        })
    }

    /// Token ids of `text`, without BOS. With `parse_special` the text of a control token becomes that token, unless
    /// [`Tokenizer::escape_special`] escaped it.
    ///
    /// # Errors
    /// The tokenizer fails on this text.
    pub fn encode(&self, text: &str, parse_special: bool) -> Result<Vec<u32>, TokenError> {
        let mut out = Vec::with_capacity(text.len() / 4 + 8);
        for (i, fragment) in self.specials.split(text, parse_special).into_iter().enumerate() {
            match fragment {
                Fragment::Token(id) => out.push(id),
                Fragment::Text(text) => {
                    let text = if parse_special { unescape_special(text) } else { Cow::Borrowed(text) };
                    let before = if i == 0 { Before::Nothing } else { Before::Token };
                    match &self.encoder {
                        Encoder::Bpe(bpe) => self.encode_by_bpe(bpe, &text, before, &mut out)?,
                        Encoder::Spm(spm) => spm.encode(&text, &mut out),
                    }
                }
            }
        }
        Ok(out)
    }

    /// Appends the ids of a text, none of them a mark: a part that would become one is divided.
    fn encode_by_bpe(&self, bpe: &Bpe, text: &str, before: Before, out: &mut Vec<u32>) -> Result<(), TokenError> {
        let begin = out.len();
        bpe.encode(text, before, out)?;
        let is_mark = |id: &u32| self.specials.is_mark(*id) && self.ids.unk != Some(*id);
        let Some((left, right)) = halves(text).filter(|_| out.iter().skip(begin).any(is_mark)) else { return Ok(()) };
        out.truncate(begin);
        self.encode_by_bpe(bpe, left, before, out)?;
        self.encode_by_bpe(bpe, right, Before::Text, out)
    }

    /// Escapes untrusted text for a prompt that is encoded with `parse_special`: its control tokens stay text
    /// (`<|im_end|>` in a document ends no turn).
    pub fn escape_special<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.specials.escape_special(text)
    }

    /// Text of `ids`. Invalid UTF-8 becomes U+FFFD.
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

    /// Bytes of `id`; those of a control token are its name.
    ///
    /// # Errors
    /// An id outside the vocabulary.
    pub fn token_bytes(&self, id: u32) -> Result<Vec<u8>, TokenError> {
        Ok(self.pieces.get(id)?.0.to_vec())
    }

    /// Bytes that `id` adds to an answer. `first` is true for the first text of the answer, and is updated.
    pub(super) fn shown_bytes(&self, id: u32, first: &mut bool) -> Result<&[u8], TokenError> {
        let (bytes, kind) = self.pieces.get(id)?;
        if kind != PieceKind::Text || bytes.is_empty() {
            return Ok(&[]);
        }
        let at_start = std::mem::replace(first, false);
        Ok(bytes.strip_prefix(b" ").filter(|_| at_start && self.strips_leading_space).unwrap_or(bytes))
    }

    /// V; all ids are below it.
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// Ids of special tokens.
    pub fn special_ids(&self) -> SpecialIds {
        self.ids
    }

    /// BOS; None unless the model was trained with it in front of every prompt.
    pub fn bos_if_added(&self) -> Option<u32> {
        self.ids.bos.filter(|_| self.add_bos)
    }

    /// True if `id` ends an answer.
    pub fn is_end(&self, id: u32) -> bool {
        self.ends.contains(&id)
    }

    /// All ids that end an answer.
    pub fn end_ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.ends.iter().copied()
    }

    /// True if `id` is a control token, which is not part of the text.
    pub fn is_control(&self, id: u32) -> bool {
        self.pieces.get(id).is_ok_and(|(_, kind)| kind == PieceKind::Control)
    }

    /// Id of a control or user-defined token, by its text.
    pub fn special_id(&self, text: &str) -> Option<u32> {
        match self.specials.split(text, true).as_slice() {
            [Fragment::Token(id)] => Some(*id),
            _ => None,
        }
    }

    /// Notices for the user, for example about an unknown pre-tokenizer.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// Halves of a text, divided before a space near the middle if there is one. None if it has one character.
fn halves(text: &str) -> Option<(&str, &str)> {
    let middle = text.len() / 2;
    let near = text.char_indices().skip(1).filter(|(_, c)| *c == ' ').map(|(at, _)| at).min_by_key(|at| at.abs_diff(middle));
    let any = || text.char_indices().skip(1).map(|(at, _)| at).min_by_key(|at| at.abs_diff(middle));
    let at = near.filter(|at| at.abs_diff(middle) <= text.len() / 4).or_else(any)?;
    text.split_at_checked(at)
}

/// True for a token name that ends a turn in some family.
pub(crate) fn is_end_name(text: &str) -> bool {
    END_NAMES.contains(&text)
}

/// True for Phi-3, whose special tokens absorb the white space after them; no GGUF key has that.
fn is_phi3(vocab: &GgufVocab) -> bool {
    let has = |name: &str| vocab.tokens.iter().any(|t| t == name);
    vocab.model == "llama" && has("<|end|>") && has("<|assistant|>") && has("<|user|>")
}
