//! SentencePiece BPE: merges the neighbors with the best score, until no pair forms a token.
//!
//! ```text
//! "Hello you" ──► "▁Hello▁you" ──► words that no token spans ──► merge by score ──► ids (bytes where no token fits)
//! ```
//! Invariants: 1. Words are merged independently: they are split between characters that are adjacent in no token. 2. Of
//! pairs with equal scores the leftmost is merged first. 3. Every character becomes a token, its byte tokens, or the
//! unknown token.
//! Limit: a word longer than [`MAX_WORD_BYTES`] is split there, which bounds memory on hostile text.
//! Source: llama.cpp's SPM tokenizer, which follows SentencePiece's `bpe_model.cc`.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap, HashSet};

use super::gguf_vocab::GgufVocab;
use super::piece_bytes::byte_token;

/// Longest word, bytes.
const MAX_WORD_BYTES: usize = 1 << 20;
/// Largest number of words cached while one text is encoded.
const MAX_CACHED_WORDS: usize = 1 << 16;
/// Marks a missing neighbor.
const NONE: u32 = u32::MAX;

/// A SentencePiece vocabulary, ready to encode.
#[derive(Debug)]
pub(super) struct Spm {
    ids: HashMap<Box<str>, (u32, f32)>,
    /// pairs of characters that are adjacent in some token
    pairs: HashSet<(char, char)>,
    bytes: Vec<Option<u32>>,
    unknown: Option<u32>,
    add_space_prefix: bool,
}

/// A span of the word; a merged one has length 0.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    start: u32,
    len: u32,
    prev: u32,
    next: u32,
}

/// Two neighbors that form a token.
#[derive(Debug, Clone, Copy)]
struct Union {
    score: f32,
    left: u32,
    right: u32,
    len: u32,
}

impl Ord for Union {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Union {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Union {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Union {}

impl Spm {
    /// Builds the encoder of a validated vocabulary.
    pub fn new(vocab: &GgufVocab) -> Self {
        let mut ids = HashMap::with_capacity(vocab.tokens.len());
        let mut pairs = HashSet::new();
        let mut bytes = vec![None; 256];
        for ((id, token), i) in (0u32..).zip(&vocab.tokens).zip(0..) {
            // A score that is no number counts as 0. Adding 0.0 turns -0.0 into 0.0, so that they tie as in the reference.
            let score = vocab.scores.get::<usize>(i).copied().filter(|score| !score.is_nan()).unwrap_or(0.0) + 0.0;
            ids.insert(token.as_str().into(), (id, score));
            if let Some(slot) = byte_token(token).and_then(|b| bytes.get_mut(usize::from(b))) {
                *slot = Some(id);
            }
            pairs.extend(token.chars().zip(token.chars().skip(1)));
        }
        for (byte, slot) in (0u8..=255).zip(&mut bytes) {
            let as_text = || ids.get(char::from(byte).to_string().as_str()).map(|&(id, _)| id);
            *slot = slot.or_else(|| byte.is_ascii().then(as_text).flatten());
        }
        let add_space_prefix = vocab.add_space_prefix.unwrap_or(true);
        Spm { ids, pairs, bytes, unknown: vocab.unk, add_space_prefix }
    }

    /// Leaves out tokens that no text may become.
    pub fn leave_out(&mut self, is_left_out: impl Fn(u32) -> bool) {
        self.ids.retain(|_, (id, _)| !is_left_out(*id));
    }

    /// True if the model was trained on texts that begin with a space.
    pub fn add_space_prefix(&self) -> bool {
        self.add_space_prefix
    }

    /// Appends the ids of `text`.
    pub fn encode(&self, text: &str, out: &mut Vec<u32>) {
        let mut spaced = String::with_capacity(text.len() + text.len() / 2);
        if self.add_space_prefix {
            spaced.push('\u{2581}');
        }
        spaced.extend(text.chars().map(|c| if c == ' ' { '\u{2581}' } else { c }));
        let mut cache: HashMap<&str, (usize, usize)> = HashMap::new();
        let mut rest = spaced.as_str();
        while !rest.is_empty() {
            let (word, after) = rest.split_at(self.word_len(rest));
            rest = after;
            if let Some(&(start, end)) = cache.get(word) {
                out.extend_from_within(start..end);
                continue;
            }
            let start = out.len();
            self.merge(word, out);
            if cache.len() < MAX_CACHED_WORDS {
                cache.insert(word, (start, out.len()));
            }
        }
    }

    /// Bytes of the first word, which ends at the first pair of characters that no token contains.
    fn word_len(&self, text: &str) -> usize {
        let next = text.char_indices().skip(1);
        let pairs = text.chars().zip(next);
        pairs
            .filter(|&(before, (at, c))| at >= MAX_WORD_BYTES || !self.pairs.contains(&(before, c)))
            .map(|(_, (at, _))| at)
            .next()
            .unwrap_or(text.len())
    }

    fn merge(&self, word: &str, out: &mut Vec<u32>) {
        let mut symbols = symbols(word);
        let mut queue = BinaryHeap::new();
        for left in 0..symbols.len().saturating_sub(1) {
            self.push_union(word, &symbols, as_u32(left), as_u32(left + 1), &mut queue);
        }
        while let Some(union) = queue.pop() {
            let (Some(&left), Some(&right)) = (get(&symbols, union.left), get(&symbols, union.right)) else { continue };
            if left.len == 0 || right.len == 0 || left.len + right.len != union.len {
                continue;
            }
            set(&mut symbols, union.left, |s| (s.len, s.next) = (union.len, right.next));
            set(&mut symbols, union.right, |s| s.len = 0);
            set(&mut symbols, right.next, |s| s.prev = union.left);
            self.push_union(word, &symbols, left.prev, union.left, &mut queue);
            self.push_union(word, &symbols, union.left, right.next, &mut queue);
        }
        for symbol in symbols.iter().filter(|s| s.len > 0) {
            self.push_ids(slice(word, symbol.start, symbol.len), out);
        }
    }

    fn push_union(&self, word: &str, symbols: &[Symbol], left: u32, right: u32, queue: &mut BinaryHeap<Union>) {
        let (Some(l), Some(r)) = (get(symbols, left), get(symbols, right)) else { return };
        let len = l.len + r.len;
        if let Some(&(_, score)) = self.ids.get(slice(word, l.start, len)) {
            queue.push(Union { score, left, right, len });
        }
    }

    fn push_ids(&self, text: &str, out: &mut Vec<u32>) {
        if let Some(&(id, _)) = self.ids.get(text) {
            out.push(id);
            return;
        }
        let bytes: Option<Vec<u32>> = text.bytes().map(|b| self.bytes.get(usize::from(b)).copied().flatten()).collect();
        match bytes {
            Some(ids) => out.extend(ids),
            None => out.extend(self.unknown),
        }
    }
}

fn symbols(word: &str) -> Vec<Symbol> {
    let mut symbols: Vec<Symbol> = (0u32..)
        .zip(word.char_indices())
        .map(|(i, (start, c))| Symbol {
            start: as_u32(start),
            len: as_u32(c.len_utf8()),
            prev: i.checked_sub(1).unwrap_or(NONE),
            next: i + 1,
        })
        .collect();
    if let Some(last) = symbols.last_mut() {
        last.next = NONE;
    }
    symbols
}

/// Position in a word, which is at most one character longer than [`MAX_WORD_BYTES`].
fn as_u32(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(NONE)
}

fn get(symbols: &[Symbol], at: u32) -> Option<&Symbol> {
    symbols.get(usize::try_from(at).ok()?)
}

fn set(symbols: &mut [Symbol], at: u32, change: impl FnOnce(&mut Symbol)) {
    if let Some(symbol) = usize::try_from(at).ok().and_then(|at| symbols.get_mut(at)) {
        change(symbol);
    }
}

fn slice(word: &str, start: u32, len: u32) -> &str {
    let (Ok(start), Ok(len)) = (usize::try_from(start), usize::try_from(len)) else { return "" };
    word.get(start..start + len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spm(tokens: &[(&str, f32)]) -> Spm {
        Spm::new(&GgufVocab {
            tokens: tokens.iter().map(|t| t.0.to_owned()).collect(),
            scores: tokens.iter().map(|t| t.1).collect(),
            unk: Some(0),
            add_space_prefix: Some(false),
            ..GgufVocab::default()
        })
    }

    fn encode(spm: &Spm, text: &str) -> Vec<u32> {
        let mut out = Vec::new();
        spm.encode(text, &mut out);
        out
    }

    #[test]
    fn merge_best_score_first_then_leftmost() {
        let v = [("<unk>", 0.0), ("a", 0.0), ("b", 0.0), ("aa", -1.0), ("ab", -0.5), ("aab", -9.0)];
        assert_eq!(encode(&spm(&v), "aab"), [5]);
        assert_eq!(encode(&spm(&v[..5]), "aab"), [1, 4]);
        assert_eq!(encode(&spm(&v[..5]), "aaa"), [3, 1]);
    }

    #[test]
    fn score_that_is_no_number_counts_as_zero() {
        let tokens = |score| spm(&[("?", 0.0), ("a", 0.0), ("b", 0.0), ("c", 0.0), ("ab", score), ("bc", 1.0)]);
        assert_eq!(encode(&tokens(f32::NAN), "abc"), encode(&tokens(0.0), "abc"));
        assert_eq!(encode(&tokens(f32::NAN), "abc"), [1, 5]);
    }

    #[test]
    fn merge_unknown_character_becomes_bytes_or_the_unknown_token() {
        let bytes = spm(&[("<unk>", 0.0), ("<0xC3>", 0.0), ("<0xA9>", 0.0), ("\n", 0.0)]);
        assert_eq!(encode(&bytes, "é\n"), [1, 2, 3]);
        assert_eq!(encode(&bytes, "x"), [0]);
    }

    #[test]
    fn words_are_split_only_where_no_token_spans() {
        let v = [("<unk>", 0.0), ("\u{2581}", 0.0), ("a", 0.0), ("\u{2581}a", -1.0), ("a\u{2581}", -0.5)];
        // "a▁" spans the boundary between words and scores best, so it must win over "▁a".
        assert_eq!(encode(&spm(&v), "a a"), [4, 2]);
        assert_eq!(encode(&spm(&v[..4]), "a a"), [2, 3]);
    }

    #[test]
    fn encode_of_one_endless_word_ends_in_time() {
        let v = [("<unk>", 0.0), ("a", 0.0), ("aa", -1.0), ("aaaa", -2.0)];
        let text = "a".repeat(3 << 20);
        let start = std::time::Instant::now();
        assert_eq!(encode(&spm(&v), &text).len(), (3 << 20) / 4);
        assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    }
}
